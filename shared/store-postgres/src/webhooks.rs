//! Webhooks: endpoints, the events that steps record for them, and deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::id::{TenantId, WebhookEventId, WebhookId};
use mainspring_shared::store::{
    ChangeWebhook, ClaimDeliveries, ClaimedDeliveries, ClaimedDelivery, CreateWebhookOutcome,
    DeliveryEnd, FannedOut, IdempotencyKey, ListDeliveries, ListWebhooks, Moment, NewWebhook, Page,
    Result, RetireDeliveries, SettleDelivery, WEBHOOKS_MAX, Watched, WebhookNews, Webhooks,
    deliveries_of,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::webhook::{DeliveryRecord, DeliveryStatus, Disabled, WebhookRecord};
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::accept::{Taken, take};
use crate::columns::{json, maybe_text, text};
use crate::fault::Fault;
use crate::ledger::now;
use crate::reads::page;
use crate::retry::{PgQuery, execute, fetch, repeatable, sql};
use crate::rows::{Fields, readable};
use crate::store::PostgresStore;

/// Endpoints from which one claim takes deliveries.
const ENDPOINTS_MAX: i64 = 100;

type Stepped<T> = std::result::Result<T, Fault>;

#[async_trait]
impl Webhooks for PostgresStore {
    async fn create_webhook(
        &self,
        new: NewWebhook,
        key: Option<IdempotencyKey>,
    ) -> Result<CreateWebhookOutcome> {
        let (at, pool) = (self.at, &self.pools.writers);
        let known_in = self.watched.known_in();
        let created = repeatable!(pool, |connection| create(
            connection,
            at,
            &new,
            key.as_ref()
        ));
        self.watched.forget();
        Ok(match created? {
            Made::Now(webhook) => CreateWebhookOutcome::Created { webhook, known_in },
            Made::Before(Some(webhook)) => CreateWebhookOutcome::Replayed { webhook, known_in },
            Made::Before(None) => CreateWebhookOutcome::Gone,
            Made::Not(other) => other,
        })
    }

    async fn get_webhook(&self, tenant: TenantId, id: WebhookId) -> Result<Option<WebhookRecord>> {
        let get = || sql!("webhooks/get").bind(tenant.0).bind(id.0);
        let rows = fetch(&self.pools.claimers, get).await?;
        rows.first().map(record).transpose()
    }

    async fn list_webhooks(&self, query: ListWebhooks) -> Result<Page<WebhookRecord>> {
        let rows = fetch(&self.pools.readers, || {
            sql!("webhooks/list")
                .bind(query.tenant.0)
                .bind(query.before.map_or(Uuid::max(), |before| before.0))
                .bind(i64::from(query.limit) + 1)
        });
        Ok(page(&rows.await?, query.limit, record))
    }

    async fn change_webhook(&self, change: ChangeWebhook) -> Result<Option<WebhookRecord>> {
        let (at, pool) = (self.at, &self.pools.writers);
        repeatable!(pool, |connection| apply(connection, at, &change))
    }

    async fn delete_webhook(&self, tenant: TenantId, id: WebhookId) -> Result<bool> {
        let pool = &self.pools.writers;
        let deleted = repeatable!(pool, |connection, lost| delete(
            connection, tenant, id, lost
        ));
        self.watched.forget();
        deleted
    }

    async fn fan_out(&self, limit: u32) -> Result<FannedOut> {
        let (at, pool) = (self.at, &self.pools.claimers);
        repeatable!(pool, |connection| fan_out(connection, at, limit))
    }

    async fn claim_deliveries(&self, claim: ClaimDeliveries) -> Result<ClaimedDeliveries> {
        let (at, pool) = (self.at, &self.pools.claimers);
        repeatable!(pool, |connection| take_due(connection, at, &claim))
    }

    async fn settle_deliveries(&self, items: Vec<SettleDelivery>) -> Result<Vec<bool>> {
        let rows = fetch(&self.pools.writers, || settle(self.at, &items)).await?;
        let mut settled = vec![false; items.len()];
        for row in &rows {
            settled[Fields::new(row, "webhook_deliveries").ord()?] = true;
        }
        Ok(settled)
    }

    async fn list_deliveries(&self, query: ListDeliveries) -> Result<Page<DeliveryRecord>> {
        let rows = fetch(&self.pools.readers, || {
            sql!("webhooks/deliveries")
                .bind(query.tenant.0)
                .bind(query.webhook.0)
                .bind(query.before.map_or(Uuid::max(), |before| before.0))
                .bind(i64::from(query.limit) + 1)
                .bind(query.status.map(DeliveryStatus::as_str))
        });
        Ok(page(&rows.await?, query.limit, delivery))
    }

    async fn redeliver(
        &self,
        tenant: TenantId,
        webhook: WebhookId,
        event: WebhookEventId,
    ) -> Result<Option<DeliveryRecord>> {
        let at = self.at;
        let rows = fetch(&self.pools.writers, || {
            sql!("webhooks/redeliver")
                .bind(at.map(|at| at.0))
                .bind(tenant.0)
                .bind(webhook.0)
                .bind(event.0)
        });
        rows.await?.first().map(delivery).transpose()
    }

    async fn retire_deliveries(&self, query: RetireDeliveries) -> Result<u64> {
        let at = self.at;
        execute(&self.pools.claimers, || {
            sql!("webhooks/retire")
                .bind(at.map(|at| at.0))
                .bind(query.keep.as_millis() as i64)
                .bind(i64::from(query.limit))
        })
        .await
    }
}

/// The tenants that have endpoints, mostly from the cache.
pub(crate) async fn watching(
    connection: &mut PgConnection,
    watched: &Watched,
) -> Stepped<Arc<BTreeSet<TenantId>>> {
    if let Some(known) = watched.get() {
        return Ok(known);
    }
    let asked = Moment::now();
    let rows = sql!("webhooks/tenants").fetch_all(connection).await?;
    let tenants = rows
        .iter()
        .map(|row| Fields::new(row, "webhooks").take("tenant").map(TenantId));
    let tenants = tenants.collect::<Result<_>>()?;
    Ok(watched.set(asked, tenants))
}

/// Records events, for tenants that have endpoints.
pub(crate) async fn note(connection: &mut PgConnection, news: Vec<WebhookNews>) -> Stepped<()> {
    if news.is_empty() {
        return Ok(());
    }
    let rows = || news.iter();
    sql!("webhooks/note")
        .bind(rows().map(|it| it.tenant.0).collect::<Vec<_>>())
        .bind(rows().map(|it| it.source).collect::<Vec<_>>())
        .bind(rows().map(|it| it.n).collect::<Vec<_>>())
        .bind(rows().map(|it| it.event_type.clone()).collect::<Vec<_>>())
        .bind(rows().map(|it| it.resource).collect::<Vec<_>>())
        .bind(rows().map(|it| it.at.0).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

fn record(row: &PgRow) -> Result<WebhookRecord> {
    let mut fields = Fields::new(row, "webhooks");
    let tenant = TenantId(fields.take("tenant")?);
    let id = WebhookId(fields.take("webhook_id")?);
    fields.name_row(id.to_string());
    let url = fields.take("url")?;
    let events = fields.json("events")?;
    let secret = fields.take("secret")?;
    let previous: Option<String> = fields.take("previous_secret")?;
    let until = fields.maybe_time("previous_until")?;
    let disabled_at = fields.maybe_time("disabled_at")?;
    let reason: Option<String> = fields.take("disabled_reason")?;
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
        created_at: fields.time("created_at")?,
    })
}

fn delivery(row: &PgRow) -> Result<DeliveryRecord> {
    let mut fields = Fields::new(row, "webhook_deliveries");
    let tenant = TenantId(fields.take("tenant")?);
    let webhook = WebhookId(fields.take("webhook_id")?);
    let event = WebhookEventId(fields.take("event_id")?);
    fields.name_row(event.to_string());
    let event_type = fields.take("type")?;
    let resource = fields.take("resource")?;
    let event_at = fields.time("event_at")?;
    let status = fields.name("status", DeliveryStatus::parse)?;
    let attempts: i32 = fields.take("attempts")?;
    let tried: i32 = fields.take("tried")?;
    let due_at = fields.maybe_time("due_at")?;
    let answer: Option<i32> = fields.take("answer")?;
    Ok(DeliveryRecord {
        tenant,
        webhook,
        event,
        event_type,
        resource,
        event_at,
        status,
        attempts: attempts.unsigned_abs(),
        tried: tried.unsigned_abs(),
        due_at,
        answer: answer.and_then(|status| u16::try_from(status).ok()),
        error: fields.take("error")?,
        settled_at: fields.maybe_time("settled_at")?,
    })
}

async fn one(connection: &mut PgConnection, query: PgQuery) -> Stepped<Option<WebhookRecord>> {
    let row = query.fetch_optional(connection).await?;
    Ok(row.as_ref().map(record).transpose()?)
}

/// The result of creating an endpoint, before the store completes the outcome.
enum Made {
    Now(WebhookRecord),
    Before(Option<WebhookRecord>),
    Not(CreateWebhookOutcome),
}

async fn create(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    new: &NewWebhook,
    key: Option<&IdempotencyKey>,
) -> Stepped<Made> {
    let mut tx = connection.begin().await?;
    let get = |id: Uuid| sql!("webhooks/get").bind(new.tenant.0).bind(id);
    // Before the tenant's lock: concurrent repeats of a request wait for each other here.
    if let Some(key) = key {
        match take(&mut tx, at, key, new.id.0).await? {
            Taken::Now => {}
            Taken::ByAnother => return Ok(Made::Not(CreateWebhookOutcome::Mismatch)),
            Taken::Before(made) => return Ok(Made::Before(one(&mut tx, get(made)).await?)),
        }
    }
    let lock = sql!("webhooks/lock_tenant").bind(new.tenant.0);
    let Some(row) = lock.fetch_optional(&mut *tx).await? else {
        return Ok(Made::Not(CreateWebhookOutcome::NoTenant));
    };
    let count: i64 = Fields::new(&row, "webhooks").take("count")?;
    // An attempt whose response was lost may have created it.
    if let Some(found) = one(&mut tx, get(new.id.0)).await? {
        return Ok(Made::Now(found));
    }
    if count >= i64::from(WEBHOOKS_MAX) {
        return Ok(Made::Not(CreateWebhookOutcome::TooMany));
    }
    sql!("webhooks/create")
        .bind(at.map(|at| at.0))
        .bind(new.tenant.0)
        .bind(new.id.0)
        .bind(text(&new.url).into_owned())
        .bind(json(&new.events))
        .bind(text(&new.secret).into_owned())
        .execute(&mut *tx)
        .await?;
    let created = one(&mut tx, get(new.id.0)).await?;
    tx.commit().await?;
    Ok(match created {
        Some(created) => Made::Now(created),
        None => Made::Before(None),
    })
}

async fn apply(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    change: &ChangeWebhook,
) -> Stepped<Option<WebhookRecord>> {
    let mut tx = connection.begin().await?;
    let lock = sql!("webhooks/lock");
    let lock = lock.bind(change.tenant.0).bind(change.id.0);
    let Some(before) = one(&mut tx, lock).await? else {
        return Ok(None);
    };
    let made = change.made(before, now(&mut tx, at).await?);
    let previous = made.previous.as_ref();
    let disabled = made.disabled.as_ref();
    sql!("webhooks/save")
        .bind(made.tenant.0)
        .bind(made.id.0)
        .bind(text(&made.url).into_owned())
        .bind(json(&made.events))
        .bind(text(&made.secret).into_owned())
        .bind(previous.map(|(_, secret)| text(secret).into_owned()))
        .bind(previous.map(|(until, _)| until.0))
        .bind(disabled.map(|disabled| disabled.at.0))
        .bind(maybe_text(
            disabled.map(|disabled| disabled.reason.as_str()),
        ))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(Some(made))
}

async fn delete(
    connection: &mut PgConnection,
    tenant: TenantId,
    id: WebhookId,
    lost: bool,
) -> Stepped<bool> {
    let mut tx = connection.begin().await?;
    let delete = sql!("webhooks/delete").bind(tenant.0).bind(id.0);
    if delete.execute(&mut *tx).await?.rows_affected() == 0 {
        // An attempt whose response was lost may have deleted it.
        return Ok(lost);
    }
    // A fan-out that had locked the endpoint has ended, so this statement sees its deliveries.
    let drop_pending = sql!("webhooks/drop_pending").bind(tenant.0).bind(id.0);
    drop_pending.execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(true)
}

async fn fan_out(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    limit: u32,
) -> Stepped<FannedOut> {
    let mut tx = connection.begin().await?;
    let events = sql!("webhooks/events").bind(i64::from(limit));
    let rows = events.fetch_all(&mut *tx).await?;
    let news = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "webhook_events");
        Ok(WebhookNews {
            tenant: TenantId(fields.take("tenant")?),
            source: fields.take("source")?,
            n: fields.take("n")?,
            event_type: fields.take("type")?,
            resource: fields.take("resource")?,
            at: fields.time("at")?,
        })
    });
    let news: Vec<WebhookNews> = readable(news);
    if news.is_empty() {
        return Ok(FannedOut::default());
    }
    let tenants: BTreeSet<i32> = news.iter().map(|news| news.tenant.0).collect();
    let of_tenants = sql!("webhooks/of_tenants").bind(tenants.into_iter().collect::<Vec<_>>());
    let webhooks = of_tenants.fetch_all(&mut *tx).await?;
    // An endpoint that cannot be read gets none; the events do not wait for it.
    let webhooks: Vec<WebhookRecord> = readable(webhooks.iter().map(record));
    let deliveries = deliveries_of(&news, &webhooks);
    if !deliveries.is_empty() {
        let rows = || deliveries.iter();
        let types = rows().map(|(_, event)| event.news.event_type.clone());
        let resources = rows().map(|(_, event)| event.news.resource);
        sql!("webhooks/deliver")
            .bind(now(&mut tx, at).await?.0)
            .bind(rows().map(|(it, _)| it.tenant.0).collect::<Vec<_>>())
            .bind(rows().map(|(it, _)| it.id.0).collect::<Vec<_>>())
            .bind(rows().map(|(_, event)| event.id.0).collect::<Vec<_>>())
            .bind(types.collect::<Vec<_>>())
            .bind(resources.collect::<Vec<_>>())
            .bind(rows().map(|(_, event)| event.news.at.0).collect::<Vec<_>>())
            .execute(&mut *tx)
            .await?;
    }
    sql!("webhooks/drop_events")
        .bind(news.iter().map(|it| it.tenant.0).collect::<Vec<_>>())
        .bind(news.iter().map(|it| it.source).collect::<Vec<_>>())
        .bind(news.iter().map(|it| it.n).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(FannedOut {
        events: news.len() as u64,
        deliveries: deliveries.len() as u64,
    })
}

