//! Agents' memory.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::id::{ErasureId, MemoryId, SendId, SessionKey, TenantId};
use mainspring_shared::memory::rank::{Placed, compared};
use mainspring_shared::memory::{Embedding, MemoryEntry, Namespace, Sources, words};
use mainspring_shared::store::{
    self, CANDIDATES_MAX, ChangeMemory, ClaimUnembedded, EraseMemories, ErasedMemories, Erasure,
    ListErasures, ListMemories, Memories, NewMemory, Page, PaidVectors, RARE_MAX, SaveMemory,
    SaveMemoryOutcome, SearchMemories, SetEmbedding, Unembedded, VECTORS_MAX, candidate,
};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use crate::accept::{self, Seen};
use crate::db::{Conn, Statement, sql};
use crate::extractions;
use crate::fault::{Fault, Result, skipped};
use crate::query::statement;
use crate::reads::page;
use crate::row::Row;
use crate::rows::{Cells, json};
use crate::store::{SqlStore, Tx, clock};

#[async_trait]
impl Memories for SqlStore {
    async fn save_memory(&self, item: SaveMemory) -> store::Result<SaveMemoryOutcome> {
        self.write(item, |tx, item| Box::pin(save(tx, item))).await
    }

    async fn change_memory(&self, item: ChangeMemory) -> store::Result<Option<MemoryEntry>> {
        self.write(item, |tx, item| {
            Box::pin(async move { change(tx, &item).await })
        })
        .await
    }

    async fn delete_memory(
        &self,
        tenant: TenantId,
        within: Option<Namespace>,
        id: MemoryId,
    ) -> store::Result<bool> {
        self.write((tenant, within, id), |tx, (tenant, within, id)| {
            Box::pin(delete(tx, tenant, within, id))
        })
        .await
    }

    async fn erase_memories(&self, item: EraseMemories) -> store::Result<ErasedMemories> {
        self.write(item, |tx, item| Box::pin(erase(tx, item))).await
    }

    async fn list_erasures(&self, query: ListErasures) -> store::Result<Page<Erasure>> {
        self.read(move |conn| Box::pin(erasures(conn, query))).await
    }

    async fn get_memory(
        &self,
        tenant: TenantId,
        id: MemoryId,
    ) -> store::Result<Option<MemoryEntry>> {
        self.read(move |conn| Box::pin(get(conn, self.at, (tenant, id))))
            .await
    }

    async fn list_memories(&self, query: ListMemories) -> store::Result<Page<MemoryEntry>> {
        self.read(move |conn| Box::pin(list(conn, self.at, query)))
            .await
    }

    async fn search_memories(&self, query: SearchMemories) -> store::Result<Vec<MemoryEntry>> {
        self.snapshot(move |conn| Box::pin(search(conn, self.at, query)))
            .await
    }

    async fn claim_unembedded(&self, claim: ClaimUnembedded) -> store::Result<Vec<Unembedded>> {
        self.write(claim, |tx, claim| Box::pin(unembedded(tx, claim)))
            .await
    }

    async fn set_embedding(&self, item: SetEmbedding) -> store::Result<bool> {
        self.write(item, |tx, item| Box::pin(embed(tx, item))).await
    }

    async fn pay_for_vectors(&self, tenant: TenantId, paid: Vec<PaidVectors>) -> store::Result<()> {
        self.write((tenant, paid), |tx, (tenant, paid)| {
            Box::pin(async move { pay(tx, tenant, &paid).await })
        })
        .await
    }

    async fn expire_memories(&self, limit: u32) -> store::Result<u64> {
        self.write(limit, |tx, limit| Box::pin(expire(tx, limit)))
            .await
    }
}

