//! What a send is shown besides the transcript.

use serde::{Deserialize, Serialize};

use crate::memory::Namespace;
use crate::message::ContentPart;
use crate::model::Measured;
use crate::store::UsageRow;
use crate::time::Timestamp;

/// What the rounds of a send have in common, fixed when the send begins and stored with the first
/// step that stores anything of it. Whoever takes the send over shows the model the same, whatever
/// happened to the session's rows in between.
///
/// Nothing is lost where a worker dies before that step: no answer to what it had shown is stored
/// either, and the next worker begins anew.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Shown {
    /// Where the window begins, if it is bounded, before it is extended back to a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_seq: Option<i64>,
    /// The session's notes, of an agent that keeps any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Its to-do list, of an agent that keeps one and has something left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo: Option<String>,
    /// The beginning of an answer whose worker had to stop in the middle of it, or may be in the middle of it
    /// still. Whoever goes on shows it to the model and asks for the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Begun>,
    /// The answer that a provider works on whether or not anybody waits for it. Whoever goes on takes it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
    /// What was recalled from the memory, of an agent that has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ShownMemory>,
    /// What the provider counted of the last stored round, as long as the send goes on: whether anything is
    /// folded next depends on it, whoever asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// The last of the send's own messages whose results count as old, once the window had no room for all of
    /// them: what is forgotten of them stays so, whoever asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aged_to: Option<i64>,
    /// Whether hooks let a send go that a timer had fired: they are not asked again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub let_go: bool,
    /// When it is said instead of now, by a timer of its own: hooks put it off. It ends without a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_off: Option<Timestamp>,
    /// What hooks put in the place of its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<ContentPart>>,
    /// How often hooks had it go on that was to end, and with what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_back: Option<SentBack>,
    /// What hooks have said in a round that is not stored yet, where their words are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injected: Option<SaidInRound>,
}

impl Shown {
    /// What the call of a worker cost that died in the middle of an answer, as far as it was kept. Who takes it
    /// enters it; nobody finds it again.
    pub fn take_unpaid(&mut self) -> Option<UsageRow> {
        let begun = self.begun.as_mut()?;
        begun.unpaid.take().map(|row| *row)
    }
}

/// Messages of hooks that a round begins with, by ids that are the same whoever asks the hooks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SaidInRound {
    /// The round.
    pub round: i32,
    /// The ids.
    pub ids: Vec<String>,
}

/// How often hooks had a send go on that was to end, and what they allowed it for that: whoever takes it over
/// counts on from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SentBack {
    /// Times.
    #[serde(default)]
    pub times: u32,
    /// Rounds that they gave it beyond its limits, in all.
    #[serde(default)]
    pub granted: u32,
    /// Of these, rounds beyond its limit of rounds.
    #[serde(default)]
    pub rounds: u32,
    /// Rounds before this one are not held to its budget.
    #[serde(default)]
    pub unpriced_before: i32,
}

/// What a send has of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShownMemory {
    /// The provider.
    #[serde(default)]
    pub provider: String,
    /// Where the send's memory is; none where that cannot be said, and the send has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// The entries that the model is shown, by the provider's ids, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
    /// Tokens of them, estimated.
    #[serde(default)]
    pub tokens: u64,
    /// Them as text, as long as the send may need it again: a final one does not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Why there are no entries, if something failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl ShownMemory {
    /// How it is told.
    pub fn recalled(&self) -> RecalledRef {
        RecalledRef {
            count: self.entries.len() as u32,
            tokens: self.tokens,
            note: self.note.clone(),
        }
    }
}

/// What was recalled, as a step remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecalledRef {
    /// Entries.
    pub count: u32,
    /// Tokens of them, estimated.
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
    /// What the model said.
    pub text: String,
    /// What the model call that said it had cost by then, where its worker was about to go on and had not
    /// paid for it. Whoever finds it pays, and goes on with the rest unpaid for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpaid: Option<Box<UsageRow>>,
}

impl Begun {
    /// The beginning of this text, as much as is kept.
    pub fn new(round: i32, text: &str, unpaid: Option<Box<UsageRow>>) -> Self {
        let end = text.floor_char_boundary(BEGUN_BYTES_MAX);
        Self {
            round,
            text: text[..end].to_owned(),
            unpaid,
        }
    }
}

/// An answer that a provider works on by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background {
    /// The round that it answers.
    pub round: i32,
    /// The provider's configured name.
    pub provider: String,
    /// The model.
    pub model: String,
    /// What the provider calls it.
    pub id: String,
}

/// Bytes of the beginning of an answer that are kept; what is behind them is asked for again.
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
