//! Timers.

use mainspring_shared::agent::SendOptions;
use mainspring_shared::id::{SessionId, TenantId, TimerId};
use mainspring_shared::store::{
    ChangeTimer, ChangeTimerOutcome, CreateTimerOutcome, Fired, IdempotencyKey, Inspect,
    ListOccurrences, ListTimers, NewTimer, RefuseTimer, SessionPatch,
};
use mainspring_shared::time::Span;
use mainspring_shared::timer::{
    Fate, Merge, Occurrence, Schedule, ScheduleFault, TimerAmendment, TimerChange, TimerRecord,
    TimerRule, TimerStatus, TimerTarget,
};
use uuid::Uuid;

use super::prelude::*;

pub(super) async fn session(store: &dyn Inspect, n: u128) {
    let made = store
        .at(time(0))
        .create_sessions(vec![(new_session(n), None)])
        .await;
    made.expect("the store answers");
}

pub(super) fn timer_id(n: u128) -> TimerId {
    TimerId(Uuid::from_u128(n))
}

fn after(ms: i64) -> Schedule {
    Schedule::After(Span(millis(ms)))
}

pub(super) fn every(ms: i64) -> TimerRule {
    TimerRule::new(Schedule::Every {
        every: Span(millis(ms)),
        first: None,
    })
}

