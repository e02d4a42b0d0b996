//! Timers that fire, and what happens to their occurrences.

use mainspring_shared::error::Code;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{
    AcceptOutcome, ClaimRuns, Inspect, ListOccurrences, NewTimer, SessionPatch,
};
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::timer::{
    CatchUp, DELIVERIES_MAX, Fate, First, Merge, Schedule, TimerChange, TimerRule, TimerRun,
    TimerStatus, TimerTarget,
};
use mainspring_shared::workflow::run::{DSL_VERSION, RunOptions, RunStatus};
use serde_json::json;

use super::prelude::*;
use super::timers::{
    arm, change, every, fates, fire, history, once, read, session, sound, timer_id, timing,
};

pub async fn a_due_timer_makes_one_send_and_rings(store: &dyn Inspect) {
    session(store, 1).await;
    let made = arm(store, 0, once(1, 1, 50)).await;
    assert_eq!(made.state.fire_at, Some(time(50)));
    assert_eq!(made, read(store, 1).await);
    let early = fire(store, 49).await;
    assert_eq!((early.served, early.next_due_at), (0, Some(time(50))));
    assert_eq!(early.sends, []);
    let fired = fire(store, 50).await;
    assert_eq!(
        (fired.served, fired.sends.len(), fired.enqueue.len()),
        (1, 1, 1)
    );
    assert!(!fired.more);
    assert_eq!(fired.next_due_at, None);
    assert_eq!((fired.enqueue[0].key, fired.sends[0].key), (key(1), key(1)));
    let sends = vec![(TenantId::DEFAULT, fired.sends[0].send)];
    let sends = store.get_sends(sends).await.expect("the store answers");
    let send = sends[0].as_ref().expect("it is stored");
    assert_eq!((send.input.clone(), send.position), (words(1), Some(1)));
    assert_eq!(
        (send.first_step, send.created_at),
        (fired.sends[0].step, time(50))
    );
    let timer = read(store, 1).await;
    assert_eq!(timer.state.status, TimerStatus::Done);
    assert_eq!(timer.state.last_send, Some(send.id));
    let history = history(store, 1).await;
    assert_eq!(fates(&history), [(1, Fate::Fired, 50)]);
    assert_eq!(
        (history[0].send_id, history[0].fired_at),
        (Some(send.id), time(50))
    );
    assert_eq!(fire(store, 60).await.served, 0);
    sound(store, 61).await;
}

pub async fn a_fixed_rate_goes_on_without_drift(store: &dyn Inspect) {
    session(store, 1).await;
    let rule = TimerRule {
        max_occurrences: Some(3),
        on_busy: Merge::Enqueue,
        ..every(1_000)
    };
    arm(store, 0, timing(1, 1, rule)).await;
    for (ms, next) in [
        (1_300, Some(time(2_000))),
        (2_000, Some(time(3_000))),
        (3_999, None),
    ] {
        let fired = fire(store, ms).await;
        assert_eq!((fired.sends.len(), fired.next_due_at), (1, next));
    }
    assert_eq!(read(store, 1).await.state.status, TimerStatus::Done);
    let expected = [
        (1, Fate::Fired, 1_000),
        (2, Fate::Fired, 2_000),
        (3, Fate::Fired, 3_000),
    ];
    assert_eq!(fates(&history(store, 1).await), expected);
    sound(store, 4_000).await;
}

pub async fn an_occurrence_joins_a_send_that_has_not_begun(store: &dyn Inspect) {
    register_at(store, 0, 1).await;
    session(store, 1).await;
    arm(store, 0, timing(1, 1, every(1_000))).await;
    let first = fire(store, 1_000).await.sends[0].send;
    let second = fire(store, 2_000).await;
    assert_eq!((second.sends.len(), second.merged), (0, 1));
    claim(store, 2_500, 1, 1, 1).await;
    let third = fire(store, 3_000).await;
    assert_eq!((third.sends.len(), third.merged), (1, 0));
    let history = history(store, 1).await;
    assert_eq!(
        fates(&history),
        [
            (1, Fate::Fired, 1_000),
            (2, Fate::Merged, 2_000),
            (3, Fate::Fired, 3_000)
        ]
    );
    assert_eq!(history[1].send_id, Some(first));
    sound(store, 3_001).await;
}

pub async fn what_was_missed_follows_the_rule(store: &dyn Inspect) {
    session(store, 1).await;
    for (n, catch_up) in [(1, CatchUp::Once), (2, CatchUp::Skip), (3, CatchUp::All)] {
        let rule = TimerRule {
            catch_up,
            on_busy: Merge::Enqueue,
            ..every(100_000)
        };
        arm(store, 0, timing(n, 1, rule)).await;
    }
    let fired = fire(store, 390_000).await;
    assert_eq!((fired.served, fired.sends.len(), fired.skipped), (3, 4, 1));
    assert_eq!(fates(&history(store, 1).await), [(1, Fate::Fired, 100_000)]);
    assert_eq!(
        fates(&history(store, 2).await),
        [(1, Fate::Skipped, 100_000)]
    );
    let all = [
        (1, Fate::Fired, 100_000),
        (2, Fate::Fired, 200_000),
        (3, Fate::Fired, 300_000),
    ];
    assert_eq!(fates(&history(store, 3).await), all);
    for n in 1..=3 {
        assert_eq!(read(store, n).await.state.fire_at, Some(time(400_000)));
    }
    sound(store, 390_001).await;
}

