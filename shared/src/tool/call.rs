//! A tool call: its row, from the transaction that stores the request until its result.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bounds::digest_part;
use super::inquiry::{Asked, Reply};
use crate::blob::BlobRef;
use crate::error::Code;
use crate::id::{SendId, SessionId};
use crate::message::{Arguments, ContentPart, NewMessage, Role, plain_text};
use crate::send::{SendRecord, SendStatus, WaitingOn};
use crate::time::Timestamp;
use uuid::Uuid;

/// The effect of executing the same call twice. This alone decides whether a call that may have been made is made again:
/// after a worker crash, and after an attempt that failed. `keyed` when absent.
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
    /// None: it only reads.
    Safe,
    /// None, as long as the call id is the same: the tool remembers the ids it has served.
    #[default]
    Keyed,
    /// Harmful: it is never repeated. A call in doubt is settled as unknown.
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

/// Whether a person has approved a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Approval {
    /// No approval was requested.
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

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// A worker must run it and has not started.
    Requested,
    /// A worker started it under this epoch: after a crash it may have been executed.
    Started {
        /// The grant.
        epoch: i64,
    },
    /// It waits for something outside.
    Waits(WaitingOn),
    /// It has its result.
    Settled,
}

/// The result of a call: what the model is shown, and what is stored with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// What the model sees, within the tool's size limits.
    pub content: Vec<ContentPart>,
    /// Whether it is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The kind of error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The whole output, if `content` has only its head and tail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// The whole output as a blob; then `whole` is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_blob: Option<BlobRef>,
    /// The output's value, if the tool gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<Value>>,
    /// Messages by hooks to the model, after the results of the round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
    /// Why a hook skips the round's calls that have not started, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skips: Option<String>,
}

impl CallResult {
    /// A text output.
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

    /// An error that is shown to the model.
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self {
            failed: true,
            code: Some(code),
            ..Self::text(message)
        }
    }

    /// The output as text; the whole output if it was cut and is stored inline.
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
    /// The session that made the call.
    pub session: SessionId,
    /// The send that made the call.
    pub send_id: SendId,
    /// The round within the send.
    pub round: i32,
    /// Its place in the round.
    pub place: i32,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model gave them.
    pub arguments: Arguments,
    /// The effect of a repeated call.
    pub repeat: Repeat,
    /// What it waits for outside; `None` while a worker must run it, and once it is settled.
    pub waits_on: Option<WaitingOn>,
    /// Its approval by a person.
    pub approval: Approval,
    /// The grant under which a worker last started it.
    pub started_epoch: Option<i64>,
    /// How often a worker started it.
    pub attempt: i32,
    /// When the wait for an outside answer ends.
    pub deadline_at: Option<Timestamp>,
    /// What the tool asked a person while the call was made, in order.
    pub asked: Vec<Asked>,
    /// Its result.
    pub result: Option<CallResult>,
    /// When it was requested.
    pub requested_at: Timestamp,
    /// When it was settled.
    pub settled_at: Option<Timestamp>,
    /// Who of those outside last took it on; no meaning once it is settled.
    pub claim: Option<Claim>,
}

/// A call that waits for its result, taken on for a time by one of several that could make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// What its holder shows with each report.
    pub token: Uuid,
    /// Until when nobody else gets the call, unless the holder renews.
    pub until: Timestamp,
    /// Which claim of the call it is, from 1: behind the first one, the call may have been made before.
    pub n: i32,
}

impl CallRecord {
    /// Its claim, if this is the token of it.
    pub fn claimed_with(&self, token: Uuid) -> Option<Claim> {
        self.claim.filter(|claim| claim.token == token)
    }

    /// Whether someone outside may take it on now with this token: it is free, or has the token. A `once` call is taken
    /// on with one token only: whoever has it may have made it.
    pub fn is_claimable(&self, token: Uuid, now: Timestamp) -> bool {
        let waits = self.waits_on == Some(WaitingOn::Tool) && self.approval != Approval::Asked;
        let is_free = self.claim.is_none_or(|claim| {
            claim.token == token || (claim.until <= now && self.repeat != Repeat::Once)
        });
        self.result.is_none() && waits && is_free
    }

