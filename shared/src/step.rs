//! Steps: one row per committed domain step, which serves as the event log and as evidence for audits.

use serde::{Deserialize, Serialize};

use crate::id::{BootId, SendId};
use crate::model::Digest;
use crate::session::fold::FoldRef;
use crate::session::shown::RecalledRef;
use crate::time::Timestamp;
use crate::usage::Usage;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    /// A send was accepted.
    Accepted,
    /// A round was stored and the send continues.
    Round,
    /// Results or progress of a round's calls were stored.
    Calls,
    /// A send was parked.
    Waiting,
    /// A parked or orphaned send was resumed.
    Resumed,
    /// A fold was attached.
    Folded,
    /// A send became final.
    Finished,
}

impl StepKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Accepted,
        Self::Round,
        Self::Calls,
        Self::Waiting,
        Self::Resumed,
        Self::Folded,
        Self::Finished,
    ];

    /// The name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Round => "round",
            Self::Calls => "calls",
            Self::Waiting => "waiting",
            Self::Resumed => "resumed",
            Self::Folded => "folded",
            Self::Finished => "finished",
        }
    }

    /// The kind with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// A committed step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its number in the session, from 1, without gaps.
    pub n: i64,
    /// The send it is about.
    pub send_id: SendId,
    /// What it did.
    pub kind: StepKind,
    /// The epoch of the grant it ran under; 0 if none was needed (accept, cancel of a queued send).
    pub epoch: i64,
    /// The process that committed it.
    pub boot: BootId,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// What it wrote.
    pub refs: StepRefs,
}

/// References to what a step wrote, small enough for its row.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepRefs {
    /// The first message it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seq: Option<i64>,
    /// How many messages it wrote from there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub messages: u32,
    /// The round it closed, if a model answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<RoundRef>,
    /// The fold that it attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fold: Option<FoldRef>,
    /// The reason: a `StopReason` for a final step, what a waiting step waits for, or why a send
    /// was resumed (`takeover`, `result`, `retry`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The final status of a final step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A round as recorded in its step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundRef {
    /// Its index within the send, from 0.
    pub index: i32,
    /// The model that answered.
    pub model: String,
    /// Its usage.
    pub usage: Usage,
    /// The digest of the request as rendered, before any changes by hooks; if an answer was
    /// truncated and continued, of the first request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The newest fold at the time of that request, 0 for none; absent in rounds of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded: Option<i64>,
    /// The last of the send's messages whose results counted as old in that request; absent if only
    /// those of earlier sends did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aged_to: Option<i64>,
    /// What was recalled for it; only in the first round of a send whose agent recalls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalled: Option<RecalledRef>,
}
