//! Pauses, and the sends that wait for their end.

use async_trait::async_trait;
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::pause::{PauseKey, PauseKind, PauseRecord};
use mainspring_shared::store;
use mainspring_shared::store::{ListPauses, NewPause, Page, PauseWait, Pauses, RESUMED_KEPT_MS};
use uuid::Uuid;

use crate::db::{Conn, sql};
use crate::fault::{Fault, Result};
use crate::hot;
use crate::query::{query_as, statement};
use crate::reads::page;
use crate::row::Row;
use crate::rows::Cells;
use crate::store::{SqlStore, Tx};

#[async_trait]
impl Pauses for SqlStore {
    async fn pause(&self, item: NewPause) -> store::Result<PauseRecord> {
        self.write(item, |tx, item| Box::pin(pause(tx, item))).await
    }

    async fn resume(&self, key: PauseKey) -> store::Result<()> {
        self.write(key, |tx, key| Box::pin(resume(tx, key))).await
    }

    async fn list_pauses(&self, query: ListPauses) -> store::Result<Page<PauseRecord>> {
        self.read(move |conn| Box::pin(list(conn, query))).await
    }

    async fn await_resume(&self, item: PauseWait) -> store::Result<()> {
        self.write(item, |tx, item| Box::pin(wait(tx, item))).await
    }

    async fn wake_paused(&self, limit: u32) -> store::Result<u32> {
        self.write(limit, |tx, limit| Box::pin(wake(tx, limit)))
            .await
    }
}

fn record(row: &Row) -> Result<PauseRecord> {
    let mut cells = Cells::new(row, "pauses");
    Ok(PauseRecord {
        key: PauseKey {
            tenant: TenantId(cells.get("tenant")?),
            kind: cells.word("kind", PauseKind::parse)?,
            name: cells.get("name")?,
        },
        reason: cells.get("reason")?,
        created_at: cells.time("created_at")?,
    })
}

async fn pause(tx: &mut Tx, item: NewPause) -> Result<PauseRecord> {
    let NewPause { key, reason } = item;
    let now = tx.now;
    statement(sql!("pauses/save"))
        .bind(key.tenant.0)
        .bind(key.kind.as_str())
        .bind(&key.name)
        .bind(reason)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    let row = statement(sql!("pauses/get"))
        .bind(key.tenant.0)
        .bind(key.kind.as_str())
        .bind(&key.name)
        .fetch_optional(tx.conn())
        .await?;
    record(&row.ok_or(Fault::NoRow)?)
}

async fn resume(tx: &mut Tx, key: PauseKey) -> Result<()> {
    let now = tx.now;
    let ended = statement(sql!("pauses/resume"))
        .bind(key.tenant.0)
        .bind(key.kind.as_str())
        .bind(&key.name)
        .bind(now.0);
    ended.execute(tx.conn()).await.map(drop)
}

async fn list(conn: &mut Conn, query: ListPauses) -> Result<Page<PauseRecord>> {
    let (from, to) = query
        .tenant
        .map_or((i32::MIN, i32::MAX), |only| (only.0, only.0));
    let after = query.after;
    let rows = statement(sql!("pauses/list"))
        .bind(from)
        .bind(to)
        .bind(after.as_ref().map_or(i32::MIN, |after| after.tenant.0))
        .bind(after.as_ref().map_or("", |after| after.kind.as_str()))
        .bind(after.as_ref().map_or("", |after| &after.name))
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, record))
}

async fn wait(tx: &mut Tx, item: PauseWait) -> Result<()> {
    let PauseWait {
        tenant,
        send,
        pause,
    } = item;
    statement(sql!("pauses/await"))
        .bind(tenant.0)
        .bind(send.0)
        .bind(pause.tenant.0)
        .bind(pause.kind.as_str())
        .bind(&pause.name)
        .execute(tx.conn())
        .await
        .map(drop)
}

async fn wake(tx: &mut Tx, limit: u32) -> Result<u32> {
    let now = tx.now;
    let (mut woken, mut passed_over) = (0, 0);
    loop {
        let names = ["tenant", "send_id", "session_id"];
        let rows: Vec<(i32, Uuid, Option<Uuid>)> = query_as(sql!("pauses/ended"), names)
            .bind(limit)
            .bind(passed_over)
            .fetch_all(tx.conn())
            .await?;
        for (tenant, send, session) in &rows {
            let (tenant, session) = (TenantId(*tenant), session.map(SessionId));
            let key = session.map(|session| SessionKey { tenant, session });
            if wake_one(tx, key, (tenant, SendId(*send))).await? {
                woken += 1;
            } else {
                passed_over += 1;
            }
        }
        // If other transactions hold every session of the page, try the next page.
        if woken > 0 || rows.len() < limit as usize {
            break;
        }
    }
    statement(sql!("pauses/forget"))
        .bind(now.0 - RESUMED_KEPT_MS)
        .execute(tx.conn())
        .await?;
    Ok(woken)
}

/// Wakes a send, unless its session is locked. Returns whether its record of waiting was removed.
async fn wake_one(
    tx: &mut Tx,
    session: Option<SessionKey>,
    (tenant, send): (TenantId, SendId),
) -> Result<bool> {
    if let Some(key) = session {
        if !hot::try_lock(tx, key).await? {
            return Ok(false);
        }
        let now = tx.now;
        statement(sql!("pauses/due"))
            .bind(tenant.0)
            .bind(send.0)
            .bind(now.0)
            .execute(tx.conn())
            .await?;
    }
    // Checked again under the lock: a send that was claimed in the meantime may be about to park
    // again.
    let gone = statement(sql!("pauses/woken"))
        .bind(tenant.0)
        .bind(send.0)
        .execute(tx.conn())
        .await?;
    Ok(gone.rows_affected() > 0)
}
