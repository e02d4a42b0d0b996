//! A file of all durable steps of sessions: one line of JSON per step.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{SendId, SessionId, TenantId};
use crate::message::Message;
use crate::session::fold::FoldRef;
use crate::step::Step;
use crate::time::Timestamp;
use crate::usage::Usage;

/// The progress of a journal: the first line of each of its files, and the line after each batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHead {
    /// The format version of the following lines.
    pub journal: u32,
    /// Every step committed before this time has an earlier line, or predates the journal.
    pub from: Timestamp,
}

impl JournalHead {
    /// The format version that this release writes.
    pub const VERSION: u32 = 1;

    /// A head that says that everything committed before this time is written.
    pub const fn new(from: Timestamp) -> Self {
        Self {
            journal: Self::VERSION,
            from,
        }
    }
}

/// What one step of a session did. `n` counts the session's steps without gaps, so duplicate lines
/// can be recognized by it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalLine {
    /// When it was committed, by the database's clock.
    pub at: Timestamp,
    /// The owner.
    pub tenant: TenantId,
    /// The session.
    pub session_id: SessionId,
    /// The send that it is about.
    pub send_id: SendId,
    /// Its number in the session.
    pub n: i64,
    /// What it did: `accepted`, `round`, `calls`, `waiting`, `resumed`, `folded` or `finished`.
    pub event: String,
    /// The epoch of the grant that it ran under; 0 for none.
    #[serde(default)]
    pub epoch: i64,
    /// The round that it closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<JournalRound>,
    /// The calls that the model asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<JournalCall>,
    /// The calls whose results it stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<JournalCall>,
    /// The fold that it attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fold: Option<FoldRef>,
    /// The final status of a send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Why the send ended, what it waits for, or why it was resumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The content, if requested: redacted and truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
}

/// A round of a send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalRound {
    /// Its index within the send, from 0.
    pub index: i32,
    /// The model that answered.
    pub model: String,
    /// Its usage.
    pub usage: Usage,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalCall {
    /// Its id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Whether it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

impl JournalLine {
    /// What a step did, with the messages that it wrote.
    pub fn new(tenant: TenantId, session: SessionId, step: &Step, written: &[&Message]) -> Self {
        let asked = written.iter().flat_map(|message| &message.tool_calls);
        let calls = asked.map(|call| JournalCall {
            id: call.id.clone(),
            name: call.name.clone(),
            failed: false,
        });
        let results = written.iter().filter_map(|message| {
            Some(JournalCall {
                id: message.tool_call_id.clone()?,
                name: message.name.clone().unwrap_or_default(),
                failed: message.failed,
            })
        });
        let round = step.refs.round.as_ref();
        Self {
            at: step.at,
            tenant,
            session_id: session,
            send_id: step.send_id,
            n: step.n,
            event: step.kind.as_str().to_owned(),
            epoch: step.epoch,
            round: round.map(|round| JournalRound {
                index: round.index,
                model: round.model.clone(),
                usage: round.usage,
            }),
            calls: calls.collect(),
            results: results.collect(),
            fold: step.refs.fold,
            status: step.refs.status.clone(),
            reason: step.refs.reason.clone(),
            content: None,
        }
    }
}
