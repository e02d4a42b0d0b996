//! What agents remember beyond a session: entries in namespaces, how they are found again, and the
//! port to whoever keeps them.
//!
//! A namespace is a path; whoever may use one may use all that begin with it. Finding is the same on
//! every store: the store narrows the entries down to those of the namespace, and [`rank`] orders them.

mod account;
pub mod namespace;
pub mod rank;
pub mod words;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Code, Coded};
use crate::id::{MemoryId, SendId, SessionId, TenantId};
use crate::time::Timestamp;

pub use self::account::{Account, PaidCall};
pub use self::namespace::{Namespace, NamespaceFault};

/// Characters of an entry's text.
pub const TEXT_CHARS_MAX: usize = 4_000;

/// Bytes of an entry's metadata, as JSON.
pub const METADATA_BYTES_MAX: usize = 8 << 10;

/// Dimensions of an embedding: more than any model gives today.
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

/// Earlier sources that an entry keeps.
const EARLIER_SOURCES_MAX: usize = 20;

/// The sources of an entry, as one column keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sources {
    /// The latest one.
    #[serde(flatten)]
    pub latest: MemorySource,
    /// Those before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<MemorySource>,
}

impl MemoryEntry {
    /// Its sources as they are stored.
    pub fn sources(&self) -> Option<Sources> {
        Some(Sources {
            latest: self.source?,
            earlier: self.earlier_sources.clone(),
        })
    }

    /// Enters the conversation that its text comes from now, behind those of before.
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

/// A text as a vector. Only vectors of one model are compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// The model that made it, with its dimensions: `PROVIDER/MODEL@DIMENSIONS`.
    pub model: String,
    /// The vector.
    pub vector: Vec<f32>,
}

impl Embedding {
    /// The vector as it is stored: each number's four bytes, the lowest first.
    pub fn bytes(&self) -> Vec<u8> {
        self.vector.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    /// A stored vector; none where the bytes are no whole numbers.
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

/// The conversation that a provider is asked for, as far as there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asker {
    /// The session.
    pub session: Option<SessionId>,
    /// The send; none for a preview of one that nobody has sent.
    pub send: Option<SendId>,
}

impl Asker {
    /// A send.
    pub fn send(session: SessionId, send: SendId) -> Self {
        Self {
            session: Some(session),
            send: Some(send),
        }
    }
}

/// What a provider is asked for before a send's first model call, or by a tool.
#[derive(Debug, Clone)]
pub struct Recall {
    /// The owner.
    pub tenant: TenantId,
    /// Where to look: this namespace and those below it.
    pub namespace: Namespace,
    /// What is looked for, in plain words.
    pub query: String,
    /// Entries at most.
    pub limit: u32,
    /// For whom it is asked.
    pub asker: Asker,
    /// Where model calls are entered that the answer takes.
    pub account: Account,
}

/// An entry that a provider found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recalled {
    /// The provider's id of it.
    pub id: String,
    /// Its text.
    pub text: String,
    /// When it last changed, where the provider says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
}

/// An entry to keep.
#[derive(Debug, Clone, PartialEq)]
pub struct Remember {
    /// The owner.
    pub tenant: TenantId,
    /// Where it belongs.
    pub namespace: Namespace,
    /// What to remember.
    pub text: String,
    /// The writer's data.
    pub metadata: Map<String, Value>,
    /// Where it comes from.
    pub source: Option<MemorySource>,
    /// The entry that it brings up to date, by the provider's id. The builtin provider is not told any: its
    /// entries change with the end of the extraction.
    pub replaces: Option<String>,
    /// The same for a repeat of the same wish, and for no other: what is asked twice is kept once.
    pub key: String,
}

/// An entry to forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forget {
    /// The owner.
    pub tenant: TenantId,
    /// The entry is forgotten only if it is in this namespace or below it.
    pub namespace: Namespace,
    /// The provider's id of it.
    pub id: String,
    /// For whom it is forgotten.
    pub asker: Asker,
}

/// Why a provider did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// It is away, too slow, or answers nonsense. A send goes on without it.
    #[error("the memory is unavailable: {why}")]
    Unavailable {
        /// What happened, without any text of the conversation.
        why: String,
    },
    /// It does not take this.
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

/// A provider of memory. `builtin` is kept in the store; a program may bring its own.
///
/// Calls are bounded in time by their caller, who goes on without an answer: dropping a future must
/// leave nothing half done. No call may reach entries outside the namespace that it names.
#[async_trait]
pub trait Memory: Send + Sync + Debug {
    /// The entries that fit the question best, the best first.
    async fn recall(&self, ask: Recall) -> Result<Vec<Recalled>, MemoryError>;

    /// Keeps an entry; the provider's id of it. The same key again changes nothing.
    async fn remember(&self, entry: Remember) -> Result<String, MemoryError>;

    /// Forgets an entry; false when there is none with this id in the namespace.
    async fn forget(&self, entry: Forget) -> Result<bool, MemoryError>;
}

/// What makes vectors of texts.
#[async_trait]
pub trait Embedder: Send + Sync + Debug {
    /// A vector for each text, in order, all by the same model. Bounded in time by its caller.
    async fn embed(&self, texts: Vec<String>) -> Embedded;

    /// What a call for these texts is expected to cost: what is paid for one whose end nobody heard.
    fn expected(&self, texts: &[String]) -> PaidCall;

    /// What asks with a key, of which tenants may bring their own; none where there is no key to bring.
    fn keyed(&self) -> Option<&dyn KeyedEmbedder> {
        None
    }
}

/// An [`Embedder`] that asks a provider with a key.
pub trait KeyedEmbedder: Sync {
    /// The provider's configured name.
    fn provider(&self) -> &str;

    /// The same with this key.
    fn with_key(&self, key: &str) -> Result<Arc<dyn Embedder>, MemoryError>;
}

/// What came of a wish for vectors.
#[derive(Debug)]
pub struct Embedded {
    /// The vectors.
    pub vectors: Result<Vec<Embedding>, MemoryError>,
    /// What they cost, vectors that make no sense included; none where nobody answered.
    pub paid: Option<PaidCall>,
}

impl Embedded {
    /// No vectors, and nothing to pay.
    pub fn nothing(why: MemoryError) -> Self {
        Self {
            vectors: Err(why),
            paid: None,
        }
    }
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
