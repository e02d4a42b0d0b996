//! Reading and searching entries.

use std::collections::BTreeMap;

use mainspring_shared::id::{MemoryId, TenantId};
use mainspring_shared::memory::MemoryEntry;
use mainspring_shared::store::{CANDIDATES_MAX, RARE_MAX, Result, SearchMemories, candidate};
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::{entry, vectors};
use crate::fault::Fault;
use crate::ledger::now;
use crate::retry::{PgQuery, Pool, repeatable, sql};
use crate::rows::Fields;

/// Binds the namespace of a query to a statement.
pub(super) fn within(query: &SearchMemories, now: Timestamp, statement: PgQuery) -> PgQuery {
    statement
        .bind(query.tenant.0)
        .bind(query.namespace.stored())
        .bind(query.namespace.behind())
        .bind(now.0)
}

/// Runs a search. `inside`: whether pgvector compares vectors in the database.
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
            rows = picked(connection, query, now).await?;
        }
    }
    let words = rows.iter().map(|row| {
        let (id, at) = place(row)?;
        let words: &str = Fields::new(row, "memories").take("words")?;
        Ok((id, candidate(id, at, words)))
    });
    // Several full-text queries may have found the same entry.
    let words = words.collect::<Result<BTreeMap<_, _>>>()?;
    let words: Vec<_> = words.into_values().collect();
    let compared = vectors::alike(connection, query, now, inside).await?;
    let ids = query.order(&words, &compared);
    entries(connection, query.tenant, ids, now).await
}

/// Candidates from the full-text index, for a namespace with many entries: all entries with a rare
/// word of the query, some with a common one, and those that contain its common words together.
async fn picked(
    connection: &mut PgConnection,
    query: &SearchMemories,
    now: Timestamp,
) -> std::result::Result<Vec<PgRow>, Fault> {
    let words = query.picked();
    let singly = words.iter().map(|word| query.tsquery(&[word])).collect();
    let mut found = holding(connection, query, now, (singly, RARE_MAX + 1)).await?;
    let mut counts = vec![0; words.len()];
    for row in &found {
        let question: i64 = Fields::new(row, "memories").take("question")?;
        let place = usize::try_from(question - 1).ok();
        if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
            *count += 1;
        }
    }
    let common = words
        .iter()
        .zip(&counts)
        .filter(|(_, count)| **count > RARE_MAX);
    let common: Vec<&str> = common.map(|(word, _)| *word).collect();
    for words in SearchMemories::together(&common) {
        let question = vec![query.tsquery(&words)];
        let rows = holding(connection, query, now, (question, CANDIDATES_MAX)).await?;
        let is_enough = !rows.is_empty();
        found.extend(rows);
        if is_enough {
            break;
        }
    }
    Ok(found)
}

async fn holding(
    connection: &mut PgConnection,
    query: &SearchMemories,
    now: Timestamp,
    (questions, limit): (Vec<String>, u32),
) -> std::result::Result<Vec<PgRow>, Fault> {
    let rows = within(query, now, sql!("memories/holding"))
        .bind(i64::from(limit))
        .bind(questions)
        .fetch_all(connection)
        .await?;
    Ok(rows)
}

/// Reads these entries, in this order; missing ones are left out.
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
