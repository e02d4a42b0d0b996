//! Parameters of the memory: entries, and how they are found and forgotten.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{IdempotencyKey, Page, Result, UsageRow};
use crate::id::{ErasureId, MemoryId, SendId, SessionId, TenantId};
use crate::memory::rank::{Alike, Candidate, fused, lexical, nearest};
use crate::memory::{Embedding, MemoryEntry, MemorySource, Namespace, PaidCall, words};
use crate::time::Timestamp;

/// Up to this many entries of a namespace, a search reads the words of all of them. Above that, the
/// database's full-text index selects the candidates for ranking.
pub const SCAN_MAX: u32 = 1_000;

/// Maximum number of entries containing all of several common words that a full-text index selects
/// for ranking.
pub const CANDIDATES_MAX: u32 = 300;

/// A word in at most this many entries of a namespace is rare: all entries that contain it are
/// ranked. Of a common word's entries only this many are, so that a search need not read half a namespace.
pub const RARE_MAX: u32 = 60;

/// Maximum number of query words that a full-text index is searched for.
const PICKED_MAX: usize = 24;

/// With up to this many common words, an entry may lack one of them.
const TOGETHER_MAX: usize = 6;

/// Maximum number of vectors that a search compares with the query's: those of the newest entries
/// of a namespace.
pub const VECTORS_MAX: u32 = 2_000;

/// The same limit if the database itself compares them.
pub const VECTORS_MAX_INSIDE: u32 = 20_000;

/// Maximum number of entries that one step of an erasure deletes.
pub const MEMORIES_ERASED_AT_ONCE: u32 = 500;

/// The entries of agents' memory.
#[async_trait]
pub trait Memories: Send + Sync {
    /// Adds an entry. An existing one with the same id or the same idempotency key is left unchanged.
    async fn save_memory(&self, item: SaveMemory) -> Result<SaveMemoryOutcome>;

    /// Changes an entry and returns the result; `None` if there is none.
    async fn change_memory(&self, item: ChangeMemory) -> Result<Option<MemoryEntry>>;

    /// Deletes an entry, if it is in this namespace or below it. False if there is none.
    async fn delete_memory(
        &self,
        tenant: TenantId,
        within: Option<Namespace>,
        id: MemoryId,
    ) -> Result<bool>;

    /// Deletes a page of a namespace and everything below it. The last page records how many
    /// entries were deleted, and when.
    async fn erase_memories(&self, item: EraseMemories) -> Result<ErasedMemories>;

    /// Lists a tenant's erasures, newest first. The records outlive what they erased.
    async fn list_erasures(&self, query: ListErasures) -> Result<Page<Erasure>>;

    /// Reads an entry that has not expired.
    async fn get_memory(&self, tenant: TenantId, id: MemoryId) -> Result<Option<MemoryEntry>>;

    /// Lists entries that have not expired, newest first.
    async fn list_memories(&self, query: ListMemories) -> Result<Page<MemoryEntry>>;

    /// Searches a namespace: the best matches, best first.
    async fn search_memories(&self, query: SearchMemories) -> Result<Vec<MemoryEntry>>;

    /// Claims entries that have no vector yet, under a lease.
    async fn claim_unembedded(&self, claim: ClaimUnembedded) -> Result<Vec<Unembedded>>;

    /// Stores an entry's vector and its cost. False if the entry's text has changed or it is gone;
    /// then only the cost is stored.
    async fn set_embedding(&self, item: SetEmbedding) -> Result<bool>;

    /// Stores the cost of vectors without anything else. A repeat is counted once.
    async fn pay_for_vectors(&self, tenant: TenantId, paid: Vec<PaidVectors>) -> Result<()>;

    /// Deletes expired entries, at most `limit`; returns how many.
    async fn expire_memories(&self, limit: u32) -> Result<u64>;
}

