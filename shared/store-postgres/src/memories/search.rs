//! How entries are found again.

use std::collections::BTreeMap;

use mainspring_shared::id::{MemoryId, TenantId};
use mainspring_shared::memory::MemoryEntry;
use mainspring_shared::store::{CANDIDATES_MAX, Result, SearchMemories, candidate};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::{entry, vectors};
use crate::ledger::now;
use crate::retry::{Fault, PgQuery, Pool, repeatable, sql};
use crate::rows::Fields;

/// A statement about the entries of the question's namespace.
pub(super) fn within(query: &SearchMemories, now: Timestamp, statement: PgQuery) -> PgQuery {
    statement
        .bind(query.tenant.0)
        .bind(query.namespace.stored())
        .bind(query.namespace.behind())
        .bind(now.0)
}

/// `inside`: whether the database compares vectors by itself.
async fn search(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    query: &SearchMemories,
    inside: bool,
) -> std::result::Result<Vec<MemoryEntry>, Fault> {
    let now = now(connection, at).await?;
    let mut rows = Vec::new();
    if !query.words.is_empty() {
        rows = within(query, now, sql!("memories/scan"))
            .bind(i64::from(query.scan_max) + 1)
            .fetch_all(&mut *connection)
            .await?;
        if rows.len() > query.scan_max as usize {
            let mut tx = connection.begin().await?;
            sql!("memories/plan").execute(&mut *tx).await?;
            rows = within(query, now, sql!("memories/match"))
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
    let compared = vectors::alike(connection, query, now, inside).await?;
    let ids = query.order(&words, &compared);
    entries(connection, query.tenant, ids, now).await
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
    inside: bool,
) -> Result<Vec<MemoryEntry>> {
    repeatable!(pool, |connection| search(connection, at, query, inside))
}

pub(super) fn place(row: &PgRow) -> Result<(MemoryId, Timestamp)> {
    let mut fields = Fields::new(row, "memories");
    let id: Uuid = fields.take("memory_id")?;
    Ok((MemoryId(id), Timestamp(fields.take("updated_at")?)))
}
