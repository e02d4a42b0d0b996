//! A run and its nodes as stored, and the types exchanged between the engine and the store.
//!
//! The engine is pure: it gets a run with all its nodes and the events since the last advance, and
//! returns what to write. The owner of the run keeps both in memory between advances; after a crash
//! the next owner reads the nodes and continues in the same way.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::agent::{
    AgentQuery, AgentRef, AgentSpec, AgentVersion, Delegation, Isolation, SendOptions,
};
use crate::budget::{Budget, Caps, Spent, Used};
use crate::error::Failure;
use crate::id::{RunId, RunKey, SendId, SessionId};
use crate::message::ContentPart;
use crate::named::named;
use crate::send::{SendStatus, StopReason};
use crate::skill::AgentSkill;
use crate::stored::Extra;
use crate::time::{Span, Timestamp};
use crate::tool::ToolEntry;
use crate::usage::Usage;
use crate::workflow::nodes::NodeKind;

/// The version of the language that new specs are read in.
///
/// A run keeps the version in which it was accepted, and is read by the rules of that version for
/// as long as it exists. A scheduler that knows only older versions leaves it alone.
///
/// | version | what it added |
/// |---|---|
/// | 1 | the language |
/// | 2 | `lifecycle` of a leaf takes effect, and is rejected where it could have none |
/// | 3 | a leaf may name a published agent |
/// | 4 | a leaf has a temperature only if it is written, and may say more about its model calls |
pub const DSL_VERSION: i32 = 4;

/// The metadata key of a leaf's session that marks it as detached from its run.
pub const DETACHED: &str = "run_detached";

/// The model of leaves that are only a tool call: their input is `{"tool", "arguments"}`, their
/// answer is the result of the call.
pub const DIRECT_MODEL: &str = "mainspring/direct";

named! {
    /// Where a run stands.
    RunStatus {
        /// Accepted, but not advanced by a scheduler yet.
        Queued = "queued",
        /// Leaves are running or may start.
        Running = "running",
        /// All remaining work waits for a time or for someone.
        Waiting = "waiting",
        /// Final: every leaf succeeded, except tolerated ones.
        Completed = "completed",
        /// Final: a leaf failed, or the budget or the time limit was exceeded.
        Failed = "failed",
        /// Final: it was cancelled.
        Cancelled = "cancelled",
    }
}

impl RunStatus {
    /// Whether only a retry can change it.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

named! {
    /// Where a node stands.
    NodeState {
        /// It waits for earlier nodes.
        Blocked = "blocked",
        /// It may start as soon as the concurrency limit and the budget allow.
        Ready = "ready",
        /// Its send was accepted.
        Queued = "queued",
        /// A container with open children, or a leaf whose send a worker runs.
        Running = "running",
        /// It waits for a time, a person or something else outside.
        Waiting = "waiting",
        /// It succeeded.
        Completed = "completed",
        /// It failed.
        Failed = "failed",
        /// It was cancelled.
        Cancelled = "cancelled",
        /// Its condition did not hold.
        Skipped = "skipped",
    }
}

impl NodeState {
    /// Whether only a retry or an amendment can change it.
    pub const fn is_settled(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Skipped
        )
    }
}

/// Options of a run in addition to its spec, fixed when it is created.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunOptions {
    /// Tokens that all its sends together may use; the smaller of this and the spec's counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The limit set by a retry; it replaces all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised_tokens: Option<u64>,
    /// Maximum number of leaves in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u32>,
    /// Restricts every leaf's tools to those with these names: a run never has more tools than its caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// The workers that every leaf runs on: a run stays in the pool of the agent that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// At least how every leaf is isolated.
    #[serde(default, skip_serializing_if = "Isolation::is_none")]
    pub isolation: Isolation,
    /// The send of an agent that started it; `None` if a client or a timer did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub starter: Option<Box<Starter>>,
    /// The published agents that its spec names, in the versions they resolved to when it was created.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(ignore)]
    pub agents: BTreeMap<AgentQuery, Pinned>,
    /// The skills that its leaves name, as written, in the versions they resolved to when it was
    /// created.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(ignore)]
    pub skills: BTreeMap<String, AgentSkill>,
    /// The span that accepted it, as a W3C `traceparent`; parent of its advances in traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub traceparent: Option<String>,
    /// Since when it starts no leaf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub paused_at: Option<Timestamp>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

