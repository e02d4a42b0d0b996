//! Sessions granted to their keeper together with a send.

use mainspring_shared::agent::SendOptions;
use mainspring_shared::dispatch::Dispatch;
use mainspring_shared::id::LeaseToken;
use mainspring_shared::send::{SendStatus, WaitingOn};
use mainspring_shared::session::projection::Projected;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, AfterSend, ClaimOutcome, Claimed, Counters,
    IdempotencyKey, Inspect, NewBoot, ParkUntil, Resumed, Role, StartedSend, TenantPatch,
};
use mainspring_shared::tenant::Limits;
use mainspring_shared::tool::Published;

use super::prelude::*;

/// A send to a session that has a keeper.
fn kept(n: u128, session: u128, keeper: u128) -> AcceptSend {
    AcceptSend {
        keeper: Some(boot(keeper)),
        ..sending(n, session)
    }
}

/// A session at rest after a send that process 1 ran until 20.
async fn rested(store: &dyn Inspect, session: u128, first: u128) {
    accept(store, 0, opening(first, session)).await;
    let claimed = claim(store, 10, 1, session, first).await;
    complete(store, 20, ending(&claimed, AfterSend::Continue)).await;
}

/// The keeper's view of a granted send.
fn held(item: AcceptSend, accepted: &mut Accepted) -> Option<Claimed> {
    let (keeper, dispatch) = Dispatch::of(item, accepted)?;
    let (key, lease) = (dispatch.key(), dispatch.lease(keeper));
    let (counters, spent) = (dispatch.granted.counters, dispatch.granted.spent);
    Some(Claimed {
        key,
        lease,
        counters,
        spent: spent.unwrap_or_default(),
        send: dispatch.started(new_session(1).agent),
        seated: false,
        folds: Vec::new(),
        projected: Projected::default(),
        window: Vec::new(),
    })
}

/// Whether a send is granted its session; if not, it is enqueued as usual if `rings`.
async fn is_granted(store: &dyn Inspect, ms: i64, item: AcceptSend, rings: bool) -> bool {
    let accepted = accept(store, ms, item).await;
    if accepted.granted.is_none() {
        assert_eq!(accepted.enqueue.is_some(), rings);
    }
    accepted.granted.is_some()
}

pub async fn what_is_granted_is_what_a_claim_behind_the_accept_would_grant(store: &dyn Inspect) {
    register(store, 1).await;
    rested(store, 1, 1).await;
    rested(store, 2, 2).await;
    let item = kept(11, 1, 1);
    let mut accepted = accept(store, 30, item.clone()).await;
    assert_eq!(accepted.enqueue, None);
    let granted = accepted.granted.clone().expect("it rests");
    let twin = accept(store, 30, sending(12, 2)).await;
    let ready = twin.enqueue.expect("it rests");
    assert_eq!((granted.ready.key, ready.key), (key(1), key(2)));
    assert_eq!(
        (granted.ready.pool, granted.ready.ready_since),
        (ready.pool, ready.ready_since)
    );
    let claimed = claim(store, 30, 1, 2, 12).await;
    assert_eq!(
        (granted.epoch, granted.counters, granted.agent_version),
        (
            claimed.lease.epoch,
            claimed.counters,
            claimed.send.record.agent_version.expect("pinned")
        )
    );
    let (mine, other) = (dumped(store, 1).await, dumped(store, 2).await);
    let mut expected = other.hot.clone();
    expected.key = mine.hot.key;
    expected.token = Some(LeaseToken(send(11).0));
    assert_eq!(mine.hot, expected);
    let mut expected = stored(store, 12).await;
    (expected.id, expected.key) = (send(11), key(1));
    expected.input = words(11);
    assert_eq!(stored(store, 11).await, expected);
    assert_eq!(steps(store, 1).await.len(), steps(store, 2).await.len());
    // The keeper knows as much about it as a claimer would.
    let held = held(item, &mut accepted).expect("granted");
    assert_eq!(held.send.record, stored(store, 11).await);
    assert_eq!(
        held.counters,
        Counters {
            next_seq: mine.hot.next_seq,
            ..claimed.counters
        }
    );
    complete(store, 40, ending(&held, AfterSend::Continue)).await;
    assert_eq!(stored(store, 11).await.status, SendStatus::Completed);
    assert_eq!(dumped(store, 1).await.hot.owner, None);
}

pub async fn nobody_else_claims_what_was_granted_until_its_keeper_dies(store: &dyn Inspect) {
    register(store, 1).await;
    register_at(store, 5_000, 2).await;
    rested(store, 1, 1).await;
    let item = kept(2, 1, 1);
    accept(store, 30, item).await.granted.expect("it rests");
    let early = try_claim(store, 40, 2, 1, 7).await;
    assert_eq!(early, ClaimOutcome::Busy);
    let claimed = claim(store, TTL + 1, 2, 1, 8).await;
    let StartedSend {
        record, resumed, ..
    } = claimed.send;
    assert_eq!(
        (record.id, record.crashes, resumed),
        (send(2), 1, Some(Resumed::Takeover))
    );
}

pub async fn a_keeper_that_gives_back_has_lost_nothing(store: &dyn Inspect) {
    register(store, 1).await;
    rested(store, 1, 1).await;
    let item = kept(2, 1, 1);
    let mut accepted = accept(store, 30, item.clone()).await;
    let (keeper, dispatch) = Dispatch::of(item, &mut accepted).expect("granted");
    let release = dispatch.release(keeper);
    let released = store.at(time(40)).release_sessions(vec![release]).await;
    assert_eq!(released.expect("the store answers"), [true]);
    let claimed = claim(store, 50, 1, 1, 9).await;
    let record = claimed.send.record;
    assert_eq!(
        (record.id, record.crashes, record.attempts),
        (send(2), 0, 0)
    );
    assert_eq!(claimed.lease.epoch, 3);
}

