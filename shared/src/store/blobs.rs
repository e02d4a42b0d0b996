//! Parameters of blobs: their rows, and their bytes if the database stores these, too.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::Result;
use crate::blob::{BlobHash, BlobOwner, BlobPlace};
use crate::id::TenantId;
use crate::time::Timestamp;

/// Rows of blobs.
///
/// A row says where bytes are or may be: it is written before them and deleted after them.
#[async_trait]
pub trait BlobRows: Send + Sync {
    /// Announces bytes that are about to be stored. If they are already stored, the blob is held
    /// for the owner and its grace period restarts. The media type given last is kept.
    async fn begin_blob(&self, blob: NewBlob) -> Result<BeginBlob>;

    /// Records that the bytes are stored, and holds the blob for the owner. False if the row was
    /// removed or marked in the meantime: begin again.
    async fn finish_blob(&self, place: BlobPlace, owner: Option<BlobOwner>) -> Result<bool>;

    /// Reads blobs whose bytes are stored, in order; each is held for the owner and its grace
    /// period restarts. `hashes` must be sorted and without duplicates.
    async fn hold_blobs(
        &self,
        tenant: TenantId,
        owner: BlobOwner,
        hashes: Vec<BlobHash>,
    ) -> Result<Vec<Option<BlobRecord>>>;

    /// Reads blobs whose bytes are stored, in order.
    async fn get_blobs(
        &self,
        tenant: TenantId,
        hashes: Vec<BlobHash>,
    ) -> Result<Vec<Option<BlobRecord>>>;

    /// Goes through a page of blobs, by tenant and hash: removes holds by owners that no longer
    /// exist, and marks blobs that nothing holds, both only if they are older than the grace
    /// period. A marked blob cannot be found.
    async fn retire_blobs(&self, query: RetireBlobs) -> Result<RetiredBlobs>;

    /// Removes the row of a marked blob whose bytes are gone.
    async fn forget_blob(&self, place: BlobPlace) -> Result<()>;

    /// Writes a chunk of a blob's bytes.
    async fn write_blob_chunk(&self, place: BlobPlace, n: i32, data: Bytes) -> Result<()>;

    /// Reads a chunk of a blob's bytes.
    async fn read_blob_chunk(&self, place: BlobPlace, n: i32) -> Result<Option<Bytes>>;

    /// Removes the last chunks of a blob's bytes, at most `limit`; returns how many were removed.
    async fn drop_blob_chunks(&self, place: BlobPlace, limit: u32) -> Result<u64>;
}

/// The methods of [`BlobRows`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! blob_rows_methods {
    ($apply:ident) => {
        $apply! { BlobRows:
            write begin_blob(blob: $crate::store::NewBlob) -> $crate::store::BeginBlob;
            write finish_blob(
                place: $crate::blob::BlobPlace,
                owner: Option<$crate::blob::BlobOwner>
            ) -> bool;
            write hold_blobs(
                tenant: $crate::id::TenantId,
                owner: $crate::blob::BlobOwner,
                hashes: Vec<$crate::blob::BlobHash>
            ) -> Vec<Option<$crate::store::BlobRecord>>;
            read get_blobs(
                tenant: $crate::id::TenantId,
                hashes: Vec<$crate::blob::BlobHash>
            ) -> Vec<Option<$crate::store::BlobRecord>>;
            write retire_blobs(query: $crate::store::RetireBlobs) -> $crate::store::RetiredBlobs;
            write forget_blob(place: $crate::blob::BlobPlace) -> ();
            write write_blob_chunk(
                place: $crate::blob::BlobPlace,
                n: i32,
                data: ::bytes::Bytes
            ) -> ();
            read read_blob_chunk(place: $crate::blob::BlobPlace, n: i32) -> Option<::bytes::Bytes>;
            write drop_blob_chunks(place: $crate::blob::BlobPlace, limit: u32) -> u64;
        }
    };
}

/// A blob that is about to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBlob {
    /// Where its bytes will be, unless another process has already begun to store it.
    pub place: BlobPlace,
    /// The media type, such as `image/png`.
    pub media_type: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Who holds it; without an owner it is kept only for the grace period.
    pub owner: Option<BlobOwner>,
}

/// How far a blob to store exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginBlob {
    /// Its bytes are stored.
    Known,
    /// Store its bytes there. Another process may be doing the same, or may have died doing so.
    Begun(BlobPlace),
    /// It is being deleted: remove its bytes there first.
    Going(BlobPlace),
}

/// The state of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobState {
    /// Its bytes may be stored, at least in part.
    Coming,
    /// Its bytes are stored.
    Stored,
    /// Its bytes are being deleted, or are gone.
    Going,
}

impl BlobState {
    /// The number in the database.
    pub const fn number(self) -> i16 {
        match self {
            Self::Coming => 0,
            Self::Stored => 1,
            Self::Going => 2,
        }
    }

    /// The state of this number.
    pub const fn of(number: i16) -> Option<Self> {
        match number {
            0 => Some(Self::Coming),
            1 => Some(Self::Stored),
            2 => Some(Self::Going),
            _ => None,
        }
    }
}

/// A blob whose bytes are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobRecord {
    /// Where its bytes are.
    pub place: BlobPlace,
    /// The media type given last.
    pub media_type: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was first put.
    pub created_at: Timestamp,
}

/// A page of blobs that may be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetireBlobs {
    /// Minimum time since a blob was last put or held.
    pub grace: Duration,
    /// The last blob of the previous page; `None` for the first page.
    pub after: Option<(TenantId, BlobHash)>,
    /// Page size.
    pub limit: u32,
}

/// The result of going through a page of blobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetiredBlobs {
    /// Marked blobs, including those of an earlier run that did not finish: delete their bytes.
    pub going: Vec<BlobPlace>,
    /// Number of holds removed.
    pub holds: u64,
    /// The page's last blob, if another page may follow.
    pub next: Option<(TenantId, BlobHash)>,
}

/// A blob in a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpBlob {
    /// Where its bytes are.
    pub place: BlobPlace,
    /// Its state.
    pub state: BlobState,
    /// The media type given last.
    pub media_type: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Who holds it, in order.
    pub owners: Vec<BlobOwner>,
}
