//! Blobs: their rows, and their bytes if the database stores those, too.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use mainspring_shared::blob::{BlobHash, BlobOwner, BlobPlace, NamedBlobs};
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{
    BeginBlob, BlobRecord, BlobRows, BlobState, DumpBlob, Error, NewBlob, Result, RetireBlobs,
    RetiredBlobs,
};
use mainspring_shared::time::Timestamp;
use serde_json::{Value, json};
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use crate::columns::text;
use crate::fault::Fault;
use crate::retry::{execute, fetch, repeatable, sql};
use crate::store::PostgresStore;

#[async_trait]
impl BlobRows for PostgresStore {
    async fn begin_blob(&self, blob: NewBlob) -> Result<BeginBlob> {
        let at = self.at.map(|at| at.0);
        let owner = blob.owner.map(BlobOwner::parts);
        let place = blob.place;
        let rows = fetch(&self.pools.writers, || {
            sql!("blobs/begin")
                .bind(at)
                .bind(place.tenant.0)
                .bind(key(place.sha256))
                .bind(place.generation)
                .bind(text(&blob.media_type).into_owned())
                .bind(i64::try_from(blob.bytes).unwrap_or(i64::MAX))
                .bind(owner.map(|(kind, _)| kind))
                .bind(owner.map(|(_, id)| id))
        })
        .await?;
        let row = rows.first().ok_or_else(|| corrupt("sha256", "is gone"))?;
        let (record, state) = record(row)?;
        Ok(match state {
            BlobState::Coming => BeginBlob::Begun(record.place),
            BlobState::Stored => BeginBlob::Known,
            BlobState::Going => BeginBlob::Going(record.place),
        })
    }

    async fn finish_blob(&self, place: BlobPlace, owner: Option<BlobOwner>) -> Result<bool> {
        let at = self.at.map(|at| at.0);
        let owner = owner.map(BlobOwner::parts);
        let rows = fetch(&self.pools.writers, || {
            sql!("blobs/finish")
                .bind(at)
                .bind(place.tenant.0)
                .bind(key(place.sha256))
                .bind(place.generation)
                .bind(owner.map(|(kind, _)| kind))
                .bind(owner.map(|(_, id)| id))
        })
        .await?;
        let stored: i64 = match rows.first() {
            Some(row) => named(row, "stored")?,
            None => 0,
        };
        Ok(stored > 0)
    }

    async fn hold_blobs(
        &self,
        tenant: TenantId,
        owner: BlobOwner,
        hashes: Vec<BlobHash>,
    ) -> Result<Vec<Option<BlobRecord>>> {
        let at = self.at.map(|at| at.0);
        let (kind, id) = owner.parts();
        let rows = fetch(&self.pools.writers, || {
            sql!("blobs/hold")
                .bind(at)
                .bind(tenant.0)
                .bind(keys(&hashes))
                .bind(kind)
                .bind(id)
        })
        .await?;
        in_order(&hashes, &rows)
    }

    async fn get_blobs(
        &self,
        tenant: TenantId,
        hashes: Vec<BlobHash>,
    ) -> Result<Vec<Option<BlobRecord>>> {
        let rows = fetch(&self.pools.claimers, || {
            sql!("blobs/get").bind(tenant.0).bind(keys(&hashes))
        })
        .await?;
        in_order(&hashes, &rows)
    }

    async fn retire_blobs(&self, query: RetireBlobs) -> Result<RetiredBlobs> {
        // A repeat finds the blobs that were marked.
        repeatable!(&self.pools.writers, |connection| retire(
            connection, self.at, &query
        ))
    }

    async fn forget_blob(&self, place: BlobPlace) -> Result<()> {
        execute(&self.pools.writers, || {
            sql!("blobs/forget")
                .bind(place.tenant.0)
                .bind(key(place.sha256))
                .bind(place.generation)
        })
        .await?;
        Ok(())
    }

    async fn write_blob_chunk(&self, place: BlobPlace, n: i32, data: Bytes) -> Result<()> {
        execute(&self.pools.writers, || {
            sql!("blobs/write")
                .bind(place.tenant.0)
                .bind(key(place.sha256))
                .bind(place.generation)
                .bind(n)
                .bind(data.to_vec())
        })
        .await?;
        Ok(())
    }

    async fn read_blob_chunk(&self, place: BlobPlace, n: i32) -> Result<Option<Bytes>> {
        let rows = fetch(&self.pools.claimers, || {
            sql!("blobs/read")
                .bind(place.tenant.0)
                .bind(key(place.sha256))
                .bind(place.generation)
                .bind(n)
        })
        .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let data: Vec<u8> = named(row, "data")?;
        Ok(Some(data.into()))
    }

    async fn drop_blob_chunks(&self, place: BlobPlace, limit: u32) -> Result<u64> {
        execute(&self.pools.writers, || {
            sql!("blobs/drop")
                .bind(place.tenant.0)
                .bind(key(place.sha256))
                .bind(place.generation)
                .bind(i64::from(limit))
        })
        .await
    }
}

/// A hash as it is stored.
fn key(hash: BlobHash) -> Vec<u8> {
    hash.0.to_vec()
}

fn keys(hashes: &[BlobHash]) -> Vec<Vec<u8>> {
    hashes.iter().copied().map(key).collect()
}

/// A column, by name.
fn named<'r, T>(row: &'r PgRow, column: &'static str) -> Result<T>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    row.try_get(column)
        .map_err(|error| corrupt(column, &error.to_string()))
}

