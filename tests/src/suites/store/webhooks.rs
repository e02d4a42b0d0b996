//! Webhooks: the events that steps record for endpoints, and deliveries.

use std::collections::BTreeSet;

use mainspring_shared::id::{TenantId, WebhookEventId, WebhookId};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AfterSend, ChangeWebhook, ClaimDeliveries, ClaimedDeliveries, ClaimedDelivery,
    CreateWebhookOutcome, DeliveryEnd, FannedOut, IdempotencyKey, Inspect, ListDeliveries,
    ListWebhooks, NewSecret, NewWebhook, ParkUntil, RetireDeliveries, SessionPatch, SettleDelivery,
    WEBHOOKS_MAX,
};
use mainspring_shared::timer::TimerStatus;
use mainspring_shared::webhook::{DeliveryRecord, DeliveryStatus, Filter, WebhookRecord, event_id};
use mainspring_shared::workflow::run::RunStatus;
use serde_json::json;
use uuid::Uuid;

use super::prelude::*;
use super::runs::{advance, advance_of, read_run, under_way};
use super::timers;

const TENANT: TenantId = TenantId::DEFAULT;

pub fn webhook_id(n: u128) -> WebhookId {
    WebhookId(Uuid::from_u128(n))
}

pub fn new_webhook(n: u128, events: &[&str]) -> NewWebhook {
    NewWebhook {
        tenant: TENANT,
        id: webhook_id(n),
        url: format!("https://{n}.example/hook"),
        events: events.iter().map(|text| Filter::stored(text)).collect(),
        secret: format!("sealed {n}"),
    }
}

/// An endpoint that every process knows of.
pub(super) async fn endpoint(store: &dyn Inspect, n: u128, events: &[&str]) -> WebhookRecord {
    let created = store
        .at(time(0))
        .create_webhook(new_webhook(n, events), None)
        .await;
    match created.expect("the store answers") {
        CreateWebhookOutcome::Created { webhook, known_in } => {
            #[expect(
                clippy::disallowed_methods,
                reason = "how long other processes remember what they read is real time"
            )]
            tokio::time::sleep(known_in).await;
            webhook
        }
        other => panic!("{other:?}"),
    }
}

async fn fan_out(store: &dyn Inspect, ms: i64) -> FannedOut {
    let done = store.at(time(ms)).fan_out(100).await;
    done.expect("the store answers")
}

fn claiming() -> ClaimDeliveries {
    ClaimDeliveries {
        lease: millis(1_000),
        each: 10,
        limit: 100,
        busy: Vec::new(),
        busy_tenants: Vec::new(),
    }
}

async fn claims(store: &dyn Inspect, ms: i64, claim: ClaimDeliveries) -> ClaimedDeliveries {
    let claimed = store.at(time(ms)).claim_deliveries(claim).await;
    claimed.expect("the store answers")
}

async fn taken(store: &dyn Inspect, ms: i64) -> Vec<ClaimedDelivery> {
    claims(store, ms, claiming()).await.deliveries
}

fn ended(taken: &ClaimedDelivery, end: DeliveryEnd) -> SettleDelivery {
    let delivery = &taken.delivery;
    SettleDelivery {
        tenant: delivery.tenant,
        webhook: delivery.webhook,
        event: delivery.event,
        attempt: delivery.attempts,
        answer: Some(if end == DeliveryEnd::Delivered {
            200
        } else {
            500
        }),
        error: (end != DeliveryEnd::Delivered).then(|| "answered 500".to_owned()),
        end,
    }
}

async fn settle(store: &dyn Inspect, ms: i64, item: SettleDelivery) -> bool {
    let settled = store.at(time(ms)).settle_deliveries(vec![item]).await;
    one(settled.expect("the store answers"))
}

async fn listed(store: &dyn Inspect, n: u128) -> Vec<DeliveryRecord> {
    let query = ListDeliveries {
        tenant: TENANT,
        webhook: webhook_id(n),
        status: None,
        before: None,
        limit: 100,
    };
    let page = store.list_deliveries(query).await;
    page.expect("the store answers").data
}

/// Send 1 has ended, and its event is being delivered to endpoint 1.
pub(super) async fn under_delivery(store: &dyn Inspect) -> WebhookEventId {
    endpoint(store, 1, &["*"]).await;
    let claimed = running(store).await;
    complete(store, 20, ending(&claimed, AfterSend::Release)).await;
    fan_out(store, 30).await;
    one(listed(store, 1).await).event
}