async fn save(tx: &mut Tx, item: SaveMemory) -> Result<SaveMemoryOutcome> {
    let tenant = item.tenant;
    if let Some(key) = &item.idempotency {
        match accept::seen(tx, key).await? {
            Seen::Never => accept::remember(tx, key, item.entry.id.0).await?,
            Seen::Before(id) => {
                let now = tx.now;
                let known =
                    entry_of(tx.conn(), sql!("memories/get"), (tenant, MemoryId(id)), now).await?;
                return Ok(known.map_or(SaveMemoryOutcome::Gone, SaveMemoryOutcome::Known));
            }
            Seen::OtherBody => return Ok(SaveMemoryOutcome::Mismatch),
        }
    }
    let id = item.entry.id;
    if insert(tx, tenant, &item.entry).await? {
        return Ok(SaveMemoryOutcome::Saved(item.entry.at(tx.now)));
    }
    let now = tx.now;
    let known = entry_of(tx.conn(), sql!("memories/get"), (tenant, id), now).await?;
    Ok(known.map_or(SaveMemoryOutcome::Gone, SaveMemoryOutcome::Known))
}

/// Inserts an entry; false if its id exists already.
pub(crate) async fn insert(tx: &mut Tx, tenant: TenantId, new: &NewMemory) -> Result<bool> {
    let now = tx.now;
    let done = statement(sql!("memories/save"))
        .bind(tenant.0)
        .bind(new.id.0)
        .bind(new.namespace.stored())
        .bind(&new.text)
        .bind(json(&new.metadata)?)
        .bind(new.source.as_ref().map(json).transpose()?)
        .bind(new.indexed(tenant))
        .bind(now.0)
        .bind(new.expires_at.map(|at| at.0))
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}

pub(crate) async fn change(tx: &mut Tx, item: &ChangeMemory) -> Result<Option<MemoryEntry>> {
    let (tenant, now) = (item.tenant, tx.now);
    let locked = entry_of(tx.conn(), sql!("memories/lock"), (tenant, item.id), now).await?;
    let Some(entry) = locked.map(|entry| item.apply(entry, now)) else {
        return Ok(None);
    };
    let sql = if item.text.is_some() {
        sql!("memories/rewrite")
    } else {
        sql!("memories/change")
    };
    let mut query = statement(sql)
        .bind(tenant.0)
        .bind(entry.id.0)
        .bind(json(&entry.metadata)?)
        .bind(now.0)
        .bind(entry.expires_at.map(|at| at.0))
        .bind(entry.sources().as_ref().map(json).transpose()?);
    if let Some(text) = &item.text {
        let words = words::words(text);
        query = query
            .bind(text)
            .bind(words::indexed(tenant, &entry.namespace, &words));
    }
    query.execute(tx.conn()).await?;
    Ok(Some(entry))
}

async fn delete(
    tx: &mut Tx,
    tenant: TenantId,
    within: Option<Namespace>,
    id: MemoryId,
) -> Result<bool> {
    let done = statement(sql!("memories/delete"))
        .bind(tenant.0)
        .bind(id.0)
        .bind(within.as_ref().map(Namespace::stored))
        .bind(within.as_ref().map(Namespace::behind))
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}

async fn erase(tx: &mut Tx, item: EraseMemories) -> Result<ErasedMemories> {
    let now = tx.now;
    let done = statement(sql!("memories/erase"))
        .bind(item.tenant.0)
        .bind(item.namespace.stored())
        .bind(item.namespace.behind())
        .bind(item.limit)
        .execute(tx.conn())
        .await?;
    let deleted = done.rows_affected();
    statement(sql!("extractions/erase"))
        .bind(item.tenant.0)
        .bind(item.namespace.stored())
        .bind(item.namespace.behind())
        .execute(tx.conn())
        .await?;
    statement(sql!("memories/erased"))
        .bind(item.tenant.0)
        .bind(item.erasure.0)
        .bind(&item.fingerprint)
        .bind(deleted as i64)
        .bind(now.0)
        .bind(&item.by)
        .execute(tx.conn())
        .await?;
    Ok(ErasedMemories {
        deleted,
        more: deleted >= u64::from(item.limit),
    })
}

