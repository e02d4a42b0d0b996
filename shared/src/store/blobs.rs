//! Parameters of blobs: their rows, and their bytes where the database keeps these as well.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::Result;
use crate::blob::{BlobHash, BlobOwner, BlobPlace};
use crate::id::TenantId;
use crate::time::Timestamp;

/// Rows of blobs.
///
/// A row says where bytes are or may be: it is written before them and goes after them.
#[async_trait]
pub trait BlobRows: Send + Sync {
    /// Announces bytes that are about to be stored, or finds that they are there: then the blob is
    /// held for the owner, and its grace begins anew. The last media type that was named is kept.
    async fn begin_blob(&self, blob: NewBlob) -> Result<BeginBlob>;

    /// Says that the bytes are stored, and holds the blob for the owner. False when the row went or
    /// was marked in the meantime: begin again.
    async fn finish_blob(&self, place: BlobPlace, owner: Option<BlobOwner>) -> Result<bool>;

    /// What is known of blobs whose bytes are stored, in order; each of them is held for the owner,
    /// and its grace begins anew. The hashes are in order and each is named once.
    async fn hold_blobs(
        &self,
        tenant: TenantId,
        owner: BlobOwner,
        hashes: Vec<BlobHash>,
    ) -> Result<Vec<Option<BlobRecord>>>;

    /// What is known of blobs whose bytes are stored, in order.
    async fn get_blobs(
        &self,
        tenant: TenantId,
        hashes: Vec<BlobHash>,
    ) -> Result<Vec<Option<BlobRecord>>>;

    /// Looks at a page of blobs, by tenant and hash: removes holds for what does not exist any more,
    /// and marks the blobs that nothing holds, both only where they are older than the grace. A
    /// marked blob is found by nobody.
    async fn retire_blobs(&self, query: RetireBlobs) -> Result<RetiredBlobs>;

    /// Removes the row of a marked blob, whose bytes are gone.
    async fn forget_blob(&self, place: BlobPlace) -> Result<()>;

    /// Writes a piece of a blob's bytes.
    async fn write_blob_chunk(&self, place: BlobPlace, n: i32, data: Bytes) -> Result<()>;

    /// A piece of a blob's bytes.
    async fn read_blob_chunk(&self, place: BlobPlace, n: i32) -> Result<Option<Bytes>>;

    /// Removes the last pieces of a blob's bytes, at most `limit`; returns how many went.
    async fn drop_blob_chunks(&self, place: BlobPlace, limit: u32) -> Result<u64>;
}

/// The methods of [`BlobRows`] as [`store_methods`](crate::store_methods) hands them over.
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
    /// Where its bytes will be, unless another process has begun it.
    pub place: BlobPlace,
    /// Like `image/png`.
    pub media_type: String,
    /// Its length.
    pub bytes: u64,
    /// What it is kept for; without it only for the grace.
    pub owner: Option<BlobOwner>,
}

/// What there is of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginBlob {
    /// Its bytes are stored.
    Known,
    /// Its bytes are to be put there. Someone else may be doing so as well, or may have died.
    Begun(BlobPlace),
    /// It is being deleted: its bytes there go first.
    Going(BlobPlace),
}

/// How far a blob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobState {
    /// Its bytes may be there.
    Coming,
    /// Its bytes are there.
    Stored,
    /// Its bytes are about to go, or gone.
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
    /// The media type that was named last.
    pub media_type: String,
    /// Its length.
    pub bytes: u64,
    /// When it was first put.
    pub created_at: Timestamp,
}

/// A page of blobs that may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetireBlobs {
    /// How long ago a blob was last put or held, at least.
    pub grace: Duration,
    /// The last of the page before; none for the first page.
    pub after: Option<(TenantId, BlobHash)>,
    /// Blobs of a page.
    pub limit: u32,
}

/// What a page of blobs came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetiredBlobs {
    /// Blobs that are marked, now or by someone who did not finish: their bytes are to go.
    pub going: Vec<BlobPlace>,
    /// Holds that were removed.
    pub holds: u64,
    /// The page's last, where another page may follow.
    pub next: Option<(TenantId, BlobHash)>,
}

/// A blob in a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpBlob {
    /// Where its bytes are.
    pub place: BlobPlace,
    /// How far it is.
    pub state: BlobState,
    /// The media type that was named last.
    pub media_type: String,
    /// Its length.
    pub bytes: u64,
    /// What it is kept for, in order.
    pub owners: Vec<BlobOwner>,
}
