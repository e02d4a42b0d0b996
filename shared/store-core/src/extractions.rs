//! Pending extractions from conversations.

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{
    self, ClaimExtractions, EXTRACT_AGAIN_MS, EndExtraction, Extraction, ExtractionSpec,
    Extractions, NewExtraction, UsageRow,
};
use uuid::Uuid;

use crate::db::{Conn, sql};
use crate::fault::{Fault, Result};
use crate::hot;
use crate::memories;
use crate::query::statement;
use crate::row::Row;
use crate::rows::{Cells, json};
use crate::store::{SqlStore, Tx};

#[async_trait]
impl Extractions for SqlStore {
    async fn owe_extraction(&self, item: NewExtraction) -> store::Result<()> {
        self.write(item, |tx, item| Box::pin(owe(tx, item))).await
    }

    async fn claim_extractions(&self, claim: ClaimExtractions) -> store::Result<Vec<Extraction>> {
        self.write(claim, |tx, item| Box::pin(claims(tx, item)))
            .await
    }

    async fn end_extraction(&self, item: EndExtraction) -> store::Result<bool> {
        self.write(item, |tx, item| Box::pin(end(tx, item))).await
    }
}

async fn owe(tx: &mut Tx, item: NewExtraction) -> Result<()> {
    let now = tx.now;
    statement(sql!("extractions/owe"))
        .bind(item.key.tenant.0)
        .bind(item.send_id.0)
        .bind(item.key.session.0)
        .bind(&item.pool)
        .bind(item.spec.namespace.stored())
        .bind(json(&item.spec)?)
        .bind(now.0 + EXTRACT_AGAIN_MS)
        .execute(tx.conn())
        .await?;
    Ok(())
}

async fn claims(tx: &mut Tx, claim: ClaimExtractions) -> Result<Vec<Extraction>> {
    let now = tx.now;
    let query = match claim.only {
        Some((tenant, send)) => statement(sql!("extractions/one"))
            .bind(&claim.pool)
            .bind(tenant.0)
            .bind(send.0),
        None => statement(sql!("extractions/due"))
            .bind(&claim.pool)
            .bind(now.0)
            .bind(claim.limit),
    };
    let rows = query.fetch_all(tx.conn()).await?;
    let mut taken = Vec::new();
    for row in &rows {
        tx.begin_item().await?;
        let one = take(tx, &claim, row).await;
        match tx.end_item(one).await? {
            Some(one) => taken.extend(one),
            // The row cannot be read. Postpone it, so that it does not block those after it.
            None => {
                if let Ok((key, send_id, _)) = place(row) {
                    statement(sql!("extractions/postpone"))
                        .bind(key.tenant.0)
                        .bind(send_id.0)
                        .bind(now.0 + EXTRACT_AGAIN_MS)
                        .execute(tx.conn())
                        .await?;
                }
            }
        }
    }
    Ok(taken)
}

async fn take(tx: &mut Tx, claim: &ClaimExtractions, row: &Row) -> Result<Option<Extraction>> {
    let (key, send_id, attempts) = place(row)?;
    let now = tx.now;
    let state = statement(sql!("extractions/state"))
        .bind(key.tenant.0)
        .bind(send_id.0)
        .fetch_optional(tx.conn())
        .await?;
    let status = state.as_ref().and_then(|row| {
        let status: Result<&str> = Cells::new(row, "sends").get("status");
        SendStatus::parse(status.ok()?)
    });
    if status.is_some_and(|status| !status.is_final()) {
        statement(sql!("extractions/postpone"))
            .bind(key.tenant.0)
            .bind(send_id.0)
            .bind(now.0 + EXTRACT_AGAIN_MS)
            .execute(tx.conn())
            .await?;
        return Ok(None);
    }
    let spec: Option<ExtractionSpec> = Cells::new(row, "extractions").json_opt("spec")?;
    let spec = spec.ok_or(Fault::NoRow)?;
    if status != Some(SendStatus::Completed) || spec.is_given_up(attempts, claim.attempts_max) {
        statement(sql!("extractions/drop"))
            .bind(key.tenant.0)
            .bind(send_id.0)
            .execute(tx.conn())
            .await?;
        return Ok(None);
    }
    statement(sql!("extractions/take"))
        .bind(key.tenant.0)
        .bind(send_id.0)
        .bind(claim.token)
        .bind(now.after(claim.lease).0)
        .execute(tx.conn())
        .await?;
    Ok(Some(Extraction {
        key,
        send_id,
        spec,
        attempts: attempts + 1,
    }))
}

async fn end(tx: &mut Tx, item: EndExtraction) -> Result<bool> {
    let (tenant, now) = (item.key.tenant, tx.now);
    // The session was deleted: rows stored for it would never be removed.
    let Some(session) = hot::load(tx, item.key).await? else {
        statement(sql!("extractions/drop"))
            .bind(tenant.0)
            .bind(item.send_id.0)
            .execute(tx.conn())
            .await?;
        return Ok(false);
    };
    let stays = item.stays(session.hot.owner.is_some());
    let query = match stays {
        Some(_) => statement(sql!("extractions/again")),
        None => statement(sql!("extractions/end")),
    };
    let mut query = query.bind(tenant.0).bind(item.send_id.0).bind(item.token);
    if let Some((spec, after)) = &stays {
        query = query.bind(now.after(*after).0).bind(json(spec)?);
    }
    if query.execute(tx.conn()).await?.rows_affected() == 0 {
        // This attempt does not count, but its model calls cost money.
        if memories::can_pay(tx, item.key, item.send_id).await? {
            for row in &item.usage {
                pay(tx, item.key, item.send_id, row).await?;
            }
        }
        return Ok(false);
    }
    if let Some(spent) = session.hot.spent
        && stays.is_none()
        && !item.refund.is_nothing()
    {
        statement(sql!("extractions/refund"))
            .bind(tenant.0)
            .bind(item.key.session.0)
            .bind(json(&spent.minus(item.refund))?)
            .execute(tx.conn())
            .await?;
    }
    for entry in &item.saved {
        memories::insert(tx, tenant, entry).await?;
    }
    for change in &item.changed {
        memories::change(tx, change).await?;
    }
    for row in &item.usage {
        pay(tx, item.key, item.send_id, row).await?;
    }
    Ok(true)
}

/// Stores the usage of a model call that is not a round of its send.
pub(crate) async fn pay(tx: &mut Tx, key: SessionKey, send: SendId, row: &UsageRow) -> Result<()> {
    let now = tx.now;
    statement(sql!("extractions/pay"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(send.0)
        .bind(row.round)
        .bind(row.attempt)
        .bind(&row.model)
        .bind(json(&row.usage)?)
        .bind(now.0)
        .bind(row.purpose().as_str())
        .execute(tx.conn())
        .await?;
    Ok(())
}

fn place(row: &Row) -> Result<(SessionKey, SendId, u32)> {
    let mut cells = Cells::new(row, "extractions");
    let session: Uuid = cells.get("session_id")?;
    let send: Uuid = cells.get("send_id")?;
    let key = SessionKey {
        tenant: TenantId(cells.get("tenant")?),
        session: SessionId(session),
    };
    Ok((key, SendId(send), cells.get("attempts")?))
}

/// All extractions.
pub(crate) async fn dump(conn: &mut Conn) -> Result<Vec<(SessionKey, SendId, u32)>> {
    let rows = statement(sql!("extractions/dump")).fetch_all(conn).await?;
    rows.iter().map(place).collect()
}
