//! Repeated requests.

use std::time::Duration;

use mainspring_shared::agent::{OnBusy, SendOptions};
use mainspring_shared::id::{SessionId, TenantId};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, CreateOutcome, IdempotencyKey, Inspect, KeyOutcome, NewSession,
    RefuseReason, SessionPatch, Target,
};

use super::prelude::*;
use super::tenants::tenant;

fn request(key: &str, body: u8) -> IdempotencyKey {
    IdempotencyKey {
        tenant: TenantId::DEFAULT,
        route: "POST /v1/sends".to_owned(),
        key: key.to_owned(),
        body_hash: [body; 32],
    }
}

fn keyed(item: AcceptSend, request: IdempotencyKey) -> AcceptSend {
    AcceptSend {
        idempotency: Some(request),
        ..item
    }
}

async fn create(
    store: &dyn Inspect,
    new: NewSession,
    request: Option<IdempotencyKey>,
) -> CreateOutcome {
    let outcomes = store
        .at(time(0))
        .create_sessions(vec![(new, request)])
        .await;
    one(outcomes.expect("the store answers"))
}

pub async fn a_repeat_names_the_first_send_and_stores_nothing(store: &dyn Inspect) {
    accept(store, 0, keyed(opening(1, 1), request("a", 1))).await;
    let before = store.dump().await.expect("the store answers");
    let repeat = offer(store, 1, keyed(sending(2, 1), request("a", 1))).await;
    assert_eq!(repeat, AcceptOutcome::Replayed(send(1)));
    let repeat = offer(store, 1, keyed(opening(3, 2), request("a", 1))).await;
    assert_eq!(repeat, AcceptOutcome::Replayed(send(1)));
    assert_eq!(store.dump().await.expect("the store answers"), before);
}

pub async fn another_body_under_the_key_is_a_mismatch(store: &dyn Inspect) {
    accept(store, 0, keyed(opening(1, 1), request("a", 1))).await;
    let other = offer(store, 1, keyed(sending(2, 1), request("a", 2))).await;
    assert_eq!(other, AcceptOutcome::Mismatch);
}

pub async fn a_key_holds_within_its_own_call(store: &dyn Inspect) {
    let items = vec![
        keyed(opening(1, 1), request("a", 1)),
        keyed(sending(2, 1), request("a", 1)),
        keyed(sending(3, 1), request("a", 2)),
        keyed(sending(4, 1), request("b", 1)),
    ];
    let outcomes = store.at(time(0)).accept_sends(boot(SCHEDULER), items).await;
    let outcomes = outcomes.expect("the store answers");
    assert!(matches!(outcomes[0], AcceptOutcome::Accepted(_)));
    assert_eq!(outcomes[1], AcceptOutcome::Replayed(send(1)));
    assert_eq!(outcomes[2], AcceptOutcome::Mismatch);
    assert!(matches!(outcomes[3], AcceptOutcome::Accepted(_)));
    assert_eq!(dumped(store, 1).await.sends.len(), 2);
}

pub async fn a_refused_request_leaves_its_key_free(store: &dyn Inspect) {
    let refused = offer(store, 0, keyed(sending(1, 1), request("a", 1))).await;
    assert!(matches!(refused, AcceptOutcome::Refused(_)), "{refused:?}");
    accept(store, 1, keyed(opening(2, 1), request("a", 2))).await;
}

pub async fn a_key_that_a_refused_send_leaves_free_is_taken_by_the_next_of_its_call(
    store: &dyn Inspect,
) {
    let known = || AcceptSend {
        queued_max: 3,
        ..keyed(sending(9, 1), request("known", 1))
    };
    let bounded = |n, key| AcceptSend {
        queued_max: 3,
        ..keyed(sending(n, 1), request(key, 1))
    };
    let offer_all = async |ms, items| {
        let outcomes = store
            .at(time(ms))
            .accept_sends(boot(SCHEDULER), items)
            .await;
        outcomes.expect("the store answers")
    };
    accept(store, 0, keyed(opening(1, 1), request("known", 1))).await;
    accept(store, 1, sending(2, 1)).await;
    accept(store, 2, opening(3, 3)).await;
    // If the repeat before it counted, although it is not stored, the second one would not fit.
    let elsewhere = keyed(sending(5, 3), request("a", 1));
    let fits = offer_all(3, vec![known(), bounded(4, "a"), elsewhere]).await;
    assert_eq!(fits[0], AcceptOutcome::Replayed(send(1)));
    assert!(matches!(&fits[1], AcceptOutcome::Accepted(a) if a.position == Some(3)));
    assert_eq!(fits[2], AcceptOutcome::Replayed(send(4)));
    let elsewhere = keyed(sending(7, 3), request("b", 2));
    let full = offer_all(4, vec![known(), bounded(6, "b"), elsewhere]).await;
    assert_eq!(full[1], AcceptOutcome::Refused(RefuseReason::QueueFull));
    assert!(matches!(&full[2], AcceptOutcome::Accepted(a) if a.position == Some(2)));
}

