//! The memory of agents across sessions: entries in namespaces, how they are recalled, and the port
//! for memory providers.
//!
//! A namespace is a path; access to one includes all below it. Searching is the same on every
//! store: the store selects the candidates in the namespace, and [`rank`] orders them.

mod account;
pub mod namespace;
pub mod rank;
pub mod words;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::{Code, Coded};
use crate::id::{BootId, MemoryId, SendId, SessionId, TenantId};
use crate::time::Timestamp;

pub use self::account::{Account, PaidCall};
pub use self::namespace::{Namespace, NamespaceFault};

/// Maximum length of an entry's text, in characters.
pub const TEXT_CHARS_MAX: usize = 4_000;

/// Maximum size of an entry's metadata, in bytes of JSON.
pub const METADATA_BYTES_MAX: usize = 8 << 10;

/// Maximum dimensions of an embedding; more than any current model has.
pub const DIMENSIONS_MAX: usize = 8_192;

/// Something remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MemoryEntry {
    /// Its identity.
    #[schema(value_type = String)]
    pub id: MemoryId,
    /// Where it belongs.
    #[schema(value_type = String)]
    pub namespace: Namespace,
    /// What is remembered.
    pub text: String,
    /// The writer's data.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// The conversation that it comes from; absent when it was written through the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<MemorySource>,
    /// Conversations that it came from before, the latest ones last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_sources: Vec<MemorySource>,
    /// When it was written.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it last changed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// When it is forgotten by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
}

/// The messages that an entry was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MemorySource {
    /// The session.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// The send during or after which it was written.
    #[schema(value_type = String)]
    pub send_id: SendId,
    /// The first message; absent if a tool wrote the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_seq: Option<i64>,
    /// The last message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_seq: Option<i64>,
}

/// Maximum number of earlier sources that an entry keeps.
const EARLIER_SOURCES_MAX: usize = 20;

/// The sources of an entry, as stored in one column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The latest one.
    #[serde(flatten)]
    pub latest: MemorySource,
    /// The earlier ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<MemorySource>,
}

impl MemoryEntry {
    /// Its sources in the stored form.
    pub fn sources(&self) -> Option<Sources> {
        Some(Sources {
            latest: self.source?,
            earlier: self.earlier_sources.clone(),
        })
    }

    /// Sets the conversation that its text now comes from, and keeps the earlier ones.
    pub fn add_source(&mut self, source: MemorySource) {
        let before = self.source.replace(source);
        self.earlier_sources
            .extend(before.filter(|before| *before != source));
        let more = self
            .earlier_sources
            .len()
            .saturating_sub(EARLIER_SOURCES_MAX);
        self.earlier_sources.drain(..more);
    }
}

/// A text as a vector. Only vectors of the same model can be compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// The model that made it, with its dimensions: `PROVIDER/MODEL@DIMENSIONS`.
    pub model: String,
    /// The vector.
    pub vector: Vec<f32>,
}

impl Embedding {
    /// The stored form of the vector: each number as four bytes, little-endian.
    pub fn bytes(&self) -> Vec<u8> {
        self.vector.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    /// Decodes a stored vector; `None` if the length is not a multiple of four bytes.
    pub fn vector_of(bytes: &[u8]) -> Option<Vec<f32>> {
        let (chunks, rest) = bytes.as_chunks::<4>();
        rest.is_empty().then(|| {
            chunks
                .iter()
                .map(|four| f32::from_le_bytes(*four))
                .collect()
        })
    }
}

/// The conversation on whose behalf a provider is called, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OnBehalfOf {
    /// The session.
    pub session: Option<SessionId>,
    /// The send; `None` for a preview of a hypothetical one.
    pub send: Option<SendId>,
}

impl OnBehalfOf {
    /// On behalf of this send.
    pub fn send(session: SessionId, send: SendId) -> Self {
        Self {
            session: Some(session),
            send: Some(send),
        }
    }
}

/// A recall request, before a send's first model call or by a tool.
#[derive(Debug, Clone)]
pub struct Recall {
    /// The owner.
    pub tenant: TenantId,
    /// The namespace to search, including those below it.
    pub namespace: Namespace,
    /// The query, as text.
    pub query: String,
    /// Maximum number of entries.
    pub limit: u32,
    /// On whose behalf.
    pub on_behalf_of: OnBehalfOf,
    /// The account to charge for model calls that this takes.
    pub account: Account,
}

/// An entry that a provider found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recalled {
    /// The provider's id of the entry.
    pub id: String,
    /// Its text.
    pub text: String,
    /// When it last changed, if the provider says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
}

