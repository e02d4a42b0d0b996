//! One row per committed domain step: the audit's evidence and the event log at once.

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
    /// A round was stored and the send goes on.
    Round,
    /// Results of a round's calls, or how far they are, were stored.
    Calls,
    /// A send was parked.
    Waiting,
    /// A parked or orphaned send goes on.
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
    /// The grant it ran under; 0 where none was needed (accept, cancel of a queued send).
    pub epoch: i64,
    /// The process that committed it.
    pub boot: BootId,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// What it wrote.
    pub refs: StepRefs,
}

/// What a step wrote, small enough to stand in its row.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepRefs {
    /// The first message it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seq: Option<i64>,
    /// How many messages it wrote from there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub messages: u32,
    /// The round it closed, where a model answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<RoundRef>,
    /// The fold that it attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fold: Option<FoldRef>,
    /// Why: a `StopReason` of a final step, what a waiting step waits for, what resumed a send
    /// (`takeover`, `result`, `retry`).
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

/// A round as its step remembers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundRef {
    /// Its index within the send, from 0.
    pub index: i32,
    /// The model that answered.
    pub model: String,
    /// What it cost.
    pub usage: Usage,
    /// Identifies what the model was asked, as it was rendered; before a hook changed anything of it, and
    /// where an answer was cut and went on, of the first question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The newest fold that there was when that was asked, 0 for none; absent in rounds of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded: Option<i64>,
    /// The last of the send's messages whose results counted as old when that was asked; absent where only those of
    /// earlier sends did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aged_to: Option<i64>,
    /// What was recalled for it: the first round of a send whose agent recalls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalled: Option<RecalledRef>,
}
