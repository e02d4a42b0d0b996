//! Seats: how many sends of a tenant are in flight at once.

use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AfterSend, AuditOptions, ClaimOutcome, DeleteTenantOutcome, Inspect,
    ParkUntil, SweepReady, Target, TenantPatch,
};
use mainspring_shared::tenant::{Limits, SEAT_CALLED_MS};

use super::prelude::*;
use super::runs;
use super::tenants::new;

/// The default tenant, which always exists.
const MINE: TenantId = TenantId::DEFAULT;

pub(super) fn of(sends: Option<u32>, leaves: Option<u32>) -> Limits {
    Limits {
        sends_running: sends,
        leaves_running: leaves,
        ..Limits::default()
    }
}

pub(super) async fn limit(store: &dyn Inspect, ms: i64, limits: Limits) {
    let patch = TenantPatch {
        limits: Some(limits),
        ..TenantPatch::default()
    };
    let changed = store.at(time(ms)).update_tenant(MINE, patch).await;
    changed.expect("the store answers");
}

/// Process 1, and `count` sends accepted a millisecond apart, each in the session of its number.
async fn accepted(store: &dyn Inspect, sends: u32, count: u128) {
    register(store, 1).await;
    limit(store, 0, of(Some(sends), None)).await;
    for n in 1..=count {
        let ms = i64::try_from(n).expect("few");
        accept(store, ms, opening(n, n)).await;
    }
}

/// Claims sessions in one call; returns which were claimed and which wait.
pub(super) async fn claim_all(
    store: &dyn Inspect,
    ms: i64,
    sessions: &[u128],
) -> Vec<&'static str> {
    let token = |n: &u128| *n + 1_000 * u128::from(ms.unsigned_abs());
    let items = sessions.iter().map(|n| cold_claim(*n, token(n))).collect();
    let outcomes = store.at(time(ms)).claim_sessions(boot(1), items).await;
    let outcomes = outcomes.expect("the store answers").into_iter();
    let names = outcomes.map(|outcome| match outcome {
        ClaimOutcome::Claimed(claimed) => {
            assert!(claimed.seated, "its holder knows of the seat");
            "claimed"
        }
        ClaimOutcome::Waits => "waits",
        ClaimOutcome::Busy => "busy",
        ClaimOutcome::Idle => "idle",
        ClaimOutcome::Suspect => "suspect",
    });
    names.collect()
}

/// A session that waits for a seat, which has since become free.
pub(super) async fn one_waits(store: &dyn Inspect) {
    accepted(store, 1, 2).await;
    assert_eq!(claim_all(store, 10, &[1, 2]).await, ["claimed", "waits"]);
    limit(store, 20, of(Some(2), None)).await;
}

/// The sessions called now, and how many wait.
pub(super) async fn called(store: &dyn Inspect, ms: i64) -> (Vec<SessionKey>, u64) {
    let called = store.at(time(ms)).call_seats(Some(MINE)).await;
    let called = called.expect("the store answers");
    let keys = called.enqueue.iter().map(|ready| ready.key);
    (keys.collect(), called.waiting)
}

pub(super) async fn swept(store: &dyn Inspect, ms: i64) -> Vec<SessionKey> {
    let query = SweepReady {
        pool: None,
        older_than_ms: 0,
        after: None,
        limit: 100,
    };
    let swept = store.at(time(ms)).sweep_ready(query).await;
    let sessions = swept.expect("the store answers").sessions.into_iter();
    sessions.map(|ready| ready.key).collect()
}

pub(super) async fn sound(store: &dyn Inspect, ms: i64) {
    let violations = store.at(time(ms)).audit(AuditOptions::default()).await;
    assert_eq!(violations.expect("the store answers"), []);
}

pub(super) async fn end(store: &dyn Inspect, ms: i64, session: u128) {
    let dump = dumped(store, session).await;
    let lease = mainspring_shared::lease::Lease {
        boot: dump.hot.owner.expect("it is held"),
        token: dump.hot.token.expect("it is held"),
        epoch: dump.hot.epoch,
        write: dump.hot.writes,
    };
    let ended = store
        .at(time(ms))
        .cancel_sends(boot(SCHEDULER), vec![(MINE, send(session))])
        .await;
    ended.expect("the store answers");
    let record = stored(store, session).await;
    let item = mainspring_shared::store::CompleteSend {
        key: key(session),
        lease,
        send_id: record.id,
        messages: Vec::new(),
        changes: Vec::new(),
        deliveries: Vec::new(),
        usage: Vec::new(),
        round: None,
        totals: totals(0),
        result: mainspring_shared::send::SendResult::cancelled(),
        projections: Vec::new(),
        unless: 0,
        then: AfterSend::Release,
    };
    let outcomes = store.at(time(ms)).complete_sends(vec![item]).await;
    one(outcomes.expect("the store answers"));
}