pub async fn nothing_is_granted_to_who_is_not_a_live_worker_of_the_pool(store: &dyn Inspect) {
    register(store, 1).await;
    rested(store, 1, 1).await;
    assert!(!is_granted(store, 30, kept(2, 1, 9), true).await, "unknown");
    let claimed = claim(store, 40, 1, 1, 2).await;
    complete(store, 50, ending(&claimed, AfterSend::Continue)).await;
    let other = NewBoot {
        id: boot(2),
        role: Role::Worker,
        name: "other".to_owned(),
        pool: "gpu".to_owned(),
        concurrency: 4,
        ttl: millis(TTL),
        protocol: mainspring_shared::store::PROTOCOL,
        tools: Published::default(),
    };
    let registered = store.at(time(50)).register_boot(other).await;
    registered.expect("the store answers");
    assert!(!is_granted(store, 60, kept(3, 1, 2), true).await, "a pool");
    let claimed = claim(store, 70, 1, 1, 3).await;
    complete(store, 80, ending(&claimed, AfterSend::Continue)).await;
    let late = kept(4, 1, 1);
    assert!(!is_granted(store, TTL + 1, late, true).await, "a lease");
    register_at(store, TTL + 1, 3).await;
    let claimed = claim(store, TTL + 2, 3, 1, 4).await;
    complete(store, TTL + 3, ending(&claimed, AfterSend::Continue)).await;
    let stopped = store.at(time(TTL + 4)).stop_boot(boot(3)).await;
    stopped.expect("the store answers");
    let item = kept(5, 1, 3);
    assert!(!is_granted(store, TTL + 5, item, true).await, "stopped");
}

pub async fn nothing_is_granted_of_a_session_that_does_not_rest(store: &dyn Inspect) {
    let claimed = running(store).await;
    let item = kept(2, 1, 1);
    assert!(!is_granted(store, 20, item, false).await, "it runs");
    let item = waiting(&claimed, WaitingOn::Human, ParkUntil::Asked);
    park(store, 30, item).await;
    let item = kept(3, 1, 1);
    assert!(!is_granted(store, 40, item, false).await, "it waits");
    let new = AcceptSend {
        keeper: Some(boot(1)),
        ..opening(4, 4)
    };
    assert!(!is_granted(store, 50, new, true).await, "it is new");
    let item = kept(5, 4, 1);
    assert!(!is_granted(store, 60, item, false).await, "it is ready");
    rested(store, 6, 6).await;
    let item = with(kept(7, 6, 1), delayed(100));
    assert!(!is_granted(store, 70, item, false).await, "it is delayed");
}

pub async fn nothing_is_granted_where_seats_are_counted(store: &dyn Inspect) {
    register(store, 1).await;
    rested(store, 1, 1).await;
    let patch = TenantPatch {
        limits: Some(Limits {
            sends_running: Some(5),
            ..Limits::default()
        }),
        ..TenantPatch::default()
    };
    let tenant = key(1).tenant;
    let changed = store.at(time(25)).update_tenant(tenant, patch).await;
    changed.expect("the store answers");
    assert!(!is_granted(store, 30, kept(2, 1, 1), true).await);
}

pub async fn of_sends_of_one_call_the_first_is_granted(store: &dyn Inspect) {
    register(store, 1).await;
    rested(store, 1, 1).await;
    let plain = SendOptions::default();
    let items = vec![kept(2, 1, 1), with(kept(3, 1, 1), plain), sending(4, 1)];
    let mut outcomes = store
        .at(time(30))
        .accept_sends(boot(SCHEDULER), items.clone())
        .await
        .expect("the store answers");
    let granted = outcomes.iter().map(|outcome| match outcome {
        AcceptOutcome::Accepted(accepted) => {
            assert_eq!(accepted.enqueue, None);
            accepted.granted.is_some()
        }
        other => panic!("accepted was expected: {other:?}"),
    });
    assert_eq!(granted.collect::<Vec<_>>(), [true, false, false]);
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.pending, hot.owner), (2, Some(boot(1))));
    let AcceptOutcome::Accepted(first) = &mut outcomes[0] else {
        panic!("accepted was expected");
    };
    let held = held(items[0].clone(), first).expect("granted");
    let completed = complete(store, 40, ending(&held, AfterSend::Continue)).await;
    let (next, _) = completed.next.expect("two wait");
    assert_eq!(next.record.id, send(3));
}

pub async fn a_keyed_send_is_granted_once(store: &dyn Inspect) {
    register(store, 1).await;
    rested(store, 1, 1).await;
    let item = |n| AcceptSend {
        idempotency: Some(IdempotencyKey {
            tenant: key(1).tenant,
            route: "POST /v1/sends".to_owned(),
            key: "k".to_owned(),
            body_hash: [1; 32],
        }),
        ..kept(n, 1, 1)
    };
    assert!(is_granted(store, 30, item(2), true).await);
    let again = offer(store, 31, item(3)).await;
    assert_eq!(again, AcceptOutcome::Replayed(send(2)));
    let hot = dumped(store, 1).await.hot;
    assert_eq!((hot.epoch, hot.pending), (2, 0));
}
