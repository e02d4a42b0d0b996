//! The question to hooks before a send ends.

use std::sync::Arc;

use mainspring_shared::send::StopReason;
use mainspring_shared::send::machine::End;

use super::{At, Hooks};
use crate::llm::Reply;

/// Why a send is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The model has answered.
    Answer,
    /// The answer was truncated at its token limit, and the agent accepts it as it is.
    Truncated,
    /// The model has passed its turn.
    Passed,
    /// The rounds are used up.
    RoundLimit,
    /// The budget is spent.
    Budget,
}

impl EndReason {
    /// The reason, if hooks are asked about this end.
    pub(crate) fn of(end: End, has_answer: bool) -> Option<Self> {
        Some(match end {
            End::Completed(StopReason::RoundLimit) => Self::RoundLimit,
            End::Completed(StopReason::Length) => Self::Truncated,
            End::Completed(_) if has_answer => Self::Answer,
            End::Completed(_) => Self::Passed,
            End::Failed(StopReason::Budget, _) => Self::Budget,
            End::Failed(..) | End::Cancelled => return None,
        })
    }

    /// Its name in requests to policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Truncated => "truncated",
            Self::Passed => "passed",
            Self::RoundLimit => "round_limit",
            Self::Budget => "budget",
        }
    }
}

/// An end that is about to be stored.
#[derive(Debug, Clone)]
pub struct Ending {
    /// The reason for the end.
    pub why: EndReason,
    /// The answer that it ends with, if there is one.
    pub reply: Option<Arc<Reply>>,
    /// The number of rounds that are left.
    pub rounds_left: u32,
    /// How often hooks have let this send continue before.
    pub sent_back: u32,
}

/// Lets a send continue that was about to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoOn {
    /// Told to the model as a user message.
    pub message: String,
    /// Rounds to grant if none is left or the budget is spent; without any, the send ends
    /// nevertheless.
    pub rounds: u32,
}

impl Hooks {
    /// Why and how the send continues instead of ending; `None` if it ends.
    pub(crate) async fn before_end(&self, at: At, ending: &Ending) -> Option<GoOn> {
        for hook in &self.list {
            match self.asked(hook.before_end(at, ending)).await {
                Ok(Some(wish)) if !wish.message.trim().is_empty() => return Some(wish),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(hook.name = hook.name(), error, "a hook failed");
                }
            }
        }
        None
    }
}