async fn erasures(conn: &mut Conn, query: ListErasures) -> Result<Page<Erasure>> {
    let rows = statement(sql!("memories/erasures"))
        .bind(query.tenant.0)
        .bind(query.before.map(|id| id.0))
        .bind(i64::from(query.limit) + 1)
        .bind(query.fingerprint.as_deref())
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, erasure))
}

fn erasure(row: &Row) -> Result<Erasure> {
    let mut cells = Cells::new(row, "memory_erasures");
    let id: Uuid = cells.get("erasure_id")?;
    let deleted: i64 = cells.get("deleted")?;
    Ok(Erasure {
        id: ErasureId(id),
        namespace_sha256: cells.get("fingerprint")?,
        deleted: deleted.max(0).unsigned_abs(),
        by: cells.get("erased_by")?,
        erased_at: Timestamp(cells.get("erased_at")?),
    })
}

async fn unembedded(tx: &mut Tx, claim: ClaimUnembedded) -> Result<Vec<Unembedded>> {
    let now = tx.now;
    let rows = statement(sql!("memories/unembedded"))
        .bind(now.0)
        .bind(claim.limit)
        .fetch_all(tx.conn())
        .await?;
    let mut claimed = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut cells = Cells::new(row, "memories");
        let tenant = TenantId(cells.get("tenant")?);
        let id: Uuid = cells.get("memory_id")?;
        statement(sql!("memories/claim_unembedded"))
            .bind(tenant.0)
            .bind(id)
            .bind(now.after(claim.lease).0)
            .execute(tx.conn())
            .await?;
        // One that cannot be read waits as long as if it were claimed.
        let read = cells
            .get("text")
            .and_then(|text| Ok((text, cells.json_opt("source")?)));
        match read {
            Ok((text, source)) => claimed.push(Unembedded {
                tenant,
                id: MemoryId(id),
                text,
                source,
            }),
            Err(fault) => skipped(&fault),
        }
    }
    Ok(claimed)
}

