//! Parameters of what is still to be extracted from conversations for the memory.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ChangeMemory, NewMemory, Result, UsageRow};
use crate::budget::Spent;
use crate::id::{SendId, SessionKey, TenantId};
use crate::memory::Namespace;
use crate::stored::Extra;

/// The round of usage rows of extractions: calls beside a send's rounds have numbers below zero.
pub const EXTRACT_ROUND: i32 = -1;

/// How long an extraction waits for the end of a send that is not over when it is due.
pub const EXTRACT_AGAIN_MS: i64 = 60_000;

/// Extractions.
#[async_trait]
pub trait Extractions: Send + Sync {
    /// Notes that entries are to be extracted from a send once it has ended. Known ones stay as they are.
    async fn owe_extraction(&self, item: NewExtraction) -> Result<()>;

    /// Takes extractions that are due: of sends that completed. Those of other sends that ended go.
    async fn claim_extractions(&self, claim: ClaimExtractions) -> Result<Vec<Extraction>>;

    /// Ends an attempt at an extraction: its entries and what it cost are stored with its end. False when the
    /// attempt is no longer the extraction's: then only what it cost is stored, once, and nothing where its
    /// session was deleted.
    async fn end_extraction(&self, item: EndExtraction) -> Result<bool>;
}

/// The methods of [`Extractions`] as [`store_methods`](crate::store_methods) hands them over.
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

/// What an extraction needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractionSpec {
    /// The provider of the memory.
    pub provider: String,
    /// Where entries go.
    pub namespace: Namespace,
    /// The model that extracts; the send's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What its attempts have cost that ended.
    #[serde(default, skip_serializing_if = "Spent::is_nothing")]
    pub spent: Spent,
    /// How many attempts ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ended: u32,
    /// What is still to be given back of what its send had set aside; then nothing else is left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refund: Option<Spent>,
    /// What this release does not know of it.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

impl ExtractionSpec {
    /// Whether no attempt follows so many, of at most `attempts_max`. What only waits to give back what nobody
    /// used asks nobody any more: it waits for as long as it takes.
    pub fn is_given_up(&self, attempts: u32, attempts_max: u32) -> bool {
        self.refund.is_none() && attempts >= attempts_max
    }
}

/// An extraction that is owed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExtraction {
    /// The session.
    pub key: SessionKey,
    /// The send.
    pub send_id: SendId,
    /// The workers that may do it.
    pub pool: String,
    /// What to do.
    pub spec: ExtractionSpec,
}

/// Which extractions to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimExtractions {
    /// The workers' pool.
    pub pool: String,
    /// Only this one, due or not; all that are due when absent.
    pub only: Option<(TenantId, SendId)>,
    /// Marks the attempts: random.
    pub token: Uuid,
    /// How long an attempt may take before another one begins.
    pub lease: Duration,
    /// Attempts at one extraction; after the last it is given up, unless it only waits to give something back.
    pub attempts_max: u32,
    /// At most this many.
    pub limit: u32,
}

/// An extraction that was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Extraction {
    /// The session.
    pub key: SessionKey,
    /// The send.
    pub send_id: SendId,
    /// What to do.
    pub spec: ExtractionSpec,
    /// Attempts so far, this one included.
    pub attempts: u32,
}

/// How an attempt at an extraction ends.
#[derive(Debug, Clone, PartialEq)]
pub struct EndExtraction {
    /// The session.
    pub key: SessionKey,
    /// The send.
    pub send_id: SendId,
    /// The attempt's mark.
    pub token: Uuid,
    /// Entries to enter.
    pub saved: Vec<NewMemory>,
    /// Entries to change.
    pub changed: Vec<ChangeMemory>,
    /// Model calls of the attempt, which nothing has stored yet.
    pub usage: Vec<UsageRow>,
    /// When to try again; none when nothing is left to do.
    pub again_after: Option<Duration>,
    /// What the next attempt needs to know.
    pub spec: ExtractionSpec,
    /// What of the session's spending is given back: what the send had set aside for this and nobody used.
    /// Whoever has the session knows its spending by heart, so it is given back while nobody has it: else the
    /// extraction stays until then.
    pub refund: Spent,
}

impl EndExtraction {
    /// What the row is to hold, and when it is due, as long as it stays; `busy` while somebody has the session.
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
