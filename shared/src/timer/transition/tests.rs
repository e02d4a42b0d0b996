use std::fmt::Write as _;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::agent::SendOptions;
use crate::id::{SessionId, TenantId, TimerId};
use crate::message::ContentPart;
use crate::time::Span;
use crate::timer::{Schedule, TimerRule, TimerTarget};

/// When the timer was created, standing for ten o'clock.
const MADE: Timestamp = Timestamp(1_800_000_000_000);

fn minutes(count: u64) -> Span {
    Span(Duration::from_mins(count))
}

fn after(min: i64) -> Timestamp {
    Timestamp(MADE.0 + min * 60_000)
}

fn timer(rule: TimerRule) -> TimerRecord {
    let id = TimerId(Uuid::from_u128(0x7));
    TimerRecord {
        id,
        tenant: TenantId::DEFAULT,
        target: TimerTarget::Send {
            session: SessionId(Uuid::from_u128(5)),
            input: vec![ContentPart::text("wake")],
            options: Box::new(SendOptions::default()),
        },
        state: TimerState::armed(id, &rule, MADE).expect("is due"),
        rule,
        created_at: MADE,
        updated_at: MADE,
    }
}

/// Every ten minutes.
fn regular() -> TimerRule {
    TimerRule::new(Schedule::Every {
        every: minutes(10),
        first: None,
    })
}

fn once() -> TimerRule {
    TimerRule::new(Schedule::After(minutes(10)))
}

fn due(timer: &TimerRecord, now: Timestamp) -> Step {
    let event = Event::Due {
        queued: None,
        refused: None,
    };
    transition(timer, &event, now).expect("is armed")
}

/// Fires a timer and keeps the resulting state.
fn fire(timer: &mut TimerRecord, now: Timestamp) -> Vec<Occurrence> {
    let step = due(timer, now);
    timer.state = step.next;
    step.occurrences
}

/// The occurrences as `n fate @minutes`.
fn fates(occurrences: &[Occurrence]) -> String {
    let each = occurrences.iter().map(|o| {
        let at = (o.due_at.0 - MADE.0) / 60_000;
        format!("{} {} @{at}", o.n, o.fate.as_str())
    });
    each.collect::<Vec<_>>().join(", ")
}

fn next_minutes(timer: &TimerRecord) -> Option<i64> {
    timer.state.fire_at.map(|at| (at.0 - MADE.0) / 60_000)
}

#[test]
fn a_single_shot_is_done_once_it_fired() {
    let mut timer = timer(once());
    assert_eq!(fates(&fire(&mut timer, after(10))), "1 fired @10");
    assert_eq!(timer.state.status, TimerStatus::Done);
    assert_eq!(timer.state.ended_at, Some(after(10)));
    assert_eq!(timer.upcoming(5), []);
}

#[test]
fn a_fixed_rate_does_not_drift() {
    let mut timer = timer(regular());
    for (late, next) in [(10, 20), (24, 30), (30, 40)] {
        fire(&mut timer, after(late));
        assert_eq!(next_minutes(&timer), Some(next));
    }
}

#[test]
fn what_was_missed_follows_the_rule() {
    // The scheduler is down from the first occurrence until 35.5 minutes have passed.
    let back = Timestamp(after(35).0 + 30_000);
    for (catch_up, now, expected, next) in [
        (CatchUp::Once, back, "1 fired @10", 40),
        (CatchUp::Skip, back, "1 skipped @10", 40),
        // The last one is on time.
        (CatchUp::Skip, after(40), "1 skipped @10, 2 fired @40", 50),
        (CatchUp::Skip, after(10), "1 fired @10", 20),
        (
            CatchUp::All,
            back,
            "1 fired @10, 2 fired @20, 3 fired @30",
            40,
        ),
        (CatchUp::All, after(10), "1 fired @10", 20),
    ] {
        let mut timer = timer(TimerRule {
            catch_up,
            on_busy: Merge::Enqueue,
            ..regular()
        });
        assert_eq!(fates(&fire(&mut timer, now)), expected, "{catch_up:?}");
        assert_eq!(next_minutes(&timer), Some(next), "{catch_up:?}");
    }
}