/// The methods of [`Memories`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! memories_methods {
    ($apply:ident) => {
        $apply! { Memories:
            write save_memory(item: $crate::store::SaveMemory) -> $crate::store::SaveMemoryOutcome;
            write change_memory(
                item: $crate::store::ChangeMemory
            ) -> Option<$crate::memory::MemoryEntry>;
            write delete_memory(
                tenant: $crate::id::TenantId,
                within: Option<$crate::memory::Namespace>,
                id: $crate::id::MemoryId
            ) -> bool;
            write erase_memories(
                item: $crate::store::EraseMemories
            ) -> $crate::store::ErasedMemories;
            write expire_memories(limit: u32) -> u64;
            read get_memory(
                tenant: $crate::id::TenantId,
                id: $crate::id::MemoryId
            ) -> Option<$crate::memory::MemoryEntry>;
            read list_erasures(
                query: $crate::store::ListErasures
            ) -> $crate::store::Page<$crate::store::Erasure>;
            read list_memories(
                query: $crate::store::ListMemories
            ) -> $crate::store::Page<$crate::memory::MemoryEntry>;
            read search_memories(
                query: $crate::store::SearchMemories
            ) -> Vec<$crate::memory::MemoryEntry>;
            read claim_unembedded(
                claim: $crate::store::ClaimUnembedded
            ) -> Vec<$crate::store::Unembedded>;
            write set_embedding(item: $crate::store::SetEmbedding) -> bool;
            write pay_for_vectors(
                tenant: $crate::id::TenantId,
                paid: Vec<$crate::store::PaidVectors>
            ) -> ();
        }
    };
}

/// An entry to add.
#[derive(Debug, Clone, PartialEq)]
pub struct SaveMemory {
    /// The owner.
    pub tenant: TenantId,
    /// The entry. Its times are set by the store.
    pub entry: NewMemory,
    /// The request's idempotency key.
    pub idempotency: Option<IdempotencyKey>,
}

/// A new entry.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMemory {
    /// Its identity.
    pub id: MemoryId,
    /// Its namespace.
    pub namespace: Namespace,
    /// Its text.
    pub text: String,
    /// The writer's data.
    pub metadata: Map<String, Value>,
    /// Where it comes from.
    pub source: Option<MemorySource>,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
}

impl NewMemory {
    /// Its content for the full-text index.
    pub fn indexed(&self, tenant: TenantId) -> String {
        words::indexed(tenant, &self.namespace, &words::words(&self.text))
    }

    /// The entry as added at this time.
    pub fn at(self, now: Timestamp) -> MemoryEntry {
        MemoryEntry {
            id: self.id,
            namespace: self.namespace,
            text: self.text,
            metadata: self.metadata,
            source: self.source,
            earlier_sources: Vec::new(),
            created_at: now,
            updated_at: now,
            expires_at: self.expires_at,
        }
    }
}

/// The outcome of adding an entry.
#[derive(Debug, Clone, PartialEq)]
pub enum SaveMemoryOutcome {
    /// It was added.
    Saved(MemoryEntry),
    /// It was added before; this is its current state.
    Known(MemoryEntry),
    /// It was added before and has been deleted.
    Gone,
    /// The idempotency key was used with another request.
    Mismatch,
}

/// A change of an entry. Absent fields are unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeMemory {
    /// The owner.
    pub tenant: TenantId,
    /// The entry.
    pub id: MemoryId,
    /// A new text; the old vector is dropped.
    pub text: Option<String>,
    /// New metadata.
    pub metadata: Option<Map<String, Value>>,
    /// A new expiry; `Some(None)` for none.
    pub expires_at: Option<Option<Timestamp>>,
    /// The conversation that the change comes from.
    pub source: Option<MemorySource>,
}

impl ChangeMemory {
    /// The entry after the change.
    #[must_use]
    pub fn apply(&self, mut entry: MemoryEntry, now: Timestamp) -> MemoryEntry {
        if let Some(text) = &self.text {
            entry.text.clone_from(text);
        }
        if let Some(metadata) = &self.metadata {
            entry.metadata.clone_from(metadata);
        }
        if let Some(expires_at) = self.expires_at {
            entry.expires_at = expires_at;
        }
        if let Some(source) = self.source {
            entry.add_source(source);
        }
        entry.updated_at = now;
        entry
    }
}

/// Which entries to claim for vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimUnembedded {
    /// How long they are reserved for the claimer. Entries that have no vector by then can be
    /// claimed again.
    pub lease: Duration,
    /// Maximum number of entries; those that have waited longest come first.
    pub limit: u32,
}