pub async fn keys_of_other_tenants_and_routes_are_other_keys(store: &dyn Inspect) {
    tenant(store, "blue").await;
    accept(store, 0, keyed(opening(1, 1), request("a", 1))).await;
    let route = IdempotencyKey {
        route: "POST /v1/sessions/x/sends".to_owned(),
        ..request("a", 2)
    };
    accept(store, 1, keyed(sending(2, 1), route)).await;
    let mut foreign = opening(3, 3);
    let Target::New(session) = &mut foreign.target else {
        unreachable!("an opening send creates its session");
    };
    session.key.tenant = TenantId(2);
    let tenant = IdempotencyKey {
        tenant: TenantId(2),
        ..request("a", 3)
    };
    accept(store, 2, keyed(foreign, tenant)).await;
}

pub async fn a_repeat_is_answered_even_when_it_would_be_refused_now(store: &dyn Inspect) {
    accept(store, 0, keyed(opening(1, 1), request("a", 1))).await;
    let patch = SessionPatch {
        closed: Some(true),
        ..SessionPatch::default()
    };
    let closed = store.at(time(1)).update_session(key(1), patch).await;
    closed.expect("the store answers");
    let repeat = offer(store, 2, keyed(sending(2, 1), request("a", 1))).await;
    assert_eq!(repeat, AcceptOutcome::Replayed(send(1)));
    let deleted = store
        .at(time(3))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    let repeat = offer(store, 4, keyed(sending(2, 1), request("a", 1))).await;
    assert_eq!(repeat, AcceptOutcome::Replayed(send(1)));
}

pub async fn a_repeat_does_not_make_its_session_busy(store: &dyn Inspect) {
    accept(store, 0, keyed(opening(1, 1), request("a", 1))).await;
    cancel(store, 1, 1).await;
    let alone = SendOptions {
        on_busy: OnBusy::Reject,
        ..SendOptions::default()
    };
    let items = vec![
        keyed(sending(2, 1), request("a", 1)),
        with(sending(3, 1), alone.clone()),
        sending(4, 1),
        with(sending(5, 1), alone),
    ];
    let outcomes = store.at(time(2)).accept_sends(boot(SCHEDULER), items).await;
    let outcomes = outcomes.expect("the store answers");
    assert_eq!(outcomes[0], AcceptOutcome::Replayed(send(1)));
    assert!(matches!(&outcomes[1], AcceptOutcome::Accepted(a) if a.position == Some(2)));
    assert!(matches!(&outcomes[2], AcceptOutcome::Accepted(a) if a.position == Some(3)));
    assert_eq!(outcomes[3], AcceptOutcome::Refused(RefuseReason::Busy));
}

pub async fn a_repeated_create_makes_no_second_session(store: &dyn Inspect) {
    let first = create(store, new_session(1), Some(request("a", 1))).await;
    assert!(matches!(first, CreateOutcome::Created(_)), "{first:?}");
    let repeat = create(store, new_session(2), Some(request("a", 1))).await;
    let SessionId(first) = key(1).session;
    assert_eq!(repeat, CreateOutcome::Replayed(SessionId(first)));
    let other = create(store, new_session(3), Some(request("a", 2))).await;
    assert_eq!(other, CreateOutcome::Mismatch);
    let dump = store.dump().await.expect("the store answers");
    assert_eq!(dump.sessions.len(), 1);
}

pub async fn creates_of_one_call_see_each_others_keys(store: &dyn Inspect) {
    let items = vec![
        (new_session(1), Some(request("a", 1))),
        (new_session(2), Some(request("a", 1))),
        (new_session(3), None),
        (new_session(4), Some(request("a", 2))),
    ];
    let outcomes = store.at(time(0)).create_sessions(items).await;
    let outcomes = outcomes.expect("the store answers");
    assert!(matches!(outcomes[0], CreateOutcome::Created(_)));
    assert_eq!(outcomes[1], CreateOutcome::Replayed(key(1).session));
    assert!(matches!(outcomes[2], CreateOutcome::Created(_)));
    assert_eq!(outcomes[3], CreateOutcome::Mismatch);
}