pub async fn an_endpoint_is_listed_changed_and_deleted(store: &dyn Inspect) {
    let first = endpoint(store, 1, &["send.*"]).await;
    let second = endpoint(store, 2, &["run.failed"]).await;
    assert_eq!(first.created_at, time(0));
    let list = |before, limit| ListWebhooks {
        tenant: TENANT,
        before,
        limit,
    };
    let page = store.list_webhooks(list(None, 1)).await.expect("lists");
    assert_eq!((page.data, page.more), (vec![second.clone()], true));
    let page = store.list_webhooks(list(Some(second.id), 1)).await;
    let page = page.expect("lists");
    assert_eq!((page.data, page.more), (vec![first.clone()], false));
    let change = ChangeWebhook {
        url: Some("https://new.example".to_owned()),
        disabled: Some(Some("off".to_owned())),
        secret: Some(NewSecret {
            sealed: "sealed anew".to_owned(),
            overlap_ms: 50,
        }),
        ..ChangeWebhook::nothing(TENANT, first.id)
    };
    let changed = store.at(time(10)).change_webhook(change.clone()).await;
    let changed = changed.expect("changes").expect("is there");
    assert_eq!(changed, change.made(first.clone(), time(10)));
    assert_eq!(changed.previous, Some((time(60), "sealed 1".to_owned())));
    let found = store.get_webhook(TENANT, first.id).await.expect("reads");
    assert_eq!(found, Some(changed));
    assert!(
        store
            .delete_webhook(TENANT, first.id)
            .await
            .expect("deletes")
    );
    assert!(
        !store
            .delete_webhook(TENANT, first.id)
            .await
            .expect("answers")
    );
    assert_eq!(
        store.get_webhook(TENANT, first.id).await.expect("reads"),
        None
    );
}

pub async fn another_tenants_endpoint_is_not_found(store: &dyn Inspect) {
    let event = under_delivery(store).await;
    let other = TenantId(2);
    let id = webhook_id(1);
    assert_eq!(store.get_webhook(other, id).await.expect("reads"), None);
    let change = ChangeWebhook {
        url: Some("https://mine.example".to_owned()),
        ..ChangeWebhook::nothing(other, id)
    };
    assert_eq!(store.change_webhook(change).await.expect("answers"), None);
    assert!(!store.delete_webhook(other, id).await.expect("answers"));
    assert_eq!(
        store.redeliver(other, id, event).await.expect("answers"),
        None
    );
    let query = ListDeliveries {
        tenant: other,
        webhook: id,
        status: None,
        before: None,
        limit: 10,
    };
    assert_eq!(store.list_deliveries(query).await.expect("lists").data, []);
    let created = NewWebhook {
        tenant: other,
        ..new_webhook(9, &["*"])
    };
    let created = store.create_webhook(created, None).await.expect("answers");
    assert_eq!(created, CreateWebhookOutcome::NoTenant);
}

pub async fn a_repeated_request_creates_one_endpoint(store: &dyn Inspect) {
    let key = |body| {
        Some(IdempotencyKey {
            tenant: TENANT,
            route: "POST /v1/webhooks".to_owned(),
            key: "k".to_owned(),
            body_hash: [body; 32],
        })
    };
    let create = |n, body| store.create_webhook(new_webhook(n, &["*"]), key(body));
    let first = create(1, 1).await.expect("creates");
    assert!(matches!(first, CreateWebhookOutcome::Created { .. }));
    let again = create(2, 1).await.expect("answers");
    let CreateWebhookOutcome::Replayed { webhook, .. } = again else {
        panic!("{again:?}");
    };
    assert_eq!(webhook.id, webhook_id(1));
    let other = create(3, 2).await.expect("answers");
    assert_eq!(other, CreateWebhookOutcome::Mismatch);
    store
        .delete_webhook(TENANT, webhook_id(1))
        .await
        .expect("deletes");
    assert_eq!(
        create(4, 1).await.expect("answers"),
        CreateWebhookOutcome::Gone
    );
}