pub async fn no_more_sends_run_than_there_are_seats(store: &dyn Inspect) {
    accepted(store, 2, 3).await;
    let outcomes = claim_all(store, 10, &[1, 2, 3]).await;
    assert_eq!(outcomes, ["claimed", "claimed", "waits"]);
    assert_eq!(
        claim_all(store, 11, &[3]).await,
        ["waits"],
        "however often it asks"
    );
    assert_eq!(called(store, 12).await, (vec![], 1));
    sound(store, 13).await;
    end(store, 14, 1).await;
    assert_eq!(called(store, 15).await, (vec![key(3)], 1));
    assert_eq!(claim_all(store, 16, &[3]).await, ["claimed"]);
    assert_eq!(called(store, 17).await, (vec![], 0));
    sound(store, 18).await;
}

pub async fn seats_are_exact_however_many_claim_at_once(store: &dyn Inspect) {
    accepted(store, 3, 12).await;
    let claims = (1..=12).map(|n| async move { claim_all(store, 20 + n as i64, &[n]).await });
    let outcomes = futures::future::join_all(claims).await.concat();
    let had = outcomes.iter().filter(|outcome| **outcome == "claimed");
    assert_eq!(had.count(), 3, "{outcomes:?}");
    sound(store, 40).await;
}

pub async fn who_waits_is_called_in_the_order_of_its_work(store: &dyn Inspect) {
    accepted(store, 1, 4).await;
    assert_eq!(claim_all(store, 10, &[1]).await, ["claimed"]);
    // They ask in a different order from the one in which their work arrived.
    for n in [4, 2, 3] {
        assert_eq!(claim_all(store, 11, &[n]).await, ["waits"]);
    }
    for (ms, n, left) in [(20, 2, 3), (30, 3, 2), (40, 4, 1)] {
        let before = if n == 2 { 1 } else { n - 1 };
        end(store, ms, before).await;
        assert_eq!(called(store, ms + 1).await, (vec![key(n)], left));
        // A session is called once.
        assert_eq!(called(store, ms + 2).await, (vec![], left));
        assert_eq!(claim_all(store, ms + 3, &[n]).await, ["claimed"]);
    }
}

pub async fn nobody_passes_those_who_wait(store: &dyn Inspect) {
    accepted(store, 1, 3).await;
    assert_eq!(claim_all(store, 10, &[1, 2]).await, ["claimed", "waits"]);
    end(store, 20, 1).await;
    // Before anything was called.
    assert_eq!(claim_all(store, 21, &[3]).await, ["waits"]);
    assert_eq!(claim_all(store, 22, &[3, 2]).await, ["waits", "claimed"]);
    sound(store, 23).await;
}

pub async fn who_was_called_and_does_not_come_is_passed(store: &dyn Inspect) {
    accepted(store, 1, 3).await;
    assert_eq!(claim_all(store, 10, &[1, 2]).await, ["claimed", "waits"]);
    end(store, 20, 1).await;
    assert_eq!(called(store, 30).await.0, [key(2)]);
    let late = 30 + SEAT_CALLED_MS;
    assert_eq!(claim_all(store, late - 1, &[3]).await, ["waits"]);
    assert_eq!(claim_all(store, late, &[3]).await, ["claimed"]);
    // It keeps waiting, and is called again.
    assert_eq!(claim_all(store, late + 1, &[2]).await, ["waits"]);
    end(store, late + 2, 3).await;
    assert_eq!(called(store, late + 3).await.0, [key(2)]);
}

