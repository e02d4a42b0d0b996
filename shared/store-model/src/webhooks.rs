//! Webhooks: endpoints, the events that steps record for them, and deliveries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{TenantId, WebhookEventId, WebhookId};
use mainspring_shared::store::{
    ChangeWebhook, ClaimDeliveries, ClaimedDeliveries, ClaimedDelivery, CreateWebhookOutcome,
    DeliveryEnd, FannedOut, IdempotencyKey, ListDeliveries, ListWebhooks, NewWebhook, Page, Result,
    RetireDeliveries, SettleDelivery, WEBHOOKS_MAX, WebhookNews, Webhooks, deliveries_of,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::webhook::{DeliveryRecord, DeliveryStatus, WebhookRecord};

use crate::memory::ModelStore;
use crate::reads::page;
use crate::state::{Seen, State};

/// Endpoints, and the events on their way to them.
#[derive(Debug, Default)]
pub(crate) struct WebhookTables {
    pub(crate) endpoints: BTreeMap<(TenantId, WebhookId), WebhookRecord>,
    /// Events since the last step; those for tenants without endpoints are then dropped.
    pub(crate) news: News,
    /// Events that no fan-out has turned into deliveries yet.
    pub(crate) events: Vec<WebhookNews>,
    pub(crate) deliveries: BTreeMap<(TenantId, WebhookId, WebhookEventId), DeliveryRecord>,
}

/// The webhook events of steps. Every session shares it.
#[derive(Debug, Clone, Default)]
pub(crate) struct News(Arc<Mutex<Vec<WebhookNews>>>);

impl News {
    /// Adds a step's event.
    pub(crate) fn extend(&self, told: Option<WebhookNews>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(told);
    }

    fn take(&self) -> Vec<WebhookNews> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    /// Keeps the new events of tenants that have endpoints.
    pub(crate) fn take_news(&mut self) {
        for news in self.webhooks.news.take() {
            if self
                .webhooks
                .endpoints
                .keys()
                .any(|(tenant, _)| *tenant == news.tenant)
            {
                self.webhooks.events.push(news);
            }
        }
    }
}

#[async_trait]
impl Webhooks for ModelStore {
    async fn create_webhook(
        &self,
        new: NewWebhook,
        key: Option<IdempotencyKey>,
    ) -> Result<CreateWebhookOutcome> {
        let (mut state, now) = self.begin();
        let known_in = Duration::ZERO;
        if state.tenants.rows.get(new.tenant).is_none() {
            return Ok(CreateWebhookOutcome::NoTenant);
        }
        match state.seen(key.as_ref()) {
            Seen::Mismatch => return Ok(CreateWebhookOutcome::Mismatch),
            Seen::Before(made) => {
                let found = state.webhooks.endpoints.get(&(new.tenant, WebhookId(made)));
                return Ok(match found.cloned() {
                    Some(webhook) => CreateWebhookOutcome::Replayed { webhook, known_in },
                    None => CreateWebhookOutcome::Gone,
                });
            }
            Seen::Never => {}
        }
        let mine = state
            .webhooks
            .endpoints
            .keys()
            .filter(|key| key.0 == new.tenant);
        if mine.count() >= WEBHOOKS_MAX as usize {
            return Ok(CreateWebhookOutcome::TooMany);
        }
        let webhook = WebhookRecord {
            tenant: new.tenant,
            id: new.id,
            url: new.url,
            events: new.events,
            secret: new.secret,
            previous: None,
            disabled: None,
            created_at: now,
        };
        state
            .webhooks
            .endpoints
            .insert((new.tenant, new.id), webhook.clone());
        state.remember(key.as_ref(), new.id.0, now);
        Ok(CreateWebhookOutcome::Created { webhook, known_in })
    }

    async fn get_webhook(&self, tenant: TenantId, id: WebhookId) -> Result<Option<WebhookRecord>> {
        let (state, _) = self.begin();
        Ok(state.webhooks.endpoints.get(&(tenant, id)).cloned())
    }

    async fn list_webhooks(&self, query: ListWebhooks) -> Result<Page<WebhookRecord>> {
        let (state, _) = self.begin();
        let all = state.webhooks.endpoints.values().rev();
        let found = all
            .filter(|it| it.tenant == query.tenant)
            .filter(|it| query.before.is_none_or(|before| it.id < before));
        Ok(page(found.cloned(), query.limit))
    }

    async fn change_webhook(&self, change: ChangeWebhook) -> Result<Option<WebhookRecord>> {
        let (mut state, now) = self.begin();
        let found = state
            .webhooks
            .endpoints
            .get_mut(&(change.tenant, change.id));
        Ok(found.map(|webhook| {
            *webhook = change.made(webhook.clone(), now);
            webhook.clone()
        }))
    }

    async fn delete_webhook(&self, tenant: TenantId, id: WebhookId) -> Result<bool> {
        let (mut state, _) = self.begin();
        let gone = state.webhooks.endpoints.remove(&(tenant, id)).is_some();
        if gone {
            let mine = |it: &DeliveryRecord| (it.tenant, it.webhook) == (tenant, id);
            state
                .webhooks
                .deliveries
                .retain(|_, it| !mine(it) || it.due_at.is_none());
        }
        Ok(gone)
    }

    async fn fan_out(&self, limit: u32) -> Result<FannedOut> {
        let (mut state, now) = self.begin();
        state.webhooks.events.sort_by_key(|news| news.at);
        let count = state.webhooks.events.len().min(limit as usize);
        let news: Vec<WebhookNews> = state.webhooks.events.drain(..count).collect();
        let webhooks: Vec<WebhookRecord> = state.webhooks.endpoints.values().cloned().collect();
        let deliveries = deliveries_of(&news, &webhooks);
        for (webhook, event) in &deliveries {
            let delivery = DeliveryRecord {
                tenant: webhook.tenant,
                webhook: webhook.id,
                event: event.id,
                event_type: event.news.event_type.clone(),
                resource: event.news.resource,
                event_at: event.news.at,
                status: DeliveryStatus::Pending,
                attempts: 0,
                tried: 0,
                due_at: Some(now),
                answer: None,
                error: None,
                settled_at: None,
            };
            let key = (webhook.tenant, webhook.id, event.id);
            state.webhooks.deliveries.entry(key).or_insert(delivery);
        }
        Ok(FannedOut {
            events: news.len() as u64,
            deliveries: deliveries.len() as u64,
        })
    }

    async fn claim_deliveries(&self, claim: ClaimDeliveries) -> Result<ClaimedDeliveries> {
        let (mut state, now) = self.begin();
        let mut claimed = ClaimedDeliveries {
            now,
            ..ClaimedDeliveries::default()
        };
        let live = state
            .webhooks
            .endpoints
            .values()
            .filter(|it| it.disabled.is_none());
        let mut due = Vec::new();
        for webhook in live {
            let all = state.webhooks.deliveries.values();
            let mine = all.filter(|it| (it.tenant, it.webhook) == (webhook.tenant, webhook.id));
            let mine = mine.filter_map(|it| Some((it.due_at?, it.event)));
            let mut mine: Vec<_> = mine.filter(|(at, _)| *at <= now).collect();
            mine.sort_unstable();
            if let Some((first, _)) = mine.first().copied() {
                due.push((first, webhook.clone(), mine));
            }
        }
        due.sort_by_key(|(first, webhook, _)| (*first, webhook.tenant, webhook.id));
        claimed.oldest_due = due.first().map(|(first, ..)| *first);
        for (_, webhook, mine) in due {
            let key = (webhook.tenant, webhook.id);
            if claim.leaves_out(key.0, key.1) {
                continue;
            }
            for (_, event) in mine.into_iter().take(claim.each as usize) {
                if claimed.deliveries.len() == claim.limit as usize {
                    break;
                }
                let Some(delivery) = state.webhooks.deliveries.get_mut(&(key.0, key.1, event))
                else {
                    continue;
                };
                delivery.attempts += 1;
                delivery.tried += 1;
                delivery.due_at = Some(Timestamp(now.0 + claim.lease.as_millis() as i64));
                claimed.deliveries.push(ClaimedDelivery {
                    delivery: delivery.clone(),
                    webhook: webhook.clone(),
                });
            }
        }
        Ok(claimed)
    }

    async fn settle_deliveries(&self, items: Vec<SettleDelivery>) -> Result<Vec<bool>> {
        let (mut state, now) = self.begin();
        let mut settle = |item: SettleDelivery| {
            let key = (item.tenant, item.webhook, item.event);
            let found = state.webhooks.deliveries.get_mut(&key).filter(|it| {
                it.attempts == item.attempt && it.tried > 0 && it.status == DeliveryStatus::Pending
            });
            let Some(delivery) = found else { return false };
            let (status, due_at) = match item.end {
                DeliveryEnd::Delivered => (DeliveryStatus::Delivered, None),
                DeliveryEnd::Dead => (DeliveryStatus::Dead, None),
                DeliveryEnd::Again(wait) => (DeliveryStatus::Pending, Some(now.after(wait))),
            };
            delivery.status = status;
            delivery.due_at = due_at;
            delivery.answer = item.answer;
            delivery.error = item.error;
            delivery.settled_at = due_at.is_none().then_some(now);
            true
        };
        Ok(items.into_iter().map(&mut settle).collect())
    }

    async fn list_deliveries(&self, query: ListDeliveries) -> Result<Page<DeliveryRecord>> {
        let (state, _) = self.begin();
        let all = state.webhooks.deliveries.values().rev();
        let found = all
            .filter(|it| (it.tenant, it.webhook) == (query.tenant, query.webhook))
            .filter(|it| query.status.is_none_or(|status| it.status == status))
            .filter(|it| query.before.is_none_or(|before| it.event < before));
        Ok(page(found.cloned(), query.limit))
    }

    async fn redeliver(
        &self,
        tenant: TenantId,
        webhook: WebhookId,
        event: WebhookEventId,
    ) -> Result<Option<DeliveryRecord>> {
        let (mut state, now) = self.begin();
        let found = state.webhooks.deliveries.get_mut(&(tenant, webhook, event));
        Ok(found.map(|delivery| {
            delivery.status = DeliveryStatus::Pending;
            delivery.due_at = Some(now);
            delivery.tried = 0;
            delivery.settled_at = None;
            delivery.clone()
        }))
    }

    async fn retire_deliveries(&self, query: RetireDeliveries) -> Result<u64> {
        let (mut state, now) = self.begin();
        let before = Timestamp(now.0 - query.keep.as_millis() as i64);
        let all = state.webhooks.deliveries.iter();
        let old = all.filter_map(|(key, it)| Some((it.settled_at?, *key)));
        let mut old: Vec<_> = old.filter(|(at, _)| *at < before).collect();
        old.sort_unstable();
        old.truncate(query.limit as usize);
        for (_, key) in &old {
            state.webhooks.deliveries.remove(key);
        }
        Ok(old.len() as u64)
    }
}
