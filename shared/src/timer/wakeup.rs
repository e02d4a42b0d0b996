//! The message to an agent whose self-set alarm goes off.

use crate::id::TimerId;

/// The text of a wake-up: the timer's id, and the note verbatim.
pub fn wake_text(id: TimerId, note: &str) -> String {
    format!(
        "<timer id={id}>\nA wake-up that you scheduled in this conversation is due. Your note:\n\
         {note}\n</timer>"
    )
}