pub async fn a_closed_session_makes_its_timers_wait_and_then_dead(store: &dyn Inspect) {
    session(store, 1).await;
    session(store, 2).await;
    arm(store, 0, timing(1, 1, every(1_000_000))).await;
    // A timer in the same transaction is not affected.
    arm(store, 0, once(2, 2, 1_000_000)).await;
    let closed = |closed| SessionPatch {
        closed: Some(closed),
        ..SessionPatch::default()
    };
    let updated = store
        .at(time(10))
        .update_session(key(1), closed(true))
        .await;
    updated.expect("the store answers");
    let fired = fire(store, 1_000_000).await;
    assert_eq!((fired.served, fired.failed, fired.sends.len()), (2, 1, 1));
    let mut timer = read(store, 1).await;
    assert_eq!(timer.state.failures, 1);
    assert_eq!(timer.state.fire_at, Some(time(1_005_000)));
    sound(store, 1_000_001).await;
    while let Some(Timestamp(fire_at)) = timer.state.fire_at {
        assert_eq!(fire(store, fire_at - START.0).await.failed, 1);
        timer = read(store, 1).await;
    }
    assert_eq!(timer.state.status, TimerStatus::Dead);
    assert_eq!(timer.state.failures, DELIVERIES_MAX);
    let failure = timer.state.failure.expect("it is told");
    assert_eq!(failure.code, Code::SessionClosed);
    assert_eq!(
        fates(&history(store, 1).await),
        [(1, Fate::Failed, 1_000_000)]
    );
    let updated = store
        .at(time(2_100_000))
        .update_session(key(1), closed(false))
        .await;
    updated.expect("the store answers");
    change(store, 2_100_000, 1, TimerChange::Resume).await;
    assert_eq!(fire(store, 3_000_000).await.sends.len(), 1);
    sound(store, 3_000_001).await;
}

pub async fn a_timer_starts_a_run_with_each_occurrence(store: &dyn Inspect) {
    let parts = TimerRun {
        name: "report".to_owned(),
        spec: json!({ "name": "report" }),
        dsl_version: DSL_VERSION,
        input: json!({ "about": "news" }),
        options: RunOptions {
            max_tokens: Some(500),
            ..RunOptions::default()
        },
    };
    let rule = TimerRule {
        on_busy: Merge::Enqueue,
        max_occurrences: Some(2),
        ..every(1_000)
    };
    let new = NewTimer {
        target: TimerTarget::Run {
            run: Box::new(parts.clone()),
        },
        ..timing(1, 1, rule)
    };
    // The session need not exist.
    let made = arm(store, 0, new.clone()).await;
    assert_eq!(made.target, new.target);
    let mut runs = Vec::new();
    for ms in [1_000, 2_000] {
        assert_eq!(fire(store, ms - 1).await.served, 0);
        // Of two concurrent attempts, one wins.
        let tries = (0..2).map(|n| async move {
            store
                .at(time(ms))
                .fire_timers(boot(SCHEDULER + n), 10)
                .await
        });
        for fired in futures::future::join_all(tries).await {
            let fired = fired.expect("the store answers");
            assert_eq!((fired.sends.len(), fired.failed), (0, 0));
            for run in fired.runs {
                assert_eq!(run.due_at, time(ms));
                runs.push(run.key);
            }
        }
    }
    assert_eq!(runs.len(), 2);
    let stored = store.get_runs(runs.clone()).await;
    for (n, run) in stored.expect("the store answers").into_iter().enumerate() {
        let run = run.expect("it is stored with its occurrence");
        let created_at = time(1_000 * (n as i64 + 1));
        assert_eq!(
            (run.status, run.created_at),
            (RunStatus::Queued, created_at)
        );
        assert_eq!(
            (run.spec, run.input, run.options),
            (
                parts.spec.clone(),
                parts.input.clone(),
                parts.options.clone()
            )
        );
        assert_eq!(
            (run.name, run.session, run.depth),
            (parts.name.clone(), None, 0)
        );
    }
    let timer = read(store, 1).await;
    assert_eq!(timer.state.status, TimerStatus::Done);
    let told = history(store, 1).await;
    assert_eq!(
        fates(&told),
        [(1, Fate::Fired, 1_000), (2, Fate::Fired, 2_000)]
    );
    let named = told.iter().map(|o| timer.target.named(o.send_id));
    let expected: Vec<_> = runs.iter().map(|key| (None, Some(key.run))).collect();
    assert_eq!(named.collect::<Vec<_>>(), expected);
    // The runs can be claimed by any scheduler.
    let claim = ClaimRuns {
        boot: boot(SCHEDULER),
        limit: 10,
        ends_max: 10,
        leaves_max: None,
        dsl_max: DSL_VERSION,
        aside: Vec::new(),
    };
    let claimed = store.at(time(2_001)).claim_runs(claim).await;
    assert_eq!(claimed.expect("the store answers").runs.len(), 2);
    sound(store, 2_001).await;
}