    /// Whether its holder let it lapse and nobody else may make it: whether it took effect is unknown.
    pub fn is_lapsed(&self, now: Timestamp) -> bool {
        let waits = self.result.is_none() && self.waits_on == Some(WaitingOn::Tool);
        let lapsed = self.claim.is_some_and(|claim| claim.until <= now);
        waits && lapsed && self.repeat == Repeat::Once
    }

    /// Its state.
    pub fn state(&self) -> CallState {
        match (&self.result, self.waits_on, self.started_epoch) {
            (Some(_), _, _) => CallState::Settled,
            (None, Some(on), _) => CallState::Waits(on),
            // What it asked is answered, and nobody has made it since then.
            (None, None, Some(_)) if self.is_to_go_on() => CallState::Requested,
            (None, None, Some(epoch)) => CallState::Started { epoch },
            (None, None, None) => CallState::Requested,
        }
    }

    /// Whether it ended with a question, and was not started again.
    fn is_to_go_on(&self) -> bool {
        self.asked
            .last()
            .is_some_and(|last| last.attempt >= self.attempt)
    }

    /// The question that it waits with, and its number, from 1.
    pub fn open_question(&self) -> Option<(usize, &Asked)> {
        let last = self.asked.last().filter(|last| last.reply.is_none())?;
        matches!(self.state(), CallState::Waits(_)).then_some((self.asked.len(), last))
    }

    /// Stores the answer to its open question: a worker is to make it again.
    pub fn take_reply(&mut self, reply: Reply) {
        if let Some(last) = self.asked.last_mut() {
            last.reply = Some(reply);
        }
        self.waits_on = None;
        self.deadline_at = None;
    }
}

/// The id of a call, made of the send, the round and the place: a round that is repeated after a
/// crash has the same ids, and no other round has them. Ids given by models are not used, since
/// models repeat and omit them.
pub fn call_id(send: SendId, round: i32, place: usize) -> String {
    format!("{}{place}", calls_of_round(send, round))
}

/// The range of ids that calls of a send can have; the end is exclusive.
pub fn calls_of_send(send: SendId) -> (String, String) {
    let id = send.0.simple();
    (format!("call_{id}_"), format!("call_{id}`"))
}

/// The common prefix of the ids of a round's calls.
pub fn calls_of_round(send: SendId, round: i32) -> String {
    format!("call_{}_{round}_", send.0.simple())
}

/// The messages with the results of a round's calls, in the order of the calls; `None` unless every
/// call has its result. They must be appended directly after the message with the calls.
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

/// The result of a call that may have been made, and may not be made again.
pub fn unknown_outcome() -> CallResult {
    CallResult::error(
        Code::ToolUnknownOutcome,
        "the work broke off around this call: whether it took effect is not known, and it is not made again. \
         Check before you repeat it.",
    )
}

/// The result of a waiting call that a message interrupted.
pub fn interrupted_call() -> CallResult {
    CallResult::error(Code::ToolInterrupted, "a message interrupted it")
}

/// The result of the call that started a child, from the end of the child's send.
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
        // Work that continues below the child may still spend this.
        value["kept"] = json!(kept);
    }
    if send.status != SendStatus::Completed {
        return CallResult {
            value: Some(Box::new(value)),
            ..CallResult::error(Code::ToolFailed, child_end(send))
        };
    }
    let text = send.output_text.as_deref().filter(|text| !text.is_empty());
    let text = text.unwrap_or("the child ended without an answer");
    let mut result = CallResult::text(text);
    let said = format!("the child {} answered: {text}", send.key.session);
    result.content.extend(digest_part(&said));
    CallResult {
        value: Some(Box::new(value)),
        ..result
    }
}

/// The id and content of the inbox item that reports the end of a child's send to a parent whose
/// call `call_id` was settled before.
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
