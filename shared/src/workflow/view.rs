//! Runs and nodes as the API shows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::nodes::NodeKind;
use super::run::{
    Attempt, NodeRecord, NodeState, RunCounts, RunOptions, RunRecord, RunStatus, Steered,
};
use crate::agent::{AgentQuery, AgentRef};
use crate::error::Failure;
use crate::id::{RunId, SendId, SessionId};
use crate::send::{SendStatus, WaitingOn};
use crate::skill::AgentSkill;
use crate::time::Timestamp;
use crate::usage::Usage;

/// A run as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunView {
    /// Its identity.
    #[schema(value_type = String)]
    pub id: RunId,
    /// The spec's name.
    pub name: String,
    /// Where it stands.
    pub status: RunStatus,
    /// Since when it starts no leaf; absent unless it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = DateTime, required = false)]
    pub paused_at: Option<Timestamp>,
    /// The session it belongs to.
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    /// The value of `input`.
    #[schema(value_type = Object)]
    pub input: Value,
    /// The options of its creator.
    pub options: RunOptions,
    /// Counts retries, from 1.
    pub attempt: i32,
    /// The output of the root node.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// Why it did not succeed.
    pub error: Option<Failure>,
    /// The published agents that its spec names, with the versions that it has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, AgentRef>, required = false)]
    pub agents: BTreeMap<AgentQuery, AgentRef>,
    /// The skills that its spec names, with the versions that it has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>, required = false)]
    pub skills: BTreeMap<String, AgentSkill>,
    /// The sum over all attempts of its settled leaves.
    pub usage: Usage,
    /// The number of leaves, by state.
    pub counts: RunCounts,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When a scheduler first advanced it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it became final.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
}

impl From<RunRecord> for RunView {
    fn from(mut record: RunRecord) -> Self {
        let agents = std::mem::take(&mut record.options.agents).into_iter();
        let agents = agents.map(|(written, pinned)| (written, pinned.agent));
        let skills = std::mem::take(&mut record.options.skills).into_iter();
        let skills = skills.map(|(written, pinned)| (written, pinned.shown()));
        Self {
            agents: agents.collect(),
            skills: skills.collect(),
            id: record.key.run,
            name: record.name,
            status: record.status,
            paused_at: record
                .options
                .paused_at
                .take()
                .filter(|_| !record.status.is_final()),
            session_id: record.session,
            input: record.input,
            options: RunOptions {
                // Each leaf's session shows what it inherited.
                starter: None,
                // The trace context is not part of the view; it can be found in the traces.
                traceparent: None,
                ..record.options
            },
            attempt: record.attempt,
            result: record.result,
            error: record.error,
            usage: record.usage,
            counts: record.counts,
            created_at: record.created_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
        }
    }
}

/// A node as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeView {
    /// Its position in the tree.
    pub path: String,
    /// Counts the run's nodes in the order in which they were reached, from 1.
    pub n: i64,
    /// What it does.
    pub kind: NodeKind,
    /// The spec's name for it.
    pub id: Option<String>,
    /// Its state; that of the send for a leaf in flight.
    pub state: NodeState,
    /// What its send waits for.
    pub waiting_on: Option<WaitingOn>,
    /// Its failure does not fail the enclosing node.
    pub tolerated: bool,
    /// The current or last attempt, counted from 1.
    pub attempt: i32,
    /// The session of that attempt.
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    /// The send of that attempt.
    #[schema(value_type = Option<String>)]
    pub send_id: Option<SendId>,
    /// What it said.
    pub text: Option<String>,
    /// The value it returned.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// Why it did not succeed.
    pub error: Option<Failure>,
    /// The sum over its attempts.
    pub usage: Usage,
    /// When a pause or the wait before its next attempt is over, or its time is up.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due_at: Option<Timestamp>,
    /// Its result was replaced by an operator.
    pub amended: bool,
    /// Messages from people while it was running, oldest first.
    pub steered: Vec<Steered>,
    /// The attempts before this one.
    pub earlier: Vec<Attempt>,
    /// When it was reached.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// When it settled.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub settled_at: Option<Timestamp>,
}

impl NodeView {
    /// The view of a node, with the status of its send if that was read.
    pub fn of(node: NodeRecord, send: Option<(SendStatus, Option<WaitingOn>)>) -> Self {
        let live = send.filter(|_| !node.state.is_settled());
        let state = match live.map(|(status, _)| status) {
            Some(SendStatus::Running) => NodeState::Running,
            Some(SendStatus::Waiting) => NodeState::Waiting,
            Some(
                SendStatus::Queued
                | SendStatus::Completed
                | SendStatus::Failed
                | SendStatus::Cancelled,
            )
            | None => node.state,
        };
        Self {
            path: node.path,
            n: node.n,
            kind: node.kind,
            id: node.id,
            state,
            waiting_on: live.and_then(|(_, waiting)| waiting),
            tolerated: node.tolerated,
            attempt: node.attempt,
            session_id: node.session,
            send_id: node.send,
            text: node.text,
            output: node.payload,
            error: node.error,
            usage: node.usage,
            due_at: node.due_at,
            amended: node.amended,
            steered: node.steered,
            earlier: node.earlier,
            started_at: node.started_at,
            settled_at: node.settled_at,
        }
    }
}
