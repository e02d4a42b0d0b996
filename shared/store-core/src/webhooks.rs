//! Webhooks: endpoints, the events that steps record for them, and deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::id::{TenantId, WebhookEventId, WebhookId};
use mainspring_shared::store;
use mainspring_shared::store::{
    ChangeWebhook, ClaimDeliveries, ClaimedDeliveries, ClaimedDelivery, CreateWebhookOutcome,
    DeliveryEnd, FannedOut, IdempotencyKey, ListDeliveries, ListWebhooks, Moment, NewWebhook, Page,
    RetireDeliveries, SettleDelivery, WEBHOOKS_MAX, WebhookNews, Webhooks, deliveries_of,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::webhook::{DeliveryRecord, DeliveryStatus, Disabled, WebhookRecord};
use uuid::Uuid;

use crate::accept::{Seen, remember, seen};
use crate::db::{Conn, Statement, sql};
use crate::fault::{Result, readable};
use crate::query::{query_scalar, statement};
use crate::reads::page;
use crate::row::Row;
use crate::rows::{Cells, json};
use crate::store::{SqlStore, Tx};

/// Maximum number of endpoints whose deliveries one claim takes.
const ENDPOINTS_MAX: i64 = 100;

#[async_trait]
impl Webhooks for SqlStore {
    async fn create_webhook(
        &self,
        new: NewWebhook,
        key: Option<IdempotencyKey>,
    ) -> store::Result<CreateWebhookOutcome> {
        self.write((new, key), |tx, (new, key)| Box::pin(create(tx, new, key)))
            .await
    }

    async fn get_webhook(
        &self,
        tenant: TenantId,
        id: WebhookId,
    ) -> store::Result<Option<WebhookRecord>> {
        self.read(move |conn| Box::pin(one(conn, sql!("webhooks/get"), tenant, id)))
            .await
    }

    async fn list_webhooks(&self, query: ListWebhooks) -> store::Result<Page<WebhookRecord>> {
        self.read(move |conn| Box::pin(list(conn, query))).await
    }

    async fn change_webhook(&self, change: ChangeWebhook) -> store::Result<Option<WebhookRecord>> {
        self.write(change, |tx, change| Box::pin(self::change(tx, change)))
            .await
    }

    async fn delete_webhook(&self, tenant: TenantId, id: WebhookId) -> store::Result<bool> {
        self.write((tenant, id), |tx, (tenant, id)| {
            Box::pin(delete(tx, tenant, id))
        })
        .await
    }

    async fn fan_out(&self, limit: u32) -> store::Result<FannedOut> {
        self.write(limit, |tx, limit| Box::pin(fan_out(tx, limit)))
            .await
    }

    async fn claim_deliveries(&self, claim: ClaimDeliveries) -> store::Result<ClaimedDeliveries> {
        self.write(claim, |tx, claim| Box::pin(self::claim(tx, claim)))
            .await
    }

    async fn settle_deliveries(&self, items: Vec<SettleDelivery>) -> store::Result<Vec<bool>> {
        self.write(items, |tx, items| Box::pin(settle(tx, items)))
            .await
    }

    async fn list_deliveries(&self, query: ListDeliveries) -> store::Result<Page<DeliveryRecord>> {
        self.read(move |conn| Box::pin(deliveries(conn, query)))
            .await
    }

    async fn redeliver(
        &self,
        tenant: TenantId,
        webhook: WebhookId,
        event: WebhookEventId,
    ) -> store::Result<Option<DeliveryRecord>> {
        self.write((tenant, webhook, event), |tx, (tenant, webhook, event)| {
            Box::pin(redeliver(tx, tenant, webhook, event))
        })
        .await
    }

    async fn retire_deliveries(&self, query: RetireDeliveries) -> store::Result<u64> {
        self.write(query, |tx, query| Box::pin(retire(tx, query)))
            .await
    }
}

/// Records an event if its tenant has endpoints.
pub(crate) async fn note(tx: &mut Tx, news: &WebhookNews) -> Result<()> {
    if !watched(tx).await?.contains(&news.tenant) {
        return Ok(());
    }
    statement(sql!("webhooks/note"))
        .bind(news.tenant.0)
        .bind(news.source)
        .bind(news.n)
        .bind(&news.event_type)
        .bind(news.resource)
        .bind(news.at.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// The tenants that have endpoints, usually without a query.
async fn watched(tx: &mut Tx) -> Result<Arc<BTreeSet<TenantId>>> {
    if let Some(known) = tx.watched.get() {
        return Ok(known);
    }
    let asked = Moment::now();
    let tenants: Vec<i32> = query_scalar(sql!("webhooks/tenants"))
        .fetch_all(tx.conn())
        .await?;
    let tenants = tenants.into_iter().map(TenantId).collect();
    Ok(tx.watched.set(asked, tenants))
}

fn record(row: &Row) -> Result<WebhookRecord> {
    let mut cells = Cells::new(row, "webhooks");
    let tenant = TenantId(cells.get("tenant")?);
    let id = WebhookId(cells.get("webhook_id")?);
    let url = cells.get("url")?;
    let events = cells.json("events")?;
    let secret = cells.get("secret")?;
    let previous: Option<String> = cells.get("previous_secret")?;
    let until = cells.time_opt("previous_until")?;
    let disabled_at = cells.time_opt("disabled_at")?;
    let reason: Option<String> = cells.get("disabled_reason")?;
    Ok(WebhookRecord {
        tenant,
        id,
        url,
        events,
        secret,
        previous: until.zip(previous),
        disabled: disabled_at
            .zip(reason)
            .map(|(at, reason)| Disabled { at, reason }),
        created_at: cells.time("created_at")?,
    })
}

fn delivery(row: &Row) -> Result<DeliveryRecord> {
    let mut cells = Cells::new(row, "webhook_deliveries");
    let answer: Option<i32>;
    Ok(DeliveryRecord {
        tenant: TenantId(cells.get("tenant")?),
        webhook: WebhookId(cells.get("webhook_id")?),
        event: WebhookEventId(cells.get("event_id")?),
        event_type: cells.get("type")?,
        resource: cells.get("resource")?,
        event_at: cells.time("event_at")?,
        status: cells.word("status", DeliveryStatus::parse)?,
        attempts: cells.get("attempts")?,
        tried: cells.get("tried")?,
        due_at: cells.time_opt("due_at")?,
        answer: {
            answer = cells.get("answer")?;
            answer.and_then(|status| u16::try_from(status).ok())
        },
        error: cells.get("error")?,
        settled_at: cells.time_opt("settled_at")?,
    })
}

async fn one(
    conn: &mut Conn,
    of: &'static Statement,
    tenant: TenantId,
    id: WebhookId,
) -> Result<Option<WebhookRecord>> {
    let row = statement(of).bind(tenant.0).bind(id.0);
    let row = row.fetch_optional(conn).await?;
    row.as_ref().map(record).transpose()
}

async fn create(
    tx: &mut Tx,
    new: NewWebhook,
    key: Option<IdempotencyKey>,
) -> Result<CreateWebhookOutcome> {
    let known_in = tx.watched.known_in();
    let tenant = query_scalar::<i32>(sql!("webhooks/lock_tenant")).bind(new.tenant.0);
    if tenant.fetch_optional(tx.conn()).await?.is_none() {
        return Ok(CreateWebhookOutcome::NoTenant);
    }
    if let Some(key) = &key {
        match seen(tx, key).await? {
            Seen::Never => {}
            Seen::OtherBody => return Ok(CreateWebhookOutcome::Mismatch),
            Seen::Before(made) => {
                let (tenant, id) = (new.tenant, WebhookId(made));
                let found = one(tx.conn(), sql!("webhooks/get"), tenant, id).await?;
                return Ok(match found {
                    Some(webhook) => CreateWebhookOutcome::Replayed { webhook, known_in },
                    None => CreateWebhookOutcome::Gone,
                });
            }
        }
    }
    let count: i64 = query_scalar(sql!("webhooks/count"))
        .bind(new.tenant.0)
        .fetch_one(tx.conn())
        .await?;
    if count >= i64::from(WEBHOOKS_MAX) {
        return Ok(CreateWebhookOutcome::TooMany);
    }
    let now = tx.now;
    statement(sql!("webhooks/create"))
        .bind(new.tenant.0)
        .bind(new.id.0)
        .bind(&new.url)
        .bind(json(&new.events)?)
        .bind(&new.secret)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    if let Some(key) = &key {
        remember(tx, key, new.id.0).await?;
    }
    tx.watched.forget();
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
    Ok(CreateWebhookOutcome::Created { webhook, known_in })
}

async fn list(conn: &mut Conn, query: ListWebhooks) -> Result<Page<WebhookRecord>> {
    let rows = statement(sql!("webhooks/list"))
        .bind(query.tenant.0)
        .bind(query.before.map_or(Uuid::max(), |before| before.0))
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, record))
}

async fn change(tx: &mut Tx, change: ChangeWebhook) -> Result<Option<WebhookRecord>> {
    let (tenant, id, now) = (change.tenant, change.id, tx.now);
    let Some(before) = one(tx.conn(), sql!("webhooks/lock"), tenant, id).await? else {
        return Ok(None);
    };
    let made = change.made(before, now);
    let previous = made.previous.as_ref();
    let disabled = made.disabled.as_ref();
    statement(sql!("webhooks/save"))
        .bind(tenant.0)
        .bind(id.0)
        .bind(&made.url)
        .bind(json(&made.events)?)
        .bind(&made.secret)
        .bind(previous.map(|(_, secret)| secret))
        .bind(previous.map(|(until, _)| until.0))
        .bind(disabled.map(|disabled| disabled.at.0))
        .bind(disabled.map(|disabled| &disabled.reason))
        .execute(tx.conn())
        .await?;
    Ok(Some(made))
}

async fn delete(tx: &mut Tx, tenant: TenantId, id: WebhookId) -> Result<bool> {
    let done = statement(sql!("webhooks/delete")).bind(tenant.0).bind(id.0);
    if done.execute(tx.conn()).await?.rows_affected() == 0 {
        return Ok(false);
    }
    // A fan-out that was using the endpoint has ended, so its deliveries are visible here.
    statement(sql!("webhooks/drop_pending"))
        .bind(tenant.0)
        .bind(id.0)
        .execute(tx.conn())
        .await?;
    tx.watched.forget();
    Ok(true)
}

async fn fan_out(tx: &mut Tx, limit: u32) -> Result<FannedOut> {
    let now = tx.now;
    let rows = statement(sql!("webhooks/events")).bind(limit);
    let rows = rows.fetch_all(tx.conn()).await?;
    let news = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "webhook_events");
        Ok(WebhookNews {
            tenant: TenantId(cells.get("tenant")?),
            source: cells.get("source")?,
            n: cells.get("n")?,
            event_type: cells.get("type")?,
            resource: cells.get("resource")?,
            at: cells.time("at")?,
        })
    });
    let news: Vec<WebhookNews> = readable(news);
    let tenants: BTreeSet<TenantId> = news.iter().map(|news| news.tenant).collect();
    let mut webhooks = Vec::new();
    for tenant in tenants {
        let rows = statement(sql!("webhooks/of_tenant")).bind(tenant.0);
        // An endpoint that cannot be read gets none; the events do not wait for it.
        let rows = rows.fetch_all(tx.conn()).await?;
        webhooks.extend(readable(rows.iter().map(record)));
    }
    let deliveries = deliveries_of(&news, &webhooks);
    for (webhook, event) in &deliveries {
        statement(sql!("webhooks/deliver"))
            .bind(webhook.tenant.0)
            .bind(webhook.id.0)
            .bind(event.id.0)
            .bind(&event.news.event_type)
            .bind(event.news.resource)
            .bind(event.news.at.0)
            .bind(now.0)
            .execute(tx.conn())
            .await?;
    }
    for news in &news {
        statement(sql!("webhooks/drop_event"))
            .bind(news.tenant.0)
            .bind(news.source)
            .bind(news.n)
            .execute(tx.conn())
            .await?;
    }
    Ok(FannedOut {
        events: news.len() as u64,
        deliveries: deliveries.len() as u64,
    })
}