pub async fn a_key_is_taken_once_and_by_one_request(store: &dyn Inspect) {
    let take = |ms, key| async move { store.at(time(ms)).take_key(key).await.expect("it answers") };
    assert_eq!(take(0, request("a", 1)).await, KeyOutcome::Taken);
    assert_eq!(take(1, request("a", 1)).await, KeyOutcome::Known);
    assert_eq!(take(2, request("a", 2)).await, KeyOutcome::Mismatch);
    assert_eq!(take(3, request("a", 1)).await, KeyOutcome::Known);
    assert_eq!(take(4, request("b", 2)).await, KeyOutcome::Taken);
    let foreign = IdempotencyKey {
        tenant: TenantId(2),
        ..request("a", 3)
    };
    assert_eq!(take(5, foreign).await, KeyOutcome::Taken);
    // The key expires like any other.
    let gone = store.at(time(10_000)).sweep_retention(millis(9_999)).await;
    assert_eq!(gone.expect("the store answers"), 1);
    assert_eq!(take(10_000, request("a", 2)).await, KeyOutcome::Taken);
}

pub async fn retention_frees_old_keys_only(store: &dyn Inspect) {
    accept(store, 0, keyed(opening(1, 1), request("old", 1))).await;
    accept(store, 5_000, keyed(sending(2, 1), request("young", 1))).await;
    let gone = store.at(time(10_000)).sweep_retention(millis(8_000)).await;
    assert_eq!(gone.expect("the store answers"), 1);
    let again = store.at(time(10_000)).sweep_retention(millis(8_000)).await;
    assert_eq!(again.expect("the store answers"), 0);
    accept(store, 10_000, keyed(sending(3, 1), request("old", 2))).await;
    let repeat = offer(store, 10_000, keyed(sending(4, 1), request("young", 1))).await;
    assert_eq!(repeat, AcceptOutcome::Replayed(send(2)));
}

fn named(name: &str) -> IdempotencyKey {
    IdempotencyKey::session(key(1).tenant, name.to_owned())
}

async fn found(store: &dyn Inspect, name: &str) -> Option<SessionId> {
    let found = store.keyed_resource(named(name)).await;
    found.expect("the store answers").map(SessionId)
}

pub async fn a_tenant_has_one_session_of_a_name(store: &dyn Inspect) {
    let items = vec![
        (new_session(1), Some(named("order-7"))),
        (new_session(2), Some(named("order-7"))),
        (new_session(3), Some(named("order-8"))),
    ];
    let outcomes = store.at(time(0)).create_sessions(items).await;
    let outcomes = outcomes.expect("the store answers");
    assert!(matches!(outcomes[0], CreateOutcome::Created(_)));
    assert_eq!(outcomes[1], CreateOutcome::Replayed(key(1).session));
    assert!(matches!(outcomes[2], CreateOutcome::Created(_)));
    let again = create(store, new_session(4), Some(named("order-7"))).await;
    assert_eq!(again, CreateOutcome::Replayed(key(1).session));
    assert_eq!(found(store, "order-7").await, Some(key(1).session));
    assert_eq!(found(store, "order-9").await, None);
    // A request that happens to have the same key is another matter.
    let other = create(store, new_session(5), Some(request("order-7", 1))).await;
    assert!(matches!(other, CreateOutcome::Created(_)));
}

pub async fn a_name_is_kept_as_long_as_its_session(store: &dyn Inspect) {
    create(store, new_session(1), Some(named("order-7"))).await;
    let keep = Duration::from_millis(1);
    let swept = store
        .at(time(1_000_000_000_000))
        .sweep_retention(keep)
        .await;
    swept.expect("the store answers");
    assert_eq!(found(store, "order-7").await, Some(key(1).session));
    let deleted = store
        .at(time(10))
        .delete_session(key(1), boot(SCHEDULER))
        .await;
    deleted.expect("the store answers");
    assert_eq!(found(store, "order-7").await, None);
    let next = create(store, new_session(2), Some(named("order-7"))).await;
    assert!(matches!(next, CreateOutcome::Created(_)));
    assert_eq!(found(store, "order-7").await, Some(key(2).session));
}

pub async fn of_sessions_of_one_name_at_once_one_is_created(store: &dyn Inspect) {
    let creates = (1..=8).map(|n| create(store, new_session(n), Some(named("order-7"))));
    let outcomes = futures::future::join_all(creates).await;
    let (created, replayed): (Vec<_>, Vec<_>) = outcomes
        .into_iter()
        .partition(|outcome| matches!(outcome, CreateOutcome::Created(_)));
    assert_eq!(created.len(), 1, "{replayed:?}");
    let one = found(store, "order-7").await.expect("it was created");
    assert!(
        replayed
            .iter()
            .all(|outcome| *outcome == CreateOutcome::Replayed(one))
    );
}
