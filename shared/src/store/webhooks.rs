//! Parameters of webhooks and their deliveries.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::{AdvanceRun, IdempotencyKey, Page, Result};
use crate::id::{SessionKey, TenantId, WebhookEventId, WebhookId};
use crate::send::{SendStatus, WaitingOn};
use crate::step::{Step, StepKind};
use crate::time::Timestamp;
use crate::webhook::{DeliveryRecord, Disabled, Filter, WebhookRecord, event_id};
use crate::workflow::run::RunStatus;

/// Endpoints of a tenant.
pub const WEBHOOKS_MAX: u32 = 50;

/// Webhooks: endpoints, and events on their way to them.
///
/// The step that ends a send or a run, or parks a send for someone, notes an event in its own transaction if
/// the tenant has endpoints, so that an event is there exactly if its step is. A fan-out turns it into
/// deliveries, one for each endpoint that wants it, and removes it, in one transaction.
#[async_trait]
pub trait Webhooks: Send + Sync {
    /// Creates an endpoint. With an idempotency key a repeat returns the one that the first request created;
    /// its secret is not shown again.
    async fn create_webhook(
        &self,
        new: NewWebhook,
        key: Option<IdempotencyKey>,
    ) -> Result<CreateWebhookOutcome>;

    /// Reads an endpoint.
    async fn get_webhook(&self, tenant: TenantId, id: WebhookId) -> Result<Option<WebhookRecord>>;

    /// Lists a tenant's endpoints, newest first.
    async fn list_webhooks(&self, query: ListWebhooks) -> Result<Page<WebhookRecord>>;

    /// Changes an endpoint; none where the tenant has no such one.
    async fn change_webhook(&self, change: ChangeWebhook) -> Result<Option<WebhookRecord>>;

    /// Deletes an endpoint; what was on its way to it is not delivered, and goes with retention. False where
    /// the tenant has no such one.
    async fn delete_webhook(&self, tenant: TenantId, id: WebhookId) -> Result<bool>;

    /// Turns noted events, at most `limit`, oldest first, into deliveries. Those that another fan-out has
    /// in hand are passed over. A repeat finds other events.
    async fn fan_out(&self, limit: u32) -> Result<FannedOut>;

    /// Takes deliveries that are due, the oldest of each endpoint first, and counts an attempt at each. Until
    /// the lease ends nobody else gets them; then they are due again, whatever became of the attempt.
    async fn claim_deliveries(&self, claim: ClaimDeliveries) -> Result<ClaimedDeliveries>;

    /// Settles attempts. One that is not the delivery's last any more changes nothing, and neither does the
    /// repeat of one that was the last; of one that another attempt follows, a repeat postpones that.
    /// Returns whether each was settled by this call.
    async fn settle_deliveries(&self, items: Vec<SettleDelivery>) -> Result<Vec<bool>>;

    /// Lists deliveries of an endpoint, newest event first.
    async fn list_deliveries(&self, query: ListDeliveries) -> Result<Page<DeliveryRecord>>;

    /// Has an event delivered again, now and with as many attempts as a new one. One that is pending is tried
    /// now. None where the endpoint has no such delivery.
    async fn redeliver(
        &self,
        tenant: TenantId,
        webhook: WebhookId,
        event: WebhookEventId,
    ) -> Result<Option<DeliveryRecord>>;

    /// Removes deliveries that were settled long ago, and those of endpoints that are gone; returns how many.
    async fn retire_deliveries(&self, query: RetireDeliveries) -> Result<u64>;
}

/// The methods of [`Webhooks`] as [`store_methods`](crate::store_methods) hands them over.
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

/// What became of a new endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateWebhookOutcome {
    /// It was created.
    Created {
        /// The endpoint.
        webhook: WebhookRecord,
        /// After this time, counted from now, every process notes events for it.
        known_in: Duration,
    },
    /// The same request created it before.
    Replayed {
        /// The endpoint as it is now.
        webhook: WebhookRecord,
        /// After this time, counted from now, every process notes events for it.
        known_in: Duration,
    },
    /// The same request created it before, and it was deleted since.
    Gone,
    /// The tenant is unknown or deleted.
    NoTenant,
    /// The tenant has as many as it may have.
    TooMany,
    /// The idempotency key was used with another request.
    Mismatch,
}

