//! Pending extractions.

use async_trait::async_trait;
use mainspring_shared::budget::Spent;
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{
    ClaimExtractions, EXTRACT_AGAIN_MS, EndExtraction, Error, Extraction, Extractions,
    NewExtraction, ROWS_UNREADABLE, Result, UsageRow,
};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::columns::{json, text};
use crate::fault::Fault;
use crate::ledger::now;
use crate::memories;
use crate::retry::{Pool, execute, repeatable, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

#[async_trait]
impl Extractions for PostgresStore {
    async fn owe_extraction(&self, item: NewExtraction) -> Result<()> {
        let owed = execute(&self.pools.writers, || {
            sql!("extractions/owe")
                .bind(self.at.map(|at| at.0))
                .bind(item.key.tenant.0)
                .bind(item.send_id.0)
                .bind(item.key.session.0)
                .bind(text(&item.pool).into_owned())
                .bind(item.spec.namespace.stored())
                .bind(json(&item.spec))
                .bind(EXTRACT_AGAIN_MS)
        });
        owed.await.map(drop)
    }

    async fn claim_extractions(&self, claim: ClaimExtractions) -> Result<Vec<Extraction>> {
        claimed(&self.pools.writers, self.at, &claim).await
    }

    async fn end_extraction(&self, item: EndExtraction) -> Result<bool> {
        ended(&self.pools.writers, self.at, &item).await
    }
}

async fn claimed(
    pool: &Pool,
    at: Option<Timestamp>,
    claim: &ClaimExtractions,
) -> Result<Vec<Extraction>> {
    repeatable!(pool, |connection| claim_once(connection, at, claim))
}

async fn ended(pool: &Pool, at: Option<Timestamp>, item: &EndExtraction) -> Result<bool> {
    repeatable!(pool, |connection| end_once(connection, at, item))
}

async fn claim_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    claim: &ClaimExtractions,
) -> std::result::Result<Vec<Extraction>, Fault> {
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    let pool = text(&claim.pool).into_owned();
    let query = match claim.only {
        Some((tenant, send)) => sql!("extractions/one")
            .bind(pool)
            .bind(tenant.0)
            .bind(send.0),
        None => sql!("extractions/due")
            .bind(pool)
            .bind(now.0)
            .bind(i64::from(claim.limit)),
    };
    let rows = query.fetch_all(&mut *tx).await?;
    let mut taken = Vec::new();
    for row in &rows {
        match row_of(row) {
            Ok(found) => taken.extend(take(&mut tx, claim, now, found).await?),
            // It must not block the ones after it.
            Err(error) => {
                metrics::counter!(ROWS_UNREADABLE, "table" => "extractions").increment(1);
                tracing::error!(%error, "could not read an extraction; will retry");
                if let Ok((key, send_id, _)) = place(row) {
                    sql!("extractions/postpone")
                        .bind(key.tenant.0)
                        .bind(send_id.0)
                        .bind(now.0 + EXTRACT_AGAIN_MS)
                        .execute(&mut *tx)
                        .await?;
                }
            }
        }
    }
    tx.commit().await?;
    Ok(taken)
}

fn row_of(row: &PgRow) -> Result<(Extraction, Option<SendStatus>)> {
    let (key, send_id, attempts) = place(row)?;
    let mut fields = Fields::new(row, "extractions");
    fields.name_row(send_id.to_string());
    let spec = fields.maybe_json("spec")?;
    let status: Option<&str> = fields.take("status")?;
    let extraction = Extraction {
        key,
        send_id,
        spec: spec.ok_or_else(|| fields.corrupt("spec", "is null".to_owned()))?,
        attempts: attempts + 1,
    };
    Ok((extraction, status.and_then(SendStatus::parse)))
}

async fn take(
    connection: &mut PgConnection,
    claim: &ClaimExtractions,
    now: Timestamp,
    (found, status): (Extraction, Option<SendStatus>),
) -> std::result::Result<Option<Extraction>, Fault> {
    let (tenant, send) = (found.key.tenant.0, found.send_id.0);
    if status.is_some_and(|status| !status.is_final()) {
        sql!("extractions/postpone")
            .bind(tenant)
            .bind(send)
            .bind(now.0 + EXTRACT_AGAIN_MS)
            .execute(connection)
            .await?;
        return Ok(None);
    }
    let made = found.attempts - 1;
    if status != Some(SendStatus::Completed) || found.spec.is_given_up(made, claim.attempts_max) {
        sql!("extractions/drop")
            .bind(tenant)
            .bind(send)
            .execute(connection)
            .await?;
        return Ok(None);
    }
    sql!("extractions/take")
        .bind(tenant)
        .bind(send)
        .bind(claim.token)
        .bind(now.after(claim.lease).0)
        .execute(connection)
        .await?;
    Ok(Some(found))
}

