//! What a send is shown besides the transcript.

use serde::{Deserialize, Serialize};

/// What the rounds of a send have in common, fixed when the send begins and stored with the first
/// step that stores anything of it. Whoever takes the send over shows the model the same, whatever
/// happened to the session's rows in between.
///
/// Nothing is lost where a worker dies before that step: no answer to what it had shown is stored
/// either, and the next worker begins anew.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Shown {
    /// Where the window begins, if it is bounded, before it is extended back to a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_seq: Option<i64>,
    /// The session's notes, of an agent that keeps any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
}
