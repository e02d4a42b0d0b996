//! What the model is shown in a send's rounds besides the transcript.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::memory::Namespace;
use crate::message::ContentPart;
use crate::model::Measured;
use crate::store::UsageRow;
use crate::time::Timestamp;

/// What the rounds of a send share, fixed when the send starts and stored with the first step that
/// stores anything of the send.
///
/// A worker that takes the send over shows the model the same, whatever happened to the session's
/// rows in the meantime.
///
/// If a worker dies before that step, nothing is lost: no answer to what it showed is stored
/// either, and the next worker starts afresh.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Shown {
    /// Where a bounded window starts, before it is extended back to include a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_seq: Option<i64>,
    /// The session's notes, if the agent keeps any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Its to-do list, if the agent keeps one and it has open items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo: Option<String>,
    /// The beginning of an answer that a worker had to abandon, or may still be receiving. The
    /// worker that continues shows it to the model and asks for the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Begun>,
    /// The answer that a provider is producing in the background. The worker that continues picks
    /// it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
    /// What was recalled from memory, if the agent has memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ShownMemory>,
    /// The provider's token counts of the last stored round, while the send is running. Whether to
    /// fold next depends on them, so every worker must decide from the same counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// The last of the send's own messages whose results count as old, once the window had no room
    /// for all of them. Stored so that results once shortened stay shortened in every worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aged_to: Option<i64>,
    /// Whether hooks have allowed this send, which a timer fired; they are not asked again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub let_go: bool,
    /// When hooks postponed it: the time at which a new timer sends it again. This send ends
    /// without an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_off: Option<Timestamp>,
    /// The input that hooks substituted for the send's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<ContentPart>>,
    /// How often hooks made the send continue when it was about to end, and what they granted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_back: Option<SentBack>,
    /// The messages that hooks injected in a round that is not stored yet, though the messages are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injected: Option<SaidInRound>,
    /// What tools keep of calls that are being made, by the calls' ids: the handle of work that goes
    /// on elsewhere. The worker that continues takes the calls up with them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub handles: BTreeMap<String, Value>,
}

impl Shown {
    /// Takes the recorded cost of a model call whose worker died in the middle of the answer.
    ///
    /// The caller must store it: it cannot be taken again.
    pub fn take_unpaid(&mut self) -> Option<UsageRow> {
        let begun = self.begun.as_mut()?;
        begun.unpaid.take().map(|row| *row)
    }
}

/// The hook messages that a round starts with, by ids that do not depend on which worker asked the hooks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SaidInRound {
    /// The round.
    pub round: i32,
    /// The ids.
    pub ids: Vec<String>,
}

/// How often hooks made a send continue when it was about to end, and what they granted it.
///
/// A worker that takes the send over continues these counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SentBack {
    /// How many times.
    #[serde(default)]
    pub times: u32,
    /// Rounds that they granted beyond the send's limits, in total.
    #[serde(default)]
    pub granted: u32,
    /// Of these, the rounds beyond its round limit.
    #[serde(default)]
    pub rounds: u32,
    /// Rounds before this one are exempt from the budget.
    #[serde(default)]
    pub unpriced_before: i32,
}

/// What a send uses of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShownMemory {
    /// The provider.
    #[serde(default)]
    pub provider: String,
    /// The send's namespace; `None` if it could not be determined, in which case the send has no memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// The provider's ids of the entries shown to the model, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
    /// Estimated tokens of the entries.
    #[serde(default)]
    pub tokens: u64,
    /// The entries as text, kept until the send is final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Why there are no entries, if something failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl ShownMemory {
    /// The summary that a step records.
    pub fn recalled(&self) -> RecalledRef {
        RecalledRef {
            count: self.entries.len() as u32,
            tokens: self.tokens,
            note: self.note.clone(),
        }
    }
}

/// What was recalled, as recorded in a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecalledRef {
    /// Number of entries.
    pub count: u32,
    /// Estimated tokens of the entries.
    pub tokens: u64,
    /// Why there are no entries, if something failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The beginning of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Begun {
    /// The round that it answers.
    pub round: i32,
    /// The text received so far.
    pub text: String,
    /// The cost of the model call so far, if its worker was about to continue and had not accounted
    /// for it. The worker that finds it accounts for it and clears it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpaid: Option<Box<UsageRow>>,
}

impl Begun {
    /// Keeps at most [`BEGUN_BYTES_MAX`] bytes of the text.
    pub fn new(round: i32, text: &str, unpaid: Option<Box<UsageRow>>) -> Self {
        let end = text.floor_char_boundary(BEGUN_BYTES_MAX);
        Self {
            round,
            text: text[..end].to_owned(),
            unpaid,
        }
    }
}

/// An answer that a provider is producing in the background.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background {
    /// The round that it answers.
    pub round: i32,
    /// The provider's configured name.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The provider's id for it.
    pub id: String,
}

/// Bytes of an answer's beginning that are kept; the model is asked again for anything after them.
pub const BEGUN_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_beginning_as_much_is_kept_as_there_is_room_for_and_no_half_character() {
        for (before, kept) in [
            (0, BEGUN_BYTES_MAX - 1),
            (1, BEGUN_BYTES_MAX),
            (2, BEGUN_BYTES_MAX - 2),
        ] {
            let text = format!(
                "{}{}",
                "a".repeat(before),
                "\u{20ac}".repeat(BEGUN_BYTES_MAX)
            );
            let begun = Begun::new(0, &text, None);
            assert_eq!(begun.text.len(), kept);
            assert!(text.starts_with(&begun.text));
        }
        assert_eq!(Begun::new(0, "short", None).text, "short");
    }
}
