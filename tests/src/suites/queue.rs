//! The cases that every queue and every bus must pass.
//!
//! A case is an async function over the port. A backend says how to open an empty instance, and
//! gets a named test per case from [`queue_suite!`](crate::queue_suite) and
//! [`bus_suite!`](crate::bus_suite).

pub mod harness;
pub mod server;

pub mod jobs;
pub mod notices;

/// Fails if a case is missing from its suite, since no backend would run it.
pub fn assert_complete() {
    let listed: Vec<&str> = include_str!("queue.rs").lines().map(str::trim).collect();
    for source in [
        include_str!("queue/jobs.rs"),
        include_str!("queue/notices.rs"),
    ] {
        let written = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn "));
        for case in written.filter_map(|rest| rest.split('(').next()) {
            assert!(
                listed.contains(&format!("{case},").as_str()),
                "{case} is not listed"
            );
        }
    }
}

/// One named test per case for a queue. `$open` is a function without arguments whose future yields
/// the queue and whatever keeps it alive, or `None` to skip.
#[macro_export]
macro_rules! queue_suite {
    ($open:path) => {
        $crate::suite_tests! { queue_suite, jobs, $open,
            a_pushed_session_reaches_the_handler,
            every_session_of_a_large_push_arrives,
            both_lanes_and_only_this_pool_are_served,
            depth_counts_what_waits,
            a_panicking_handler_stops_nobody,
            what_waits_for_a_slot_in_the_high_lane_goes_first,
            handlers_that_wait_bound_what_is_fetched,
            a_stop_is_prompt_and_leaves_the_rest_to_another_worker,
            two_workers_share_a_pool,
            a_full_worker_leaves_new_jobs_to_an_idle_one,
            what_goes_ahead_passes_what_waits_for_a_slot,
        }
    };
}

/// One named test per case for a bus; `$open` as in [`queue_suite!`](crate::queue_suite).
#[macro_export]
macro_rules! bus_suite {
    ($open:path) => {
        $crate::suite_tests! { bus_suite, notices, $open,
            every_listener_hears_every_notice_in_order,
            topics_do_not_mix,
            a_topic_that_was_left_can_be_listened_to_again,
            a_slow_listener_hears_of_a_gap_and_then_the_latest,
            nobody_listening_is_fine,
        }
    };
}

/// The tests of a suite, in a module of their own.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_tests {
    ($suite:ident, $cases:ident, $open:path, $($case:ident,)*) => {
        mod $suite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    if let Some((_alive, opened)) = $open().await {
                        $crate::suites::queue::$cases::$case(opened).await;
                    }
                }
            )*
        }
    };
}