pub async fn several_schedulers_fire_each_occurrence_once(store: &dyn Inspect) {
    for n in 1..=5 {
        session(store, n).await;
    }
    let rule = TimerRule {
        on_busy: Merge::Enqueue,
        ..every(1_000)
    };
    let items = (0..60).map(|n| {
        let new = match n % 3 {
            0 => timing(100 + n, 1 + n % 5, rule.clone()),
            _ => once(100 + n, 1 + n % 5, 1_000),
        };
        (new, None)
    });
    let made = store.at(time(0)).create_timers(items.collect()).await;
    assert_eq!(made.expect("the store answers").len(), 60);
    let mut sends = Vec::new();
    for ms in [1_000, 2_000, 3_000] {
        for _ in 0..4 {
            let tries = (0..4).map(|n| async move {
                store.at(time(ms)).fire_timers(boot(SCHEDULER + n), 7).await
            });
            for fired in futures::future::join_all(tries).await {
                let fired = fired.expect("the store answers");
                sends.extend(fired.sends.into_iter().map(|send| send.send));
            }
        }
        // Timers whose session was locked by another fire stay due.
        loop {
            let fired = store.at(time(ms)).fire_timers(boot(SCHEDULER), 7).await;
            let fired = fired.expect("the store answers");
            if fired.sends.is_empty() {
                break;
            }
            sends.extend(fired.sends.into_iter().map(|send| send.send));
        }
    }
    assert_eq!(sends.len(), 60 + 20 + 20);
    sends.sort_unstable();
    sends.dedup();
    assert_eq!(sends.len(), 100);
    let dump = store.dump().await.expect("the store answers");
    let stored: usize = dump
        .sessions
        .iter()
        .map(|session| session.sends.len())
        .sum();
    assert_eq!(stored, 100);
    let occurred: usize = dump.timers.iter().map(|(_, all)| all.len()).sum();
    assert_eq!(occurred, 100);
    sound(store, 3_001).await;
}

pub async fn firing_and_other_work_on_the_same_sessions_go_together(store: &dyn Inspect) {
    for n in 1..=3 {
        session(store, n).await;
    }
    for n in 0..30 {
        arm(store, 0, once(100 + n, 1 + n % 3, 10)).await;
    }
    let then = store.at(time(10));
    let (first, second, accepted, deleted) = futures::join!(
        then.fire_timers(boot(SCHEDULER), 100),
        then.fire_timers(boot(SCHEDULER + 1), 100),
        then.accept_sends(boot(SCHEDULER), vec![sending(1, 1), sending(2, 2)]),
        then.delete_session(key(3), boot(SCHEDULER)),
    );
    let accepted = accepted.expect("the store answers");
    assert!(
        accepted
            .iter()
            .all(|a| matches!(a, AcceptOutcome::Accepted(_)))
    );
    deleted.expect("the store answers");
    let (first, second) = (first.expect("it answers"), second.expect("it answers"));
    let rest = fire(store, 11).await;
    let fired = first.sends.len() + second.sends.len() + rest.sends.len();
    assert!((20..=30).contains(&fired), "{fired}");
    let dump = store.dump().await.expect("the store answers");
    let armed = dump
        .timers
        .iter()
        .filter(|(t, _)| t.state.fire_at.is_some());
    assert_eq!(armed.count(), 0);
    sound(store, 12).await;
}

pub async fn the_oldest_due_timers_are_fired_first(store: &dyn Inspect) {
    session(store, 1).await;
    for (n, ms) in [(1, 30), (2, 10), (3, 20)] {
        arm(store, 0, once(n, 1, ms)).await;
    }
    let some = store.at(time(40)).fire_timers(boot(SCHEDULER), 2).await;
    let some = some.expect("the store answers");
    assert!(some.more);
    let due: Vec<i64> = some.sends.iter().map(|s| s.due_at.0 - START.0).collect();
    assert_eq!(due, [10, 20]);
    assert_eq!(fire(store, 40).await.sends.len(), 1);
}

pub async fn occurrences_are_listed_newest_first_in_pages(store: &dyn Inspect) {
    session(store, 1).await;
    let rule = TimerRule {
        schedule: Schedule::Every {
            every: Span(millis(1_000)),
            first: Some(First::At(time(500))),
        },
        on_busy: Merge::Enqueue,
        catch_up: CatchUp::All,
        ..every(1_000)
    };
    arm(store, 0, timing(1, 1, rule)).await;
    fire(store, 4_500).await;
    let query = |before, limit| ListOccurrences {
        tenant: TenantId::DEFAULT,
        timer: timer_id(1),
        before,
        limit,
    };
    for (query, expected, more) in [
        (query(None, 2), vec![5, 4], true),
        (query(Some(4), 3), vec![3, 2, 1], false),
    ] {
        let page = store.list_occurrences(query).await;
        let page = page.expect("the store answers");
        let numbers: Vec<_> = page.data.iter().map(|o| o.n).collect();
        assert_eq!((numbers, page.more), (expected, more));
    }
}
