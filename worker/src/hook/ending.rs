//! What hooks are asked about before a send ends.

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
    /// The answer was cut at its token limit, and the agent takes it as it is.
    Truncated,
    /// The model has passed its turn.
    Passed,
    /// The rounds are used up.
    RoundLimit,
    /// The budget is spent.
    Budget,
}

impl EndReason {
    /// The reason of an end that hooks are asked about; none of any other.
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

    /// Its name in what policies are asked.
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
    /// Why.
    pub why: EndReason,
    /// The answer that it ends with, where there is one.
    pub reply: Option<Arc<Reply>>,
    /// Rounds that are left.
    pub rounds_left: u32,
    /// Times that hooks had this send go on before.
    pub sent_back: u32,
}

/// A send goes on that was to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoOn {
    /// Said to the model as the user's.
    pub message: String,
    /// Rounds that it gets for that where none is left, or where its budget is spent. Without any it ends all
    /// the same.
    pub rounds: u32,
}

impl Hooks {
    /// Why and how the send goes on instead of ending; none when it ends.
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
