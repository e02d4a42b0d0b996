//! Timers.

use mainspring_shared::agent::SendOptions;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SessionId, TenantId, TimerId};
use mainspring_shared::store::{
    AcceptOutcome, ChangeTimer, ChangeTimerOutcome, ClaimRuns, CreateTimerOutcome, Fired,
    IdempotencyKey, ListOccurrences, ListTimers, NewTimer, RefuseTimer, SessionPatch, Store,
    TimerChange,
};
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::timer::{
    CatchUp, DELIVERIES_MAX, Fate, First, Merge, Occurrence, Schedule, ScheduleFault, TimerRecord,
    TimerRule, TimerRun, TimerStatus, TimerTarget,
};
use mainspring_shared::workflow::run::{DSL_VERSION, RunOptions, RunStatus};
use serde_json::json;
use uuid::Uuid;

use super::prelude::*;

async fn session(store: &dyn Store, n: u128) {
    let made = store
        .create_sessions(at(0), vec![(new_session(n), None)])
        .await;
    made.expect("the store answers");
}

fn timer_id(n: u128) -> TimerId {
    TimerId(Uuid::from_u128(n))
}

fn after(ms: i64) -> Schedule {
    Schedule::After(Span(millis(ms)))
}

fn every(ms: i64) -> TimerRule {
    TimerRule::new(Schedule::Every {
        every: Span(millis(ms)),
        first: None,
    })
}

/// The n-th timer, into a session.
fn timing(n: u128, session: u128, rule: TimerRule) -> NewTimer {
    NewTimer {
        id: timer_id(n),
        tenant: TenantId::DEFAULT,
        target: TimerTarget::Send {
            session: key(session).session,
            input: words(n),
            options: Box::new(SendOptions::default()),
        },
        rule,
        armed_max: None,
    }
}

fn once(n: u128, session: u128, ms: i64) -> NewTimer {
    timing(n, session, TimerRule::new(after(ms)))
}

async fn create(store: &dyn Store, ms: i64, new: NewTimer) -> CreateTimerOutcome {
    let made = store.create_timers(at(ms), vec![(new, None)]).await;
    let mut made = made.expect("the store answers");
    assert_eq!(made.len(), 1);
    made.remove(0)
}

async fn arm(store: &dyn Store, ms: i64, new: NewTimer) -> TimerRecord {
    match create(store, ms, new).await {
        CreateTimerOutcome::Created(record) => *record,
        other => panic!("{other:?}"),
    }
}

async fn fire(store: &dyn Store, ms: i64) -> Fired {
    let fired = store.fire_timers(at(ms), boot(SCHEDULER), 100).await;
    fired.expect("the store answers")
}

async fn read(store: &dyn Store, n: u128) -> TimerRecord {
    let ids = vec![(TenantId::DEFAULT, timer_id(n))];
    let found = store.get_timers(ids).await.expect("the store answers");
    let mut found = found.into_iter();
    found.next().flatten().expect("the timer is there")
}

async fn change(store: &dyn Store, ms: i64, n: u128, change: TimerChange) -> ChangeTimerOutcome {
    let item = ChangeTimer {
        tenant: TenantId::DEFAULT,
        id: timer_id(n),
        session: None,
        change,
    };
    let changed = store.change_timers(at(ms), vec![item]).await;
    changed.expect("the store answers").remove(0)
}

/// What became of a timer, oldest first.
async fn history(store: &dyn Store, n: u128) -> Vec<Occurrence> {
    let query = ListOccurrences {
        tenant: TenantId::DEFAULT,
        timer: timer_id(n),
        before: None,
        limit: 1_000,
    };
    let page = store.list_occurrences(query).await;
    let mut all = page.expect("the store answers").data;
    all.reverse();
    all
}

fn fates(occurrences: &[Occurrence]) -> Vec<(i64, Fate, i64)> {
    let each = occurrences.iter();
    each.map(|o| (o.n, o.fate, o.due_at.0 - START.0)).collect()
}

async fn sound(store: &dyn Store, ms: i64) {
    let violations = store.audit(at(ms), mainspring_shared::store::AuditOptions::default());
    assert_eq!(violations.await.expect("the store answers"), []);
}