/// An entry without a vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unembedded {
    /// The owner.
    pub tenant: TenantId,
    /// The entry.
    pub id: MemoryId,
    /// Its text.
    pub text: String,
    /// Where it comes from.
    pub source: Option<MemorySource>,
}

/// A vector of an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct SetEmbedding {
    /// The owner.
    pub tenant: TenantId,
    /// The entry.
    pub id: MemoryId,
    /// The text that the vector was made from.
    pub text: String,
    /// The vector; `None` if none could be made and only the cost is to be stored.
    pub embedding: Option<Embedding>,
    /// What it cost.
    pub paid: Option<PaidVectors>,
}

/// The cost of an embedding call made after the end of a send, or for no send.
#[derive(Debug, Clone, PartialEq)]
pub struct PaidVectors {
    /// The call's id. It starts with the time, like the ids of sends.
    pub id: Uuid,
    /// The session and the send that pay, while they exist; otherwise it counts towards their
    /// tenant's usage.
    pub payer: Option<(SessionId, SendId)>,
    /// What it cost.
    pub call: PaidCall,
}

impl PaidVectors {
    /// The cost as a usage row of its send.
    pub fn row(&self) -> UsageRow {
        UsageRow::of_vectors_at_rest(self.id, self.call.model.clone(), self.call.usage)
    }

    /// Calls with ids below this one need not be kept any longer once `entered` are stored.
    pub fn kept_from(entered: impl IntoIterator<Item = Uuid>) -> Option<Uuid> {
        let newest = entered.into_iter().max()?;
        let at_ms = newest.as_u128() >> 80;
        let kept = at_ms.saturating_sub(VECTORS_PAID_KEPT.as_millis());
        Some(Uuid::from_u128(kept << 80))
    }
}

/// How long the cost of vectors without a send is kept: longer than any usage report reaches back.
const VECTORS_PAID_KEPT: Duration = Duration::from_hours(100 * 24);

/// A step of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EraseMemories {
    /// The owner.
    pub tenant: TenantId,
    /// What to erase.
    pub namespace: Namespace,
    /// The erasure's id, the same in all its steps.
    pub erasure: ErasureId,
    /// A fingerprint of the namespace, which the record keeps instead of its name.
    pub fingerprint: String,
    /// Who requested it.
    pub by: String,
    /// Maximum number of rows per step.
    pub limit: u32,
}

/// The result of a step of an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErasedMemories {
    /// Number of entries deleted.
    pub deleted: u64,
    /// Whether another step is needed.
    pub more: bool,
}

/// An erasure that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Erasure {
    /// Its identity.
    #[schema(value_type = String)]
    pub id: ErasureId,
    /// SHA-256 of the namespace's name, as hexadecimal digits: those who know the name can find it.
    pub namespace_sha256: String,
    /// Entries that were deleted.
    pub deleted: u64,
    /// Who requested it: the id of an API key, or `operator`. Absent for erasures by older releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When it ended, or got as far as it did.
    #[schema(value_type = String, format = DateTime)]
    pub erased_at: Timestamp,
}

/// A query for erasures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListErasures {
    /// The owner.
    pub tenant: TenantId,
    /// Only those of the namespace with this fingerprint.
    pub fingerprint: Option<String>,
    /// Only those that are older than this one.
    pub before: Option<ErasureId>,
    /// At most this many.
    pub limit: u32,
}

/// A query for entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListMemories {
    /// The owner.
    pub tenant: TenantId,
    /// Only entries of this namespace and below it.
    pub namespace: Option<Namespace>,
    /// Only those that are older than this one.
    pub before: Option<MemoryId>,
    /// At most this many.
    pub limit: u32,
}

/// A search query.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchMemories {
    /// The owner.
    pub tenant: TenantId,
    /// The namespace to search, including those below it.
    pub namespace: Namespace,
    /// The words of the query.
    pub words: BTreeSet<String>,
    /// The vector of the query.
    pub embedding: Option<Embedding>,
    /// Maximum number of results.
    pub limit: u32,
    /// [`SCAN_MAX`], except in tests of the full-text index.
    pub scan_max: u32,
}