pub async fn a_tenant_has_a_bounded_number_of_endpoints(store: &dyn Inspect) {
    for n in 0..u128::from(WEBHOOKS_MAX) {
        let created = store.create_webhook(new_webhook(n, &["*"]), None).await;
        let created = created.expect("creates");
        assert!(
            matches!(created, CreateWebhookOutcome::Created { .. }),
            "{n}"
        );
    }
    let further = store.create_webhook(new_webhook(1_000, &["*"]), None).await;
    assert_eq!(further.expect("answers"), CreateWebhookOutcome::TooMany);
}

pub async fn without_endpoints_nothing_is_noted(store: &dyn Inspect) {
    let claimed = running(store).await;
    complete(store, 20, ending(&claimed, AfterSend::Release)).await;
    endpoint(store, 1, &["*"]).await;
    assert_eq!(fan_out(store, 30).await, FannedOut::default());
}

pub async fn the_end_of_a_send_reaches_each_endpoint_that_wants_it_once(store: &dyn Inspect) {
    endpoint(store, 1, &["send.*"]).await;
    endpoint(store, 2, &["send.completed"]).await;
    endpoint(store, 3, &["run.*", "send.failed"]).await;
    let claimed = running(store).await;
    complete(store, 20, ending(&claimed, AfterSend::Release)).await;
    let expected = FannedOut {
        events: 1,
        deliveries: 2,
    };
    assert_eq!(fan_out(store, 30).await, expected);
    assert_eq!(fan_out(store, 31).await, FannedOut::default());
    let delivery = one(listed(store, 1).await);
    let last = last_step(store, 1).await;
    assert_eq!(
        delivery.event,
        event_id(TENANT, key(1).session.0, last.n, last.at)
    );
    assert_eq!(
        (delivery.event_type.as_str(), delivery.event_at),
        ("send.completed", time(20))
    );
    assert_eq!((delivery.resource, delivery.due_at), (send(1).0, at(30)));
    assert_eq!(
        (delivery.status, delivery.attempts),
        (DeliveryStatus::Pending, 0)
    );
    assert_eq!(one(listed(store, 2).await).event, delivery.event);
    assert_eq!(listed(store, 3).await, []);
}

pub async fn a_send_that_ends_without_a_worker_is_told_too(store: &dyn Inspect) {
    endpoint(store, 1, &["*"]).await;
    running(store).await;
    accept(store, 11, sending(2, 1)).await;
    cancel(store, 20, 2).await;
    fan_out(store, 30).await;
    let delivery = one(listed(store, 1).await);
    assert_eq!(
        (delivery.event_type.as_str(), delivery.resource),
        ("send.cancelled", send(2).0)
    );
}

pub async fn the_next_sends_of_a_session_are_told_apart(store: &dyn Inspect) {
    endpoint(store, 1, &["*"]).await;
    let claimed = running(store).await;
    accept(store, 11, sending(2, 1)).await;
    let completed = complete(store, 20, ending(&claimed, AfterSend::Continue)).await;
    let (next, _) = completed.next.expect("the next send begins");
    let lease = numbered(store, key(1), claimed.lease).await;
    let mut item = ending_of(&claimed, &next.record, AfterSend::Continue);
    item.lease = lease;
    complete(store, 21, item).await;
    fan_out(store, 30).await;
    let told: BTreeSet<Uuid> = listed(store, 1)
        .await
        .iter()
        .map(|it| it.resource)
        .collect();
    assert_eq!(told, BTreeSet::from([send(1).0, send(2).0]));
}

pub async fn a_send_that_waits_for_someone_is_told_and_one_that_waits_for_a_time_is_not(
    store: &dyn Inspect,
) {
    endpoint(store, 1, &["send.waiting"]).await;
    register(store, 1).await;
    for (n, on) in [
        (1, WaitingOn::Human),
        (2, WaitingOn::Retry),
        (3, WaitingOn::Tool),
    ] {
        accept(store, 0, opening(n, n)).await;
        let claimed = claim(store, 10, 1, n, n).await;
        let until = if on == WaitingOn::Retry {
            ParkUntil::After(millis(100))
        } else {
            ParkUntil::Asked
        };
        park(store, 20, waiting(&claimed, on, until)).await;
    }
    fan_out(store, 30).await;
    let told: BTreeSet<Uuid> = listed(store, 1)
        .await
        .iter()
        .map(|it| it.resource)
        .collect();
    assert_eq!(told, BTreeSet::from([send(1).0, send(3).0]));
}

