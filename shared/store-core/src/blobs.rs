//! Blobs: their rows, and their bytes where the database stores these too.

use async_trait::async_trait;
use bytes::Bytes;
use mainspring_shared::blob::{BlobHash, BlobOwner, BlobPlace, NamedBlobs};
use mainspring_shared::id::TenantId;
use mainspring_shared::store;
use mainspring_shared::store::{
    BeginBlob, BlobRecord, BlobRows, BlobState, DumpBlob, NewBlob, RetireBlobs, RetiredBlobs,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::db::{Conn, sql};
use crate::fault::{Fault, Result};
use crate::query::statement;
use crate::row::Row;
use crate::rows::Cells;
use crate::store::{SqlStore, Tx};

#[async_trait]
impl BlobRows for SqlStore {
    async fn begin_blob(&self, blob: NewBlob) -> store::Result<BeginBlob> {
        self.write(blob, |tx, blob| Box::pin(begin(tx, blob))).await
    }

    async fn finish_blob(&self, place: BlobPlace, owner: Option<BlobOwner>) -> store::Result<bool> {
        self.write((place, owner), |tx, (place, owner)| {
            Box::pin(finish(tx, place, owner))
        })
        .await
    }

    async fn hold_blobs(
        &self,
        tenant: TenantId,
        owner: BlobOwner,
        hashes: Vec<BlobHash>,
    ) -> store::Result<Vec<Option<BlobRecord>>> {
        self.write((tenant, owner, hashes), |tx, (tenant, owner, hashes)| {
            Box::pin(hold_all(tx, tenant, owner, hashes))
        })
        .await
    }

    async fn get_blobs(
        &self,
        tenant: TenantId,
        hashes: Vec<BlobHash>,
    ) -> store::Result<Vec<Option<BlobRecord>>> {
        self.read(|conn| {
            Box::pin(async move {
                let mut found = Vec::with_capacity(hashes.len());
                for hash in hashes {
                    found.push(get(conn, tenant, hash).await?);
                }
                Ok(found)
            })
        })
        .await
    }

    async fn retire_blobs(&self, query: RetireBlobs) -> store::Result<RetiredBlobs> {
        self.write(query, |tx, query| Box::pin(retire(tx, query)))
            .await
    }

    async fn forget_blob(&self, place: BlobPlace) -> store::Result<()> {
        self.write(place, |tx, place| {
            Box::pin(async move {
                statement(sql!("blobs/forget"))
                    .bind(place.tenant.0)
                    .bind(key(place.sha256))
                    .bind(place.generation)
                    .execute(tx.conn())
                    .await?;
                Ok(())
            })
        })
        .await
    }

    async fn write_blob_chunk(&self, place: BlobPlace, n: i32, data: Bytes) -> store::Result<()> {
        self.write((place, n, data), |tx, (place, n, data)| {
            Box::pin(async move {
                statement(sql!("blobs/write"))
                    .bind(place.tenant.0)
                    .bind(key(place.sha256))
                    .bind(place.generation)
                    .bind(n)
                    .bind(data.to_vec())
                    .execute(tx.conn())
                    .await?;
                Ok(())
            })
        })
        .await
    }

    async fn read_blob_chunk(&self, place: BlobPlace, n: i32) -> store::Result<Option<Bytes>> {
        self.read(|conn| {
            Box::pin(async move {
                let row = statement(sql!("blobs/read"))
                    .bind(place.tenant.0)
                    .bind(key(place.sha256))
                    .bind(place.generation)
                    .bind(n)
                    .fetch_optional(conn)
                    .await?;
                let Some(row) = row else { return Ok(None) };
                let data: Vec<u8> = Cells::new(&row, "blob_chunks").get("data")?;
                Ok(Some(data.into()))
            })
        })
        .await
    }

    async fn drop_blob_chunks(&self, place: BlobPlace, limit: u32) -> store::Result<u64> {
        self.write((place, limit), |tx, (place, limit)| {
            Box::pin(async move {
                let done = statement(sql!("blobs/drop"))
                    .bind(place.tenant.0)
                    .bind(key(place.sha256))
                    .bind(place.generation)
                    .bind(limit)
                    .execute(tx.conn())
                    .await?;
                Ok(done.rows_affected())
            })
        })
        .await
    }
}

/// A hash as stored in a column.
fn key(hash: BlobHash) -> Vec<u8> {
    hash.0.to_vec()
}

async fn begin(tx: &mut Tx, blob: NewBlob) -> Result<BeginBlob> {
    let NewBlob {
        place,
        media_type,
        bytes,
        owner,
    } = blob;
    let now = tx.now.0;
    statement(sql!("blobs/begin"))
        .bind(place.tenant.0)
        .bind(key(place.sha256))
        .bind(place.generation)
        .bind(media_type)
        .bind(i64::try_from(bytes).unwrap_or(i64::MAX))
        .bind(now)
        .execute(tx.conn())
        .await?;
    let row = statement(sql!("blobs/load"))
        .bind(place.tenant.0)
        .bind(key(place.sha256))
        .fetch_one(tx.conn())
        .await?;
    let (record, state) = record(&row)?;
    Ok(match state {
        BlobState::Coming => BeginBlob::Begun(record.place),
        BlobState::Going => BeginBlob::Going(record.place),
        BlobState::Stored => {
            hold(tx, place.tenant, place.sha256, owner).await?;
            BeginBlob::Known
        }
    })
}

async fn finish(tx: &mut Tx, place: BlobPlace, owner: Option<BlobOwner>) -> Result<bool> {
    let done = statement(sql!("blobs/finish"))
        .bind(place.tenant.0)
        .bind(key(place.sha256))
        .bind(place.generation)
        .bind(tx.now.0)
        .execute(tx.conn())
        .await?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    hold(tx, place.tenant, place.sha256, owner).await?;
    Ok(true)
}

/// Makes the owner hold a blob, if there is an owner.
async fn hold(
    tx: &mut Tx,
    tenant: TenantId,
    sha256: BlobHash,
    owner: Option<BlobOwner>,
) -> Result<()> {
    let Some((kind, id)) = owner.map(BlobOwner::parts) else {
        return Ok(());
    };
    let now = tx.now.0;
    statement(sql!("blobs/hold"))
        .bind(tenant.0)
        .bind(key(sha256))
        .bind(kind)
        .bind(id)
        .bind(now)
        .execute(tx.conn())
        .await?;
    Ok(())
}

async fn hold_all(
    tx: &mut Tx,
    tenant: TenantId,
    owner: BlobOwner,
    hashes: Vec<BlobHash>,
) -> Result<Vec<Option<BlobRecord>>> {
    let now = tx.now.0;
    let mut found = Vec::with_capacity(hashes.len());
    for sha256 in hashes {
        let done = statement(sql!("blobs/touch"))
            .bind(tenant.0)
            .bind(key(sha256))
            .bind(now)
            .execute(tx.conn())
            .await?;
        if done.rows_affected() == 0 {
            found.push(None);
            continue;
        }
        hold(tx, tenant, sha256, Some(owner)).await?;
        found.push(get(tx.conn(), tenant, sha256).await?);
    }
    Ok(found)
}

async fn get(conn: &mut Conn, tenant: TenantId, sha256: BlobHash) -> Result<Option<BlobRecord>> {
    let row = statement(sql!("blobs/get"))
        .bind(tenant.0)
        .bind(key(sha256))
        .fetch_optional(conn)
        .await?;
    row.map(|row| record(&row).map(|(record, _)| record))
        .transpose()
}

async fn retire(tx: &mut Tx, query: RetireBlobs) -> Result<RetiredBlobs> {
    let grace = i64::try_from(query.grace.as_millis()).unwrap_or(i64::MAX);
    let before = tx.now.0.saturating_sub(grace);
    let (tenant, sha256) = match query.after {
        Some((tenant, hash)) => (tenant.0, key(hash)),
        None => (i32::MIN, Vec::new()),
    };
    let rows = statement(sql!("blobs/page"))
        .bind(tenant)
        .bind(sha256)
        .bind(query.limit)
        .fetch_all(tx.conn())
        .await?;
    let mut retired = RetiredBlobs::default();
    for row in &rows {
        let mut cells = Cells::new(row, "blobs");
        let (tenant, sha256) = (TenantId(cells.get("tenant")?), hash(&mut cells)?);
        retired.next = Some((tenant, sha256));
        retired.holds += statement(sql!("blobs/release"))
            .bind(tenant.0)
            .bind(key(sha256))
            .bind(before)
            .execute(tx.conn())
            .await?
            .rows_affected();
        statement(sql!("blobs/mark"))
            .bind(tenant.0)
            .bind(key(sha256))
            .bind(before)
            .execute(tx.conn())
            .await?;
        let row = statement(sql!("blobs/load"))
            .bind(tenant.0)
            .bind(key(sha256))
            .fetch_optional(tx.conn())
            .await?;
        if let Some(row) = row
            && let (record, BlobState::Going) = record(&row)?
        {
            retired.going.push(record.place);
        }
    }
    retired.next = retired.next.filter(|_| rows.len() == query.limit as usize);
    Ok(retired)
}

fn hash(cells: &mut Cells<'_>) -> Result<BlobHash> {
    let bytes: Vec<u8> = cells.get("sha256")?;
    BlobHash::from_slice(&bytes)
        .ok_or_else(|| Fault::unreadable("blobs", "sha256", "is no SHA-256".to_owned()))
}

/// Reads the columns `tenant, sha256, generation, state, media_type, bytes, created_at`.
fn record(row: &Row) -> Result<(BlobRecord, BlobState)> {
    let mut cells = Cells::new(row, "blobs");
    let tenant = TenantId(cells.get("tenant")?);
    let sha256 = hash(&mut cells)?;
    let generation: Uuid = cells.get("generation")?;
    let state = BlobState::of(cells.get("state")?)
        .ok_or_else(|| Fault::unreadable("blobs", "state", "is unknown".to_owned()))?;
    let record = BlobRecord {
        place: BlobPlace {
            tenant,
            sha256,
            generation,
        },
        media_type: cells.get("media_type")?,
        bytes: cells.get("bytes")?,
        created_at: cells.time("created_at")?,
    };
    Ok((record, state))
}

/// All blobs.
pub(crate) async fn dump(conn: &mut Conn) -> Result<Vec<DumpBlob>> {
    let rows = statement(sql!("blobs/dump")).fetch_all(&mut *conn).await?;
    let mut blobs = Vec::with_capacity(rows.len());
    for row in &rows {
        let (record, state) = record(row)?;
        let holds = statement(sql!("blobs/dump_holds"))
            .bind(record.place.tenant.0)
            .bind(key(record.place.sha256))
            .fetch_all(&mut *conn)
            .await?;
        let mut owners = Vec::with_capacity(holds.len());
        for row in &holds {
            let mut cells = Cells::new(row, "blob_holds");
            let owner = BlobOwner::of(cells.get("kind")?, cells.get("owner")?);
            owners.push(
                owner.ok_or_else(|| {
                    Fault::unreadable("blob_holds", "kind", "is unknown".to_owned())
                })?,
            );
        }
        blobs.push(DumpBlob {
            place: record.place,
            state,
            media_type: record.media_type,
            bytes: record.bytes,
            owners,
        });
    }
    Ok(blobs)
}

/// Blobs that are named but not held by the row that names them, unless that row's session was
/// deleted in the meantime; at most `max`.
pub(crate) async fn unheld(
    conn: &mut Conn,
    mut named: NamedBlobs,
    max: usize,
) -> Result<Vec<Value>> {
    if !named.is_empty() {
        let mut visit = |row: &Row| {
            // A hold that cannot be read does not count.
            if let Ok((tenant, owner, sha256)) = hold_of(row) {
                named.held(tenant, owner, sha256);
            }
            !named.is_empty()
        };
        let holds = statement(sql!("blobs/holds"));
        holds.scan(conn, &mut visit).await?;
    }
    let mut found = Vec::new();
    for (tenant, owner, sha256) in named.into_rest() {
        let (_, id) = owner.parts();
        let query = statement(sql!("blobs/lives")).bind(tenant.0).bind(id);
        let lives = match owner {
            BlobOwner::Session(_) => query.fetch_optional(&mut *conn).await?.is_some(),
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

fn hold_of(row: &Row) -> Result<(TenantId, BlobOwner, BlobHash)> {
    let mut cells = Cells::new(row, "blob_holds");
    let tenant = TenantId(cells.get("tenant")?);
    let sha256 = hash(&mut cells)?;
    let owner = BlobOwner::of(cells.get("kind")?, cells.get("owner")?);
    let owner =
        owner.ok_or_else(|| Fault::unreadable("blob_holds", "kind", "is unknown".to_owned()))?;
    Ok((tenant, owner, sha256))
}
