//! Combines rows and bytes of blobs: put the content first, then refer to it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{
    BLOB_BYTES_MAX, BlobHash, BlobOwner, BlobPlace, BlobRef, Blobs, Error, InDatabase, SPILL_BYTES,
};
use crate::entropy::Entropy;
use crate::id::TenantId;
use crate::store::{BeginBlob, BlobRecord, NewBlob, RetireBlobs, Store};

/// How long a blob is kept that nothing holds, which is the time to refer to it after a put.
pub const SWEEP_GRACE: Duration = Duration::from_hours(24);

/// Maximum restarts of a put because the blob was being deleted.
const BEGUN_MAX: u32 = 4;

/// The outcome of a put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The reference to it.
    pub blob: BlobRef,
    /// Whether it was already stored.
    pub known: bool,
}

/// The result of a page of [`Depot::sweep`].
#[derive(Debug, Default)]
pub struct Swept {
    /// Number of blobs removed.
    pub blobs: u64,
    /// Number of holds removed because their owners are gone.
    pub holds: u64,
    /// The page's last blob, if another page follows.
    pub next: Option<(TenantId, BlobHash)>,
    /// Why some blobs could not be removed; the next pass tries again.
    pub failed: Option<Error>,
}

/// The blobs of a deployment.
///
/// The order of a write is: the blob's row, its bytes, the row again, then the rows that refer to
/// it. A deletion goes the other way: the row is marked, the bytes are deleted, the row is deleted.
/// A process that dies in between leaves a row that says where bytes may be, which the sweep cleans up.
#[derive(Debug)]
pub struct Depot {
    pub(super) rows: Arc<dyn Store>,
    bytes: Arc<dyn Blobs>,
    /// The database, for blobs put before another store was configured.
    older: Option<InDatabase>,
    entropy: Arc<dyn Entropy>,
    bytes_max: usize,
    spill_bytes: usize,
}

impl Depot {
    /// Blobs whose bytes are in the database.
    pub fn in_database(rows: Arc<dyn Store>, entropy: Arc<dyn Entropy>) -> Self {
        Self {
            bytes: Arc::new(InDatabase::new(rows.clone())),
            older: None,
            rows,
            entropy,
            bytes_max: BLOB_BYTES_MAX,
            spill_bytes: SPILL_BYTES,
        }
    }

    /// Blobs whose bytes are in this store. Those put into the database before are still found there.
    pub fn new(rows: Arc<dyn Store>, bytes: Arc<dyn Blobs>, entropy: Arc<dyn Entropy>) -> Self {
        Self {
            bytes,
            older: Some(InDatabase::new(rows.clone())),
            rows,
            entropy,
            bytes_max: BLOB_BYTES_MAX,
            spill_bytes: SPILL_BYTES,
        }
    }

    /// Sets the maximum size of a blob, and the size up to which content stays in rows.
    #[must_use]
    pub fn bounded(mut self, bytes_max: usize, spill_bytes: usize) -> Self {
        self.bytes_max = bytes_max;
        self.spill_bytes = spill_bytes;
        self
    }

    /// Content of more bytes than this is stored as a blob, and rows only refer to it.
    pub fn spill_bytes(&self) -> usize {
        self.spill_bytes
    }

    /// The maximum size of a blob in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The store of the bytes.
    pub fn store(&self) -> &dyn Blobs {
        self.bytes.as_ref()
    }

    /// Stores content, unless it exists, and holds it for its owner. Without an owner it is kept
    /// for [`SWEEP_GRACE`], which every put restarts.
    pub async fn put(
        &self,
        tenant: TenantId,
        owner: Option<BlobOwner>,
        media_type: &str,
        data: Bytes,
    ) -> Result<Stored, Error> {
        let bytes = data.len();
        if bytes > self.bytes_max {
            let max = self.bytes_max;
            return Err(Error::TooLarge { bytes, max });
        }
        let sha256 = BlobHash::of(&data);
        let blob = BlobRef {
            sha256,
            media_type: media_type.to_owned(),
            bytes: bytes as u64,
        };
        for _ in 0..BEGUN_MAX {
            let new = NewBlob {
                place: BlobPlace {
                    tenant,
                    sha256,
                    generation: self.entropy.random_id(),
                },
                media_type: media_type.to_owned(),
                bytes: blob.bytes,
                owner,
            };
            match self.rows.begin_blob(new).await? {
                BeginBlob::Known => {
                    self.restore(tenant, sha256, data).await?;
                    return Ok(Stored { blob, known: true });
                }
                BeginBlob::Begun(place) => {
                    self.bytes.put(place, data.clone()).await?;
                    if self.rows.finish_blob(place, owner).await? {
                        return Ok(Stored { blob, known: false });
                    }
                }
                // Its bytes may be deleted at any moment: finish the deletion, and begin again.
                BeginBlob::Going(place) => self.remove(place).await?,
            }
        }
        Err(Error::unavailable(
            "the blob is deleted again and again while it is stored",
        ))
    }