#[test]
fn a_single_shot_that_may_not_be_late_is_left_out() {
    let rule = TimerRule {
        catch_up: CatchUp::Skip,
        ..once()
    };
    let mut late = timer(rule.clone());
    assert_eq!(fates(&fire(&mut late, after(12))), "1 skipped @10");
    assert_eq!(late.state.status, TimerStatus::Done);
    let mut in_time = timer(rule);
    assert_eq!(fates(&fire(&mut in_time, after(11))), "1 fired @10");
}

#[test]
fn catching_up_is_bounded_and_keeps_the_newest() {
    let mut timer = timer(TimerRule {
        catch_up: CatchUp::All,
        on_busy: Merge::Enqueue,
        ..regular()
    });
    let fired = fire(&mut timer, after(5_000));
    assert_eq!(fired.len(), CAUGHT_UP_MAX + 1);
    assert_eq!(fates(&fired[..2]), "1 skipped @10, 2 fired @4010");
    assert_eq!(fates(&fired[CAUGHT_UP_MAX..]), "101 fired @5000");
    let years = fire(&mut timer, after(50_000_000));
    assert_eq!(years.len(), CAUGHT_UP_MAX + 1);
}

#[test]
fn an_occurrence_joins_a_forerunner_that_has_not_begun() {
    let mut timer = timer(regular());
    let first = fire(&mut timer, after(10))[0].send_id;
    let event = Event::Due {
        queued: first,
        refused: None,
    };
    let step = transition(&timer, &event, after(20)).expect("is armed");
    assert_eq!(fates(&step.occurrences), "2 merged @20");
    assert_eq!(step.occurrences[0].send_id, first);
    assert_eq!(step.next.last_send, first);
    timer.rule.on_busy = Merge::Enqueue;
    let step = transition(&timer, &event, after(20)).expect("is armed");
    assert_eq!(fates(&step.occurrences), "2 fired @20");
    assert_ne!(step.occurrences[0].send_id, first);
}

#[test]
fn bounds_end_a_timer() {
    let mut counted = timer(TimerRule {
        max_occurrences: Some(2),
        ..regular()
    });
    assert_eq!(counted.upcoming(5), [after(10), after(20)]);
    fire(&mut counted, after(10));
    assert_eq!(counted.state.status, TimerStatus::Armed);
    assert_eq!(fates(&fire(&mut counted, after(20))), "2 fired @20");
    assert_eq!(counted.state.status, TimerStatus::Done);

    let mut dated = timer(TimerRule {
        until: Some(after(25)),
        catch_up: CatchUp::All,
        on_busy: Merge::Enqueue,
        ..regular()
    });
    assert_eq!(dated.upcoming(5), [after(10), after(20)]);
    assert_eq!(
        fates(&fire(&mut dated, after(90))),
        "1 fired @10, 2 fired @20"
    );
    assert_eq!(dated.state.status, TimerStatus::Done);

    let rule = TimerRule {
        until: Some(after(5)),
        ..regular()
    };
    let id = TimerId(Uuid::nil());
    assert_eq!(
        TimerState::armed(id, &rule, MADE),
        Err(super::super::ScheduleFault::Never)
    );
}

fn refused(n: i64, gone: bool) -> Event {
    let code = if gone {
        Code::SessionNotFound
    } else {
        Code::SessionClosed
    };
    Event::Due {
        queued: None,
        refused: Some(Refusal {
            n,
            gone,
            failure: Failure::new(code, "no"),
        }),
    }
}