async fn embed(tx: &mut Tx, item: SetEmbedding) -> Result<bool> {
    if let Some(paid) = &item.paid {
        pay(tx, item.tenant, std::slice::from_ref(paid)).await?;
    }
    let Some(embedding) = &item.embedding else {
        return Ok(false);
    };
    let done = statement(sql!("memories/embed"))
        .bind(item.tenant.0)
        .bind(item.id.0)
        .bind(&item.text)
        .bind(embedding.bytes())
        .bind(&embedding.model)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Charges the cost of vectors to their sends, or to the tenant where a send is gone.
async fn pay(tx: &mut Tx, tenant: TenantId, paid: &[PaidVectors]) -> Result<()> {
    let mut entered = Vec::new();
    for one in paid {
        if pay_by_send(tx, tenant, one).await? {
            continue;
        }
        statement(sql!("memories/pay"))
            .bind(tenant.0)
            .bind(one.id)
            .bind(&one.call.model)
            .bind(json(&one.call.usage)?)
            .execute(tx.conn())
            .await?;
        entered.push(one.id);
    }
    if let Some(kept) = PaidVectors::kept_from(entered) {
        statement(sql!("memories/paid_long_ago"))
            .bind(tenant.0)
            .bind(kept)
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}

/// Charges vectors to their send; false if it is gone, or there is none.
async fn pay_by_send(tx: &mut Tx, tenant: TenantId, paid: &PaidVectors) -> Result<bool> {
    let Some((session, send)) = paid.payer else {
        return Ok(false);
    };
    let key = SessionKey { tenant, session };
    if !can_pay(tx, key, send).await? {
        return Ok(false);
    }
    extractions::pay(tx, key, send, &paid.row()).await?;
    Ok(true)
}

/// Whether a send and its session exist, so that a cost can be charged to the send. Locks them
/// until the transaction ends.
pub(crate) async fn can_pay(tx: &mut Tx, key: SessionKey, send: SendId) -> Result<bool> {
    let there = statement(sql!("memories/payer"))
        .bind(key.tenant.0)
        .bind(key.session.0)
        .bind(send.0)
        .fetch_optional(tx.conn())
        .await?;
    Ok(there.is_some())
}

async fn expire(tx: &mut Tx, limit: u32) -> Result<u64> {
    let now = tx.now;
    let done = statement(sql!("memories/expire"))
        .bind(now.0)
        .bind(limit)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected())
}

async fn get(
    conn: &mut Conn,
    at: Option<Timestamp>,
    key: (TenantId, MemoryId),
) -> Result<Option<MemoryEntry>> {
    let now = clock(conn, at).await?;
    entry_of(conn, sql!("memories/get"), key, now).await
}

async fn entry_of(
    conn: &mut Conn,
    sql: &'static Statement,
    (tenant, id): (TenantId, MemoryId),
    now: Timestamp,
) -> Result<Option<MemoryEntry>> {
    let row = statement(sql)
        .bind(tenant.0)
        .bind(id.0)
        .bind(now.0)
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(entry).transpose()
}

async fn list(
    conn: &mut Conn,
    at: Option<Timestamp>,
    query: ListMemories,
) -> Result<Page<MemoryEntry>> {
    let now = clock(conn, at).await?;
    let sql = if query.namespace.is_some() {
        sql!("memories/list_in")
    } else {
        sql!("memories/list")
    };
    let mut statement = statement(sql)
        .bind(query.tenant.0)
        .bind(query.before.map(|id| id.0))
        .bind(now.0)
        .bind(i64::from(query.limit) + 1);
    if let Some(namespace) = &query.namespace {
        statement = statement.bind(namespace.stored()).bind(namespace.behind());
    }
    let rows = statement.fetch_all(conn).await?;
    Ok(page(&rows, query.limit, entry))
}

/// The entries that the full-text index selects from a large namespace: all with a rare word of the
/// query, some with a common one, and those with its common words together.
async fn picked(conn: &mut Conn, query: &SearchMemories, now: Timestamp) -> Result<Vec<Row>> {
    let mut found = Vec::new();
    let mut common = Vec::new();
    for word in query.picked() {
        let rows = holding(conn, query, now, (&[word], RARE_MAX + 1)).await?;
        if rows.len() > RARE_MAX as usize {
            common.push(word);
        }
        found.extend(rows);
    }
    for words in SearchMemories::together(&common) {
        let rows = holding(conn, query, now, (&words, CANDIDATES_MAX)).await?;
        let is_enough = !rows.is_empty();
        found.extend(rows);
        if is_enough {
            break;
        }
    }
    Ok(found)
}

async fn holding(
    conn: &mut Conn,
    query: &SearchMemories,
    now: Timestamp,
    (words, limit): (&[&str], u32),
) -> Result<Vec<Row>> {
    statement(sql!("memories/holding"))
        .bind(query.tenant.0)
        .bind(query.namespace.stored())
        .bind(query.namespace.behind())
        .bind(now.0)
        .bind(limit)
        .bind(query.fts5(words))
        .bind(query.boolean(words))
        .fetch_all(conn)
        .await
}

async fn search(
    conn: &mut Conn,
    at: Option<Timestamp>,
    query: SearchMemories,
) -> Result<Vec<MemoryEntry>> {
    let now = clock(conn, at).await?;
    let within = |sql: &'static Statement| {
        statement(sql)
            .bind(query.tenant.0)
            .bind(query.namespace.stored())
            .bind(query.namespace.behind())
            .bind(now.0)
    };
    let mut words = Vec::new();
    if !query.words.is_empty() {
        words = within(sql!("memories/scan"))
            .bind(i64::from(query.scan_max) + 1)
            .fetch_all(conn)
            .await?;
        if words.len() > query.scan_max as usize {
            words = picked(conn, &query, now).await?;
        }
    }
    let words = words.iter().map(|row| {
        let mut cells = Cells::new(row, "memories");
        let (id, at) = place(&mut cells)?;
        Ok((id, candidate(id, at, cells.get("words")?)))
    });
    // Several queries may have found the same entry.
    let words = words.collect::<Result<BTreeMap<_, _>>>()?;
    let words: Vec<_> = words.into_values().collect();
    let mut vectors = Vec::new();
    if let Some(embedding) = &query.embedding {
        let rows = within(sql!("memories/vectors"))
            .bind(&embedding.model)
            .bind(VECTORS_MAX)
            .fetch_all(conn)
            .await?;
        for row in &rows {
            let mut cells = Cells::new(row, "memories");
            let (id, updated_at) = place(&mut cells)?;
            let bytes: Vec<u8> = cells.get("embedding")?;
            // An unreadable vector only affects its entry.
            if let Some(vector) = Embedding::vector_of(&bytes) {
                vectors.push(Placed {
                    id,
                    updated_at,
                    vector,
                });
            }
        }
    }
    let asked = query.embedding.as_ref();
    let compared = asked.map_or_else(Vec::new, |asked| compared(&asked.vector, &vectors));
    let mut found = Vec::new();
    for id in query.order(&words, &compared) {
        let key = (query.tenant, id);
        found.extend(entry_of(conn, sql!("memories/get"), key, now).await?);
    }
    Ok(found)
}

