//! A conversation of another system, in Mainspring's words.

use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::blob::BlobRef;
use mainspring_shared::list::List;
use mainspring_shared::message::Message;
use mainspring_shared::session::fold::Fold;
use mainspring_shared::session::has_room;
use mainspring_shared::time::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::LeftOut;

/// The member of the metadata that names the system which a session comes from.
const IMPORTED_BY: &str = "imported_by";

/// The member of the metadata with the conversation's id in that system.
const IMPORTED_FROM: &str = "imported_from";

/// The latest time that is printed.
const TIME_MAX: i64 = 253_402_207_200_000;

/// Where conversations come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// The Python library `power-loop`.
    PowerLoop,
    /// LangGraph's checkpoints.
    LangGraph,
    /// OpenAI's conversations, and ChatGPT's.
    OpenAi,
}

impl System {
    /// The name in commands and metadata.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PowerLoop => "power-loop",
            Self::LangGraph => "langgraph",
            Self::OpenAi => "openai",
        }
    }

    /// The metadata that all sessions from there have, as a name and a text.
    pub const fn marked(self) -> (&'static str, &'static str) {
        (IMPORTED_BY, self.as_str())
    }
}

/// A conversation.
#[derive(Debug, Clone)]
pub struct Session {
    pub(crate) system: System,
    /// Its id in the source.
    pub(crate) id: String,
    pub(crate) created_at: Timestamp,
    pub(crate) agent: AgentSpec,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) todo: List,
    pub(crate) notes: List,
    pub(crate) folds: Vec<Fold>,
    pub(crate) messages: Vec<Message>,
    pub(crate) blobs: Vec<Blob>,
    /// What is due in it.
    pub timers: Vec<Timer>,
    /// Whether it takes no further messages.
    pub closed: bool,
    /// What has no counterpart here.
    pub left_out: LeftOut,
}

/// Bytes that messages name.
#[derive(Debug, Clone)]
pub(crate) struct Blob {
    pub(crate) name: BlobRef,
    pub(crate) data: Vec<u8>,
}

/// A timer that will fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// Its id in the source, unique within the session.
    pub id: String,
    /// What it says.
    pub input: String,
    /// When it is due, the first time.
    pub at: Timestamp,
    /// Its fixed rate, if it repeats.
    pub every: Option<Duration>,
}

impl Session {
    pub(crate) fn new(system: System, id: impl Into<String>, created_at: Timestamp) -> Self {
        Self {
            system,
            id: id.into(),
            created_at,
            agent: AgentSpec::default(),
            metadata: Map::new(),
            todo: List::default(),
            notes: List::default(),
            folds: Vec::new(),
            messages: Vec::new(),
            blobs: Vec::new(),
            timers: Vec::new(),
            closed: false,
            left_out: LeftOut::default(),
        }
    }

    /// The conversation's id in the source. No other of the same system has it.
    pub fn source(&self) -> &str {
        &self.id
    }

    /// The id of the conversation that a session with this metadata was imported from.
    pub fn source_in(metadata: &Value) -> Option<&str> {
        metadata[IMPORTED_FROM].as_str()
    }

    /// Number of messages.
    pub const fn message_count(&self) -> usize {
        self.messages.len()
    }

    /// Number of calls of tools.
    pub fn call_count(&self) -> usize {
        let calls = self.messages.iter().map(|message| message.tool_calls.len());
        calls.sum()
    }

    /// Number of items on the to-do list.
    pub const fn todo_count(&self) -> usize {
        self.todo.entries.len()
    }

    /// Number of notes.
    pub const fn note_count(&self) -> usize {
        self.notes.entries.len()
    }

    /// Number of images and files.
    pub const fn blob_count(&self) -> usize {
        self.blobs.len()
    }

    /// Gives it the source's metadata, and says where it comes from. Metadata for which there is no room are left out.
    pub(crate) fn describe(&mut self, own: Map<String, Value>) {
        let marks = [
            (IMPORTED_BY.to_owned(), json!(self.system.as_str())),
            (IMPORTED_FROM.to_owned(), json!(self.id)),
        ];
        self.metadata.extend(marks);
        for (name, value) in own {
            let mut more = self.metadata.clone();
            let fits = !more.contains_key(&name) && {
                more.insert(name.clone(), value);
                has_room(&more) && !has_nul(&Value::Object(more.clone()))
            };
            if fits {
                self.metadata = more;
            } else {
                self.left_out.add("metadata without room");
            }
        }
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(has_nul),
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name.contains('\0') || has_nul(value)),
    }
}

/// A time that can be printed.
pub(crate) fn time(millis: i64) -> Timestamp {
    Timestamp(millis.clamp(0, TIME_MAX))
}

/// A time in RFC 3339, with any offset.
pub(crate) fn read_time(text: &str) -> Option<Timestamp> {
    let read: Timestamp = serde_json::from_value(json!(text)).ok()?;
    Some(time(read.0))
}

/// An id that depends on nothing but these words. It is ordered by the time like others.
pub(crate) fn derived(at: Timestamp, words: &[&str]) -> Uuid {
    let mut hash = Sha256::new();
    for word in words {
        hash.update((word.len() as u64).to_be_bytes());
        hash.update(word);
    }
    let hash = hash.finalize();
    let mut random = [0; 10];
    random.copy_from_slice(&hash[..10]);
    let millis = u64::try_from(at.0).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_from_the_words_and_their_borders() {
        let of = |words: &[&str]| derived(Timestamp(1_700_000_000_000), words);
        assert_eq!(of(&["a", "bc"]), of(&["a", "bc"]));
        assert_ne!(of(&["a", "bc"]), of(&["ab", "c"]));
        assert_eq!(of(&["a"]).get_version_num(), 7);
    }

    #[test]
    fn metadata_for_which_there_is_no_room_are_counted() {
        let mut session = Session::new(System::PowerLoop, "sess_1", Timestamp(0));
        let own =
            json!({"team": "blue", "imported_by": "me", "long": "x".repeat(20_000), "nul": "\0"});
        session.describe(own.as_object().cloned().unwrap_or_default());
        let told = json!({"imported_by": "power-loop", "imported_from": "sess_1", "team": "blue"});
        assert_eq!(Value::Object(session.metadata), told);
        let left: Vec<_> = session.left_out.iter().collect();
        assert_eq!(left, [("metadata without room", 3)]);
    }
}