#[test]
fn a_delivery_that_fails_is_tried_again_ever_later_and_in_the_end_kills_the_timer() {
    for rule in [once(), regular()] {
        let mut timer = timer(rule);
        let mut now = after(10);
        let mut waits = Vec::new();
        while timer.state.status == TimerStatus::Armed {
            let step = transition(&timer, &refused(1, false), now).expect("is armed");
            timer.state = step.next;
            if let Some(fire_at) = timer.state.fire_at {
                assert_eq!(step.occurrences, []);
                waits.push(fire_at.since(now).as_secs());
                now = fire_at;
            } else {
                assert_eq!(fates(&step.occurrences), "1 failed @10");
            }
        }
        assert_eq!(waits, [5, 20, 80, 320, 600]);
        assert_eq!(timer.state.status, TimerStatus::Dead);
        assert_eq!(timer.state.failures, DELIVERIES_MAX);
        assert_eq!(
            timer.state.failure.as_ref().map(|f| f.code),
            Some(Code::SessionClosed)
        );
        // Once repaired, it resumes with the next occurrence or at once.
        let step = transition(&timer, &Event::Resume, now).expect("is dead");
        timer.state = step.next;
        let again = if timer.rule.schedule.is_recurring() {
            after(30)
        } else {
            now
        };
        assert_eq!(timer.state.fire_at, Some(again));
        assert!(fates(&fire(&mut timer, again)).starts_with("2 fired"));
    }
}

#[test]
fn a_delivery_that_works_again_forgets_the_failures() {
    let mut timer = timer(regular());
    let step = transition(&timer, &refused(1, false), after(10)).expect("is armed");
    timer.state = step.next;
    assert_eq!(timer.state.due_at, Some(after(10)));
    let now = timer.state.fire_at.expect("is armed");
    assert_eq!(fates(&fire(&mut timer, now)), "1 fired @10");
    assert_eq!((timer.state.failures, &timer.state.failure), (0, &None));
    assert_eq!(next_minutes(&timer), Some(20));
}

#[test]
fn those_before_a_refused_one_stand() {
    let all = TimerRule {
        catch_up: CatchUp::All,
        on_busy: Merge::Enqueue,
        ..regular()
    };
    let timer = timer(all);
    let whole = due(&timer, after(30));
    let step = transition(&timer, &refused(3, false), after(30)).expect("is armed");
    assert_eq!(step.occurrences, whole.occurrences[..2]);
    assert_eq!(step.next.next_n, 3);
    assert_eq!(step.next.due_at, Some(after(30)));
    assert_eq!(step.next.failures, 1);
}

#[test]
fn a_timer_ends_with_its_session() {
    let timer = timer(regular());
    let step = transition(&timer, &refused(1, true), after(10)).expect("is armed");
    assert_eq!(step.next.status, TimerStatus::Cancelled);
    assert_eq!(step.occurrences, []);
}

#[test]
fn what_fell_into_a_pause_follows_the_rule() {
    let mut timer = timer(regular());
    timer.state = transition(&timer, &Event::Pause, after(5))
        .expect("is armed")
        .next;
    assert_eq!(timer.state.fire_at, None);
    assert_eq!(timer.upcoming(1), [after(10)]);
    timer.state = transition(&timer, &Event::Resume, after(35))
        .expect("is paused")
        .next;
    assert_eq!(fates(&fire(&mut timer, after(35))), "1 fired @10");
    assert_eq!(next_minutes(&timer), Some(40));
}

/// The state once the next occurrence was asked for.
fn fire_now(timer: &TimerRecord, now: Timestamp) -> TimerState {
    let event = Event::Fire {
        n: timer.state.next_n,
    };
    transition(timer, &event, now).expect("is armed").next
}