async fn claim(tx: &mut Tx, claim: ClaimDeliveries) -> Result<ClaimedDeliveries> {
    let now = tx.now;
    let rows = statement(sql!("webhooks/due"))
        .bind(now.0)
        .bind(ENDPOINTS_MAX + claim.left_out_max())
        .fetch_all(tx.conn())
        .await?;
    let mut claimed = ClaimedDeliveries {
        now,
        ..ClaimedDeliveries::default()
    };
    let again = Timestamp(now.0 + claim.lease.as_millis() as i64);
    for row in &rows {
        let first: Timestamp = Cells::new(row, "webhook_deliveries").time("first_due")?;
        claimed.oldest_due.get_or_insert(first);
        let Some(webhook) = readable(std::iter::once(record(row))).pop() else {
            continue;
        };
        let left = claim.limit.saturating_sub(claimed.deliveries.len() as u32);
        if claim.leaves_out(webhook.tenant, webhook.id) || left == 0 {
            continue;
        }
        for delivery in take(tx, &webhook, again, claim.each.min(left)).await? {
            let webhook = webhook.clone();
            claimed
                .deliveries
                .push(ClaimedDelivery { delivery, webhook });
        }
    }
    Ok(claimed)
}

/// Starts an attempt at each due delivery of an endpoint.
async fn take(
    tx: &mut Tx,
    webhook: &WebhookRecord,
    again: Timestamp,
    limit: u32,
) -> Result<Vec<DeliveryRecord>> {
    let now = tx.now;
    let rows = statement(sql!("webhooks/due_of"))
        .bind(webhook.tenant.0)
        .bind(webhook.id.0)
        .bind(now.0)
        .bind(limit)
        .fetch_all(tx.conn())
        .await?;
    let mut taken = Vec::with_capacity(rows.len());
    for mut delivery in readable(rows.iter().map(delivery)) {
        statement(sql!("webhooks/take"))
            .bind(delivery.tenant.0)
            .bind(delivery.webhook.0)
            .bind(delivery.event.0)
            .bind(again.0)
            .execute(tx.conn())
            .await?;
        delivery.attempts += 1;
        delivery.tried += 1;
        delivery.due_at = Some(again);
        taken.push(delivery);
    }
    Ok(taken)
}

