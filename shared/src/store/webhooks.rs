//! Parameters of webhooks and their deliveries.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::{AdvanceRun, IdempotencyKey, Page, Result};
use crate::id::{SessionKey, TenantId, WebhookEventId, WebhookId};
use crate::send::{SendStatus, WaitingOn};
use crate::step::{Step, StepKind};
use crate::time::Timestamp;
use crate::timer::{self, TimerRecord, TimerStatus};
use crate::webhook::{DeliveryRecord, Disabled, EventType, Filter, WebhookRecord, event_id};
use crate::workflow::run::RunStatus;

/// Maximum number of endpoints of a tenant.
pub const WEBHOOKS_MAX: u32 = 50;

/// Webhooks: endpoints, and the delivery of events to them.
///
/// A step that ends a send or a run, parks a send for someone, or ends a timer in failure records an event in the same
/// transaction if the tenant has endpoints, so that the event exists exactly if the step does. A
/// fan-out turns it into deliveries, one for each endpoint that wants it, and removes it, in one transaction.
#[async_trait]
pub trait Webhooks: Send + Sync {
    /// Creates an endpoint. With an idempotency key a repeat returns the one that the first request
    /// created, but its secret is not shown again.
    async fn create_webhook(
        &self,
        new: NewWebhook,
        key: Option<IdempotencyKey>,
    ) -> Result<CreateWebhookOutcome>;

    /// Reads an endpoint.
    async fn get_webhook(&self, tenant: TenantId, id: WebhookId) -> Result<Option<WebhookRecord>>;

    /// Lists a tenant's endpoints, newest first.
    async fn list_webhooks(&self, query: ListWebhooks) -> Result<Page<WebhookRecord>>;

    /// Changes an endpoint; `None` if the tenant has no such endpoint.
    async fn change_webhook(&self, change: ChangeWebhook) -> Result<Option<WebhookRecord>>;

    /// Deletes an endpoint. Its pending deliveries are dropped, and removed by retention. False if
    /// the tenant has no such endpoint.
    async fn delete_webhook(&self, tenant: TenantId, id: WebhookId) -> Result<bool>;

    /// Turns recorded events, at most `limit`, oldest first, into deliveries. Events that another
    /// fan-out is processing are skipped. A repeat finds other events.
    async fn fan_out(&self, limit: u32) -> Result<FannedOut>;

    /// Claims due deliveries, the oldest of each endpoint first, and counts an attempt of each. No
    /// other claimer gets them until the lease ends; then they are due again, whatever the
    /// attempt's outcome.
    async fn claim_deliveries(&self, claim: ClaimDeliveries) -> Result<ClaimedDeliveries>;

    /// Settles attempts. An attempt that is not the delivery's latest changes nothing, and neither
    /// does a repeat for an attempt that no other follows; if another attempt follows, a repeat
    /// postpones that one. Returns whether each was settled by this call.
    async fn settle_deliveries(&self, items: Vec<SettleDelivery>) -> Result<Vec<bool>>;

    /// Lists deliveries of an endpoint, newest event first.
    async fn list_deliveries(&self, query: ListDeliveries) -> Result<Page<DeliveryRecord>>;

    /// Delivers an event again, at once and with as many attempts as a new one. A pending one is
    /// tried at once. `None` if the endpoint has no such delivery.
    async fn redeliver(
        &self,
        tenant: TenantId,
        webhook: WebhookId,
        event: WebhookEventId,
    ) -> Result<Option<DeliveryRecord>>;

    /// Removes deliveries settled long ago, and those of deleted endpoints; returns how many.
    async fn retire_deliveries(&self, query: RetireDeliveries) -> Result<u64>;
}