impl SearchMemories {
    /// A query for a text.
    pub fn new(tenant: TenantId, namespace: Namespace, query: &str, limit: u32) -> Self {
        Self {
            tenant,
            namespace,
            words: words::query(query),
            embedding: None,
            limit,
            scan_max: SCAN_MAX,
        }
    }

    /// The words that a full-text index is searched for one by one: the longest ones, which are
    /// rarely the most common.
    pub fn picked(&self) -> Vec<&str> {
        let mut words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
        words.truncate(PICKED_MAX);
        words
    }

    /// Further searches of a full-text index after the single words, tried until one finds
    /// something: entries that contain all words that proved common, then all but one.
    pub fn together<'a>(common: &[&'a str]) -> Vec<Vec<&'a str>> {
        if common.len() < 2 {
            return Vec::new();
        }
        let mut sets = vec![common.to_vec()];
        if (3..=TOGETHER_MAX).contains(&common.len()) {
            sets.extend((0..common.len()).map(|left_out| {
                let kept = common.iter().enumerate().filter(|(n, _)| *n != left_out);
                kept.map(|(_, word)| *word).collect()
            }));
        }
        sets
    }

    /// The query for SQLite's full-text index: entries of the namespace that contain all these words.
    pub fn fts5(&self, words: &[&str]) -> String {
        let words = words.iter().map(|word| format!(" AND \"{word}\""));
        format!("\"{}\"{}", self.place(), words.collect::<String>())
    }

    /// The same query for Postgres' full-text index.
    pub fn tsquery(&self, words: &[&str]) -> String {
        let words = words.iter().map(|word| format!(" & '{word}'"));
        format!("'{}'{}", self.place(), words.collect::<String>())
    }

    /// The same query for MySQL's full-text index, in boolean mode.
    pub fn boolean(&self, words: &[&str]) -> String {
        let words = words.iter().map(|word| format!(" +{word}"));
        format!("+{}{}", self.place(), words.collect::<String>())
    }

    // Words contain only letters, digits and `_`, so they need no escaping in a query.
    fn place(&self) -> String {
        words::place(self.tenant, self.namespace.as_str())
    }

    /// Ranks the entries that a store found; returns the ids to show.
    pub fn order(&self, candidates: &[Candidate], compared: &[Alike]) -> Vec<MemoryId> {
        let mut ids = fused(&[lexical(&self.words, candidates), nearest(compared)]);
        ids.truncate(self.limit as usize);
        ids
    }
}

/// An entry's words, from its content in the full-text index.
pub fn candidate(id: MemoryId, updated_at: Timestamp, indexed: &str) -> Candidate {
    Candidate {
        id,
        updated_at,
        words: indexed.split(' ').map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(query: &str) -> SearchMemories {
        let namespace = "user/1".parse().expect("a namespace");
        SearchMemories::new(TenantId::DEFAULT, namespace, query, 5)
    }

    #[test]
    fn an_index_is_asked_for_words_within_a_namespace() {
        let ask = asking("the tea kettle");
        let place = words::place(TenantId::DEFAULT, "user/1");
        let picked = ask.picked();
        assert_eq!(picked, ["kettle", "tea", "the"]);
        assert_eq!(
            ask.fts5(&picked[..2]),
            format!("\"{place}\" AND \"kettle\" AND \"tea\"")
        );
        assert_eq!(ask.tsquery(&picked[..1]), format!("'{place}' & 'kettle'"));
        assert_eq!(ask.boolean(&picked[..1]), format!("+{place} +kettle"));
        let many: Vec<String> = (0..60).map(|n| format!("w{n:03}")).collect();
        assert_eq!(asking(&many.join(" ")).picked().len(), PICKED_MAX);
    }

    #[test]
    fn of_common_words_one_may_be_missing() {
        assert_eq!(SearchMemories::together(&["one"]).len(), 0);
        assert_eq!(SearchMemories::together(&["a", "b"]), [["a", "b"]]);
        let sets = SearchMemories::together(&["a", "b", "c"]);
        assert_eq!(sets[0], ["a", "b", "c"]);
        assert_eq!(sets[1..], [["b", "c"], ["a", "c"], ["a", "b"]]);
        assert_eq!(SearchMemories::together(&["x"; 9]).len(), 1);
    }
}