pub async fn who_waits_is_found_ready_only_once_it_was_called(store: &dyn Inspect) {
    accepted(store, 1, 2).await;
    assert_eq!(swept(store, 9).await, [key(1), key(2)]);
    assert_eq!(claim_all(store, 10, &[1, 2]).await, ["claimed", "waits"]);
    assert_eq!(swept(store, 11).await, []);
    let stats = store
        .at(time(11))
        .queue_stats()
        .await
        .expect("the store answers");
    assert_eq!(
        stats
            .iter()
            .map(|it| (it.ready, it.running))
            .collect::<Vec<_>>(),
        [(0, 1)]
    );
    end(store, 20, 1).await;
    assert_eq!(called(store, 21).await.0, [key(2)]);
    // The call was lost.
    assert_eq!(swept(store, 22).await, [key(2)]);
    // Further work for a waiting session does not cost it its place.
    accept(store, 23, sending(3, 2)).await;
    assert_eq!(claim_all(store, 24, &[2]).await, ["claimed"]);
}

pub async fn a_send_that_is_taken_over_keeps_its_seat(store: &dyn Inspect) {
    accepted(store, 1, 2).await;
    assert_eq!(claim_all(store, 10, &[1, 2]).await, ["claimed", "waits"]);
    register_at(store, TTL + 1, 2).await;
    // Its worker is dead, but its seat is still taken.
    assert_eq!(called(store, TTL + 2).await, (vec![], 1));
    let taken = try_claim(store, TTL + 3, 2, 2, 70).await;
    assert_eq!(taken, ClaimOutcome::Waits);
    let claimed = claim(store, TTL + 4, 2, 1, 71).await;
    assert!(claimed.seated);
    assert!(release(store, TTL + 5, &claimed).await);
    // Released as it is, the send stays running until it is claimed again.
    assert_eq!(called(store, TTL + 6).await, (vec![], 1));
    let claimed = claim(store, TTL + 7, 2, 1, 72).await;
    complete(store, TTL + 8, ending(&claimed, AfterSend::Release)).await;
    assert_eq!(called(store, TTL + 9).await, (vec![key(2)], 1));
    sound(store, TTL + 10).await;
}

pub async fn a_parked_send_gives_its_seat_back_and_needs_another(store: &dyn Inspect) {
    accepted(store, 1, 2).await;
    let claimed = claim(store, 10, 1, 1, 1).await;
    assert_eq!(claim_all(store, 11, &[2]).await, ["waits"]);
    park(
        store,
        20,
        waiting(&claimed, WaitingOn::Retry, ParkUntil::After(millis(10))),
    )
    .await;
    assert_eq!(called(store, 21).await.0, [key(2)]);
    assert_eq!(claim_all(store, 22, &[2]).await, ["claimed"]);
    let due = store.at(time(40)).sweep_alarms(boot(SCHEDULER), 10).await;
    assert_eq!(due.expect("the store answers").enqueue.len(), 1);
    assert_eq!(claim_all(store, 41, &[1]).await, ["waits"]);
    sound(store, 42).await;
    end(store, 43, 2).await;
    assert_eq!(called(store, 44).await.0, [key(1)]);
    assert_eq!(claim_all(store, 45, &[1]).await, ["claimed"]);
}

pub async fn a_limit_that_is_lowered_takes_effect_as_seats_are_given_back(store: &dyn Inspect) {
    accepted(store, 3, 5).await;
    assert_eq!(claim_all(store, 10, &[1, 2, 3]).await, ["claimed"; 3]);
    limit(store, 11, of(Some(1), None)).await;
    assert_eq!(claim_all(store, 12, &[4]).await, ["waits"]);
    for (ms, n) in [(20, 1), (21, 2)] {
        end(store, ms, n).await;
        assert_eq!(called(store, ms).await.0, []);
    }
    end(store, 22, 3).await;
    assert_eq!(called(store, 23).await.0, [key(4)]);
    assert_eq!(claim_all(store, 24, &[5, 4]).await, ["waits", "claimed"]);
    // Raising the limit admits the next one at once.
    limit(store, 25, of(Some(2), None)).await;
    assert_eq!(called(store, 26).await.0, [key(5)]);
    sound(store, 27).await;
}

pub async fn without_a_limit_nobody_waits_any_more(store: &dyn Inspect) {
    accepted(store, 1, 3).await;
    assert_eq!(
        claim_all(store, 10, &[1, 2, 3]).await,
        ["claimed", "waits", "waits"]
    );
    limit(store, 20, Limits::default()).await;
    assert_eq!(called(store, 21).await, (vec![], 0));
    assert_eq!(swept(store, 22).await, [key(2), key(3)]);
    let claimed = claim(store, 23, 1, 2, 50).await;
    assert!(!claimed.seated, "it costs nothing");
    sound(store, 24).await;
    // When a limit is set again, what is running counts.
    limit(store, 30, of(Some(2), None)).await;
    assert_eq!(claim_all(store, 31, &[3]).await, ["waits"]);
    end(store, 32, 1).await;
    assert_eq!(called(store, 33).await.0, [key(3)]);
    sound(store, 34).await;
}