async fn end_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: &EndExtraction,
) -> std::result::Result<bool, Fault> {
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    let tenant = item.key.tenant;
    let mut spending = None;
    if !item.refund.is_nothing() {
        let row = sql!("extractions/spending")
            .bind(tenant.0)
            .bind(item.key.session.0)
            .fetch_optional(&mut *tx)
            .await?;
        spending = row.as_ref().map(spending_of).transpose()?;
    }
    let session = sql!("extractions/session")
        .bind(tenant.0)
        .bind(item.key.session.0)
        .fetch_optional(&mut *tx)
        .await?;
    // Store nothing for a deleted session: nothing would remove it.
    if session.is_none() {
        sql!("extractions/drop")
            .bind(tenant.0)
            .bind(item.send_id.0)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        return Ok(false);
    }
    let stays = item.stays(spending.is_some_and(|(is_owned, _)| is_owned));
    let query = match stays {
        Some(_) => sql!("extractions/again"),
        None => sql!("extractions/end"),
    };
    let mut query = query.bind(tenant.0).bind(item.send_id.0).bind(item.token);
    if let Some((spec, after)) = &stays {
        query = query.bind(now.after(*after).0).bind(json(spec));
    }
    if query.execute(&mut *tx).await?.rows_affected() == 0 {
        // The model was called all the same, so its usage is stored.
        if memories::can_pay(&mut tx, item.key, item.send_id).await? {
            for row in &item.usage {
                pay(&mut tx, now, (item.key, item.send_id), row).await?;
            }
            tx.commit().await?;
        }
        return Ok(false);
    }
    if let (Some((_, Some(spent))), None) = (spending, &stays) {
        sql!("extractions/refund")
            .bind(tenant.0)
            .bind(item.key.session.0)
            .bind(json(&spent.minus(item.refund)))
            .execute(&mut *tx)
            .await?;
    }
    for entry in &item.saved {
        memories::insert(&mut tx, tenant, entry, now).await?;
    }
    for change in &item.changed {
        memories::change(&mut tx, now, change).await?;
    }
    for row in &item.usage {
        pay(&mut tx, now, (item.key, item.send_id), row).await?;
    }
    tx.commit().await?;
    Ok(true)
}

/// Stores the cost of a model call that is not a round of its send.
pub(crate) async fn pay(
    connection: &mut PgConnection,
    now: Timestamp,
    (key, send): (SessionKey, SendId),
    row: &UsageRow,
) -> std::result::Result<(), Fault> {
    sql!("extractions/pay")
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(send.0)
        .bind(row.round)
        .bind(row.attempt)
        .bind(text(&row.model).into_owned())
        .bind(json(&row.usage))
        .bind(now.0)
        .bind(row.purpose().as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// Whether the session is owned, and what it has spent.
fn spending_of(row: &PgRow) -> Result<(bool, Option<Spent>)> {
    let mut fields = Fields::new(row, "session_hot");
    let owner: Option<Uuid> = fields.take("owner_boot")?;
    Ok((owner.is_some(), fields.maybe_json("spent")?))
}

fn place(row: &PgRow) -> Result<(SessionKey, SendId, u32)> {
    let mut fields = Fields::new(row, "extractions");
    let session: Uuid = fields.take("session_id")?;
    let send: Uuid = fields.take("send_id")?;
    let attempts: i32 = fields.take("attempts")?;
    let key = SessionKey {
        tenant: TenantId(fields.take("tenant")?),
        session: SessionId(session),
    };
    Ok((key, SendId(send), attempts.unsigned_abs()))
}

/// Every extraction.
pub(crate) async fn dump(
    connection: &mut PgConnection,
) -> std::result::Result<Vec<(SessionKey, SendId, u32)>, Fault> {
    let rows = sql!("extractions/dump").fetch_all(connection).await?;
    let all = rows.iter().map(place);
    Ok(all.collect::<std::result::Result<_, Error>>()?)
}
