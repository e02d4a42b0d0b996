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

/// Entries of a namespace up to which a search reads the words of all of them. Above, the database's
/// full-text index picks what is ranked.
pub const SCAN_MAX: u32 = 1_000;

/// Entries that hold all of several common words, of which a full-text index picks so many for the ranking.
pub const CANDIDATES_MAX: u32 = 300;

/// Entries up to which a word is rare in a namespace: all that hold it are ranked, and of a common word
/// so many. Nobody has to read and rank what half a namespace says.
pub const RARE_MAX: u32 = 60;

/// Words of a question that a full-text index is asked for.
const PICKED_MAX: usize = 24;

/// Common words of which an entry may lack one.
const TOGETHER_MAX: usize = 6;

/// Vectors that a search compares with the question's: those of the newest entries of a namespace.
pub const VECTORS_MAX: u32 = 2_000;

/// The same, where the database compares them by itself.
pub const VECTORS_MAX_INSIDE: u32 = 20_000;

/// Entries that one step of an erasure deletes.
pub const MEMORIES_ERASED_AT_ONCE: u32 = 500;

/// What agents remember.
#[async_trait]
pub trait Memories: Send + Sync {
    /// Enters an entry. One with the same id, or made under the same idempotency key before, stays as
    /// it is.
    async fn save_memory(&self, item: SaveMemory) -> Result<SaveMemoryOutcome>;

    /// Changes an entry; the entry as it is then, none where there is none.
    async fn change_memory(&self, item: ChangeMemory) -> Result<Option<MemoryEntry>>;

    /// Deletes an entry, if it is in this namespace or below it. False when there is none.
    async fn delete_memory(
        &self,
        tenant: TenantId,
        within: Option<Namespace>,
        id: MemoryId,
    ) -> Result<bool>;

    /// Deletes a page of a namespace and of what is below it. The last page records how many entries
    /// went, and when.
    async fn erase_memories(&self, item: EraseMemories) -> Result<ErasedMemories>;

    /// Erasures of a tenant, newest first. They outlive what they erased.
    async fn list_erasures(&self, query: ListErasures) -> Result<Page<Erasure>>;

    /// An entry that has not expired.
    async fn get_memory(&self, tenant: TenantId, id: MemoryId) -> Result<Option<MemoryEntry>>;

    /// Entries that have not expired, newest first.
    async fn list_memories(&self, query: ListMemories) -> Result<Page<MemoryEntry>>;

    /// The entries of a namespace that fit a question best, the best first.
    async fn search_memories(&self, query: SearchMemories) -> Result<Vec<MemoryEntry>>;

    /// Takes entries that have no vector yet, and keeps them from others for a while.
    async fn claim_unembedded(&self, claim: ClaimUnembedded) -> Result<Vec<Unembedded>>;

    /// Gives an entry its vector, and pays for it. False where its text is another one now, or it is
    /// gone; then it is only paid for.
    async fn set_embedding(&self, item: SetEmbedding) -> Result<bool>;

    /// Pays for vectors that nothing else is stored with. Each is paid for once, however often it is said.
    async fn pay_for_vectors(&self, tenant: TenantId, paid: Vec<PaidVectors>) -> Result<()>;

    /// Deletes entries that have expired, at most `limit`. Returns how many.
    async fn expire_memories(&self, limit: u32) -> Result<u64>;
}

/// The methods of [`Memories`] as [`store_methods`](crate::store_methods) hands them over.
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

/// An entry to enter.
#[derive(Debug, Clone, PartialEq)]
pub struct SaveMemory {
    /// The owner.
    pub tenant: TenantId,
    /// The entry. Its times are set by the store.
    pub entry: NewMemory,
    /// The request's key.
    pub idempotency: Option<IdempotencyKey>,
}

/// What is entered.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMemory {
    /// Its identity.
    pub id: MemoryId,
    /// Where it belongs.
    pub namespace: Namespace,
    /// What is remembered.
    pub text: String,
    /// The writer's data.
    pub metadata: Map<String, Value>,
    /// Where it comes from.
    pub source: Option<MemorySource>,
    /// When it is forgotten by itself.
    pub expires_at: Option<Timestamp>,
}

impl NewMemory {
    /// What the full-text index holds of it.
    pub fn indexed(&self, tenant: TenantId) -> String {
        words::indexed(tenant, &self.namespace, &words::words(&self.text))
    }