async fn take_due(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    claim: &ClaimDeliveries,
) -> Stepped<ClaimedDeliveries> {
    let now = now(connection, at).await?;
    let rows = sql!("webhooks/due")
        .bind(now.0)
        .bind(ENDPOINTS_MAX + claim.left_out_max())
        .fetch_all(&mut *connection)
        .await?;
    let mut claimed = ClaimedDeliveries {
        now,
        ..ClaimedDeliveries::default()
    };
    let mut free = Vec::new();
    for row in &rows {
        let first = Fields::new(row, "webhook_deliveries").time("first_due")?;
        claimed.oldest_due.get_or_insert(first);
        let Some(webhook) = readable(std::iter::once(record(row))).pop() else {
            continue;
        };
        if !claim.leaves_out(webhook.tenant, webhook.id) {
            free.push(webhook);
        }
    }
    // Each has a due delivery, unless another process has claimed it.
    free.truncate(claim.limit as usize);
    if free.is_empty() {
        return Ok(claimed);
    }
    let rows = sql!("webhooks/take")
        .bind(now.0)
        .bind(now.after(claim.lease).0)
        .bind(i64::from(claim.each.min(claim.limit)))
        .bind(free.iter().map(|it| it.tenant.0).collect::<Vec<_>>())
        .bind(free.iter().map(|it| it.id.0).collect::<Vec<_>>())
        .bind(i64::from(claim.limit))
        .fetch_all(connection)
        .await?;
    let free: BTreeMap<_, _> = free
        .into_iter()
        .map(|it| ((it.tenant, it.id), it))
        .collect();
    for delivery in readable(rows.iter().map(delivery)) {
        if let Some(webhook) = free.get(&(delivery.tenant, delivery.webhook)) {
            let webhook = webhook.clone();
            claimed
                .deliveries
                .push(ClaimedDelivery { delivery, webhook });
        }
    }
    Ok(claimed)
}

