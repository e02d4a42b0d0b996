//! One immutable row of a session's transcript.

mod arguments;
mod media;
pub mod numbers;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::SendId;
use crate::time::Timestamp;

pub use arguments::Arguments;
pub use media::{
    FILE_BYTES_MAX, FileSource, IMAGE_BYTES_MAX, IMAGE_SHOWN_BYTES_MAX, ImageSource, MediaFault,
    is_media_type,
};

/// Who speaks.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The input of a send.
    User,
    /// The model.
    Assistant,
    /// The answer to one tool call.
    Tool,
}

impl Role {
    /// The name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A typed part of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// Plain text.
    Text {
        /// The text, without U+0000.
        text: String,
    },
    /// The model's visible reasoning, kept so that providers which want it back get it.
    Reasoning {
        /// The text, without U+0000.
        text: String,
        /// The provider's signature over it, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// Who gave it; unknown when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<Box<Origin>>,
    },
    /// An image.
    Image {
        /// Where it is.
        source: ImageSource,
    },
    /// A file with its name.
    File {
        /// What it is called.
        name: String,
        /// What is in it.
        source: FileSource,
    },
    /// What is left of a tool's result once it is old, where the tool says that. Only tools' results have
    /// one: no model is shown it beside the result, and it is no text of the message.
    Digest {
        /// The text: one line, without U+0000.
        text: String,
    },
    /// What a provider attached to its answer, at this place among the parts. Only assistants' messages have
    /// one. It is no text of the message.
    Attached(Attached),
}

/// Who gave a part of an answer. What a provider attaches is of use to itself alone, often to one model of it;
/// others refuse it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Origin {
    /// The protocol, by its name in the configuration, such as `openai`.
    pub protocol: String,
    /// The host that answered, with its port and its path where those tell endpoints apart.
    pub host: String,
    /// The model that was asked.
    pub model: String,
    /// The member of the answer that it stood in, where the protocol has several for the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// Something that a provider attached to an answer and wants back. It goes back unchanged to whoever attached
/// it, and to nobody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Attached {
    /// Who attached it.
    pub origin: Box<Origin>,
    /// The JSON text, as it came; U+0000 occurs in it only escaped.
    pub json: String,
}

/// What a provider attached to a call, besides its name and arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CallAttached {
    /// Who made the call.
    pub origin: Origin,
    /// The call's id as the provider gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Further members of the call, as the text of a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json: Option<String>,
}

impl ContentPart {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Whether it is part of a message's content, rather than a digest of it or an attachment to it.
    pub const fn is_content(&self) -> bool {
        !matches!(self, Self::Digest { .. } | Self::Attached(_))
    }
}

/// The digest that a tool gave for its result once it is old.
pub fn digest_of(parts: &[ContentPart]) -> Option<&str> {
    parts.iter().find_map(|part| match part {
        ContentPart::Digest { text } => Some(text.as_str()),
        ContentPart::Text { .. }
        | ContentPart::Reasoning { .. }
        | ContentPart::Image { .. }
        | ContentPart::File { .. }
        | ContentPart::Attached(_) => None,
    })
}

/// Approximate size of a value as text, in bytes.
pub fn json_weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(values) => values.iter().map(|value| json_weight(value) + 1).sum(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| name.len() + json_weight(value) + 4)
            .sum(),
    }
}

/// The text parts, joined by blank lines.
pub fn plain_text(parts: &[ContentPart]) -> String {
    texts(parts).collect::<Vec<_>>().join("\n\n")
}

/// The text parts.
pub fn texts(parts: &[ContentPart]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match part {
        ContentPart::Text { text } => Some(text.as_str()),
        ContentPart::Reasoning { .. }
        | ContentPart::Image { .. }
        | ContentPart::File { .. }
        | ContentPart::Digest { .. }
        | ContentPart::Attached(_) => None,
    })
}

/// A function that the model asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ToolCall {
    /// Unique within the session; assigned by Mainspring, because models repeat or omit theirs.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments: the model's JSON text, or that text as a string when it is not JSON.
    #[schema(value_type = Value)]
    pub arguments: Arguments,
    /// How many of the message's parts came before the call; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u32>,
    /// What the provider attached to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Box<CallAttached>>,
}

impl ToolCall {
    /// A call behind all parts of its message, with nothing attached.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<Arguments>,
    ) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
            after: None,
            attached: None,
        }
    }
}