impl RunOptions {
    /// Applies an ask to pause, or to go on. The first pause counts.
    pub fn pause(&mut self, ask: &RunAsk) {
        match ask {
            RunAsk::Pause { at } => {
                self.paused_at.get_or_insert(*at);
            }
            RunAsk::Resume => self.paused_at = None,
            RunAsk::Cancel { .. }
            | RunAsk::Retry { .. }
            | RunAsk::CancelNode { .. }
            | RunAsk::RetryNode { .. }
            | RunAsk::AmendNode { .. }
            | RunAsk::Steered { .. } => {}
        }
    }

    /// The agent of a leaf with these tools, or all of the run's if `wanted` is `None`, from what
    /// its starter passes on or its creator allows.
    pub fn heir(&self, wanted: Option<&[ToolEntry]>) -> AgentSpec {
        if let Some(starter) = &self.starter {
            let heir = starter.delegation.heir(wanted);
            return self.isolated(heir);
        }
        let allowed = self.allow.iter().flatten().cloned();
        AgentSpec {
            tools: match wanted {
                Some(wanted) => wanted.to_vec(),
                None => allowed.map(ToolEntry::Named).collect(),
            },
            allow: self.allow.clone(),
            isolation: self.isolation,
            ..AgentSpec::default()
        }
    }

    fn isolated(&self, agent: AgentSpec) -> AgentSpec {
        AgentSpec {
            isolation: agent.isolation.stricter(self.isolation),
            ..agent
        }
    }

    /// A published agent as used by a leaf: with no more than the run's starter passes on, or its
    /// creator allows.
    pub fn narrow(&self, agent: AgentSpec) -> AgentSpec {
        if let Some(starter) = &self.starter {
            return self.isolated(starter.delegation.narrow(agent));
        }
        let allow = match (&self.allow, agent.allow) {
            (Some(allowed), Some(mut own)) => {
                own.retain(|name| allowed.contains(name));
                Some(own)
            }
            (allowed, own) => own.or_else(|| allowed.clone()),
        };
        self.isolated(AgentSpec { allow, ..agent })
    }
}

/// A version of a published agent, pinned by a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pinned {
    /// The version.
    pub agent: AgentRef,
    /// Its spec.
    pub spec: AgentSpec,
}

impl From<AgentVersion> for Pinned {
    fn from(version: AgentVersion) -> Self {
        Self {
            agent: version.reference(),
            spec: version.spec,
        }
    }
}

/// What a run needs from the send that started it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Starter {
    /// The call that created the run.
    pub call_id: String,
    /// What the leaves inherit.
    pub delegation: Delegation,
    /// What it reserved for the run; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// What the run had used when it first ended: the rest was refunded then, so a retry has
    /// nothing left of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
}

impl Starter {
    /// The limits that it sets.
    pub fn caps(&self) -> Caps {
        let caps = self.budget.unwrap_or_default().caps();
        let left = |cap: Option<u64>| cap.filter(|_| self.used.is_none()).or(cap.map(|_| 0));
        Caps {
            tokens: left(caps.tokens),
            nano_usd: left(caps.nano_usd),
            rounds: left(caps.rounds),
        }
    }

    /// How long the run may take.
    pub fn wall(&self) -> Option<Span> {
        self.budget?.wall.filter(|_| self.used.is_none())
    }
}

/// A run as stored. An advance may change `status`, `options` (a retry raises a limit), `attempt`,
/// `result`, `error`, `usage`, `counts`, `alarm_at`, `started_at` and `finished_at`; nothing else
/// ever changes. An `error` on a run that is not final says why it is being ended.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Its identity and owner.
    pub key: RunKey,
    /// The spec's name.
    pub name: String,
    /// Its status.
    pub status: RunStatus,
    /// The spec in its canonical form: a run needs nothing else to continue.
    pub spec: Value,
    /// The version of the language it is written in.
    pub dsl_version: i32,
    /// The value of `input`.
    pub input: Value,
    /// The options of its creator.
    pub options: RunOptions,
    /// The session it belongs to, the parent of its leaves' sessions.
    pub session: Option<SessionId>,
    /// The call of that session that is settled when the run ends, if any.
    pub reports_to: Option<String>,
    /// The depth of its leaves' sessions below the root.
    pub depth: i32,
    /// Counts retries, from 1.
    pub attempt: i32,
    /// The output of the root node.
    pub result: Option<Value>,
    /// Why it did not succeed.
    pub error: Option<Failure>,
    /// The total usage of all attempts of its settled leaves.
    pub usage: Usage,
    /// The number of leaves, by state.
    pub counts: RunCounts,
    /// When it must be advanced even if nothing ends: the end of a wait, a retry, its time limit.
    pub alarm_at: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When a scheduler first advanced it, or its last retry began.
    pub started_at: Option<Timestamp>,
    /// When it became final.
    pub finished_at: Option<Timestamp>,
}