fn corrupt(column: &'static str, detail: &str) -> Error {
    Error::Corrupt {
        table: "blobs",
        column,
        row: String::new(),
        detail: detail.to_owned(),
    }
}

fn hash(row: &PgRow) -> Result<BlobHash> {
    let bytes: Vec<u8> = named(row, "sha256")?;
    BlobHash::from_slice(&bytes).ok_or_else(|| corrupt("sha256", "is no SHA-256"))
}

fn record(row: &PgRow) -> Result<(BlobRecord, BlobState)> {
    let number: i16 = named(row, "state")?;
    let state = BlobState::of(number).ok_or_else(|| corrupt("state", "is unknown"))?;
    let bytes: i64 = named(row, "bytes")?;
    let record = BlobRecord {
        place: BlobPlace {
            tenant: TenantId(named(row, "tenant")?),
            sha256: hash(row)?,
            generation: named(row, "generation")?,
        },
        media_type: named(row, "media_type")?,
        bytes: bytes.unsigned_abs(),
        created_at: Timestamp(named(row, "created_at")?),
    };
    Ok((record, state))
}

fn in_order(hashes: &[BlobHash], rows: &[PgRow]) -> Result<Vec<Option<BlobRecord>>> {
    let mut found = BTreeMap::new();
    for row in rows {
        let (record, _) = record(row)?;
        found.insert(record.place.sha256, record);
    }
    let each = hashes.iter().map(|hash| found.get(hash).cloned());
    Ok(each.collect())
}

async fn retire(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    query: &RetireBlobs,
) -> std::result::Result<RetiredBlobs, Fault> {
    let at = at.map(|at| at.0);
    let grace = i64::try_from(query.grace.as_millis()).unwrap_or(i64::MAX);
    let (tenant, after) = match query.after {
        Some((tenant, hash)) => (tenant.0, key(hash)),
        None => (i32::MIN, Vec::new()),
    };
    let mut tx = connection.begin().await?;
    let rows = sql!("blobs/page")
        .bind(tenant)
        .bind(after.clone())
        .bind(i64::from(query.limit))
        .fetch_all(&mut *tx)
        .await?;
    let mut retired = RetiredBlobs::default();
    let Some(row) = rows.last() else {
        return Ok(retired);
    };
    let last = (TenantId(named(row, "tenant")?), hash(row)?);
    let ranged = |query: crate::retry::PgQuery| {
        query
            .bind(tenant)
            .bind(after.clone())
            .bind(last.0.0)
            .bind(key(last.1))
    };
    let released = ranged(sql!("blobs/release").bind(at)).bind(grace);
    retired.holds = released.execute(&mut *tx).await?.rows_affected();
    let marked = ranged(sql!("blobs/mark").bind(at)).bind(grace);
    marked.execute(&mut *tx).await?;
    for row in &ranged(sql!("blobs/going")).fetch_all(&mut *tx).await? {
        retired.going.push(record(row)?.0.place);
    }
    tx.commit().await?;
    retired.next = Some(last).filter(|_| rows.len() == query.limit as usize);
    Ok(retired)
}

/// Reads a row of the dump.
pub(crate) fn dumped(row: &PgRow) -> Result<DumpBlob> {
    let (record, state) = record(row)?;
    let kinds: Vec<i16> = named(row, "kinds")?;
    let ids: Vec<Uuid> = named(row, "owners")?;
    let owners = kinds
        .into_iter()
        .zip(ids)
        .map(|(kind, id)| BlobOwner::of(kind, id).ok_or_else(|| corrupt("kind", "is unknown")));
    Ok(DumpBlob {
        place: record.place,
        state,
        media_type: record.media_type,
        bytes: record.bytes,
        owners: owners.collect::<Result<_>>()?,
    })
}

/// Blobs that are named by a row whose owner does not hold them, unless its session was deleted; at
/// most `max`.
pub(crate) async fn unheld(
    connection: &mut PgConnection,
    mut named: NamedBlobs,
    max: usize,
) -> std::result::Result<Vec<Value>, Fault> {
    if !named.is_empty() {
        let mut rows = sql!("blobs/holds")
            .persistent(false)
            .fetch(&mut *connection);
        while let Some(row) = rows.try_next().await? {
            // An unreadable hold counts as none.
            if let Ok((tenant, owner, sha256)) = hold_of(&row) {
                named.held(tenant, owner, sha256);
            }
        }
    }
    let mut found = Vec::new();
    for (tenant, owner, sha256) in named.into_rest() {
        let (_, id) = owner.parts();
        let query = sql!("blobs/lives").bind(tenant.0).bind(id);
        let lives = match owner {
            BlobOwner::Session(_) => query.fetch_optional(&mut *connection).await?.is_some(),
            BlobOwner::Timer(_) | BlobOwner::Run(_) => true,
        };
        if lives {
            found.push(json!({ "tenant": tenant, "owner": owner.to_string(), "sha256": sha256 }));
        }
        if found.len() >= max {
            break;
        }
    }
    Ok(found)
}

fn hold_of(row: &PgRow) -> Result<(TenantId, BlobOwner, BlobHash)> {
    let bytes: &[u8] = named(row, "sha256")?;
    let sha256 = BlobHash::from_slice(bytes).ok_or_else(|| corrupt("sha256", "is no SHA-256"))?;
    let owner = BlobOwner::of(named(row, "kind")?, named(row, "owner")?);
    let owner = owner.ok_or_else(|| corrupt("kind", "is unknown"))?;
    Ok((TenantId(named(row, "tenant")?), owner, sha256))
}
