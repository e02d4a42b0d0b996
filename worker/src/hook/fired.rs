//! What hooks make of a send that a timer fired.

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

impl Hooks {
    /// What is said; none where nothing is.
    pub(crate) async fn timer_fired(
        &self,
        at: At,
        mut fired: FiredTimer,
    ) -> Result<Option<Vec<ContentPart>>, Refusal> {
        for hook in &self.list {
            let decided = hook.timer_fired(at, &fired);
            match self.judged(hook.as_ref(), decided).await? {
                Judged::Go => {}
                Judged::Instead(other) => fired.input = other,
                Judged::End => return Ok(None),
            }
        }
        Ok(Some(fired.input))
    }
}
