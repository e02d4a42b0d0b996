//! What hooks make of a send that a timer fired.

use std::time::Duration;

use mainspring_shared::id::TimerId;
use mainspring_shared::message::ContentPart;
use mainspring_shared::time::Timestamp;

use super::{At, Hooks, Judged, Refusal};

/// A timer that fired.
#[derive(Debug, Clone, PartialEq)]
pub struct FiredTimer {
    /// The timer.
    pub timer: TimerId,
    /// The number of the occurrence, from 1.
    pub n: i64,
    /// When it was due.
    pub due_at: Timestamp,
    /// What is said.
    pub input: Vec<ContentPart>,
}

/// What happens in the place of what a timer's send says.
#[derive(Debug, Clone, PartialEq)]
pub enum OnFired {
    /// This is said.
    Input(Vec<ContentPart>),
    /// It fires again at this time, once, and not now.
    At(Timestamp),
    /// The same, so long from now.
    After(Duration),
}

/// What becomes of a send that a timer fired.
#[derive(Debug, PartialEq)]
pub(crate) enum Fate {
    /// This is said.
    Input(Vec<ContentPart>),
    /// Nothing is said now, but then.
    PutOff(OnFired, Vec<ContentPart>),
    /// Nothing is said.
    Skipped,
}

impl Hooks {
    /// What becomes of a send that a timer fired.
    pub(crate) async fn timer_fired(&self, at: At, mut fired: FiredTimer) -> Result<Fate, Refusal> {
        for hook in &self.list {
            let decided = hook.timer_fired(at, &fired);
            match self.judged(hook.as_ref(), decided).await? {
                Judged::Go => {}
                Judged::Instead(OnFired::Input(other)) => fired.input = other,
                Judged::Instead(later) => return Ok(Fate::PutOff(later, fired.input)),
                Judged::End => return Ok(Fate::Skipped),
            }
        }
        Ok(Fate::Input(fired.input))
    }
}