async fn settle(tx: &mut Tx, items: Vec<SettleDelivery>) -> Result<Vec<bool>> {
    let now = tx.now;
    // In the order of their keys, so that two concurrent calls cannot deadlock.
    let mut ordered: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let key = (item.tenant, item.webhook, item.event);
        ordered.entry(key).or_default().push(index);
    }
    let mut settled = vec![false; items.len()];
    for index in ordered.into_values().flatten() {
        let item = &items[index];
        let (status, due) = match item.end {
            DeliveryEnd::Delivered => (DeliveryStatus::Delivered, None),
            DeliveryEnd::Dead => (DeliveryStatus::Dead, None),
            DeliveryEnd::Again(wait) => (DeliveryStatus::Pending, Some(now.after(wait).0)),
        };
        let done = statement(sql!("webhooks/settle"))
            .bind(item.tenant.0)
            .bind(item.webhook.0)
            .bind(item.event.0)
            .bind(item.attempt)
            .bind(status.as_str())
            .bind(due)
            .bind(item.answer.map(i32::from))
            .bind(item.error.clone())
            .bind(due.is_none().then_some(now.0))
            .execute(tx.conn())
            .await?;
        settled[index] = done.rows_affected() > 0;
    }
    Ok(settled)
}

async fn deliveries(conn: &mut Conn, query: ListDeliveries) -> Result<Page<DeliveryRecord>> {
    let rows = statement(sql!("webhooks/deliveries"))
        .bind(query.tenant.0)
        .bind(query.webhook.0)
        .bind(query.before.map_or(Uuid::max(), |before| before.0))
        .bind(i64::from(query.limit) + 1)
        .bind(query.status.map(DeliveryStatus::as_str))
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, delivery))
}

async fn redeliver(
    tx: &mut Tx,
    tenant: TenantId,
    webhook: WebhookId,
    event: WebhookEventId,
) -> Result<Option<DeliveryRecord>> {
    let now = tx.now;
    statement(sql!("webhooks/redeliver"))
        .bind(tenant.0)
        .bind(webhook.0)
        .bind(event.0)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    let row = statement(sql!("webhooks/delivery"))
        .bind(tenant.0)
        .bind(webhook.0)
        .bind(event.0)
        .fetch_optional(tx.conn())
        .await?;
    row.as_ref().map(delivery).transpose()
}

async fn retire(tx: &mut Tx, query: RetireDeliveries) -> Result<u64> {
    let before = tx.now.0 - query.keep.as_millis() as i64;
    let done = statement(sql!("webhooks/retire"))
        .bind(before)
        .bind(query.limit)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected())
}
