//! Pauses, and the sends that wait for their end.

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::pause::{PauseKey, PauseKind, PauseRecord};
use mainspring_shared::store::{
    ListPauses, NewPause, Page, PauseWait, Pauses, RESUMED_KEPT_MS, Result,
};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::columns::{maybe_text, text};
use crate::fault::Fault;
use crate::reads::page;
use crate::retry::{execute, fetch, repeatable, sql};
use crate::rows::{Fields, no_row};
use crate::store::PostgresStore;

#[async_trait]
impl Pauses for PostgresStore {
    async fn pause(&self, item: NewPause) -> Result<PauseRecord> {
        let at = self.at;
        let rows = fetch(&self.pools.writers, || {
            sql!("pauses/save")
                .bind(at.map(|at| at.0))
                .bind(item.key.tenant.0)
                .bind(item.key.kind.as_str())
                .bind(text(&item.key.name).into_owned())
                .bind(maybe_text(item.reason.as_deref()))
        });
        let rows = rows.await?;
        rows.first()
            .map_or_else(|| Err(no_row("pauses", "name")), record)
    }

    async fn resume(&self, key: PauseKey) -> Result<()> {
        let at = self.at;
        let resumed = execute(&self.pools.writers, || {
            sql!("pauses/resume")
                .bind(at.map(|at| at.0))
                .bind(key.tenant.0)
                .bind(key.kind.as_str())
                .bind(text(&key.name).into_owned())
        });
        resumed.await.map(drop)
    }

    async fn list_pauses(&self, query: ListPauses) -> Result<Page<PauseRecord>> {
        let only = query.tenant.map(|only| only.0);
        let after = query.after.as_ref();
        let rows = fetch(&self.pools.claimers, || {
            sql!("pauses/list")
                .bind(only.unwrap_or(i32::MIN))
                .bind(only.unwrap_or(i32::MAX))
                .bind(after.map_or(i32::MIN, |after| after.tenant.0))
                .bind(after.map_or("", |after| after.kind.as_str()))
                .bind(
                    after
                        .map(|after| text(&after.name).into_owned())
                        .unwrap_or_default(),
                )
                .bind(i64::from(query.limit) + 1)
        });
        Ok(page(&rows.await?, query.limit, record))
    }

    async fn await_resume(&self, item: PauseWait) -> Result<()> {
        let noted = execute(&self.pools.writers, || {
            sql!("pauses/await")
                .bind(item.tenant.0)
                .bind(item.send.0)
                .bind(item.pause.tenant.0)
                .bind(item.pause.kind.as_str())
                .bind(text(&item.pause.name).into_owned())
        });
        noted.await.map(drop)
    }

    async fn wake_paused(&self, limit: u32) -> Result<u32> {
        let (at, pool) = (self.at, &self.pools.writers);
        repeatable!(pool, |connection| wake(connection, at, limit))
    }
}

fn record(row: &PgRow) -> Result<PauseRecord> {
    let mut fields = Fields::new(row, "pauses");
    Ok(PauseRecord {
        key: PauseKey {
            tenant: TenantId(fields.take("tenant")?),
            kind: fields.name("kind", PauseKind::parse)?,
            name: fields.take("name")?,
        },
        reason: fields.take("reason")?,
        created_at: fields.time("created_at")?,
    })
}

async fn wake(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    limit: u32,
) -> std::result::Result<u32, Fault> {
    let at = at.map(|at| at.0);
    let mut tx = connection.begin().await?;
    let ended = sql!("pauses/ended").bind(i64::from(limit));
    let rows = ended.fetch_all(&mut *tx).await?;
    let (mut tenants, mut sends): (Vec<i32>, Vec<Uuid>) = (Vec::new(), Vec::new());
    for row in &rows {
        let mut fields = Fields::new(row, "pause_waits");
        tenants.push(fields.take("tenant")?);
        sends.push(fields.take("send_id")?);
    }
    let mut woken = 0;
    if !rows.is_empty() {
        let due = sql!("pauses/due").bind(at);
        let due = due.bind(tenants.clone()).bind(sends.clone());
        due.execute(&mut *tx).await?;
        // A separate statement, so that it sees what happened until the rows were locked.
        let gone = sql!("pauses/woken").bind(at).bind(tenants).bind(sends);
        woken = gone.execute(&mut *tx).await?.rows_affected();
    }
    let forget = sql!("pauses/forget").bind(at).bind(RESUMED_KEPT_MS);
    forget.execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(u32::try_from(woken).unwrap_or(u32::MAX))
}