#[test]
fn what_is_fired_by_hand_is_one_more_of_a_schedule_and_the_only_one_of_a_single_shot() {
    let mut recurring = timer(regular());
    fire(&mut recurring, after(10));
    recurring.state = fire_now(&recurring, after(13));
    assert_eq!(
        recurring.upcoming(3),
        [after(13), after(20), after(30)],
        "before it is fired"
    );
    let fired = fire(&mut recurring, after(14));
    assert_eq!(fates(&fired), "2 fired @14");
    assert!(fired[0].manual);
    assert_eq!(next_minutes(&recurring), Some(20));
    let fired = fire(&mut recurring, after(20));
    assert_eq!(fates(&fired), "3 fired @20");
    assert!(!fired[0].manual);
    // Asked for once more, an occurrence that has its fate is left alone.
    let again = transition(&recurring, &Event::Fire { n: 2 }, after(21));
    assert_eq!(again.expect("a repeat").next, recurring.state);

    let mut single = timer(once());
    single.state = fire_now(&single, after(1));
    assert_eq!(single.upcoming(3), [after(1)]);
    assert_eq!(fates(&fire(&mut single, after(2))), "1 fired @2");
    assert_eq!(single.state.status, TimerStatus::Done);
    let again = transition(&single, &Event::Fire { n: 1 }, after(21));
    assert_eq!(again.expect("a repeat").next, single.state);
}

#[test]
fn what_waits_for_its_jitter_is_fired_itself() {
    let mut timer = timer(TimerRule {
        jitter: Some(minutes(9)),
        ..regular()
    });
    assert!(timer.state.fire_at > Some(after(10)), "it is put off");
    timer.state = fire_now(&timer, after(10));
    assert_eq!(timer.upcoming(1), [Timestamp(after(10).0 - 1)]);
    assert_eq!(fates(&fire(&mut timer, after(10))), "1 fired @10");
    assert_eq!(timer.state.due_at, Some(after(20)));
}

#[test]
fn what_was_refused_before_it_was_due_is_not_early_with_the_schedule() {
    let mut timer = timer(TimerRule {
        jitter: Some(minutes(9)),
        ..regular()
    });
    let put_off = timer.state.fire_at.expect("is armed");
    assert!(put_off > after(10).after(BACKOFF), "{put_off:?}");
    timer.state = fire_now(&timer, after(10));
    let step = transition(&timer, &refused(1, false), after(10)).expect("is armed");
    assert_eq!(step.next.fire_at, Some(put_off));
    timer.state = step.next;
    let fired = fire(&mut timer, put_off);
    assert_eq!((fired[0].due_at, fired[0].manual), (put_off, false));
}

#[test]
fn what_is_fired_by_hand_and_refused_is_tried_again_and_leaves_the_schedule_alone() {
    let mut timer = timer(regular());
    timer.state = fire_now(&timer, after(1));
    let step = transition(&timer, &refused(1, false), after(1)).expect("is armed");
    assert_eq!(step.occurrences, []);
    assert_eq!(step.next.due_at, Some(after(10)));
    assert_eq!(step.next.fire_at, Some(after(1).after(BACKOFF)));
    timer.state = step.next;
    assert_eq!(fates(&fire(&mut timer, after(2))), "1 fired @2");
    assert_eq!(next_minutes(&timer), Some(10));
}

#[test]
fn jitter_puts_off_and_never_early() {
    let timer = timer(TimerRule {
        jitter: Some(minutes(5)),
        ..regular()
    });
    let coming = timer.upcoming(50);
    let delays: Vec<i64> = coming
        .iter()
        .zip(1..)
        .map(|(at, n)| at.0 - after(10 * n).0)
        .collect();
    assert!(
        delays.iter().all(|delay| (0..300_000).contains(delay)),
        "{delays:?}"
    );
    let mut distinct = delays.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 45, "they are spread: {delays:?}");
    assert_eq!(timer.upcoming(50), coming, "and the same whenever one asks");
}

#[test]
fn every_status_answers_every_event() {
    let mut table = String::new();
    for status in TimerStatus::ALL {
        let mut timer = timer(regular());
        timer.state.status = *status;
        let events = [
            (
                "due",
                Event::Due {
                    queued: None,
                    refused: None,
                },
            ),
            ("pause", Event::Pause),
            ("resume", Event::Resume),
            ("cancel", Event::Cancel),
            ("fire 1", Event::Fire { n: 1 }),
            ("fire 0 once more", Event::Fire { n: 0 }),
        ];
        for (name, event) in events {
            let said = match transition(&timer, &event, after(10)) {
                Ok(step) => step.next.status.as_str().to_owned(),
                Err(illegal) => format!("illegal: {illegal}"),
            };
            writeln!(table, "{} + {name} -> {said}", status.as_str()).expect("to a string");
        }
    }
    insta::assert_snapshot!(table);
}

