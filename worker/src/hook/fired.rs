//! The decision of hooks about a send that a timer fired.

use std::time::Duration;

use mainspring_shared::id::TimerId;
use mainspring_shared::message::ContentPart;
use mainspring_shared::time::Timestamp;

use super::{At, CombinedVerdict, Hooks, Refusal};

/// A timer that fired.
#[derive(Debug, Clone, PartialEq)]
pub struct FiredTimer {
    /// The timer.
    pub timer: TimerId,
    /// The number of the occurrence, from 1.
    pub n: i64,
    /// When it was due.
    pub due_at: Timestamp,
    /// The input of the send.
    pub input: Vec<ContentPart>,
}

/// What replaces the input of a timer's send.
#[derive(Debug, Clone, PartialEq)]
pub enum OnFired {
    /// This input.
    Input(Vec<ContentPart>),
    /// Nothing now; the send is fired once at this time.
    At(Timestamp),
    /// The same, this long from now.
    After(Duration),
}

/// The decision about a send that a timer fired.
#[derive(Debug, PartialEq)]
pub(crate) enum Fate {
    /// It runs with this input.
    Input(Vec<ContentPart>),
    /// It is put off, with this input.
    PutOff(OnFired, Vec<ContentPart>),
    /// It is skipped.
    Skipped,
}

impl Hooks {
    /// Asks all hooks about a send that a timer fired.
    pub(crate) async fn timer_fired(&self, at: At, mut fired: FiredTimer) -> Result<Fate, Refusal> {
        for hook in &self.list {
            let decided = hook.timer_fired(at, &fired);
            match self.verdict_of(hook.as_ref(), decided).await? {
                CombinedVerdict::Go => {}
                CombinedVerdict::Instead(OnFired::Input(other)) => fired.input = other,
                CombinedVerdict::Instead(later) => return Ok(Fate::PutOff(later, fired.input)),
                CombinedVerdict::End => return Ok(Fate::Skipped),
            }
        }
        Ok(Fate::Input(fired.input))
    }
}