    /// The entry, entered at this time.
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

/// What became of an entry.
#[derive(Debug, Clone, PartialEq)]
pub enum SaveMemoryOutcome {
    /// It is entered.
    Saved(MemoryEntry),
    /// It was entered before; this is how it is now.
    Known(MemoryEntry),
    /// It was entered before, and is gone.
    Gone,
    /// Another request had its idempotency key.
    Mismatch,
}

/// A change of an entry. What is absent stays.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeMemory {
    /// The owner.
    pub tenant: TenantId,
    /// The entry.
    pub id: MemoryId,
    /// Another text. The old vector goes.
    pub text: Option<String>,
    /// Other metadata.
    pub metadata: Option<Map<String, Value>>,
    /// Another end; `Some(None)` for none.
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

/// Which entries to make vectors of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimUnembedded {
    /// For how long nobody else gets them. Entries that have no vector then are taken again.
    pub lease: Duration,
    /// Entries at most, those that have waited longest.
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
    /// The text that the vector was made of.
    pub text: String,
    /// The vector; none where none could be made, and only its cost is to be stored.
    pub embedding: Option<Embedding>,
    /// What it cost.
    pub paid: Option<PaidVectors>,
}

/// A call for vectors behind the end of a send, or of none.
#[derive(Debug, Clone, PartialEq)]
pub struct PaidVectors {
    /// Names the call. It begins with the time, as the ids of sends do.
    pub id: Uuid,
    /// The session and the send that pay, as long as they are there; otherwise it counts among what their
    /// tenant used.
    pub payer: Option<(SessionId, SendId)>,
    /// What it cost.
    pub call: PaidCall,
}

impl PaidVectors {
    /// It as a row of its send's usage.
    pub fn row(&self) -> UsageRow {
        UsageRow::of_vectors_at_rest(self.id, self.call.model.clone(), self.call.usage)
    }

    /// The ids of calls that are kept no longer, now that these are entered, are smaller.
    pub fn kept_from(entered: impl IntoIterator<Item = Uuid>) -> Option<Uuid> {
        let newest = entered.into_iter().max()?;
        let at_ms = newest.as_u128() >> 80;
        let kept = at_ms.saturating_sub(VECTORS_PAID_KEPT.as_millis());
        Some(Uuid::from_u128(kept << 80))
    }
}

/// How long it is kept what vectors cost of no send: longer than anybody is shown.
const VECTORS_PAID_KEPT: Duration = Duration::from_hours(100 * 24);

/// A step of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EraseMemories {
    /// The owner.
    pub tenant: TenantId,
    /// What to erase.
    pub namespace: Namespace,
    /// The erasure: the same in all its steps.
    pub erasure: ErasureId,
    /// A fingerprint of the namespace, which the record keeps in its place.
    pub fingerprint: String,
    /// Who asks for it.
    pub by: String,
    /// Rows of a step.
    pub limit: u32,
}

/// What a step of an erasure did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErasedMemories {
    /// Entries that went.
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

/// Which erasures.
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

/// Which entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListMemories {
    /// The owner.
    pub tenant: TenantId,
    /// Only those of this namespace and below it.
    pub namespace: Option<Namespace>,
    /// Only those that are older than this one.
    pub before: Option<MemoryId>,
    /// At most this many.
    pub limit: u32,
}

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchMemories {
    /// The owner.
    pub tenant: TenantId,
    /// Where to look: this namespace and those below it.
    pub namespace: Namespace,
    /// The question's words.
    pub words: BTreeSet<String>,
    /// The question as a vector.
    pub embedding: Option<Embedding>,
    /// Entries at most.
    pub limit: u32,
    /// [`SCAN_MAX`], except in tests of the full-text index.
    pub scan_max: u32,
}

impl SearchMemories {
    /// A question in plain words.
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

    /// The words that a full-text index is asked for one by one: the longest ones, which are seldom the
    /// most common ones.
    pub fn picked(&self) -> Vec<&str> {
        let mut words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.chars().count()));
        words.truncate(PICKED_MAX);
        words
    }

    /// What a full-text index is asked for behind the single words, until it finds something: entries that
    /// hold all words that proved common, else all but one.
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

    /// The question for SQLite's full-text index: entries of the namespace that hold all these words.
    pub fn fts5(&self, words: &[&str]) -> String {
        let words = words.iter().map(|word| format!(" AND \"{word}\""));
        format!("\"{}\"{}", self.place(), words.collect::<String>())
    }

    /// The same for Postgres' full-text index.
    pub fn tsquery(&self, words: &[&str]) -> String {
        let words = words.iter().map(|word| format!(" & '{word}'"));
        format!("'{}'{}", self.place(), words.collect::<String>())
    }

    /// The same for MySQL's full-text index, in boolean mode.
    pub fn boolean(&self, words: &[&str]) -> String {
        let words = words.iter().map(|word| format!(" +{word}"));
        format!("+{}{}", self.place(), words.collect::<String>())
    }

    // Words hold letters, digits and `_` only: nothing in them has a meaning to a database.
    fn place(&self) -> String {
        words::place(self.tenant, self.namespace.as_str())
    }

    /// The ids of the entries to show, from those that a store found.
    pub fn order(&self, candidates: &[Candidate], compared: &[Alike]) -> Vec<MemoryId> {
        let mut ids = fused(&[lexical(&self.words, candidates), nearest(compared)]);
        ids.truncate(self.limit as usize);
        ids
    }
}

/// The words of an entry from what a full-text index holds.
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
