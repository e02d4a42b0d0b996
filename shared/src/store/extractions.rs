//! Parameters of extractions from conversations into the memory.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ChangeMemory, NewMemory, Result, UsageRow};
use crate::budget::Spent;
use crate::id::{SendId, SessionKey, TenantId};
use crate::memory::Namespace;
use crate::stored::Extra;

/// The round number in usage rows of extractions. Calls outside a send's rounds have negative numbers.
pub const EXTRACT_ROUND: i32 = -1;

/// How long an extraction is postponed if its send has not ended when it is due.
pub const EXTRACT_AGAIN_MS: i64 = 60_000;

/// Extractions of memory entries from completed sends.
#[async_trait]
pub trait Extractions: Send + Sync {
    /// Records that entries are to be extracted from a send once it has ended. An existing record
    /// is unchanged.
    async fn owe_extraction(&self, item: NewExtraction) -> Result<()>;

    /// Claims due extractions of completed sends. Those of sends that ended otherwise are deleted.
    async fn claim_extractions(&self, claim: ClaimExtractions) -> Result<Vec<Extraction>>;

    /// Ends an attempt of an extraction: its entries and its cost are stored with its end. False if
    /// the extraction's current attempt is another one: then only the cost is stored, once, or
    /// nothing if its session was deleted.
    async fn end_extraction(&self, item: EndExtraction) -> Result<bool>;
}

/// The methods of [`Extractions`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! extractions_methods {
    ($apply:ident) => {
        $apply! { Extractions:
            write owe_extraction(item: $crate::store::NewExtraction) -> ();
            read claim_extractions(
                claim: $crate::store::ClaimExtractions
            ) -> Vec<$crate::store::Extraction>;
            write end_extraction(item: $crate::store::EndExtraction) -> bool;
        }
    };
}

/// The parameters of an extraction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractionSpec {
    /// The memory provider.
    pub provider: String,
    /// The namespace for new entries.
    pub namespace: Namespace,
    /// The model that extracts; the send's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The cost of its finished attempts.
    #[serde(default, skip_serializing_if = "Spent::is_nothing")]
    pub spent: Spent,
    /// Number of finished attempts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ended: u32,
    /// If set, all that is left to do is to refund this part of its send's reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refund: Option<Spent>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

impl ExtractionSpec {
    /// Whether no attempt follows after `attempts`, of at most `attempts_max`. An extraction that
    /// only waits to refund needs no more attempts and is never given up.
    pub fn is_given_up(&self, attempts: u32, attempts_max: u32) -> bool {
        self.refund.is_none() && attempts >= attempts_max
    }
}

/// An extraction to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExtraction {
    /// The session.
    pub key: SessionKey,
    /// The send.
    pub send_id: SendId,
    /// The worker pool that may run it.
    pub pool: String,
    /// What to do.
    pub spec: ExtractionSpec,
}

/// Which extractions to claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimExtractions {
    /// The workers' pool.
    pub pool: String,
    /// Only this one, whether due or not; all due ones when absent.
    pub only: Option<(TenantId, SendId)>,
    /// A random token that identifies the attempts.
    pub token: Uuid,
    /// How long an attempt may take before another one may start.
    pub lease: Duration,
    /// Maximum attempts of an extraction; then it is given up, unless it only waits to refund.
    pub attempts_max: u32,
    /// At most this many.
    pub limit: u32,
}

/// A claimed extraction.
#[derive(Debug, Clone, PartialEq)]
pub struct Extraction {
    /// The session.
    pub key: SessionKey,
    /// The send.
    pub send_id: SendId,
    /// What to do.
    pub spec: ExtractionSpec,
    /// Attempts so far, including this one.
    pub attempts: u32,
}

/// The end of an attempt of an extraction.
#[derive(Debug, Clone, PartialEq)]
pub struct EndExtraction {
    /// The session.
    pub key: SessionKey,
    /// The send.
    pub send_id: SendId,
    /// The attempt's token.
    pub token: Uuid,
    /// Entries to add.
    pub saved: Vec<NewMemory>,
    /// Entries to change.
    pub changed: Vec<ChangeMemory>,
    /// Usage of the attempt's model calls, not stored yet.
    pub usage: Vec<UsageRow>,
    /// When to try again; `None` if nothing is left to do.
    pub again_after: Option<Duration>,
    /// The parameters of the next attempt.
    pub spec: ExtractionSpec,
    /// How much of the session's spending to refund: the unused part of what the send reserved for
    /// this extraction. A worker that holds the session keeps its spending in memory, so the refund
    /// is made only while no worker holds it; until then the extraction stays.
    pub refund: Spent,
}

impl EndExtraction {
    /// If the row must stay: its parameters, and when it is due. `busy` is whether a worker holds
    /// the session.
    pub fn stays(&self, busy: bool) -> Option<(ExtractionSpec, Duration)> {
        if let Some(after) = self.again_after {
            return Some((self.spec.clone(), after));
        }
        let owes = busy && !self.refund.is_nothing();
        owes.then(|| {
            let spec = ExtractionSpec {
                refund: Some(self.refund),
                ..self.spec.clone()
            };
            (spec, Duration::from_millis(EXTRACT_AGAIN_MS.unsigned_abs()))
        })
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(n: &u32) -> bool {
    *n == 0
}