/// The methods of [`Webhooks`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! webhooks_methods {
    ($apply:ident) => {
        $apply! { Webhooks:
            write create_webhook(
                new: $crate::store::NewWebhook,
                key: Option<$crate::store::IdempotencyKey>
            ) -> $crate::store::CreateWebhookOutcome;
            read get_webhook(
                tenant: $crate::id::TenantId,
                id: $crate::id::WebhookId
            ) -> Option<$crate::webhook::WebhookRecord>;
            read list_webhooks(
                query: $crate::store::ListWebhooks
            ) -> $crate::store::Page<$crate::webhook::WebhookRecord>;
            write change_webhook(
                change: $crate::store::ChangeWebhook
            ) -> Option<$crate::webhook::WebhookRecord>;
            write delete_webhook(tenant: $crate::id::TenantId, id: $crate::id::WebhookId) -> bool;
            read fan_out(limit: u32) -> $crate::store::FannedOut;
            read claim_deliveries(
                claim: $crate::store::ClaimDeliveries
            ) -> $crate::store::ClaimedDeliveries;
            write settle_deliveries(items: Vec<$crate::store::SettleDelivery>) -> Vec<bool>;
            read list_deliveries(
                query: $crate::store::ListDeliveries
            ) -> $crate::store::Page<$crate::webhook::DeliveryRecord>;
            write redeliver(
                tenant: $crate::id::TenantId,
                webhook: $crate::id::WebhookId,
                event: $crate::id::WebhookEventId
            ) -> Option<$crate::webhook::DeliveryRecord>;
            read retire_deliveries(query: $crate::store::RetireDeliveries) -> u64;
        }
    };
}

/// An endpoint to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWebhook {
    /// The owner.
    pub tenant: TenantId,
    /// Its id.
    pub id: WebhookId,
    /// Where deliveries go.
    pub url: String,
    /// Its event filters.
    pub events: Vec<Filter>,
    /// Its secret, sealed.
    pub secret: String,
}

/// The outcome of creating an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateWebhookOutcome {
    /// It was created.
    Created {
        /// The endpoint.
        webhook: WebhookRecord,
        /// The time from now after which every process records events for it.
        known_in: Duration,
    },
    /// The same request created it before.
    Replayed {
        /// The endpoint as it is now.
        webhook: WebhookRecord,
        /// The time from now after which every process records events for it.
        known_in: Duration,
    },
    /// The same request created it before, and it has been deleted since.
    Gone,
    /// The tenant is unknown or deleted.
    NoTenant,
    /// The tenant has the maximum number of endpoints.
    TooMany,
    /// The idempotency key was used with another request.
    Mismatch,
}

/// A query for endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListWebhooks {
    /// The tenant.
    pub tenant: TenantId,
    /// The last endpoint of the previous page; `None` for the first page.
    pub before: Option<WebhookId>,
    /// At most this many.
    pub limit: u32,
}

/// A new secret that replaces the current one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSecret {
    /// The secret, sealed.
    pub sealed: String,
    /// How long the previous secret also signs, in milliseconds.
    pub overlap_ms: i64,
}

/// Changes of an endpoint; absent fields are unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeWebhook {
    /// The owner.
    pub tenant: TenantId,
    /// The endpoint.
    pub id: WebhookId,
    /// Where deliveries go.
    pub url: Option<String>,
    /// Its event filters.
    pub events: Option<Vec<Filter>>,
    /// Disables it with a reason, or enables it again. The first reason is kept.
    pub disabled: Option<Option<String>>,
    /// Its new secret.
    pub secret: Option<NewSecret>,
}

impl ChangeWebhook {
    /// An empty change of this endpoint.
    pub fn nothing(tenant: TenantId, id: WebhookId) -> Self {
        Self {
            tenant,
            id,
            url: None,
            events: None,
            disabled: None,
            secret: None,
        }
    }

    /// The endpoint after the change, as every store writes it.
    pub fn made(&self, mut webhook: WebhookRecord, now: Timestamp) -> WebhookRecord {
        if let Some(url) = &self.url {
            webhook.url.clone_from(url);
        }
        if let Some(events) = &self.events {
            webhook.events.clone_from(events);
        }
        match &self.disabled {
            None => {}
            Some(None) => webhook.disabled = None,
            Some(Some(reason)) => {
                let reason = reason.clone();
                webhook.disabled.get_or_insert(Disabled { at: now, reason });
            }
        }
        if let Some(secret) = &self.secret
            && webhook.secret != secret.sealed
        {
            let before = std::mem::replace(&mut webhook.secret, secret.sealed.clone());
            let until = Timestamp(now.0 + secret.overlap_ms);
            webhook.previous = (secret.overlap_ms > 0).then_some((until, before));
        }
        webhook
    }
}

