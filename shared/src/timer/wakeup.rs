//! What an agent that set its own alarm is told when it goes off.

use crate::id::TimerId;

/// The words of a wake-up: which one it is, and the note verbatim.
pub fn wake_text(id: TimerId, note: &str) -> String {
    format!(
        "<timer id={id}>\nA wake-up that you scheduled in this conversation is due. Your note:\n\
         {note}\n</timer>"
    )
}