pub async fn the_end_of_a_run_is_told_once(store: &dyn Inspect) {
    endpoint(store, 1, &["run.*"]).await;
    under_way(store, 1..1).await;
    let record = read_run(store, 1).await;
    let mut item = advance_of(&record, 1);
    item.run.status = RunStatus::Completed;
    item.run.finished_at = Some(time(900));
    item.changes = json!({ "status": "completed" });
    advance(store, 900, 1, item.clone()).await;
    item.step = 2;
    item.changes = json!({});
    advance(store, 901, 1, item).await;
    fan_out(store, 910).await;
    let delivery = one(listed(store, 1).await);
    assert_eq!(delivery.event_type, "run.completed");
    assert_eq!(delivery.resource, record.key.run.0);
}

pub async fn a_timer_that_gives_up_is_told_once(store: &dyn Inspect) {
    endpoint(store, 1, &["timer.*"]).await;
    timers::session(store, 1).await;
    let closed = SessionPatch {
        closed: Some(true),
        ..SessionPatch::default()
    };
    timers::arm(store, 0, timers::once(1, 1, 1_000)).await;
    let patched = store.at(time(10)).update_session(key(1), closed).await;
    patched.expect("the store answers");
    for ms in [1_000, 100_000, 200_000, 1_000_000, 2_000_000] {
        timers::fire(store, ms).await;
        fan_out(store, ms + 1).await;
        assert_eq!(listed(store, 1).await, [], "{ms}: it is tried again");
    }
    timers::fire(store, 3_000_000).await;
    assert_eq!(timers::read(store, 1).await.state.status, TimerStatus::Dead);
    fan_out(store, 3_000_001).await;
    fan_out(store, 3_000_002).await;
    let delivery = one(listed(store, 1).await);
    assert_eq!(delivery.event_type, "timer.dead");
    assert_eq!(delivery.resource, timers::timer_id(1).0);
    assert_eq!(delivery.event_at, time(3_000_000));
}

pub async fn a_claimed_delivery_is_due_again_when_its_lease_ends(store: &dyn Inspect) {
    under_delivery(store).await;
    let first = one(taken(store, 40).await);
    assert_eq!(first.webhook.id, webhook_id(1));
    assert_eq!(
        (first.delivery.attempts, first.delivery.due_at),
        (1, at(1_040))
    );
    assert_eq!(taken(store, 1_039).await, []);
    let second = one(taken(store, 1_040).await);
    assert_eq!(second.delivery.attempts, 2);
    assert!(
        !settle(store, 1_050, ended(&first, DeliveryEnd::Delivered)).await,
        "it is stale"
    );
    assert!(settle(store, 1_060, ended(&second, DeliveryEnd::Delivered)).await);
    assert!(
        !settle(store, 1_061, ended(&second, DeliveryEnd::Dead)).await,
        "it is settled"
    );
    let delivery = one(listed(store, 1).await);
    assert_eq!(
        (delivery.status, delivery.answer),
        (DeliveryStatus::Delivered, Some(200))
    );
    assert_eq!((delivery.settled_at, delivery.due_at), (at(1_060), None));
    assert_eq!(taken(store, 9_000).await, []);
}

pub async fn a_failed_attempt_is_followed_by_another_one_or_the_delivery_is_dead(
    store: &dyn Inspect,
) {
    let event = under_delivery(store).await;
    let first = one(taken(store, 40).await);
    assert!(settle(store, 50, ended(&first, DeliveryEnd::Again(millis(500)))).await);
    let delivery = one(listed(store, 1).await);
    assert_eq!(
        (delivery.status, delivery.due_at),
        (DeliveryStatus::Pending, at(550))
    );
    assert_eq!(delivery.error.as_deref(), Some("answered 500"));
    assert_eq!(taken(store, 549).await, []);
    let second = one(taken(store, 550).await);
    assert!(settle(store, 560, ended(&second, DeliveryEnd::Dead)).await);
    let dead = ListDeliveries {
        tenant: TENANT,
        webhook: webhook_id(1),
        status: Some(DeliveryStatus::Dead),
        before: None,
        limit: 10,
    };
    let page = store.list_deliveries(dead).await.expect("lists");
    assert_eq!(one(page.data).attempts, 2);
    assert_eq!(taken(store, 9_000).await, []);
    let again = store
        .at(time(9_100))
        .redeliver(TENANT, webhook_id(1), event)
        .await;
    let again = again.expect("answers").expect("is there");
    assert_eq!(
        (again.status, again.due_at),
        (DeliveryStatus::Pending, at(9_100))
    );
    assert_eq!((again.attempts, again.tried), (2, 0));
    let third = one(taken(store, 9_100).await);
    assert_eq!((third.delivery.attempts, third.delivery.tried), (3, 1));
    assert_eq!(third.delivery.event, event);
}