/// An entry to remember.
#[derive(Debug, Clone, PartialEq)]
pub struct Remember {
    /// The owner.
    pub tenant: TenantId,
    /// Its namespace.
    pub namespace: Namespace,
    /// What to remember.
    pub text: String,
    /// The writer's data.
    pub metadata: Map<String, Value>,
    /// Where it comes from.
    pub source: Option<MemorySource>,
    /// The provider's id of the entry that it updates. Not used for the builtin provider: its
    /// entries are changed when the extraction ends.
    pub replaces: Option<String>,
    /// An idempotency key: the same for repeats of this request, and for no other.
    pub key: String,
}

/// An entry to forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forget {
    /// The owner.
    pub tenant: TenantId,
    /// The entry is deleted only if it is in this namespace or below it.
    pub namespace: Namespace,
    /// The provider's id of the entry.
    pub id: String,
    /// On whose behalf.
    pub on_behalf_of: OnBehalfOf,
}

/// Why a provider failed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// It is unavailable, too slow, or responded with garbage. A send continues without it.
    #[error("the memory is unavailable: {why}")]
    Unavailable {
        /// What happened; contains no text of the conversation.
        why: String,
    },
    /// It rejected the request.
    #[error("{why}")]
    Refused {
        /// What is wrong, for the model.
        why: String,
    },
}

impl Coded for MemoryError {
    fn code(&self) -> Code {
        match self {
            Self::Unavailable { .. } => Code::MemoryUnavailable,
            Self::Refused { .. } => Code::RequestInvalid,
        }
    }
}

/// A memory provider. `builtin` uses the store; an embedding program may add its own.
///
/// The caller limits the time of each call and continues without an answer, so dropping a future
/// must leave nothing half done. No call may reach entries outside the namespace that it names.
#[async_trait]
pub trait Memory: Send + Sync + Debug {
    /// The entries that match the query best, best first.
    async fn recall(&self, ask: Recall) -> Result<Vec<Recalled>, MemoryError>;

    /// Stores an entry and returns the provider's id of it. Repeating a key changes nothing.
    async fn remember(&self, entry: Remember) -> Result<String, MemoryError>;

    /// Deletes an entry; false if there is none with this id in the namespace.
    async fn forget(&self, entry: Forget) -> Result<bool, MemoryError>;
}

/// Converts texts to vectors.
#[async_trait]
pub trait Embedder: Send + Sync + Debug {
    /// A vector for each text, in order, all by the same model. The caller limits the time.
    async fn embed(&self, texts: Vec<String>) -> Embedded;

    /// The expected cost of a call for these texts; charged if the call's outcome is unknown.
    fn expected(&self, texts: &[String]) -> PaidCall;

    /// Its model, as callers of the API name it: `PROVIDER/MODEL`.
    fn name(&self) -> String {
        self.expected(&[]).model
    }

    /// The variant that uses a key which tenants may bring themselves; `None` if it uses no key.
    fn keyed(&self) -> Option<&dyn KeyedEmbedder> {
        None
    }
}

/// An [`Embedder`] that calls a provider with a key.
pub trait KeyedEmbedder: Sync {
    /// The provider's configured name.
    fn provider(&self) -> &str;

    /// The same embedder with this key.
    fn with_key(&self, key: &str) -> Result<Arc<dyn Embedder>, MemoryError>;
}

/// The outcome of an embedding call.
#[derive(Debug)]
pub struct Embedded {
    /// The vectors.
    pub vectors: Result<Vec<Embedding>, MemoryError>,
    /// The cost, even if the vectors were unusable; `None` if there was no response.
    pub paid: Option<PaidCall>,
}

impl Embedded {
    /// No vectors and no cost.
    pub fn nothing(why: MemoryError) -> Self {
        Self {
            vectors: Err(why),
            paid: None,
        }
    }
}

/// A request for vectors to a worker: only workers have the keys of providers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VectorsAsk {
    /// The request's id; also the topic on which the answer is published.
    pub id: Uuid,
    /// The worker that should answer.
    pub boot: BootId,
    /// Who pays.
    pub tenant: TenantId,
    /// The model, by the [name](Embedder::name) that the worker has published.
    pub model: String,
    /// What to compute the vectors of.
    pub texts: Vec<String>,
}

/// The answer to a request for vectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VectorsMade {
    /// The vectors.
    Vectors {
        /// One for each text, in order.
        vectors: Vec<Vec<f32>>,
        /// The tokens of the texts.
        tokens: u64,
    },
    /// There are none, for this reason.
    Refused {
        /// The error code.
        code: Code,
        /// What happened.
        detail: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_read_as_it_was_stored() {
        let embedding = Embedding {
            model: "m".to_owned(),
            vector: vec![0.5, -1.25, f32::MIN_POSITIVE],
        };
        let bytes = embedding.bytes();
        assert_eq!(Embedding::vector_of(&bytes), Some(embedding.vector));
        assert_eq!(Embedding::vector_of(&bytes[1..]), None);
    }
}