    /// Stores the bytes of a known blob again if its store has lost them.
    async fn restore(&self, tenant: TenantId, sha256: BlobHash, data: Bytes) -> Result<(), Error> {
        let Some(record) = self.find(tenant, sha256).await? else {
            return Ok(());
        };
        let mut is_there = self.bytes.exists(record.place).await?;
        if !is_there && let Some(older) = &self.older {
            is_there = older.exists(record.place).await?;
        }
        if !is_there {
            self.bytes.put(record.place, data).await?;
        }
        Ok(())
    }

    /// Reads the records of these blobs; existing ones are held for the owner from now on.
    pub async fn hold(
        &self,
        tenant: TenantId,
        owner: BlobOwner,
        hashes: Vec<BlobHash>,
    ) -> Result<Vec<Option<BlobRecord>>, Error> {
        if hashes.is_empty() {
            return Ok(Vec::new());
        }
        // Each row once, and always in the same order.
        let distinct: BTreeMap<_, Option<BlobRecord>> =
            hashes.iter().map(|hash| (*hash, None)).collect();
        let asked: Vec<_> = distinct.into_keys().collect();
        let found = self.rows.hold_blobs(tenant, owner, asked.clone()).await?;
        let found: BTreeMap<_, _> = asked.into_iter().zip(found).collect();
        let each = hashes.iter().map(|hash| found.get(hash).cloned().flatten());
        Ok(each.collect())
    }

    /// Reads the record of a blob.
    pub async fn find(
        &self,
        tenant: TenantId,
        sha256: BlobHash,
    ) -> Result<Option<BlobRecord>, Error> {
        let found = self.rows.get_blobs(tenant, vec![sha256]).await?;
        Ok(found.into_iter().next().flatten())
    }

    /// Reads the content of a blob; `None` if there is no such blob. Content that does not match
    /// the hash is rejected, whatever the store says.
    pub async fn read(&self, tenant: TenantId, sha256: BlobHash) -> Result<Option<Bytes>, Error> {
        let Some(record) = self.find(tenant, sha256).await? else {
            return Ok(None);
        };
        self.read_whole(&record).await
    }

    /// Reads the content of a blob from its record.
    pub async fn read_whole(&self, record: &BlobRecord) -> Result<Option<Bytes>, Error> {
        let sha256 = record.place.sha256;
        let Some(data) = self.bytes_of(record.place, None).await? else {
            return Ok(None);
        };
        if data.len() as u64 != record.bytes || BlobHash::of(&data) != sha256 {
            return Err(Error::Corrupt { sha256 });
        }
        Ok(Some(data))
    }

    /// Reads a range of a blob's content. It is not checked against the hash; only its length is checked.
    pub async fn read_range(
        &self,
        record: &BlobRecord,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, Error> {
        let wanted = range.end.min(record.bytes).saturating_sub(range.start);
        let data = self.bytes_of(record.place, Some(range)).await?;
        if data
            .as_ref()
            .is_some_and(|data| data.len() as u64 != wanted)
        {
            let sha256 = record.place.sha256;
            return Err(Error::Corrupt { sha256 });
        }
        Ok(data)
    }

    async fn bytes_of(
        &self,
        place: BlobPlace,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>, Error> {
        let found = self.bytes.get(place, range.clone()).await?;
        match (&found, &self.older) {
            (None, Some(older)) => older.get(place, range).await,
            _ => Ok(found),
        }
    }

    /// Removes a page of blobs that nothing holds and that were not put within the grace period,
    /// which is [`SWEEP_GRACE`] except in tests; starts after `after`.
    pub async fn sweep(
        &self,
        grace: Duration,
        after: Option<(TenantId, BlobHash)>,
        limit: u32,
    ) -> Result<Swept, Error> {
        let query = RetireBlobs {
            grace,
            after,
            limit,
        };
        let retired = self.rows.retire_blobs(query).await?;
        let mut swept = Swept {
            blobs: 0,
            holds: retired.holds,
            next: retired.next,
            failed: None,
        };
        for place in retired.going {
            match self.remove(place).await {
                Ok(()) => swept.blobs += 1,
                Err(error @ Error::Rows(_)) => return Err(error),
                // It stays marked, and does not block the others.
                Err(error) => swept.failed = Some(error),
            }
        }
        Ok(swept)
    }

    /// Removes the bytes of a marked blob, then its row.
    async fn remove(&self, place: BlobPlace) -> Result<(), Error> {
        self.bytes.delete(place).await?;
        if let Some(older) = &self.older {
            older.delete(place).await?;
        }
        self.rows.forget_blob(place).await?;
        Ok(())
    }
}