/// Which endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListWebhooks {
    /// The tenant's.
    pub tenant: TenantId,
    /// The last of the page before; none for the first page.
    pub before: Option<WebhookId>,
    /// At most this many.
    pub limit: u32,
}

/// A secret in place of the present one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSecret {
    /// It, sealed.
    pub sealed: String,
    /// How long the one before signs, too, in milliseconds.
    pub overlap_ms: i64,
}

/// Changes of an endpoint; what is absent stays as it is.
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
    /// Whether it gets nothing, with the reason, or something again. The first reason stays.
    pub disabled: Option<Option<String>>,
    /// Its secret.
    pub secret: Option<NewSecret>,
}

impl ChangeWebhook {
    /// Of this endpoint, nothing.
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

    /// The endpoint as it is afterwards: what every store writes.
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

/// A step that endpoints may be told of, as its transaction notes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookNews {
    /// The owner.
    pub tenant: TenantId,
    /// The session or the run whose step it is.
    pub source: Uuid,
    /// The step's number.
    pub n: i64,
    /// The event's type.
    pub event_type: String,
    /// The send or the run that it is about.
    pub resource: Uuid,
    /// When the step was committed.
    pub at: Timestamp,
}

impl WebhookNews {
    /// What a session's step tells, if anything.
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

    /// Whether what a send waits for is up to someone outside.
    pub const fn is_for_someone(on: WaitingOn) -> bool {
        match on {
            WaitingOn::Human | WaitingOn::Tool | WaitingOn::Recovery => true,
            WaitingOn::Agent | WaitingOn::Run | WaitingOn::Timer | WaitingOn::Retry => false,
        }
    }

    /// What an advance tells that makes its run final, committed at `at`.
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
    /// What is known of it.
    pub news: WebhookNews,
}

/// The deliveries that events lead to: one for each endpoint of the same tenant that wants it.
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

/// What a fan-out did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FannedOut {
    /// Events that it removed.
    pub events: u64,
    /// Deliveries that it made.
    pub deliveries: u64,
}

/// Which deliveries to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimDeliveries {
    /// How long an attempt may take before the delivery is due again.
    pub lease: Duration,
    /// At most this many of one endpoint.
    pub each: u32,
    /// At most this many in all.
    pub limit: u32,
    /// Endpoints that are left out: they have enough in hand.
    pub busy: Vec<(TenantId, WebhookId)>,
}

/// Deliveries that were taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimedDeliveries {
    /// They, with their endpoints.
    pub deliveries: Vec<ClaimedDelivery>,
    /// The database's time.
    pub now: Timestamp,
    /// Since when the delivery that was due the longest was due, taken or not.
    pub oldest_due: Option<Timestamp>,
}

/// A delivery that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDelivery {
    /// It, with this attempt counted.
    pub delivery: DeliveryRecord,
    /// Its endpoint.
    pub webhook: WebhookRecord,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleDelivery {
    /// The owner.
    pub tenant: TenantId,
    /// The endpoint.
    pub webhook: WebhookId,
    /// The event.
    pub event: WebhookEventId,
    /// The attempt, by its number: what keeps a stale one out.
    pub attempt: u32,
    /// The HTTP status of the answer, if there was any.
    pub answer: Option<u16>,
    /// What went wrong.
    pub error: Option<String>,
    /// What follows.
    pub end: DeliveryEnd,
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryEnd {
    /// The endpoint took it.
    Delivered,
    /// Another attempt after this time.
    Again(Duration),
    /// Nothing.
    Dead,
}

/// Which deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListDeliveries {
    /// The owner.
    pub tenant: TenantId,
    /// The endpoint.
    pub webhook: WebhookId,
    /// Only those that stand there.
    pub status: Option<crate::webhook::DeliveryStatus>,
    /// The last of the page before; none for the first page.
    pub before: Option<WebhookEventId>,
    /// At most this many.
    pub limit: u32,
}

/// Which deliveries to remove.
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