/// A step that endpoints may be notified of, as recorded by its transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookNews {
    /// The owner.
    pub tenant: TenantId,
    /// The session or run of the step; a timer.
    pub source: Uuid,
    /// The step's number; that of the next occurrence.
    pub n: i64,
    /// The event's type.
    pub event_type: String,
    /// The send, the run or the timer that it is about.
    pub resource: Uuid,
    /// When the step was committed.
    pub at: Timestamp,
}

impl WebhookNews {
    /// The event of a session's step, if any.
    pub fn of_step(key: SessionKey, step: &Step) -> Option<Self> {
        let event_type = match step.kind {
            StepKind::Finished => {
                let status = step.refs.status.as_deref().and_then(SendStatus::parse)?;
                format!("send.{}", status.as_str())
            }
            StepKind::Waiting => {
                let on = step.refs.reason.as_deref().and_then(WaitingOn::parse)?;
                if !Self::is_for_someone(on) {
                    return None;
                }
                "send.waiting".to_owned()
            }
            StepKind::Accepted
            | StepKind::Round
            | StepKind::Calls
            | StepKind::Resumed
            | StepKind::Folded => return None,
        };
        Some(Self {
            tenant: key.tenant,
            source: key.session.0,
            n: step.n,
            event_type,
            resource: step.send_id.0,
            at: step.at,
        })
    }

    /// Whether such a wait is for someone outside.
    pub const fn is_for_someone(on: WaitingOn) -> bool {
        match on {
            WaitingOn::Human | WaitingOn::Tool | WaitingOn::Recovery => true,
            WaitingOn::Agent | WaitingOn::Run | WaitingOn::Timer | WaitingOn::Retry => false,
        }
    }

    /// The event of a timer's step committed at `at`, if the timer is dead after it.
    pub fn of_firing(timer: &TimerRecord, step: &timer::Step, at: Timestamp) -> Option<Self> {
        if step.next.status != TimerStatus::Dead {
            return None;
        }
        Some(Self {
            tenant: timer.tenant,
            source: timer.id.0,
            n: step.next.next_n,
            event_type: EventType::TimerDead.as_str().to_owned(),
            resource: timer.id.0,
            at,
        })
    }

    /// The event of an advance committed at `at`, if it makes its run final.
    pub fn of_advance(item: &AdvanceRun, at: Timestamp) -> Option<Self> {
        let changed = item.changes.get("status")?.as_str();
        let status = changed.and_then(RunStatus::parse)?;
        status.is_final().then(|| Self {
            tenant: item.run.key.tenant,
            source: item.run.key.run.0,
            n: item.step + 1,
            event_type: format!("run.{}", status.as_str()),
            resource: item.run.key.run.0,
            at,
        })
    }
}

/// An event of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookEvent {
    /// Its id.
    pub id: WebhookEventId,
    /// The step.
    pub news: WebhookNews,
}

/// The deliveries of events: one for each endpoint of the same tenant that wants it.
pub fn deliveries_of<'w>(
    news: &[WebhookNews],
    webhooks: &'w [WebhookRecord],
) -> Vec<(&'w WebhookRecord, WebhookEvent)> {
    let mut deliveries = Vec::new();
    for news in news {
        let mine = webhooks.iter().filter(|it| it.tenant == news.tenant);
        for webhook in mine.filter(|it| it.wants(&news.event_type)) {
            let id = event_id(news.tenant, news.source, news.n, news.at);
            let news = news.clone();
            deliveries.push((webhook, WebhookEvent { id, news }));
        }
    }
    deliveries
}

/// The result of a fan-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FannedOut {
    /// Number of events that it removed.
    pub events: u64,
    /// Number of deliveries that it created.
    pub deliveries: u64,
}

/// Which deliveries to claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimDeliveries {
    /// How long an attempt may take before the delivery is due again.
    pub lease: Duration,
    /// Maximum number per endpoint.
    pub each: u32,
    /// Maximum number in total.
    pub limit: u32,
    /// Endpoints to leave out, since they have enough in flight.
    pub busy: Vec<(TenantId, WebhookId)>,
    /// Tenants all of whose endpoints to leave out, since they have their share in flight.
    pub busy_tenants: Vec<TenantId>,
}