fn place(cells: &mut Cells<'_>) -> Result<(MemoryId, Timestamp)> {
    let id: Uuid = cells.get("memory_id")?;
    Ok((MemoryId(id), Timestamp(cells.get("updated_at")?)))
}

pub(crate) fn entry(row: &Row) -> Result<MemoryEntry> {
    let mut cells = Cells::new(row, "memories");
    let id: Uuid = cells.get("memory_id")?;
    entry_fields(&mut cells, MemoryId(id))
        .map_err(|fault| fault.of_row(|| MemoryId(id).to_string()))
}

fn entry_fields(cells: &mut Cells<'_>, id: MemoryId) -> Result<MemoryEntry> {
    let sources: Option<Sources> = cells.json_opt("source")?;
    let (source, earlier) = sources.map(|it| (it.latest, it.earlier)).unzip();
    let namespace: &str = cells.get("namespace")?;
    let namespace = Namespace::from_stored(namespace)
        .map_err(|fault| Fault::unreadable("memories", "namespace", fault.to_string()))?;
    Ok(MemoryEntry {
        id,
        namespace,
        text: cells.get("text")?,
        metadata: cells.json_opt("metadata")?.unwrap_or_default(),
        source,
        earlier_sources: earlier.unwrap_or_default(),
        created_at: Timestamp(cells.get("created_at")?),
        updated_at: Timestamp(cells.get("updated_at")?),
        expires_at: cells.get::<Option<i64>>("expires_at")?.map(Timestamp),
    })
}

/// Entries and erasures of a dump.
type Dumped = (Vec<(TenantId, MemoryEntry)>, Vec<(TenantId, String, i64)>);

/// All entries and erasures.
pub(crate) async fn dump(conn: &mut Conn) -> Result<Dumped> {
    let rows = statement(sql!("memories/dump"))
        .fetch_all(&mut *conn)
        .await?;
    let of = |row: &Row| Cells::new(row, "memories").get("tenant").map(TenantId);
    let mut entries: BTreeMap<(TenantId, MemoryId), MemoryEntry> = BTreeMap::new();
    for row in &rows {
        let entry = entry(row)?;
        entries.insert((of(row)?, entry.id), entry);
    }
    let rows = statement(sql!("memories/dump_erasures"))
        .fetch_all(conn)
        .await?;
    let erasures = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "memory_erasures");
        Ok((of(row)?, cells.get("fingerprint")?, cells.get("deleted")?))
    });
    Ok((
        entries
            .into_iter()
            .map(|((tenant, _), entry)| (tenant, entry))
            .collect(),
        erasures.collect::<Result<_>>()?,
    ))
}
