//! One tool call: its row from the transaction that stored the request until its result.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bounds::digest_part;
use crate::blob::BlobRef;
use crate::error::Code;
use crate::id::{SendId, SessionId};
use crate::message::{ContentPart, NewMessage, Role, plain_text};
use crate::send::{SendRecord, SendStatus, WaitingOn};
use crate::time::Timestamp;

/// The effect of executing the same call twice. After a worker crash this alone decides what happens to a call that may
/// have been made.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Repeat {
    /// Nothing: it only reads.
    Safe,
    /// Nothing, as long as the call id is the same: the tool keeps the ids it has served.
    #[default]
    Keyed,
    /// Harm: it is never made twice. A call in doubt is settled as unknown.
    Once,
}

impl Repeat {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Safe, Self::Keyed, Self::Once];

    /// The name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Keyed => "keyed",
            Self::Once => "once",
        }
    }

    /// The value with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

/// Whether a person has allowed a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approval {
    /// Nobody was asked.
    None,
    /// A person was asked and has not answered.
    Asked,
    /// A person agreed; the call may run.
    Given,
}

impl Approval {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::None, Self::Asked, Self::Given];

    /// The name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Asked => "asked",
            Self::Given => "given",
        }
    }

    /// The value with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|value| value.as_str() == text)
    }
}

/// Where an unsettled call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// A worker has it to do and has not begun.
    Requested,
    /// A worker began it under this epoch: after a crash it may have happened.
    Started {
        /// The grant.
        epoch: i64,
    },
    /// It waits for someone outside.
    Waits(WaitingOn),
    /// It has its result.
    Settled,
}

/// The answer to a call: what the model is told, and what is kept beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// What the model sees, within the tool's bounds.
    pub content: Vec<ContentPart>,
    /// Whether it is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The kind of error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The whole output, where `content` holds only its head and tail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// The same, where it is a blob: then `whole` is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_blob: Option<BlobRef>,
    /// The output's value, where the tool gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// What hooks say to the model behind the results of the round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
    /// Why a hook has the calls of the round skipped that nobody has begun, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skips: Option<String>,
}

impl CallResult {
    /// An output in words.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: vec![ContentPart::text(text)],
            failed: false,
            code: None,
            whole: None,
            whole_blob: None,
            value: None,
            said: Vec::new(),
            skips: None,
        }
    }

    /// An error that the model is told.
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self {
            failed: true,
            code: Some(code),
            ..Self::text(message)
        }
    }

    /// The output as text, whole where it was cut and is kept beside it.
    pub fn whole_text(&self) -> String {
        match &self.whole {
            Some(whole) => whole.clone(),
            None => plain_text(&self.content),
        }
    }
}

/// A call as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRecord {
    /// Its id, unique in the tenant.
    pub call_id: String,
    /// The session that asked.
    pub session: SessionId,
    /// The send that asked.
    pub send_id: SendId,
    /// The round within the send.
    pub round: i32,
    /// Its place in the round.
    pub place: i32,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model gave them.
    pub arguments: Value,
    /// The effect of a repeated call.
    pub repeat: Repeat,
    /// Whom it waits for; none while it is the worker's to run, and once it is settled.
    pub waits_on: Option<WaitingOn>,
    /// What a person said to it.
    pub approval: Approval,
    /// The grant under which a worker last began it.
    pub started_epoch: Option<i64>,
    /// How often a worker began it.
    pub attempt: i32,
    /// When whoever it waits for is too late.
    pub deadline_at: Option<Timestamp>,
    /// Its result.
    pub result: Option<CallResult>,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// When it got its result.
    pub settled_at: Option<Timestamp>,
}

impl CallRecord {
    /// Where it stands.
    pub fn state(&self) -> CallState {
        match (&self.result, self.waits_on, self.started_epoch) {
            (Some(_), _, _) => CallState::Settled,
            (None, Some(on), _) => CallState::Waits(on),
            (None, None, Some(epoch)) => CallState::Started { epoch },
            (None, None, None) => CallState::Requested,
        }
    }
}

/// The id of a call: made of the send, the round and the place, so that a round that is asked
/// again after a crash has the same ids, and no other round has. Models repeat and omit theirs.
pub fn call_id(send: SendId, round: i32, place: usize) -> String {
    format!("{}{place}", calls_of_round(send, round))
}

/// The first id that a call of a send could have, and one behind all of them.
pub fn calls_of_send(send: SendId) -> (String, String) {
    let id = send.0.simple();
    (format!("call_{id}_"), format!("call_{id}`"))
}

/// What the ids of all calls of a round begin with.
pub fn calls_of_round(send: SendId, round: i32) -> String {
    format!("call_{}_{round}_", send.0.simple())
}

/// The messages that answer a round's calls, in the order of the calls; none unless every call has
/// its result. They have to be
/// written directly behind the message that asked.
pub fn answers(calls: &[CallRecord]) -> Option<Vec<NewMessage>> {
    let answered = calls.iter().zip(1..).map(|(call, back)| {
        let result = call.result.as_ref()?;
        Some(NewMessage {
            role: Role::Tool,
            tool_call_id: Some(call.call_id.clone()),
            name: Some(call.name.clone()),
            failed: result.failed,
            asked_back: Some(back),
            ..NewMessage::user(result.content.clone(), call.round)
        })
    });
    answered.collect()
}

/// The result of a call that was open when its send ended.
pub fn cancelled_call() -> CallResult {
    CallResult::error(Code::ToolCancelled, "the call was ended with its send")
}

/// The result of a waiting call that something more urgent overtook.
pub fn interrupted_call() -> CallResult {
    CallResult::error(Code::ToolInterrupted, "a message interrupted it")
}

/// What the end of a child's send answers to the call that asked for it.
pub fn child_result(send: &SendRecord) -> CallResult {
    let kept = send.kept();
    let mut value = json!({
        "session_id": send.key.session,
        "send_id": send.id,
        "status": send.status,
        "output": send.output,
        "usage": send.usage,
        "rounds": kept.rounds,
    });
    if !send.held.is_empty() {
        // What works on below it may still spend this.
        value["kept"] = json!(kept);
    }
    if send.status != SendStatus::Completed {
        return CallResult {
            value: Some(value),
            ..CallResult::error(Code::ToolFailed, child_end(send))
        };
    }
    let text = send.output_text.as_deref().filter(|text| !text.is_empty());
    let text = text.unwrap_or("the child ended without an answer");
    let mut result = CallResult::text(text);
    let said = format!("the child {} answered: {text}", send.key.session);
    result.content.extend(digest_part(&said));
    CallResult {
        value: Some(value),
        ..result
    }
}

/// The id and the content of the inbox item that brings the end of a child's send to a parent
/// whose call `call_id` was settled before.
pub fn child_item(send: &SendRecord, call_id: &str) -> (String, Vec<ContentPart>) {
    let head = ContentPart::text(format!("The child of {call_id} has ended."));
    let mut content = vec![head];
    let result = child_result(send).content.into_iter();
    content.extend(result.filter(ContentPart::is_content));
    (format!("child_{}", send.id), content)
}

fn child_end(send: &SendRecord) -> String {
    let mut text = format!("the child ended {}", send.status.as_str());
    if let Some(reason) = send.stop_reason {
        text.push_str(": ");
        text.push_str(reason.as_str());
    }
    if let Some(error) = &send.error {
        text.push_str(": ");
        text.push_str(&error.message);
    }
    text
}

#[cfg(test)]
mod tests;