impl ClaimDeliveries {
    /// Whether an endpoint is left out.
    pub fn leaves_out(&self, tenant: TenantId, webhook: WebhookId) -> bool {
        self.busy_tenants.contains(&tenant) || self.busy.contains(&(tenant, webhook))
    }

    /// How many endpoints may be left out.
    pub fn left_out_max(&self) -> i64 {
        (self.busy.len() + self.busy_tenants.len() * WEBHOOKS_MAX as usize) as i64
    }
}

/// Claimed deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimedDeliveries {
    /// The deliveries, with their endpoints.
    pub deliveries: Vec<ClaimedDelivery>,
    /// The database's time.
    pub now: Timestamp,
    /// The earliest due time of all due deliveries, claimed or not.
    pub oldest_due: Option<Timestamp>,
}

/// A claimed delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDelivery {
    /// The delivery, with this attempt counted.
    pub delivery: DeliveryRecord,
    /// Its endpoint.
    pub webhook: WebhookRecord,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleDelivery {
    /// The owner.
    pub tenant: TenantId,
    /// The endpoint.
    pub webhook: WebhookId,
    /// The event.
    pub event: WebhookEventId,
    /// The attempt's number, which keeps out stale ones.
    pub attempt: u32,
    /// The HTTP status of the response, if there was one.
    pub answer: Option<u16>,
    /// What went wrong.
    pub error: Option<String>,
    /// What happens next.
    pub end: DeliveryEnd,
}

/// What happens after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryEnd {
    /// The endpoint accepted it.
    Delivered,
    /// Another attempt after this time.
    Again(Duration),
    /// No further attempts.
    Dead,
}

/// A query for deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListDeliveries {
    /// The owner.
    pub tenant: TenantId,
    /// The endpoint.
    pub webhook: WebhookId,
    /// Only those with this status.
    pub status: Option<crate::webhook::DeliveryStatus>,
    /// The last delivery of the previous page; `None` for the first page.
    pub before: Option<WebhookEventId>,
    /// At most this many.
    pub limit: u32,
}

/// Which settled deliveries to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetireDeliveries {
    /// How long settled ones are kept.
    pub keep: Duration,
    /// At most this many.
    pub limit: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook() -> WebhookRecord {
        WebhookRecord {
            tenant: TenantId(1),
            id: WebhookId(Uuid::from_u128(1)),
            url: "https://a.example".to_owned(),
            events: vec![Filter::stored("send.*")],
            secret: "one".to_owned(),
            previous: None,
            disabled: None,
            created_at: Timestamp(0),
        }
    }

    #[test]
    fn both_secrets_sign_until_the_overlap_ends() {
        let change = ChangeWebhook {
            secret: Some(NewSecret {
                sealed: "two".to_owned(),
                overlap_ms: 100,
            }),
            ..ChangeWebhook::nothing(TenantId(1), webhook().id)
        };
        let rotated = change.made(webhook(), Timestamp(10));
        let signing = |at| rotated.signing(Timestamp(at)).collect::<Vec<_>>();
        assert_eq!(signing(109), ["two", "one"]);
        assert_eq!(signing(110), ["two"]);
        assert_eq!(
            change.made(rotated.clone(), Timestamp(50)),
            rotated,
            "a repeat"
        );
    }

    #[test]
    fn an_endpoint_is_told_of_what_it_wants_while_it_is_enabled() {
        let news = |event_type: &str, tenant| WebhookNews {
            tenant: TenantId(tenant),
            source: Uuid::from_u128(5),
            n: 3,
            event_type: event_type.to_owned(),
            resource: Uuid::from_u128(6),
            at: Timestamp(7),
        };
        let news = [
            news("send.failed", 1),
            news("send.failed", 2),
            news("run.failed", 1),
        ];
        let webhooks = [webhook()];
        assert_eq!(deliveries_of(&news, &webhooks).len(), 1);
        let off = ChangeWebhook {
            disabled: Some(Some("off".to_owned())),
            ..ChangeWebhook::nothing(TenantId(1), webhook().id)
        };
        let off = [off.made(webhook(), Timestamp(10))];
        assert_eq!(deliveries_of(&news, &off), []);
    }
}