pub async fn leaves_have_seats_among_all_sends_and_among_leaves(store: &dyn Inspect) {
    runs::under_way(store, 1..4).await;
    limit(store, 3, of(Some(2), Some(1))).await;
    accept(store, 4, opening(8, 8)).await;
    accept(store, 5, opening(9, 9)).await;
    let outcomes = claim_all(store, 10, &[1, 2, 3]).await;
    assert_eq!(outcomes, ["claimed", "waits", "waits"]);
    // Leaves that wait for a leaf seat hold up nothing else until all seats are taken.
    assert_eq!(claim_all(store, 11, &[8, 9]).await, ["claimed", "waits"]);
    end(store, 20, 8).await;
    assert_eq!(called(store, 21).await.0, [key(9)]);
    end(store, 22, 1).await;
    // Session 9 was called but has not claimed yet: its seat is reserved.
    assert_eq!(called(store, 23).await.0, [key(2)]);
    assert_eq!(
        claim_all(store, 24, &[3, 2, 9]).await,
        ["waits", "claimed", "claimed"]
    );
    sound(store, 25).await;
}

pub async fn who_has_no_work_any_more_leaves_the_line(store: &dyn Inspect) {
    accepted(store, 1, 4).await;
    assert_eq!(claim_all(store, 10, &[1, 2, 3, 4]).await[1..], ["waits"; 3]);
    cancel(store, 11, 2).await;
    let deleted = store
        .at(time(12))
        .delete_session(key(3), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    end(store, 20, 1).await;
    assert_eq!(called(store, 21).await, (vec![key(4)], 1));
    assert_eq!(claim_all(store, 22, &[4]).await, ["claimed"]);
    sound(store, 23).await;
}

pub async fn seats_are_a_tenants_own_and_go_with_it(store: &dyn Inspect) {
    register(store, 1).await;
    let limited = mainspring_shared::store::NewTenant {
        limits: of(Some(1), None),
        ..new("blue")
    };
    let created = store.at(time(0)).create_tenant(limited, None).await;
    created.expect("creates");
    let blue = TenantId(2);
    let theirs = |n: u128| {
        let mut session = new_session(n);
        session.key.tenant = blue;
        AcceptSend {
            target: Target::New(Box::new(session)),
            ..sending(n, n)
        }
    };
    for n in [1, 2] {
        let accepted = offer(store, 1, theirs(n)).await;
        assert!(matches!(accepted, AcceptOutcome::Accepted(_)));
    }
    accept(store, 2, opening(3, 3)).await;
    let mut items: Vec<_> = [1, 2, 3].map(|n| cold_claim(n, n)).into();
    items[0].key.tenant = blue;
    items[1].key.tenant = blue;
    let outcomes = store.at(time(10)).claim_sessions(boot(1), items).await;
    let outcomes = outcomes.expect("the store answers");
    let claimed = |outcome: &ClaimOutcome| match outcome {
        ClaimOutcome::Claimed(claimed) => Some(claimed.seated),
        _ => None,
    };
    let had: Vec<_> = outcomes.iter().map(claimed).collect();
    assert_eq!(had, [Some(true), None, Some(false)]);
    // A tenant with waiting sends is not empty.
    let deleted = store.at(time(11)).delete_tenant(blue).await;
    assert_eq!(deleted.expect("answers"), DeleteTenantOutcome::NotEmpty);
    for n in [1, 2] {
        let mut theirs = key(n);
        theirs.tenant = blue;
        let deleted = store
            .at(time(12))
            .delete_session(theirs, boot(SCHEDULER))
            .await;
        deleted.expect("the store answers");
    }
    let deleted = store.at(time(13)).delete_tenant(blue).await;
    assert_eq!(deleted.expect("answers"), DeleteTenantOutcome::Deleted);
    let called = store.at(time(14)).call_seats(None).await.expect("answers");
    assert_eq!((called.enqueue, called.waiting), (vec![], 0));
    let dump = store.dump().await.expect("the store answers");
    assert_eq!((dump.seat_limits, dump.seats), (vec![], vec![]));
}
