//! How entries are found again.

use std::collections::BTreeMap;

use mainspring_shared::id::{MemoryId, TenantId};
use mainspring_shared::memory::rank::Placed;
use mainspring_shared::memory::{Embedding, MemoryEntry};
use mainspring_shared::store::{CANDIDATES_MAX, Result, SearchMemories, VECTORS_MAX, candidate};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::entry;
use crate::ledger::now;
use crate::retry::{Fault, PgQuery, Pool, repeatable, sql};
use crate::rows::Fields;

async fn search(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    query: &SearchMemories,
) -> std::result::Result<Vec<MemoryEntry>, Fault> {
    let now = now(connection, at).await?;
    let within = |statement: PgQuery| {
        statement
            .bind(query.tenant.0)
            .bind(query.namespace.stored())
            .bind(query.namespace.behind())
            .bind(now.0)
    };
    let mut rows = Vec::new();
    if !query.words.is_empty() {
        rows = within(sql!("memories/scan"))
            .bind(i64::from(query.scan_max) + 1)
            .fetch_all(&mut *connection)
            .await?;
        if rows.len() > query.scan_max as usize {
            let mut tx = connection.begin().await?;
            sql!("memories/plan").execute(&mut *tx).await?;
            rows = within(sql!("memories/match"))
                .bind(i64::from(CANDIDATES_MAX))
                .bind(query.tsquery())
                .fetch_all(&mut *tx)
                .await?;
            tx.commit().await?;
        }
    }
    let words = rows.iter().map(|row| {
        let (id, at) = place(row)?;
        let words: &str = Fields::new(row, "memories").take("words")?;
        Ok(candidate(id, at, words))
    });
    let words = words.collect::<Result<Vec<_>>>()?;
    let mut vectors = Vec::new();
    if let Some(embedding) = &query.embedding {
        let rows = within(sql!("memories/vectors"))
            .bind(embedding.model.clone())
            .bind(i64::from(VECTORS_MAX))
            .fetch_all(&mut *connection)
            .await?;
        for row in &rows {
            let (id, updated_at) = place(row)?;
            let bytes: &[u8] = Fields::new(row, "memories").take("embedding")?;
            // A vector that cannot be read is one entry's loss.
            if let Some(vector) = Embedding::vector_of(bytes) {
                vectors.push(Placed {
                    id,
                    updated_at,
                    vector,
                });
            }
        }
    }
    entries(connection, query.tenant, query.order(&words, &vectors), now).await
}

/// These entries in this order, without those that are not there.
pub(super) async fn entries(
    connection: &mut PgConnection,
    tenant: TenantId,
    ids: Vec<MemoryId>,
    now: Timestamp,
) -> std::result::Result<Vec<MemoryEntry>, Fault> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let wanted: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = sql!("memories/get")
        .bind(tenant.0)
        .bind(wanted)
        .bind(now.0)
        .fetch_all(connection)
        .await?;
    let entries = rows
        .iter()
        .map(|row| entry(row).map(|entry| (entry.id, entry)));
    let mut entries = entries.collect::<Result<BTreeMap<_, _>>>()?;
    Ok(ids.iter().filter_map(|id| entries.remove(id)).collect())
}

/// The database's clock.
pub(super) async fn time(pool: &Pool, at: Option<Timestamp>) -> Result<Timestamp> {
    match at {
        Some(at) => Ok(at),
        None => clock(pool).await,
    }
}

async fn clock(pool: &Pool) -> Result<Timestamp> {
    repeatable!(pool, |connection| now(connection, None))
}

pub(super) async fn get(
    pool: &Pool,
    at: Option<Timestamp>,
    tenant: TenantId,
    id: MemoryId,
) -> Result<Option<MemoryEntry>> {
    let now = time(pool, at).await?;
    let found = by_id(pool, tenant, id, now).await?;
    Ok(found.into_iter().next())
}

async fn by_id(
    pool: &Pool,
    tenant: TenantId,
    id: MemoryId,
    now: Timestamp,
) -> Result<Vec<MemoryEntry>> {
    repeatable!(pool, |connection| entries(
        connection,
        tenant,
        vec![id],
        now
    ))
}

pub(super) async fn found(
    pool: &Pool,
    at: Option<Timestamp>,
    query: &SearchMemories,
) -> Result<Vec<MemoryEntry>> {
    repeatable!(pool, |connection| search(connection, at, query))
}

fn place(row: &PgRow) -> Result<(MemoryId, Timestamp)> {
    let mut fields = Fields::new(row, "memories");
    let id: Uuid = fields.take("memory_id")?;
    Ok((MemoryId(id), Timestamp(fields.take("updated_at")?)))
}
