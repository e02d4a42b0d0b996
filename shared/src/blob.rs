//! Blobs: content stored by its hash (images, files and long outputs) that rows only refer to.
//!
//! The row of a blob is in the database ([`BlobRows`](crate::store::BlobRows)), its bytes are in a
//! [`Blobs`] store; a [`Depot`] combines the two. Equal content is stored once per tenant.

mod depot;
mod hash;
mod in_database;
mod named;
mod outputs;
mod parts;
mod timed;

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Code, Coded};
use crate::id::{RunId, SessionId, TenantId, TimerId};
use crate::store;

pub use depot::{Depot, SWEEP_GRACE, Stored, Swept};
pub use hash::{BlobHash, ParseBlobHashError};
pub use in_database::{CHUNK_BYTES, InDatabase};
pub use named::{NamedBlobs, of_message};
pub use parts::{Unstored, absent, file_of_text, filled, is_text, unstored};
pub use timed::Timed;

/// Default maximum size of a blob in bytes.
pub const BLOB_BYTES_MAX: usize = 32 << 20;

/// A blob as rows and messages name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BlobRef {
    /// The SHA-256 of its bytes.
    #[schema(value_type = String)]
    pub sha256: BlobHash,
    /// Like `image/png`.
    pub media_type: String,
    /// Its length.
    pub bytes: u64,
}

/// Where the bytes of a blob are. A blob that is deleted and put again gets another generation, so
/// that a late deletion of the first one does not affect the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobPlace {
    /// The owner.
    pub tenant: TenantId,
    /// The SHA-256 of the bytes.
    pub sha256: BlobHash,
    /// Drawn when the blob's row is written.
    pub generation: Uuid,
}

impl fmt::Display for BlobPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tenant,
            sha256,
            generation,
        } = self;
        write!(f, "{}/{sha256}-{}", tenant.0, generation.as_simple())
    }
}

/// Default size up to which a message part's base64 stays in its row: reading or writing a row of
/// that size takes about as long as a response from another store.
pub const SPILL_BYTES: usize = 64 << 10;

/// An owner that holds a blob: the blob is kept at least as long as the owner exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobOwner {
    /// A session whose messages, sends or calls refer to it.
    Session(SessionId),
    /// A timer whose sends will refer to it.
    Timer(TimerId),
    /// A run whose sends will refer to it.
    Run(RunId),
}

impl BlobOwner {
    /// The kind's number in the database, and the id.
    pub const fn parts(self) -> (i16, Uuid) {
        match self {
            Self::Session(SessionId(id)) => (0, id),
            Self::Timer(TimerId(id)) => (1, id),
            Self::Run(RunId(id)) => (2, id),
        }
    }

    /// The owner with this kind and id.
    pub const fn of(kind: i16, id: Uuid) -> Option<Self> {
        match kind {
            0 => Some(Self::Session(SessionId(id))),
            1 => Some(Self::Timer(TimerId(id))),
            2 => Some(Self::Run(RunId(id))),
            _ => None,
        }
    }
}

impl fmt::Display for BlobOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => id.fmt(f),
            Self::Timer(id) => id.fmt(f),
            Self::Run(id) => id.fmt(f),
        }
    }
}

impl From<SessionId> for BlobOwner {
    fn from(session: SessionId) -> Self {
        Self::Session(session)
    }
}

/// Why a blob could not be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store cannot be reached or did not answer; another attempt may succeed.
    #[error("the blob store is unavailable")]
    Unavailable {
        /// What happened.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The store returned bytes that do not match the hash, or not all of them.
    #[error("the blob store returned other content than {sha256}")]
    Corrupt {
        /// The requested hash.
        sha256: BlobHash,
    },
    /// The content exceeds the maximum size of a blob.
    #[error("a blob has at most {max} bytes, this one has {bytes}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The maximum.
        max: usize,
    },
    /// The database failed.
    #[error("the row of the blob cannot be read or written")]
    Rows(#[from] store::Error),
}

impl Error {
    /// An error for a store that is unavailable.
    pub fn unavailable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unavailable {
            source: source.into(),
        }
    }
}

impl Coded for Error {
    fn code(&self) -> Code {
        match self {
            Self::Unavailable { .. } => Code::BlobUnavailable,
            Self::Corrupt { .. } => Code::BlobCorrupt,
            Self::TooLarge { .. } => Code::BlobTooLarge,
            Self::Rows(error) => error.code(),
        }
    }
}

/// A store of bytes, by place. Every method is idempotent; what [`put`](Self::put) acknowledged
/// survives a crash of this process.
#[async_trait]
pub trait Blobs: Send + Sync + fmt::Debug {
    /// Stores all bytes of a place. Until it returns, the place may be missing or incomplete;
    /// existing bytes are replaced by the same ones.
    async fn put(&self, place: BlobPlace, data: Bytes) -> Result<(), Error>;

    /// Reads the bytes of a place, or of a range, which is clipped at the end; `None` if nothing is
    /// there.
    async fn get(
        &self,
        place: BlobPlace,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>, Error>;

    /// Whether anything is stored there.
    async fn exists(&self, place: BlobPlace) -> Result<bool, Error>;

    /// Removes what is stored there, if anything.
    async fn delete(&self, place: BlobPlace) -> Result<(), Error>;

    /// Fails unless the store can be written and read.
    async fn check(&self) -> Result<(), Error>;

    /// Describes its location for people, without secrets.
    fn describe(&self) -> String;
}