/// The n-th timer, targeting a session.
pub(super) fn timing(n: u128, session: u128, rule: TimerRule) -> NewTimer {
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

pub(super) fn once(n: u128, session: u128, ms: i64) -> NewTimer {
    timing(n, session, TimerRule::new(after(ms)))
}

async fn create(store: &dyn Inspect, ms: i64, new: NewTimer) -> CreateTimerOutcome {
    let made = store.at(time(ms)).create_timers(vec![(new, None)]).await;
    let mut made = made.expect("the store answers");
    assert_eq!(made.len(), 1);
    made.remove(0)
}

pub(super) async fn arm(store: &dyn Inspect, ms: i64, new: NewTimer) -> TimerRecord {
    match create(store, ms, new).await {
        CreateTimerOutcome::Created(record) => *record,
        other => panic!("{other:?}"),
    }
}

pub(super) async fn fire(store: &dyn Inspect, ms: i64) -> Fired {
    let fired = store.at(time(ms)).fire_timers(boot(SCHEDULER), 100).await;
    fired.expect("the store answers")
}

pub(super) async fn read(store: &dyn Inspect, n: u128) -> TimerRecord {
    let ids = vec![(TenantId::DEFAULT, timer_id(n))];
    let found = store.get_timers(ids).await.expect("the store answers");
    let mut found = found.into_iter();
    found.next().flatten().expect("the timer is there")
}

pub(super) async fn change(
    store: &dyn Inspect,
    ms: i64,
    n: u128,
    change: TimerChange,
) -> ChangeTimerOutcome {
    let item = ChangeTimer {
        tenant: TenantId::DEFAULT,
        id: timer_id(n),
        session: None,
        change,
    };
    let changed = store.at(time(ms)).change_timers(vec![item]).await;
    changed.expect("the store answers").remove(0)
}

/// The occurrences of a timer, oldest first.
pub(super) async fn history(store: &dyn Inspect, n: u128) -> Vec<Occurrence> {
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

pub(super) fn fates(occurrences: &[Occurrence]) -> Vec<(i64, Fate, i64)> {
    let each = occurrences.iter();
    each.map(|o| (o.n, o.fate, o.due_at.0 - START.0)).collect()
}

pub(super) async fn sound(store: &dyn Inspect, ms: i64) {
    let violations = store
        .at(time(ms))
        .audit(mainspring_shared::store::AuditOptions::default())
        .await;
    assert_eq!(violations.expect("the store answers"), []);
}

pub async fn a_timer_needs_an_open_session_and_a_schedule(store: &dyn Inspect) {
    session(store, 1).await;
    let closed = SessionPatch {
        closed: Some(true),
        ..SessionPatch::default()
    };
    session(store, 2).await;
    let updated = store.at(time(1)).update_session(key(2), closed).await;
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

pub async fn a_repeated_request_makes_one_timer(store: &dyn Inspect) {
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
    let made = store.at(time(0)).create_timers(items).await;
    let made = made.expect("the store answers");
    assert!(matches!(made[0], CreateTimerOutcome::Created(_)));
    assert!(matches!(made[1], CreateTimerOutcome::Created(_)));
    assert!(matches!(made[2], CreateTimerOutcome::Refused(_)));
    let again = vec![
        (once(4, 1, 50), Some(request(1))),
        (once(5, 1, 50), Some(request(2))),
    ];
    let again = store.at(time(1)).create_timers(again).await;
    assert_eq!(
        again.expect("the store answers"),
        [
            CreateTimerOutcome::Replayed(timer_id(1)),
            CreateTimerOutcome::Mismatch
        ]
    );
    assert_eq!(fire(store, 60).await.sends.len(), 2);
}

pub async fn the_bound_of_armed_timers_is_exact(store: &dyn Inspect) {
    session(store, 1).await;
    let bounded = |n| NewTimer {
        armed_max: Some(3),
        ..once(n, 1, 50)
    };
    let tries = (1..=8).map(|n| {
        let new = bounded(n);
        async move { store.at(time(0)).create_timers(vec![(new, None)]).await }
    });
    let made = futures::future::join_all(tries).await;
    let mut created = 0;
    for outcome in made {
        match outcome.expect("the store answers").remove(0) {
            CreateTimerOutcome::Created(_) => created += 1,
            other => assert_eq!(other, CreateTimerOutcome::Refused(RefuseTimer::TooMany)),
        }
    }
    assert_eq!(created, 3);
    // Timers created in one call count each other too; one that fired makes room.
    fire(store, 50).await;
    let items = (11..=14).map(|n| (bounded(n), None)).collect();
    let made = store
        .at(time(60))
        .create_timers(items)
        .await
        .expect("the store answers");
    let full = CreateTimerOutcome::Refused(RefuseTimer::TooMany);
    assert_eq!(made.iter().filter(|outcome| **outcome == full).count(), 1);
    assert_eq!(made[3], full);
}

pub async fn paused_timers_wait_and_ended_ones_stay_ended(store: &dyn Inspect) {
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

pub async fn a_timer_is_fired_by_hand_once_for_each_occurrence(store: &dyn Inspect) {
    session(store, 1).await;
    arm(store, 0, timing(1, 1, every(10_000))).await;
    let asked = change(store, 500, 1, TimerChange::Fire { n: 1 }).await;
    let ChangeTimerOutcome::Changed(asked) = asked else {
        panic!("{asked:?}");
    };
    assert_eq!(*asked, read(store, 1).await);
    assert_eq!(asked.state.fire_at, Some(time(500)));
    let fired = fire(store, 600).await;
    assert_eq!(
        (fired.sends.len(), fired.next_due_at),
        (1, Some(time(10_000)))
    );
    // Whoever asks once more because the response was lost gets what there is.
    let again = change(store, 700, 1, TimerChange::Fire { n: 1 }).await;
    assert!(matches!(again, ChangeTimerOutcome::Changed(t) if *t == read(store, 1).await));
    assert_eq!(fire(store, 800).await.served, 0);
    fire(store, 10_000).await;
    let history = history(store, 1).await;
    let shown: Vec<_> = history
        .iter()
        .map(|one| (one.n, one.due_at, one.manual))
        .collect();
    assert_eq!(shown, [(1, time(600), true), (2, time(10_000), false)]);
    sound(store, 10_000).await;
}

pub async fn an_amended_timer_follows_its_new_rules(store: &dyn Inspect) {
    session(store, 1).await;
    arm(store, 0, timing(1, 1, every(10_000))).await;
    fire(store, 10_000).await;
    let amendment = TimerAmendment {
        schedule: Some(every(2_000).schedule),
        input: Some(words(77)),
        on_busy: Some(Merge::Enqueue),
        max_occurrences: Some(Some(3)),
        ..TimerAmendment::default()
    };
    let amend = TimerChange::Amend(Box::new(amendment));
    let changed = change(store, 11_000, 1, amend.clone()).await;
    let ChangeTimerOutcome::Changed(changed) = changed else {
        panic!("{changed:?}");
    };
    assert_eq!(*changed, read(store, 1).await);
    assert!(matches!(&changed.target, TimerTarget::Send { input, .. } if *input == words(77)));
    let again = change(store, 11_500, 1, amend).await;
    assert_eq!(
        again,
        ChangeTimerOutcome::Changed(changed),
        "it is so already"
    );
    for ms in [13_000, 15_000] {
        assert_eq!(fire(store, ms).await.sends.len(), 1, "{ms}");
    }
    assert_eq!(read(store, 1).await.state.status, TimerStatus::Done);
    let late = TimerChange::Amend(Box::default());
    let refused = change(store, 16_000, 1, late).await;
    assert!(
        matches!(refused, ChangeTimerOutcome::Illegal(_)),
        "{refused:?}"
    );
    arm(store, 16_000, timing(2, 1, every(10_000))).await;
    let over = TimerAmendment {
        until: Some(Some(time(17_000))),
        ..TimerAmendment::default()
    };
    let refused = change(store, 16_000, 2, TimerChange::Amend(Box::new(over))).await;
    assert_eq!(refused, ChangeTimerOutcome::Refused(ScheduleFault::Never));
    sound(store, 16_000).await;
}

pub async fn another_sessions_timer_is_not_found(store: &dyn Inspect) {
    session(store, 1).await;
    arm(store, 0, once(1, 1, 50)).await;
    let item = ChangeTimer {
        tenant: TenantId::DEFAULT,
        id: timer_id(1),
        session: Some(key(2).session),
        change: TimerChange::Cancel,
    };
    let changed = store.at(time(1)).change_timers(vec![item.clone()]).await;
    assert_eq!(
        changed.expect("the store answers"),
        [ChangeTimerOutcome::NotFound]
    );
    let other = ChangeTimer {
        tenant: TenantId(2),
        session: None,
        ..item.clone()
    };
    let mine = ChangeTimer {
        session: Some(key(1).session),
        ..item
    };
    let items = vec![other, mine.clone(), mine];
    let changed = store.at(time(1)).change_timers(items).await;
    let changed = changed.expect("the store answers");
    assert_eq!(changed[0], ChangeTimerOutcome::NotFound);
    assert_eq!(changed[1], changed[2]);
    assert_eq!(read(store, 1).await.state.status, TimerStatus::Cancelled);
}

pub async fn deleting_a_session_ends_its_timers(store: &dyn Inspect) {
    session(store, 1).await;
    session(store, 2).await;
    arm(store, 0, once(1, 1, 50)).await;
    arm(store, 0, timing(2, 1, every(1_000))).await;
    change(store, 1, 2, TimerChange::Pause).await;
    arm(store, 0, once(3, 2, 50)).await;
    let deleted = store
        .at(time(10))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    for n in [1, 2] {
        let timer = read(store, n).await;
        assert_eq!(timer.state.status, TimerStatus::Cancelled);
        assert_eq!(
            (timer.state.ended_at, timer.state.due_at),
            (Some(time(10)), None)
        );
        // What it would have said is gone with the session.
        assert_eq!(timer.target, TimerTarget::emptied(key(1).session));
    }
    assert_ne!(
        read(store, 3).await.target,
        TimerTarget::emptied(key(2).session)
    );
    assert_eq!(fire(store, 2_000).await.sends.len(), 1);
    sound(store, 2_001).await;
}

pub async fn timers_are_listed_newest_first_in_pages(store: &dyn Inspect) {
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

pub async fn retention_takes_old_occurrences_and_ended_timers(store: &dyn Inspect) {
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
    let sweep = async |ms| store.at(time(ms)).sweep_timers(millis(15_000)).await;
    assert_eq!(sweep(20_000).await.expect("the store answers"), 0);
    while sweep(40_000).await.expect("the store answers") > 0 {}
    let dump = store.dump().await.expect("the store answers");
    let left: Vec<_> = dump.timers.iter().map(|(t, _)| t.id).collect();
    assert_eq!(left, [timer_id(2)]);
    assert_eq!(fates(&history(store, 2).await), [(3, Fate::Fired, 30_000)]);
    sound(store, 40_000).await;
}
