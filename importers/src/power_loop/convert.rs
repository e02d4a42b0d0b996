//! Turns the rows of a session into a transcript with folds.

use mainspring_shared::message::{Arguments, ContentPart, Role};
use mainspring_shared::session::fold::{Fold, FoldKind};
use mainspring_shared::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::parts::{self, taken};
use crate::session::Session;
use crate::transcript::{Answered, Called, Transcript};

/// The name of the messages that the library writes in place of those that it folds.
const NOTE: &str = "compact_note";

/// A row of the table of messages.
#[derive(Debug)]
pub(super) struct MessageRow {
    pub(super) seq: i64,
    pub(super) created_at: Timestamp,
    pub(super) send_index: Option<i64>,
    /// Whether its content is longer than is read.
    pub(super) is_cut: bool,
    pub(super) role: Option<Role>,
    pub(super) role_name: String,
    pub(super) name: Option<String>,
    pub(super) content: Option<String>,
    pub(super) calls: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) state: String,
    pub(super) meta: Option<String>,
}

/// A row of the table of compactions.
#[derive(Debug)]
pub(super) struct Compaction {
    pub(super) note_seq: i64,
    pub(super) tokens_before: i64,
    pub(super) tokens_after: i64,
    pub(super) created_at: Timestamp,
}

/// A text in place of messages.
#[derive(Debug)]
struct Note {
    seq: i64,
    /// The first message that it covers: its own number is that of the moment when it was written.
    from: i64,
    text: String,
}

/// A session being converted.
#[derive(Debug)]
pub(super) struct Converting {
    transcript: Transcript,
    compactions: Vec<Compaction>,
    /// The texts that are shown in place of messages.
    notes: Vec<Note>,
    /// For each message of the transcript, its number in the source if it is folded.
    folded: Vec<Option<i64>>,
}

impl Converting {
    pub(super) fn new(session: Session, compactions: Vec<Compaction>) -> Self {
        Self {
            transcript: Transcript::new(session),
            compactions,
            notes: Vec::new(),
            folded: Vec::new(),
        }
    }

    /// The agent and the metadata, of the columns system_prompt, model, config_json, status, kind, parent_session_id
    /// and metadata_json.
    pub(super) fn describe(&mut self, cells: &[Option<String>]) {
        let session = &mut self.transcript.session;
        let text = |place: usize| cells.get(place).cloned().flatten();
        let clean = |text: String| text.replace('\0', "\u{fffd}");
        session.agent.system_prompt = text(0).filter(|text| !text.is_empty()).map(clean);
        session.agent.model = text(1).filter(|text| !text.is_empty()).map(clean);
        let config: Map<String, Value> = object(text(2).as_deref());
        for (name, value) in config {
            match (name.as_str(), &value) {
                (_, Value::Null) => {}
                ("max_tokens", value) if value.as_u64().is_some_and(|n| n > 0) => {
                    let tokens = value.as_u64().and_then(|n| u32::try_from(n).ok());
                    session.agent.max_tokens = tokens;
                }
                ("max_rounds", value)
                    if value.as_u64().is_some_and(|n| (1..=1_000).contains(&n)) =>
                {
                    let rounds = value.as_u64().and_then(|n| u32::try_from(n).ok());
                    session.agent.max_rounds = rounds;
                }
                ("temperature", value) if value.is_f64() || value.is_u64() => {
                    session.agent.temperature = value.as_f64();
                }
                (name, _) => session.left_out.add(&format!("settings: {name}")),
            }
        }
        let mut metadata = object(text(6).as_deref());
        if let Some(parent) = text(5) {
            metadata.insert("imported_parent".to_owned(), json!(parent));
            session
                .left_out
                .add("sessions of sub-agents, kept as sessions of their own");
        }
        session.closed = text(3).as_deref() == Some("archived");
        session.describe(metadata);
    }

    /// A row that cannot be read.
    pub(super) fn unreadable(&mut self, seq: i64, column: &str) {
        let name = format!("unreadable messages: {column} of {seq}");
        self.transcript.leave(&name);
    }

    pub(super) fn message(&mut self, row: MessageRow) {
        if row.name.as_deref() == Some(NOTE) && row.role.is_none() {
            return self.note(row);
        }
        match row.state.as_str() {
            "dropped" => {
                return self
                    .transcript
                    .leave("messages that the library had dropped");
            }
            "active" | "compacted_out" => {}
            _ => self.transcript.leave("messages of an unknown state"),
        }
        let before = self.transcript.len();
        self.say(&row);
        let folded = (row.state == "compacted_out").then_some(row.seq);
        // A message may become several: results wait until all of the same calls are there.
        let more = self.transcript.len().saturating_sub(before);
        for _ in 0..more {
            self.folded.push(folded);
        }
    }

    /// A text in place of messages. One that a later one covers is not shown any more.
    fn note(&mut self, row: MessageRow) {
        let meta = object(row.meta.as_deref());
        let number = |name: &str| meta.get(name).and_then(Value::as_i64);
        match (row.state.as_str(), row.content) {
            ("active", Some(text)) => self.notes.push(Note {
                seq: row.seq,
                from: number("ord").or(number("from_seq")).unwrap_or(0),
                text,
            }),
            _ => self.transcript.leave("summaries that a later one covers"),
        }
    }