/// An answer in the order in which the model gave it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Piece<'a> {
    /// A part of the content.
    Part(&'a ContentPart),
    /// A call.
    Call(&'a ToolCall),
}

/// The parts and calls of an answer, in the order in which the model gave them.
pub fn pieces<'a>(
    content: &'a [ContentPart],
    calls: &'a [ToolCall],
) -> impl Iterator<Item = Piece<'a>> {
    let place = |call: &ToolCall| {
        let after = call.after.map_or(content.len(), |after| after as usize);
        after.min(content.len())
    };
    let mut calls: Vec<&ToolCall> = calls.iter().collect();
    // Stable: calls at the same place stay in the order in which they are numbered.
    calls.sort_by_key(|call| place(call));
    let mut calls = calls.into_iter().peekable();
    let mut pieces = Vec::new();
    for at in 0..=content.len() {
        while let Some(call) = calls.next_if(|call| place(call) <= at) {
            pieces.push(Piece::Call(call));
        }
        pieces.extend(content.get(at).map(Piece::Part));
    }
    pieces.into_iter()
}

/// A message as stored and as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Message {
    /// The place in the session, from 1, without gaps.
    pub seq: i64,
    /// The send that wrote it.
    #[schema(value_type = String)]
    pub send_id: SendId,
    /// Who speaks.
    pub role: Role,
    /// The text.
    pub content: Vec<ContentPart>,
    /// The requested tool calls; only on an assistant's message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that this answers; only on a tool's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The tool's name; only on a tool's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the tool failed; only on a tool's message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The round within its send, from 0.
    pub round: i32,
    /// When its transaction ran, by the database's clock.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// The `seq` of the assistant's message that asked; only on a tool's message. A window never
    /// starts between the two.
    #[serde(skip)]
    pub asked_at_seq: Option<i64>,
    /// The grant under which it was written; 0 on copies.
    #[serde(skip)]
    pub epoch: i64,
}

/// A message that has no number yet.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    /// Who speaks.
    pub role: Role,
    /// The text.
    pub content: Vec<ContentPart>,
    /// The requested tool calls.
    pub tool_calls: Vec<ToolCall>,
    /// The call that this answers.
    pub tool_call_id: Option<String>,
    /// The tool's name.
    pub name: Option<String>,
    /// Whether the tool failed.
    pub failed: bool,
    /// The round within the send.
    pub round: i32,
    /// For a tool's message: how many messages before it, in this batch, the message with the call is.
    pub asked_back: Option<u32>,
}

impl NewMessage {
    /// Approximate size in bytes when sent and stored.
    pub fn weight(&self) -> usize {
        let content: usize = self.content.iter().map(ContentPart::weight).sum();
        let calls = self.tool_calls.iter();
        let calls: usize = calls.map(|call| call.arguments.len()).sum();
        content + calls
    }

    /// The input of a send.
    pub fn user(content: Vec<ContentPart>, round: i32) -> Self {
        Self {
            role: Role::User,
            content,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
            failed: false,
            round,
            asked_back: None,
        }
    }

    /// The message as stored at `seq`.
    pub fn at(self, seq: i64, send_id: SendId, created_at: Timestamp, epoch: i64) -> Message {
        Message {
            seq,
            send_id,
            role: self.role,
            content: self.content,
            tool_calls: self.tool_calls,
            tool_call_id: self.tool_call_id,
            name: self.name,
            failed: self.failed,
            round: self.round,
            created_at,
            asked_at_seq: self.asked_back.map(|back| seq - i64::from(back)),
            epoch,
        }
    }
}

/// Copies of messages for another session: numbered from 1 without gaps, and with epoch 0.
pub fn copies(messages: Vec<Message>) -> Vec<Message> {
    copies_behind(messages, 0)
}

/// Like [`copies`], following `behind` other messages that have no open call.
pub fn copies_behind(messages: Vec<Message>, behind: i64) -> Vec<Message> {
    let mut asking: (Option<i64>, Vec<String>) = (None, Vec::new());
    let copies = messages
        .into_iter()
        .zip(behind + 1..)
        .map(|(mut message, seq)| {
            if message.role != Role::Tool {
                let ids = message.tool_calls.iter().map(|call| call.id.clone());
                asking = (Some(seq), ids.collect());
            }
            let answers = message.tool_call_id.as_ref();
            let (asked, ids) = &asking;
            message.asked_at_seq = asked.filter(|_| answers.is_some_and(|id| ids.contains(id)));
            message.seq = seq;
            message.epoch = 0;
            message
        });
    copies.collect()
}

/// How many of the messages, which start where no call is open, are before the first call without a
/// result: up to there, each message with calls is followed by one message per call, in order and
/// in the same send.
pub fn settled_len(messages: &[Message]) -> usize {
    let mut settled = 0;
    while let Some(message) = messages.get(settled) {
        let behind = &messages[settled + 1..];
        let answers = message
            .tool_calls
            .iter()
            .zip(behind)
            .take_while(|(call, answer)| {
                answer.tool_call_id.as_ref() == Some(&call.id) && answer.send_id == message.send_id
            });
        let calls = message.tool_calls.len();
        if answers.count() < calls {
            break;
        }
        settled += 1 + calls;
    }
    settled
}

#[cfg(test)]
mod tests;