/// Leaves of a run, by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunCounts {
    /// Known so far: a fan-out counts once it is expanded.
    pub leaves: u32,
    /// In flight.
    pub live: u32,
    /// Succeeded.
    pub completed: u32,
    /// Failed, including tolerated ones.
    pub failed: u32,
    /// Cancelled by someone, or because a sibling failed.
    pub cancelled: u32,
    /// Skipped.
    pub skipped: u32,
}

/// The run leaf that a send belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunLeaf {
    /// The run.
    pub run: RunId,
    /// The node.
    pub path: String,
    /// The attempt, from 1.
    pub attempt: i32,
}

/// A node as stored. Nodes exist once they are reached; each iteration has its own nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its place in the tree, unique in the run: `/0:plan`, `/1:research[2]/r`.
    pub path: String,
    /// Counts the run's nodes in the order in which they were reached, from 1.
    pub n: i64,
    /// What it does.
    pub kind: NodeKind,
    /// Its id in the spec.
    pub id: Option<String>,
    /// Its state.
    pub state: NodeState,
    /// Whether its failure does not fail the enclosing node.
    pub tolerated: bool,
    /// The current or last attempt, counted from 1.
    pub attempt: i32,
    /// The session of that attempt.
    pub session: Option<SessionId>,
    /// The send of that attempt.
    pub send: Option<SendId>,
    /// Values fixed when it was reached, and never recomputed: the items of a fan-out, the chosen
    /// case, the rendered input.
    pub frozen: Option<Value>,
    /// Its text; only of a leaf, a container's is computed.
    pub text: Option<String>,
    /// Its value; only of a leaf.
    pub payload: Option<Value>,
    /// Why it did not succeed; on an unsettled node, why it is being ended.
    pub error: Option<Failure>,
    /// The total usage of its attempts.
    pub usage: Usage,
    /// What its attempts used besides tokens: rounds, and reservations that were still held.
    #[serde(default, skip_serializing_if = "Spent::is_nothing")]
    pub kept: Spent,
    /// What is reserved for it while it is in flight.
    #[serde(deserialize_with = "set_aside")]
    pub reserved: Spent,
    /// When its wait, the delay before its next attempt, or its time limit ends.
    pub due_at: Option<Timestamp>,
    /// Whether an operator replaced its result.
    pub amended: bool,
    /// Messages from people while it was running, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steered: Vec<Steered>,
    /// The attempts before the current one.
    pub earlier: Vec<Attempt>,
    /// When it was reached.
    pub started_at: Timestamp,
    /// When it settled.
    pub settled_at: Option<Timestamp>,
    /// Fields that this release does not know.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

/// Reads a reservation; older rows have only the tokens.
fn set_aside<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Spent, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Tokens(u64),
        All(Spent),
    }
    Ok(match Stored::deserialize(deserializer)? {
        Stored::Tokens(tokens) => Spent {
            tokens,
            ..Spent::default()
        },
        Stored::All(spent) => spent,
    })
}

/// A message that a person sent to the session of a running leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Steered {
    /// The item in the session's inbox, which has its outcome.
    pub item_id: String,
    /// The message, truncated if it is long.
    pub text: String,
    /// When the run took note of it.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// An earlier attempt of a leaf.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Attempt {
    /// Its number, counted from 1.
    pub attempt: i32,
    /// Its session.
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    /// Its send.
    #[schema(value_type = Option<String>)]
    pub send_id: Option<SendId>,
    /// Why another followed.
    pub error: Option<Failure>,
}

/// An event for a run since its last advance.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// It is due: for the first time, after a crash, or because a time has come.
    Looked,
    /// A leaf's send is final.
    LeafEnded {
        /// The node.
        path: String,
        /// The attempt that ended.
        attempt: i32,
        /// How it ended.
        end: LeafEnd,
    },
    /// Someone asked something of it.
    Asked(RunAsk),
}