pub async fn an_attempt_under_way_does_not_settle_what_was_asked_for_since(store: &dyn Inspect) {
    let event = under_delivery(store).await;
    let first = one(taken(store, 40).await);
    let asked = store
        .at(time(50))
        .redeliver(TENANT, webhook_id(1), event)
        .await;
    asked.expect("answers").expect("is there");
    assert!(!settle(store, 60, ended(&first, DeliveryEnd::Delivered)).await);
    assert_eq!(one(taken(store, 61).await).delivery.attempts, 2);
}

pub async fn each_endpoint_gets_its_share_and_busy_ones_are_left_out(store: &dyn Inspect) {
    endpoint(store, 1, &["*"]).await;
    endpoint(store, 2, &["*"]).await;
    register(store, 1).await;
    for n in 1..=3 {
        accept(store, 0, opening(n, n)).await;
        let claimed = claim(store, 10, 1, n, n).await;
        complete(store, 20, ending(&claimed, AfterSend::Release)).await;
    }
    fan_out(store, 30).await;
    let some = ClaimDeliveries {
        each: 2,
        ..claiming()
    };
    let claimed = claims(store, 40, some.clone()).await;
    assert_eq!(claimed.oldest_due, at(30));
    let of = |claimed: &ClaimedDeliveries, n| {
        let all = claimed.deliveries.iter();
        all.filter(|it| it.webhook.id == webhook_id(n)).count()
    };
    assert_eq!((of(&claimed, 1), of(&claimed, 2)), (2, 2));
    let with_its_share = ClaimDeliveries {
        busy_tenants: vec![TENANT],
        ..some.clone()
    };
    let claimed = claims(store, 41, with_its_share).await;
    assert_eq!((of(&claimed, 1), of(&claimed, 2)), (0, 0));
    assert_eq!(claimed.oldest_due, at(30));
    let busy = ClaimDeliveries {
        busy: vec![(TENANT, webhook_id(1))],
        ..some
    };
    let claimed = claims(store, 41, busy).await;
    assert_eq!((of(&claimed, 1), of(&claimed, 2)), (0, 1));
    let off = ChangeWebhook {
        disabled: Some(Some("off".to_owned())),
        ..ChangeWebhook::nothing(TENANT, webhook_id(1))
    };
    store.change_webhook(off).await.expect("changes");
    assert_eq!(taken(store, 42).await, [], "it is disabled");
}

pub async fn what_was_settled_long_ago_goes(store: &dyn Inspect) {
    under_delivery(store).await;
    let first = one(taken(store, 40).await);
    let retire = |ms| {
        let query = RetireDeliveries {
            keep: millis(100),
            limit: 10,
        };
        let store = store.at(time(ms));
        async move { store.retire_deliveries(query).await.expect("answers") }
    };
    assert_eq!(retire(9_000).await, 0, "it is pending");
    settle(store, 9_001, ended(&first, DeliveryEnd::Delivered)).await;
    assert_eq!(retire(9_101).await, 0);
    assert_eq!(retire(9_102).await, 1);
    assert_eq!(listed(store, 1).await, []);
}

pub async fn what_is_on_its_way_goes_with_the_endpoint(store: &dyn Inspect) {
    under_delivery(store).await;
    assert!(
        store
            .delete_webhook(TENANT, webhook_id(1))
            .await
            .expect("deletes")
    );
    assert_eq!(listed(store, 1).await, []);
    assert_eq!(taken(store, 9_000).await, []);
}

pub async fn endpoints_go_with_their_tenant(store: &dyn Inspect) {
    let tenant = super::tenants::new("blue");
    store.create_tenant(tenant, None).await.expect("creates");
    let new = NewWebhook {
        tenant: TenantId(2),
        ..new_webhook(1, &["*"])
    };
    store.create_webhook(new, None).await.expect("creates");
    store.delete_tenant(TenantId(2)).await.expect("deletes");
    let found = store.get_webhook(TenantId(2), webhook_id(1)).await;
    assert_eq!(found.expect("reads"), None);
}