fn settle(at: Option<Timestamp>, items: &[SettleDelivery]) -> PgQuery {
    let ends = items.iter().map(|item| match item.end {
        DeliveryEnd::Delivered => (DeliveryStatus::Delivered, None),
        DeliveryEnd::Dead => (DeliveryStatus::Dead, None),
        DeliveryEnd::Again(wait) => (DeliveryStatus::Pending, Some(wait.as_millis() as i64)),
    });
    let (statuses, waits): (Vec<_>, Vec<Option<i64>>) =
        ends.map(|(status, wait)| (status.as_str(), wait)).unzip();
    let rows = || items.iter();
    sql!("webhooks/settle")
        .bind(at.map(|at| at.0))
        .bind(rows().map(|it| it.tenant.0).collect::<Vec<_>>())
        .bind(rows().map(|it| it.webhook.0).collect::<Vec<_>>())
        .bind(rows().map(|it| it.event.0).collect::<Vec<_>>())
        .bind(
            rows()
                .map(|it| it.attempt.cast_signed())
                .collect::<Vec<_>>(),
        )
        .bind(statuses)
        .bind(waits)
        .bind(
            rows()
                .map(|it| it.answer.map(i32::from))
                .collect::<Vec<_>>(),
        )
        .bind(
            rows()
                .map(|it| maybe_text(it.error.as_deref()))
                .collect::<Vec<_>>(),
        )
}