pub async fn a_due_timer_makes_one_send_and_rings(store: &dyn Store) {
    session(store, 1).await;
    let made = arm(store, 0, once(1, 1, 50)).await;
    assert_eq!(made.state.fire_at, Some(time(50)));
    assert_eq!(made, read(store, 1).await);
    let early = fire(store, 49).await;
    assert_eq!((early.served, early.next_due_at), (0, Some(time(50))));
    assert_eq!(early.sends, []);
    let fired = fire(store, 50).await;
    assert_eq!(
        (fired.served, fired.sends.len(), fired.ring.len()),
        (1, 1, 1)
    );
    assert!(!fired.more);
    assert_eq!(fired.next_due_at, None);
    assert_eq!((fired.ring[0].key, fired.sends[0].key), (key(1), key(1)));
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

pub async fn a_timer_needs_an_open_session_and_a_schedule(store: &dyn Store) {
    session(store, 1).await;
    let closed = SessionPatch {
        closed: Some(true),
        ..SessionPatch::default()
    };
    session(store, 2).await;
    let updated = store.update_session(at(1), key(2), closed).await;
    updated.expect("the store answers");
    let never = timing(
        3,
        1,
        TimerRule {
            until: Some(time(5)),
            ..every(10_000)
        },
    );
    let fast = timing(4, 1, every(10));
    for (new, reason) in [
        (once(1, 9, 50), RefuseTimer::SessionNotFound),
        (once(2, 2, 50), RefuseTimer::SessionClosed),
        (never, RefuseTimer::Schedule(ScheduleFault::Never)),
        (fast, RefuseTimer::Schedule(ScheduleFault::TooOften)),
    ] {
        assert_eq!(
            create(store, 2, new).await,
            CreateTimerOutcome::Refused(reason)
        );
    }
    assert_eq!(store.dump().await.expect("the store answers").timers, []);
}

pub async fn a_repeated_request_makes_one_timer(store: &dyn Store) {
    session(store, 1).await;
    let request = |body: u8| IdempotencyKey {
        tenant: TenantId::DEFAULT,
        route: "timers".to_owned(),
        key: "k".to_owned(),
        body_hash: [body; 32],
    };
    let items = vec![
        (once(1, 1, 50), Some(request(1))),
        (once(2, 1, 50), None),
        (once(3, 9, 50), None),
    ];
    let made = store.create_timers(at(0), items).await;
    let made = made.expect("the store answers");
    assert!(matches!(made[0], CreateTimerOutcome::Created(_)));
    assert!(matches!(made[1], CreateTimerOutcome::Created(_)));
    assert!(matches!(made[2], CreateTimerOutcome::Refused(_)));
    let again = vec![
        (once(4, 1, 50), Some(request(1))),
        (once(5, 1, 50), Some(request(2))),
    ];
    let again = store.create_timers(at(1), again).await;
    assert_eq!(
        again.expect("the store answers"),
        [
            CreateTimerOutcome::Replayed(timer_id(1)),
            CreateTimerOutcome::Mismatch
        ]
    );
    assert_eq!(fire(store, 60).await.sends.len(), 2);
}

pub async fn the_bound_of_armed_timers_is_exact(store: &dyn Store) {
    session(store, 1).await;
    let bounded = |n| NewTimer {
        armed_max: Some(3),
        ..once(n, 1, 50)
    };
    let tries = (1..=8).map(|n| store.create_timers(at(0), vec![(bounded(n), None)]));
    let made = futures::future::join_all(tries).await;
    let mut created = 0;
    for outcome in made {
        match outcome.expect("the store answers").remove(0) {
            CreateTimerOutcome::Created(_) => created += 1,
            other => assert_eq!(other, CreateTimerOutcome::Refused(RefuseTimer::TooMany)),
        }
    }
    assert_eq!(created, 3);
    // Those of one call count each other, too; one that fired makes room.
    fire(store, 50).await;
    let items = (11..=14).map(|n| (bounded(n), None)).collect();
    let made = store
        .create_timers(at(60), items)
        .await
        .expect("the store answers");
    let full = CreateTimerOutcome::Refused(RefuseTimer::TooMany);
    assert_eq!(made.iter().filter(|outcome| **outcome == full).count(), 1);
    assert_eq!(made[3], full);
}

pub async fn a_fixed_rate_goes_on_without_drift(store: &dyn Store) {
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

pub async fn an_occurrence_joins_a_send_that_has_not_begun(store: &dyn Store) {
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

pub async fn what_was_missed_follows_the_rule(store: &dyn Store) {
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

pub async fn paused_timers_wait_and_ended_ones_stay_ended(store: &dyn Store) {
    session(store, 1).await;
    arm(store, 0, timing(1, 1, every(1_000))).await;
    for _ in 0..2 {
        let paused = change(store, 10, 1, TimerChange::Pause).await;
        assert!(
            matches!(paused, ChangeTimerOutcome::Changed(t) if t.state.status == TimerStatus::Paused)
        );
    }
    let fired = fire(store, 5_500).await;
    assert_eq!((fired.served, fired.next_due_at), (0, None));
    change(store, 5_600, 1, TimerChange::Resume).await;
    assert_eq!(fire(store, 5_600).await.sends.len(), 1);
    let cancelled = change(store, 5_700, 1, TimerChange::Cancel).await;
    let ChangeTimerOutcome::Changed(cancelled) = cancelled else {
        panic!("{cancelled:?}");
    };
    assert_eq!(cancelled.state.status, TimerStatus::Cancelled);
    assert_eq!(*cancelled, read(store, 1).await);
    assert_eq!(
        change(store, 5_800, 1, TimerChange::Cancel).await,
        ChangeTimerOutcome::Changed(cancelled.clone())
    );
    for illegal in [TimerChange::Pause, TimerChange::Resume] {
        assert_eq!(
            change(store, 5_800, 1, illegal).await,
            ChangeTimerOutcome::Illegal(cancelled.clone())
        );
    }
    assert_eq!(fire(store, 9_000).await.served, 0);
    assert_eq!(
        change(store, 1, 2, TimerChange::Cancel).await,
        ChangeTimerOutcome::NotFound
    );
    sound(store, 9_000).await;
}

pub async fn another_sessions_timer_is_not_found(store: &dyn Store) {
    session(store, 1).await;
    arm(store, 0, once(1, 1, 50)).await;
    let item = ChangeTimer {
        tenant: TenantId::DEFAULT,
        id: timer_id(1),
        session: Some(key(2).session),
        change: TimerChange::Cancel,
    };
    let changed = store.change_timers(at(1), vec![item]).await;
    assert_eq!(
        changed.expect("the store answers"),
        [ChangeTimerOutcome::NotFound]
    );
    let other = ChangeTimer {
        tenant: TenantId(2),
        session: None,
        ..item
    };
    let mine = ChangeTimer {
        session: Some(key(1).session),
        ..item
    };
    let changed = store.change_timers(at(1), vec![other, mine, mine]).await;
    let changed = changed.expect("the store answers");
    assert_eq!(changed[0], ChangeTimerOutcome::NotFound);
    assert_eq!(changed[1], changed[2]);
    assert_eq!(read(store, 1).await.state.status, TimerStatus::Cancelled);
}

pub async fn deleting_a_session_ends_its_timers(store: &dyn Store) {
    session(store, 1).await;
    session(store, 2).await;
    arm(store, 0, once(1, 1, 50)).await;
    arm(store, 0, timing(2, 1, every(1_000))).await;
    change(store, 1, 2, TimerChange::Pause).await;
    arm(store, 0, once(3, 2, 50)).await;
    let deleted = store.delete_session(at(10), key(1), boot(SCHEDULER));
    deleted.await.expect("the store answers");
    for n in [1, 2] {
        let timer = read(store, n).await;
        assert_eq!(timer.state.status, TimerStatus::Cancelled);
        assert_eq!(
            (timer.state.ended_at, timer.state.due_at),
            (Some(time(10)), None)
        );
    }
    assert_eq!(fire(store, 2_000).await.sends.len(), 1);
    sound(store, 2_001).await;
}

pub async fn a_closed_session_makes_its_timers_wait_and_then_dead(store: &dyn Store) {
    session(store, 1).await;
    session(store, 2).await;
    arm(store, 0, timing(1, 1, every(1_000_000))).await;
    // Its neighbour in the same transaction is not harmed.
    arm(store, 0, once(2, 2, 1_000_000)).await;
    let closed = |closed| SessionPatch {
        closed: Some(closed),
        ..SessionPatch::default()
    };
    let updated = store.update_session(at(10), key(1), closed(true)).await;
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
        .update_session(at(2_100_000), key(1), closed(false))
        .await;
    updated.expect("the store answers");
    change(store, 2_100_000, 1, TimerChange::Resume).await;
    assert_eq!(fire(store, 3_000_000).await.sends.len(), 1);
    sound(store, 3_000_001).await;
}

pub async fn a_timer_starts_a_run_with_each_occurrence(store: &dyn Store) {
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
    // No session has to be there.
    let made = arm(store, 0, new.clone()).await;
    assert_eq!(made.target, new.target);
    let mut runs = Vec::new();
    for ms in [1_000, 2_000] {
        assert_eq!(fire(store, ms - 1).await.served, 0);
        // Two at once: one of them has it.
        let tries = (0..2).map(|n| store.fire_timers(at(ms), boot(SCHEDULER + n), 10));
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
    // They are there for whoever advances runs.
    let claim = ClaimRuns {
        boot: boot(SCHEDULER),
        limit: 10,
        ends_max: 10,
        leaves_max: None,
    };
    let claimed = store.claim_runs(at(2_001), claim).await;
    assert_eq!(claimed.expect("the store answers").runs.len(), 2);
    sound(store, 2_001).await;
}

pub async fn several_schedulers_fire_each_occurrence_once(store: &dyn Store) {
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
    let made = store.create_timers(at(0), items.collect()).await;
    assert_eq!(made.expect("the store answers").len(), 60);
    let mut sends = Vec::new();
    for ms in [1_000, 2_000, 3_000] {
        for _ in 0..4 {
            let tries = (0..4).map(|n| store.fire_timers(at(ms), boot(SCHEDULER + n), 7));
            for fired in futures::future::join_all(tries).await {
                let fired = fired.expect("the store answers");
                sends.extend(fired.sends.into_iter().map(|send| send.send));
            }
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

pub async fn firing_and_other_work_on_the_same_sessions_go_together(store: &dyn Store) {
    for n in 1..=3 {
        session(store, n).await;
    }
    for n in 0..30 {
        arm(store, 0, once(100 + n, 1 + n % 3, 10)).await;
    }
    let (first, second, accepted, deleted) = futures::join!(
        store.fire_timers(at(10), boot(SCHEDULER), 100),
        store.fire_timers(at(10), boot(SCHEDULER + 1), 100),
        store.accept_sends(at(10), boot(SCHEDULER), vec![sending(1, 1), sending(2, 2)]),
        store.delete_session(at(10), key(3), boot(SCHEDULER)),
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

pub async fn the_oldest_due_timers_are_fired_first(store: &dyn Store) {
    session(store, 1).await;
    for (n, ms) in [(1, 30), (2, 10), (3, 20)] {
        arm(store, 0, once(n, 1, ms)).await;
    }
    let some = store.fire_timers(at(40), boot(SCHEDULER), 2).await;
    let some = some.expect("the store answers");
    assert!(some.more);
    let due: Vec<i64> = some.sends.iter().map(|s| s.due_at.0 - START.0).collect();
    assert_eq!(due, [10, 20]);
    assert_eq!(fire(store, 40).await.sends.len(), 1);
}

pub async fn timers_are_listed_newest_first_in_pages(store: &dyn Store) {
    session(store, 1).await;
    session(store, 2).await;
    for n in 1..=4 {
        arm(store, 0, once(n, 1 + n % 2, 50)).await;
    }
    change(store, 1, 2, TimerChange::Cancel).await;
    let query = |session: Option<SessionId>, status, before: Option<u128>, limit| ListTimers {
        tenant: TenantId::DEFAULT,
        session,
        status,
        before: before.map(timer_id),
        limit,
    };
    for (query, expected, more) in [
        (query(None, None, None, 10), vec![4, 3, 2, 1], false),
        (query(None, None, None, 2), vec![4, 3], true),
        (query(None, None, Some(3), 2), vec![2, 1], false),
        (
            query(Some(key(1).session), None, None, 10),
            vec![4, 2],
            false,
        ),
        (
            query(None, Some(TimerStatus::Cancelled), None, 10),
            vec![2],
            false,
        ),
        (
            query(Some(key(1).session), Some(TimerStatus::Armed), None, 1),
            vec![4],
            false,
        ),
    ] {
        let page = store.list_timers(query).await.expect("the store answers");
        let ids: Vec<_> = page.data.iter().map(|timer| timer.id.0.as_u128()).collect();
        assert_eq!((ids, page.more), (expected, more));
    }
    let unknown = vec![(TenantId::DEFAULT, timer_id(9)), (TenantId(2), timer_id(1))];
    let unknown = store.get_timers(unknown).await.expect("the store answers");
    assert_eq!(unknown, [None, None]);
}

pub async fn occurrences_are_listed_newest_first_in_pages(store: &dyn Store) {
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

pub async fn retention_takes_old_occurrences_and_ended_timers(store: &dyn Store) {
    session(store, 1).await;
    arm(store, 0, once(1, 1, 50)).await;
    let rule = TimerRule {
        on_busy: Merge::Enqueue,
        ..every(10_000)
    };
    arm(store, 0, timing(2, 1, rule)).await;
    for ms in [10_000, 20_000, 30_000] {
        fire(store, ms).await;
    }
    let sweep = |ms| store.sweep_timers(at(ms), millis(15_000));
    assert_eq!(sweep(20_000).await.expect("the store answers"), 0);
    while sweep(40_000).await.expect("the store answers") > 0 {}
    let dump = store.dump().await.expect("the store answers");
    let left: Vec<_> = dump.timers.iter().map(|(t, _)| t.id).collect();
    assert_eq!(left, [timer_id(2)]);
    assert_eq!(fates(&history(store, 2).await), [(3, Fate::Fired, 30_000)]);
    sound(store, 40_000).await;
}