/// How a leaf's send ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LeafEnd {
    /// The send.
    pub send: SendId,
    /// Its final status.
    pub status: SendStatus,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// The answer's text.
    pub text: Option<String>,
    /// The answer's value, if there is an output schema.
    pub value: Option<Value>,
    /// What went wrong.
    pub error: Option<Failure>,
    /// Its usage, including its children's.
    pub usage: Usage,
    /// What it used besides tokens: rounds, and reservations of children that continue.
    pub kept: Spent,
    /// Whether its session's to-do list has open items. Looked up only if that decides whether it continues.
    pub todo_left: bool,
}

/// A request to a run; durable until an advance consumes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum RunAsk {
    /// Cancel the run.
    Cancel {
        /// The reason, for people.
        reason: Option<String>,
    },
    /// Start no leaf until the run is resumed.
    Pause {
        /// When it was asked.
        at: Timestamp,
    },
    /// Go on after a pause.
    Resume,
    /// Run everything again that failed, was cancelled or was never reached; keep what succeeded.
    Retry {
        /// A new token limit.
        max_tokens: Option<u64>,
    },
    /// Cancel one node and everything below it.
    CancelNode {
        /// The node.
        path: String,
    },
    /// Run one settled node again, and what depends on it.
    RetryNode {
        /// The node.
        path: String,
    },
    /// Replace a node's result; settled nodes that depend on it run again.
    AmendNode {
        /// The node.
        path: String,
        /// The text that replaces the node's.
        text: Option<String>,
        /// The value that replaces the node's.
        payload: Option<Value>,
    },
    /// Record a message to a node, which is already in the inbox of its session.
    Steered {
        /// The node.
        path: String,
        /// The inbox item.
        item_id: String,
        /// The message.
        text: String,
    },
}

impl RunRecord {
    /// The run as shown after these asks, although no advance has consumed them yet: a final run that
    /// is to run again is shown as queued, and pauses are shown.
    #[must_use]
    pub fn asked(mut self, asks: &[RunAsk]) -> Self {
        let mut asks = asks.iter();
        if self.status.is_final() {
            // What was asked before will be refused.
            if !asks.any(RunAsk::runs_again) {
                return self;
            }
            self = Self {
                status: RunStatus::Queued,
                result: None,
                error: None,
                finished_at: None,
                ..self
            };
            self.options.paused_at = None;
        }
        for ask in asks {
            self.options.pause(ask);
        }
        self
    }
}

impl RunAsk {
    /// Whether it makes a final run continue.
    pub fn runs_again(&self) -> bool {
        match self {
            Self::Retry { .. } | Self::RetryNode { .. } | Self::AmendNode { .. } => true,
            Self::Cancel { .. }
            | Self::Pause { .. }
            | Self::Resume
            | Self::CancelNode { .. }
            | Self::Steered { .. } => false,
        }
    }

    /// The ask to a run whose session is deleted.
    pub fn session_deleted() -> Self {
        Self::Cancel {
            reason: Some("its session was deleted".to_owned()),
        }
    }
}

/// An existing session in which a leaf continues.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumeIn {
    /// The session.
    pub session: SessionId,
    /// The input.
    pub input: Vec<ContentPart>,
    /// The maximum number of rounds of the send, if not its agent's.
    pub max_rounds: Option<u32>,
}

/// A leaf to start: one send, in the transaction of the advance.
#[derive(Debug, Clone, PartialEq)]
pub struct LeafStart {
    /// The node.
    pub path: String,
    /// The attempt, from 1.
    pub attempt: i32,
    /// The agent of its session.
    pub agent: AgentSpec,
    /// The input.
    pub input: Vec<ContentPart>,
    /// The send's options: schema, deadline, budget.
    pub options: SendOptions,
    /// The metadata of its session: that of the enclosing workflows, and its own.
    pub metadata: Map<String, Value>,
    /// Whether its session is independent of the run.
    pub detached: bool,
    /// Continue in this session instead of a new one, unless it is gone by then.
    pub resume_in: Option<ResumeIn>,
}

/// What an advance writes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Advance {
    /// Paths of nodes that are new or changed; the nodes themselves are in the run.
    pub changed: Vec<String>,
    /// Leaves to start. Their nodes are among the changed ones, still without session and send: the
    /// caller draws these ids and sets them.
    pub start: Vec<LeafStart>,
    /// Sends to cancel.
    pub cancel: Vec<SendId>,
    /// Sessions to delete: those of ephemeral leaves that succeeded.
    pub forget: Vec<SessionId>,
    /// Refused asks, by their index among the events, and why.
    pub refused: Vec<(usize, Failure)>,
}