fn rules() -> impl Strategy<Value = TimerRule> {
    let every = 1u64..600;
    let catch_up = prop::sample::select(CatchUp::ALL);
    let on_busy = prop::sample::select(Merge::ALL);
    let jitter = prop::option::of(0u64..900_000);
    let max = prop::option::of(1u32..40);
    (every, catch_up, on_busy, jitter, max, any::<bool>()).prop_map(
        |(secs, catch_up, on_busy, jitter, max_occurrences, is_cron)| TimerRule {
            schedule: if is_cron {
                Schedule::Cron {
                    expression: format!("*/{} * * * *", secs % 29 + 1),
                    timezone: "Europe/Berlin".to_owned(),
                }
            } else {
                Schedule::Every {
                    every: Span(Duration::from_secs(secs)),
                    first: None,
                }
            },
            catch_up,
            on_busy,
            max_occurrences,
            until: None,
            jitter: jitter.map(|ms| Span(Duration::from_millis(ms))),
            since: None,
            amended_at: None,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// For any rule, however late it is served and whatever is refused.
    #[test]
    fn occurrences_are_numbered_in_order_and_never_early(
        rule in rules(),
        lateness in prop::collection::vec(
            (0i64..4_000_000, prop::option::of(1i64..4), prop::option::of(0i64..4_000_000)),
            1..30,
        ),
    ) {
        let mut timer = timer(rule);
        let mut n = 1;
        let mut now = MADE;
        for (late, refuse, asked) in lateness {
            let Some(fire_at) = timer.state.fire_at else { break };
            let asked = asked.map(|wait| Timestamp(now.0 + wait)).filter(|at| *at < fire_at);
            if let Some(at) = asked {
                timer.state = fire_now(&timer, at);
            }
            now = asked.unwrap_or(Timestamp(fire_at.0 + late));
            // Whoever asks may be refused, and be tried again before the schedule has it.
            let manual = timer.state.fire_at < timer.state.due_at;
            prop_assert!(manual || asked.is_none());
            let mut step = due(&timer, now);
            let whole = step.occurrences.clone();
            let refuse = refuse.map(|k| timer.state.next_n + k - 1);
            let refuse = refuse.filter(|n| whole.iter().any(|o| o.n == *n && o.fate == Fate::Fired));
            if let Some(n) = refuse {
                step = transition(&timer, &refused(n, false), now).expect("is armed");
                let failed = step.occurrences.last().is_some_and(|o| o.fate == Fate::Failed);
                let kept = step.occurrences.len() - usize::from(failed);
                prop_assert_eq!(&step.occurrences[..kept], &whole[..kept]);
                prop_assert!(step.occurrences.iter().all(|o| o.n < n || o.fate == Fate::Failed));
            }
            for occurrence in &step.occurrences {
                prop_assert_eq!(occurrence.n, n);
                prop_assert!(occurrence.due_at <= now, "{:?}", occurrence);
                prop_assert_eq!(occurrence.manual, manual);
                let sends = matches!(occurrence.fate, Fate::Fired | Fate::Merged);
                prop_assert_eq!(occurrence.send_id.is_some(), sends);
                n += 1;
            }
            prop_assert_eq!(step.next.next_n, n);
            prop_assert_eq!(step.next.fire_at.is_some(), step.next.status == TimerStatus::Armed);
            prop_assert_eq!(step.next.due_at.is_none(), step.next.ended_at.is_some());
            if let Some(max) = timer.rule.max_occurrences {
                prop_assert!(n - 1 <= i64::from(max));
            }
            // Deciding again gives the same result.
            if refuse.is_none() {
                prop_assert_eq!(&due(&timer, now), &step);
            }
            timer.state = step.next;
        }
    }
}
