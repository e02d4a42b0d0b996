//! Opening a store for one test, and closing it however the test ends.

use std::panic::{AssertUnwindSafe, resume_unwind};

use async_trait::async_trait;
use futures::FutureExt;
use mainspring_runtime::OsEntropy;
use mainspring_shared::entropy::Entropy as _;
use mainspring_shared::store::{AuditOptions, Inspect};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use uuid::Uuid;

use super::prelude::time;

/// An empty store for one test.
#[async_trait]
pub trait Opened: Send {
    /// The store.
    fn store(&self) -> &dyn Inspect;

    /// Deletes the store and everything in it.
    async fn close(self);
}

/// Cases that leave a state no process would, so that the audit reports something: deliberately
/// unsound histories, and single steps without what belongs to them (messages, calls, usage).
const UNSOUND: &[&str] = &[
    "alarms::a_running_send_is_left_to_its_worker",
    "alarms::a_send_that_waits_too_long_for_others_becomes_ready",
    "audit::a_round_that_nobody_paid_for_is_reported",
    "audit::a_call_without_a_result_is_reported_once_the_next_round_came",
    "audit::an_open_round_is_reported_once_its_send_is_final",
    "audit::answers_in_another_order_are_reported",
    "audit::words_between_a_call_and_its_answer_are_reported",
    "audit::a_delivery_without_its_message_is_reported",
    "calls::the_calls_of_a_round_are_read_by_their_places",
    "cancel::an_input_that_was_said_is_not_said_again",
    "claim::begun_calls_do_not_reset_the_count_of_deaths",
    "complete::a_failed_send_keeps_its_error",
    "copies::a_copy_of_an_open_call_is_reported",
    "deliveries::an_item_is_delivered_once",
    "park::a_park_that_is_cancelled_answers_the_open_calls",
    "park::a_raised_cancel_ends_the_send_instead",
    "park::what_has_come_keeps_a_send_from_waiting",
    "park::what_was_paid_for_before_the_wait_is_stored",
    "rounds::a_round_sets_the_sums_of_its_send",
    "rounds::each_response_has_its_row_of_usage",
    "run_ends::a_session_at_rest_may_be_told_with_its_next_send",
    "spending::what_a_session_and_those_below_it_cost_is_summed_by_model",
];

/// Runs a case on its own store, which is removed even if the case panics, and audits what the case
/// left. Does nothing without a store: the backend's own test reports that it was skipped.
pub async fn run<O: Opened>(opened: Option<O>, name: &str, case: impl AsyncFnOnce(&dyn Inspect)) {
    let Some(opened) = opened else {
        return;
    };
    let audited = async |store: &dyn Inspect| {
        case(store).await;
        // At the start of the timeline nothing is late yet, so anything wrong here is wrong at any time.
        let found = store.at(time(0)).audit(AuditOptions::default()).await;
        let found = found.expect("the store answers");
        assert_eq!(found.is_empty(), !UNSOUND.contains(&name), "{found:?}");
    };
    let outcome = AssertUnwindSafe(audited(opened.store()))
        .catch_unwind()
        .await;
    opened.close().await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// A runner of random cases and the seed it draws from: `MAINSPRING_TEST_SEED`, if set.
/// `MAINSPRING_TEST_CASES` overrides the number of cases.
pub fn drawn(config: Config) -> (Uuid, TestRunner) {
    let seed = environment("MAINSPRING_TEST_SEED").map_or_else(
        || OsEntropy.random_id(),
        |text| Uuid::parse_str(&text).expect("MAINSPRING_TEST_SEED is a UUID"),
    );
    let cases = environment("MAINSPRING_TEST_CASES").map_or(config.cases, |text| {
        text.parse().expect("MAINSPRING_TEST_CASES is a number")
    });
    let bytes = [seed.into_bytes(), seed.into_bytes()].concat();
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let config = Config { cases, ..config };
    (seed, TestRunner::new_with_rng(config, rng))
}

/// The value of an environment variable, which only says which servers a test may use.
#[expect(
    clippy::disallowed_methods,
    reason = "what servers exist is not configuration of the product"
)]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