    fn say(&mut self, row: &MessageRow) {
        let at = row.created_at;
        if let Some(send) = row.send_index {
            self.transcript.send(send, at);
        }
        let counts_sends = row.send_index.is_none();
        let content = self.content(row);
        match row.role {
            Some(Role::User) => {
                if row.name.is_some() {
                    self.transcript.leave("names of the user's messages");
                }
                self.transcript.user(content, at, counts_sends);
            }
            Some(Role::Assistant) => {
                let calls = self.calls(row);
                self.transcript.assistant(content, calls, at);
            }
            Some(Role::Tool) => {
                let answered = Answered {
                    call: row.call_id.clone().unwrap_or_default(),
                    name: row.name.clone(),
                    content,
                    failed: false,
                };
                self.transcript.result(answered, at);
            }
            None => {
                let name = format!("messages of role {}, kept as the user's", row.role_name);
                self.transcript.leave(&name);
                let mut parts = vec![ContentPart::text(format!("[{}]", row.role_name))];
                parts.extend(content);
                self.transcript.user(parts, at, false);
            }
        }
    }

    fn content(&mut self, row: &MessageRow) -> Vec<ContentPart> {
        if row.is_cut {
            self.transcript
                .leave("messages of more than 32 MiB, without their content");
            return parts::words("[a message of more than 32 MiB was left out]");
        }
        let meta = object(row.meta.as_deref());
        let is_marked = meta.get("content_encoding").and_then(Value::as_str) == Some("json");
        if meta.keys().any(|name| name != "content_encoding") {
            self.transcript.leave("metadata of messages");
        }
        let text = row.content.as_deref().unwrap_or_default();
        match serde_json::from_str::<Value>(text) {
            // Version 1 stores lists of parts like a text.
            Ok(parts) if is_marked || is_list_of_parts(&parts) => {
                parts::content(&mut self.transcript, &parts)
            }
            _ => parts::words(text),
        }
    }

    /// The calls of a message, in the form of OpenAI's chats or in that of the library.
    fn calls(&mut self, row: &MessageRow) -> Vec<Called> {
        let Some(text) = row.calls.as_deref().filter(|text| !text.is_empty()) else {
            return Vec::new();
        };
        let Ok(Value::Array(list)) = serde_json::from_str(text) else {
            self.transcript.leave("calls that cannot be read");
            return Vec::new();
        };
        let calls = list.into_iter().map(|mut call| {
            let of = |call: &Value, name: &str| call[name].as_str().unwrap_or_default().to_owned();
            let id = of(&call, "id");
            let mut function = match taken(&mut call, "function") {
                function @ Value::Object(_) => function,
                _ => call,
            };
            let arguments = match taken(&mut function, "arguments") {
                Value::String(text) => Arguments::read(&text),
                Value::Null => Arguments::read(""),
                value => Arguments::from(value),
            };
            Called {
                id,
                name: of(&function, "name"),
                arguments,
            }
        });
        calls.collect()
    }

    /// The session with its transcript and the folds that are shown.
    pub(super) fn finish(self) -> Session {
        let mut session = self.transcript.finish();
        let mut folded = self.folded;
        folded.resize(session.messages.len(), None);
        let mut notes = self.notes;
        notes.sort_by_key(|note| note.from);
        for (place, note) in notes.iter().enumerate() {
            let until = notes.get(place + 1).map_or(i64::MAX, |next| next.from);
            let covers =
                |seq: &Option<i64>| seq.is_some_and(|seq| (note.from..until).contains(&seq));
            let covered: Vec<bool> = folded.iter().map(covers).collect();
            let made = self
                .compactions
                .iter()
                .find(|made| made.note_seq == note.seq);
            match fold(&session, &covered, note, made) {
                Some(fold) => session.folds.push(fold),
                None => session.left_out.add("summaries of scattered messages"),
            }
        }
        session
    }
}

/// The fold of these messages, if they are in one piece and no call is apart from its results.
fn fold(
    session: &Session,
    covered: &[bool],
    note: &Note,
    made: Option<&Compaction>,
) -> Option<Fold> {
    let first = covered.iter().position(|covered| *covered)?;
    let last = covered.iter().rposition(|covered| *covered)?;
    let is_whole = covered[first..=last].iter().all(|covered| *covered);
    let splits = |place: usize| {
        let message = session.messages.get(place);
        message.is_some_and(|message| message.role == Role::Tool)
    };
    if !is_whole || splits(first) || splits(last + 1) || note.text.is_empty() {
        return None;
    }
    let end = &session.messages[last];
    Some(Fold {
        n: session.folds.len() as i64 + 1,
        from_seq: first as i64 + 1,
        to_seq: last as i64 + 1,
        level: 0,
        kind: FoldKind::Summary,
        text: note.text.replace('\0', "\u{fffd}"),
        model: None,
        tokens_before: made.map_or(0, |made| made.tokens_before),
        tokens_after: made.map_or(0, |made| made.tokens_after),
        send_id: end.send_id,
        created_at: made.map_or(end.created_at, |made| made.created_at),
        covered_by: None,
    })
}

fn object(json: Option<&str>) -> Map<String, Value> {
    match json.map(serde_json::from_str) {
        Some(Ok(Value::Object(members))) => members,
        _ => Map::new(),
    }
}

/// Whether a value is a list of parts of a message, rather than a text that happens to be JSON.
fn is_list_of_parts(value: &Value) -> bool {
    let known = ["text", "image_url", "attachment", "image", "file"];
    let is_part = |part: &Value| {
        part["type"]
            .as_str()
            .is_some_and(|kind| known.contains(&kind))
    };
    value
        .as_array()
        .is_some_and(|parts| !parts.is_empty() && parts.iter().all(is_part))
}
