//! Content by its hash: pictures, files and long outputs that rows only name.
//!
//! The row of a blob is in the database ([`BlobRows`](crate::store::BlobRows)), its bytes are in a
//! [`Blobs`] store; a [`Depot`] puts the two together. Equal content is stored once per tenant.

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

/// Bytes that a blob may have unless the configuration says otherwise.
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

/// Where the bytes of a blob are. A blob that was deleted and put again has another generation, so
/// that a late deletion of the first one does not touch the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobPlace {
    /// The owner.
    pub tenant: TenantId,
    /// The SHA-256 of the bytes.
    pub sha256: BlobHash,
    /// Chosen when the blob's row was written.
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

/// Bytes of base64 that a part of a message keeps in its row unless the configuration says otherwise:
/// a row of that size is read and written in about the time that another store takes to answer.
pub const SPILL_BYTES: usize = 64 << 10;

/// What a blob is kept for: it stays at least as long as this exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobOwner {
    /// A session, whose messages, sends or calls name it.
    Session(SessionId),
    /// A timer, whose sends will name it.
    Timer(TimerId),
    /// A run, whose sends will name it.
    Run(RunId),
}

impl BlobOwner {
    /// The kind in the database, and the id.
    pub const fn parts(self) -> (i16, Uuid) {
        match self {
            Self::Session(SessionId(id)) => (0, id),
            Self::Timer(TimerId(id)) => (1, id),
            Self::Run(RunId(id)) => (2, id),
        }
    }

    /// The owner of this kind.
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
    /// The store gave bytes that do not have the hash, or not all of them.
    #[error("the blob store returned other content than {sha256}")]
    Corrupt {
        /// What was asked for.
        sha256: BlobHash,
    },
    /// The content has more bytes than a blob may have.
    #[error("a blob has at most {max} bytes, this one has {bytes}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The database failed.
    #[error("the row of the blob cannot be read or written")]
    Rows(#[from] store::Error),
}

impl Error {
    /// A store that is away.
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

/// Where bytes are kept, by place. Each method is idempotent; what [`put`](Self::put) acknowledged
/// survives a crash of this process.
#[async_trait]
pub trait Blobs: Send + Sync + fmt::Debug {
    /// Stores all bytes of a place. Until it returns, the place may be absent or hold a part;
    /// bytes that are there already are replaced by the same ones.
    async fn put(&self, place: BlobPlace, data: Bytes) -> Result<(), Error>;

    /// The bytes of a place, or those in the range, which is cut at their end; none when nothing is
    /// there.
    async fn get(
        &self,
        place: BlobPlace,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>, Error>;

    /// Whether anything is there.
    async fn exists(&self, place: BlobPlace) -> Result<bool, Error>;

    /// Removes what is there, if anything is.
    async fn delete(&self, place: BlobPlace) -> Result<(), Error>;

    /// Fails unless the store can be written and read.
    async fn check(&self) -> Result<(), Error>;

    /// Where it is, for people; without secrets.
    fn describe(&self) -> String;
}
