//! Memory entries.

mod search;
mod vectors;

pub(crate) use vectors::{Wanted, can_pay, prepare};

use async_trait::async_trait;
use mainspring_shared::id::{ErasureId, MemoryId, TenantId};
use mainspring_shared::memory::{MemoryEntry, Namespace, Sources, words};
use mainspring_shared::store::{
    ChangeMemory, ClaimUnembedded, EraseMemories, ErasedMemories, Erasure, ListErasures,
    ListMemories, Memories, NewMemory, Page, PaidVectors, Result, SaveMemory, SaveMemoryOutcome,
    SearchMemories, SetEmbedding, Unembedded,
};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::accept::{Taken, take};
use crate::columns::{json, metadata, text};
use crate::fault::Fault;
use crate::ledger::now;
use crate::reads::page;
use crate::retry::{Pool, execute, fetch, repeatable, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

#[async_trait]
impl Memories for PostgresStore {
    async fn save_memory(&self, item: SaveMemory) -> Result<SaveMemoryOutcome> {
        saved(&self.pools.writers, self.at, &item).await
    }

    async fn change_memory(&self, item: ChangeMemory) -> Result<Option<MemoryEntry>> {
        changed(&self.pools.writers, self.at, &item).await
    }

    async fn delete_memory(
        &self,
        tenant: TenantId,
        within: Option<Namespace>,
        id: MemoryId,
    ) -> Result<bool> {
        let deleted = execute(&self.pools.writers, || {
            sql!("memories/delete")
                .bind(tenant.0)
                .bind(id.0)
                .bind(within.as_ref().map(Namespace::stored))
                .bind(within.as_ref().map(Namespace::behind))
        });
        Ok(deleted.await? > 0)
    }

    async fn erase_memories(&self, item: EraseMemories) -> Result<ErasedMemories> {
        erased(&self.pools.writers, self.at, &item).await
    }

    async fn list_erasures(&self, query: ListErasures) -> Result<Page<Erasure>> {
        let rows = fetch(&self.pools.readers, || {
            sql!("memories/erasures")
                .bind(query.tenant.0)
                .bind(query.before.map(|id| id.0))
                .bind(i64::from(query.limit) + 1)
                .bind(query.fingerprint.clone())
        });
        Ok(page(&rows.await?, query.limit, erasure))
    }

    async fn get_memory(&self, tenant: TenantId, id: MemoryId) -> Result<Option<MemoryEntry>> {
        search::get(&self.pools.readers, self.at, tenant, id).await
    }

    async fn list_memories(&self, query: ListMemories) -> Result<Page<MemoryEntry>> {
        let now = search::time(&self.pools.readers, self.at).await?;
        let rows = fetch(&self.pools.readers, || {
            sql!("memories/list")
                .bind(query.tenant.0)
                .bind(query.before.map(|id| id.0))
                .bind(now.0)
                .bind(i64::from(query.limit) + 1)
                .bind(query.namespace.as_ref().map(Namespace::stored))
                .bind(query.namespace.as_ref().map(Namespace::behind))
        });
        Ok(page(&rows.await?, query.limit, entry))
    }

    async fn search_memories(&self, query: SearchMemories) -> Result<Vec<MemoryEntry>> {
        let inside = self.pgvector;
        search::found(&self.pools.readers, self.at, &query, inside).await
    }

    async fn claim_unembedded(&self, claim: ClaimUnembedded) -> Result<Vec<Unembedded>> {
        let now = search::time(&self.pools.writers, self.at).await?;
        vectors::claim(&self.pools.writers, now, claim).await
    }

    async fn set_embedding(&self, item: SetEmbedding) -> Result<bool> {
        vectors::set(&self.pools.writers, (self.at, self.pgvector), &item).await
    }

    async fn pay_for_vectors(&self, tenant: TenantId, paid: Vec<PaidVectors>) -> Result<()> {
        vectors::pay_for(&self.pools.writers, self.at, tenant, &paid).await
    }

    async fn expire_memories(&self, limit: u32) -> Result<u64> {
        let now = search::time(&self.pools.writers, self.at).await?;
        execute(&self.pools.writers, || {
            sql!("memories/expire").bind(now.0).bind(i64::from(limit))
        })
        .await
    }
}

async fn saved(pool: &Pool, at: Option<Timestamp>, item: &SaveMemory) -> Result<SaveMemoryOutcome> {
    repeatable!(pool, |connection| save(connection, at, item))
}

async fn changed(
    pool: &Pool,
    at: Option<Timestamp>,
    item: &ChangeMemory,
) -> Result<Option<MemoryEntry>> {
    repeatable!(pool, |connection| change_once(connection, at, item))
}

async fn erased(
    pool: &Pool,
    at: Option<Timestamp>,
    item: &EraseMemories,
) -> Result<ErasedMemories> {
    repeatable!(pool, |connection| erase(connection, at, item))
}

async fn change_once(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: &ChangeMemory,
) -> std::result::Result<Option<MemoryEntry>, Fault> {
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    let entry = change(&mut tx, now, item).await?;
    tx.commit().await?;
    Ok(entry)
}

async fn save(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: &SaveMemory,
) -> std::result::Result<SaveMemoryOutcome, Fault> {
    let (tenant, mut id) = (item.tenant, item.entry.id);
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    let mut taken = true;
    if let Some(key) = &item.idempotency {
        match take(&mut tx, Some(now), key, id.0).await? {
            Taken::Now => {}
            Taken::Before(made) => {
                taken = false;
                id = MemoryId(made);
            }
            Taken::ByAnother => return Ok(SaveMemoryOutcome::Mismatch),
        }
    }
    if taken && insert(&mut tx, tenant, &item.entry, now).await? {
        tx.commit().await?;
        return Ok(SaveMemoryOutcome::Saved(item.entry.clone().at(now)));
    }
    let known = search::entries(&mut tx, tenant, vec![id], now).await?.pop();
    tx.commit().await?;
    Ok(known.map_or(SaveMemoryOutcome::Gone, SaveMemoryOutcome::Known))
}

/// Inserts an entry; false if its id exists already.
pub(crate) async fn insert(
    connection: &mut PgConnection,
    tenant: TenantId,
    new: &NewMemory,
    now: Timestamp,
) -> std::result::Result<bool, Fault> {
    let done = sql!("memories/save")
        .bind(tenant.0)
        .bind(new.id.0)
        .bind(new.namespace.stored())
        .bind(text(&new.text).into_owned())
        .bind(metadata(&new.metadata))
        .bind(new.source.as_ref().map(json))
        .bind(new.indexed(tenant))
        .bind(now.0)
        .bind(new.expires_at.map(|at| at.0))
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}

pub(crate) async fn change(
    connection: &mut PgConnection,
    now: Timestamp,
    item: &ChangeMemory,
) -> std::result::Result<Option<MemoryEntry>, Fault> {
    let tenant = item.tenant;
    let locked = sql!("memories/lock")
        .bind(tenant.0)
        .bind(item.id.0)
        .bind(now.0)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = locked else {
        return Ok(None);
    };
    let entry = item.apply(entry(&row)?, now);
    let query = match item.text {
        Some(_) => sql!("memories/rewrite"),
        None => sql!("memories/change"),
    };
    let mut query = query
        .bind(tenant.0)
        .bind(entry.id.0)
        .bind(metadata(&entry.metadata))
        .bind(now.0)
        .bind(entry.expires_at.map(|at| at.0))
        .bind(entry.sources().as_ref().map(json));
    if let Some(new) = &item.text {
        let words = words::words(new);
        query = query.bind(text(new).into_owned()).bind(words::indexed(
            tenant,
            &entry.namespace,
            &words,
        ));
    }
    query.execute(connection).await?;
    Ok(Some(entry))
}

async fn erase(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    item: &EraseMemories,
) -> std::result::Result<ErasedMemories, Fault> {
    let mut tx = connection.begin().await?;
    let now = now(&mut tx, at).await?;
    let done = sql!("memories/erase")
        .bind(item.tenant.0)
        .bind(item.namespace.stored())
        .bind(item.namespace.behind())
        .bind(i64::from(item.limit))
        .execute(&mut *tx)
        .await?;
    let deleted = done.rows_affected();
    sql!("extractions/erase")
        .bind(item.tenant.0)
        .bind(item.namespace.stored())
        .bind(item.namespace.behind())
        .execute(&mut *tx)
        .await?;
    sql!("memories/erased")
        .bind(item.tenant.0)
        .bind(item.erasure.0)
        .bind(text(&item.fingerprint).into_owned())
        .bind(deleted as i64)
        .bind(now.0)
        .bind(text(&item.by).into_owned())
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(ErasedMemories {
        deleted,
        more: deleted >= u64::from(item.limit),
    })
}

fn erasure(row: &PgRow) -> Result<Erasure> {
    let mut fields = Fields::new(row, "memory_erasures");
    let id: Uuid = fields.take("erasure_id")?;
    let deleted: i64 = fields.take("deleted")?;
    Ok(Erasure {
        id: ErasureId(id),
        namespace_sha256: fields.take("fingerprint")?,
        deleted: deleted.max(0).unsigned_abs(),
        by: fields.take("erased_by")?,
        erased_at: Timestamp(fields.take("erased_at")?),
    })
}

/// Reads an entry.
pub(crate) fn entry(row: &PgRow) -> Result<MemoryEntry> {
    let mut fields = Fields::new(row, "memories");
    let id: Uuid = fields.take("memory_id")?;
    let id = MemoryId(id);
    fields.name_row(id.to_string());
    let sources: Option<Sources> = fields.maybe_json("source")?;
    let (source, earlier) = sources.map(|it| (it.latest, it.earlier)).unzip();
    let namespace: &str = fields.take("namespace")?;
    let namespace = Namespace::from_stored(namespace)
        .map_err(|fault| fields.corrupt("namespace", fault.to_string()))?;
    Ok(MemoryEntry {
        id,
        namespace,
        text: fields.take("text")?,
        metadata: fields.maybe_json("metadata")?.unwrap_or_default(),
        source,
        earlier_sources: earlier.unwrap_or_default(),
        created_at: Timestamp(fields.take("created_at")?),
        updated_at: Timestamp(fields.take("updated_at")?),
        expires_at: fields.take::<Option<i64>>("expires_at")?.map(Timestamp),
    })
}

/// Entries and erasures of a dump.
type Dumped = (Vec<(TenantId, MemoryEntry)>, Vec<(TenantId, String, i64)>);

/// Every entry, and every erasure.
pub(crate) async fn dump(connection: &mut PgConnection) -> std::result::Result<Dumped, Fault> {
    let rows = sql!("memories/dump").fetch_all(&mut *connection).await?;
    let of = |row: &PgRow, table| Fields::new(row, table).take("tenant").map(TenantId);
    let entries = rows.iter();
    let entries = entries.map(|row| Ok((of(row, "memories")?, entry(row)?)));
    let entries = entries.collect::<Result<_>>()?;
    let rows = sql!("memories/dump_erasures").fetch_all(connection).await?;
    let erasures = rows.iter().map(|row| {
        let mut fields = Fields::new(row, "memory_erasures");
        let tenant = of(row, "memory_erasures")?;
        Ok((tenant, fields.take("fingerprint")?, fields.take("deleted")?))
    });
    Ok((entries, erasures.collect::<Result<_>>()?))
}
