//! A run and its nodes as stored, and what passes between the engine and the store.
//!
//! The engine is pure: it is given a run with all its nodes and what happened since, and returns
//! what to write. Whoever holds the run's lease keeps both in memory between two advances; after a
//! crash the next owner reads the nodes and goes on in the same way.

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

/// The version of the language that new specs are read in. A run keeps the version that it was
/// accepted in: it is read by the rules of that one for as long as it lives, and who knows only
/// older versions leaves it alone.
///
/// | version | what it brought |
/// |---|---|
/// | 1 | the language |
/// | 2 | `lifecycle` of a leaf has an effect, and is refused where it could have none |
/// | 3 | a leaf may name a published agent |
pub const DSL_VERSION: i32 = 3;

/// The metadata of a leaf's session by which its run knows that the session is not the run's.
pub const DETACHED: &str = "run_detached";

/// The model of leaves that are a tool call and nothing else: their input is
/// `{"tool", "arguments"}`, their answer is what the call gave.
pub const DIRECT_MODEL: &str = "mainspring/direct";

named! {
    /// Where a run stands.
    RunStatus {
        /// Accepted; no scheduler has looked at it.
        Queued = "queued",
        /// Leaves run or may start.
        Running = "running",
        /// All that is left waits for a time or for someone.
        Waiting = "waiting",
        /// Final: every leaf that nobody tolerated succeeded.
        Completed = "completed",
        /// Final: a leaf failed, the budget or the time ran out.
        Failed = "failed",
        /// Final: someone ended it.
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
        /// It waits for nodes before it.
        Blocked = "blocked",
        /// It may start as soon as a gate or the budget lets it.
        Ready = "ready",
        /// Its send was accepted.
        Queued = "queued",
        /// A container with open children, or a leaf whose send a worker runs.
        Running = "running",
        /// It waits for a time, a person or something else outside.
        Waiting = "waiting",
        /// It succeeded.
        Completed = "completed",
        /// It did not.
        Failed = "failed",
        /// It was ended.
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
    /// The send of an agent that started it; none where a client or a timer did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub starter: Option<Box<Starter>>,
    /// The published agents that its spec names, in the versions that were meant when it was created.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(ignore)]
    pub agents: BTreeMap<AgentQuery, Pinned>,
    /// The skills that its leaves name, as they are written, in the versions that were meant when it was
    /// created.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(ignore)]
    pub skills: BTreeMap<String, AgentSkill>,
    /// The span that accepted it, as a W3C `traceparent`: what its advances are joined to in traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub traceparent: Option<String>,
    /// What this release does not know of it.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    #[schema(ignore)]
    pub extra: Extra,
}

impl RunOptions {
    /// The agent of a leaf with these tools, all that its run has when none are named: what its
    /// starter hands on, or what its creator allows.
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

    /// A published agent as a leaf has it: with no more than the run's starter hands on, or its creator
    /// allows.
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

/// A version of a published agent, as a run keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pinned {
    /// Which one.
    pub agent: AgentRef,
    /// What it is.
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

/// The send that started a run, as far as the run has of it what it needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Starter {
    /// The call that asked for the run.
    pub call_id: String,
    /// What the leaves inherit.
    pub delegation: Delegation,
    /// What it set aside for the run; without a limit where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// What the run had used when it first ended: all else went back then, so that a retry has
    /// nothing left of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
}

impl Starter {
    /// What it limits.
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
    /// Where it stands.
    pub status: RunStatus,
    /// The spec in its canonical form: a run needs nothing else to go on.
    pub spec: Value,
    /// The version of the language it is written in.
    pub dsl_version: i32,
    /// The value of `input`.
    pub input: Value,
    /// The options of its creator.
    pub options: RunOptions,
    /// The session it belongs to: its leaves' sessions are children of that one.
    pub session: Option<SessionId>,
    /// The call that its end settles, where that session's send waits for it.
    pub reports_to: Option<String>,
    /// Steps below the root that its leaves' sessions have.
    pub depth: i32,
    /// Counts retries, from 1.
    pub attempt: i32,
    /// The output of the root node.
    pub result: Option<Value>,
    /// Why it did not succeed.
    pub error: Option<Failure>,
    /// The sum over all attempts of its settled leaves.
    pub usage: Usage,
    /// The number of leaves, by state.
    pub counts: RunCounts,
    /// When someone has to look at it though nothing ends: a pause, a retry, its own limit.
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

/// Which leaf of which run a send is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunLeaf {
    /// The run.
    pub run: RunId,
    /// The node.
    pub path: String,
    /// The attempt, from 1.
    pub attempt: i32,
}

/// A node as stored. Nodes exist from when they are reached; an iteration is a node of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its place in the tree, unique in the run: `/0:plan`, `/1:research[2]/r`.
    pub path: String,
    /// Counts the run's nodes in the order in which they were reached, from 1.
    pub n: i64,
    /// What it does.
    pub kind: NodeKind,
    /// The spec's name for it.
    pub id: Option<String>,
    /// Where it stands.
    pub state: NodeState,
    /// Its failure does not fail the enclosing node.
    pub tolerated: bool,
    /// The current or last attempt, counted from 1.
    pub attempt: i32,
    /// The session of that attempt.
    pub session: Option<SessionId>,
    /// The send of that attempt.
    pub send: Option<SendId>,
    /// What was fixed when it was reached, and is never derived again: the items of a fan-out, the
    /// chosen case, the rendered input.
    pub frozen: Option<Value>,
    /// What it said; of a leaf only, a container's is computed.
    pub text: Option<String>,
    /// The value it returned; of a leaf only.
    pub payload: Option<Value>,
    /// Why it did not succeed; on a node that has not settled, why it is being ended.
    pub error: Option<Failure>,
    /// The sum over its attempts.
    pub usage: Usage,
    /// What its attempts used besides: model answers, and slices of theirs that were still out.
    #[serde(default, skip_serializing_if = "Spent::is_nothing")]
    pub kept: Spent,
    /// What is set aside for it while it is under way.
    #[serde(deserialize_with = "set_aside")]
    pub reserved: Spent,
    /// When a pause or the wait before its next attempt is over, or its time is up.
    pub due_at: Option<Timestamp>,
    /// Its result was replaced by an operator.
    pub amended: bool,
    /// Messages from people while it was running, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steered: Vec<Steered>,
    /// The attempts before this one.
    pub earlier: Vec<Attempt>,
    /// When it was reached.
    pub started_at: Timestamp,
    /// When it settled.
    pub settled_at: Option<Timestamp>,
    /// What this release does not know of it.
    #[serde(flatten, skip_serializing_if = "Extra::is_empty")]
    pub extra: Extra,
}

/// Older rows have the tokens alone.
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

/// What happened to a run since it was last advanced.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// It is looked at: the first time, after a crash, or because a time has come.
    Looked,
    /// A leaf's send is final.
    LeafEnded {
        /// The node.
        path: String,
        /// The attempt that ended.
        attempt: i32,
        /// How.
        end: LeafEnd,
    },
    /// Someone wants something.
    Asked(RunAsk),
}

/// How a leaf's send ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LeafEnd {
    /// The send.
    pub send: SendId,
    /// Its final status.
    pub status: SendStatus,
    /// Why.
    pub stop_reason: StopReason,
    /// The answer's text.
    pub text: Option<String>,
    /// The answer's value, where a schema was asked for.
    pub value: Option<Value>,
    /// What went wrong.
    pub error: Option<Failure>,
    /// What it cost, its children included.
    pub usage: Usage,
    /// What it used besides: model answers, and slices of children that go on.
    pub kept: Spent,
    /// Whether its session's list of things to do has open ones. Looked up only where that decides
    /// whether it goes on.
    pub todo_left: bool,
}

/// What someone wants of a run; durable until an advance consumes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum RunAsk {
    /// Ends it.
    Cancel {
        /// Why, for people.
        reason: Option<String>,
    },
    /// Runs again what failed, was cancelled or was never reached; keeps what succeeded.
    Retry {
        /// A new limit of tokens.
        max_tokens: Option<u64>,
    },
    /// Ends one node and what is below it.
    CancelNode {
        /// The node.
        path: String,
    },
    /// Runs one settled node again, and what depends on it.
    RetryNode {
        /// The node.
        path: String,
    },
    /// Gives a node's result by hand; what depends on it and is settled runs again.
    AmendNode {
        /// The node.
        path: String,
        /// The text that replaces the node's.
        text: Option<String>,
        /// The value that replaces the node's.
        payload: Option<Value>,
    },
    /// Notes what someone told a node: it was put into the inbox of its session before.
    Steered {
        /// The node.
        path: String,
        /// The inbox item.
        item_id: String,
        /// What was said.
        text: String,
    },
}

impl RunRecord {
    /// The run as someone sees it who asked this of it: one that ended and is to run again has no
    /// end any more, although no advance has taken note of it yet.
    #[must_use]
    pub fn asked(self, asks: &[RunAsk]) -> Self {
        if !self.status.is_final() || !asks.iter().any(RunAsk::runs_again) {
            return self;
        }
        Self {
            status: RunStatus::Queued,
            result: None,
            error: None,
            finished_at: None,
            ..self
        }
    }
}

impl RunAsk {
    /// Whether a run that has ended goes on with it.
    pub fn runs_again(&self) -> bool {
        match self {
            Self::Retry { .. } | Self::RetryNode { .. } | Self::AmendNode { .. } => true,
            Self::Cancel { .. } | Self::CancelNode { .. } | Self::Steered { .. } => false,
        }
    }

    /// What a run is asked whose session is deleted.
    pub fn session_deleted() -> Self {
        Self::Cancel {
            reason: Some("its session was deleted".to_owned()),
        }
    }
}

/// A session that a leaf goes on in.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumeIn {
    /// The session.
    pub session: SessionId,
    /// What it is told.
    pub input: Vec<ContentPart>,
    /// The rounds of the send, where they are not those of its agent.
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
    /// The user's words.
    pub input: Vec<ContentPart>,
    /// Its decisions: schema, deadline, budget.
    pub options: SendOptions,
    /// What the spec says of its session: that of the workflows around it, and its own.
    pub metadata: Map<String, Value>,
    /// Whether its session belongs to nobody else.
    pub detached: bool,
    /// Where it goes on instead of in a new session, unless that is gone by then.
    pub resume_in: Option<ResumeIn>,
}

/// What an advance writes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Advance {
    /// Paths of nodes that are new or changed; the nodes themselves are the run's.
    pub changed: Vec<String>,
    /// Leaves to start. Their nodes are among the changed ones, without session and send yet: who
    /// writes draws the ids and sets them.
    pub start: Vec<LeafStart>,
    /// Sends to end.
    pub cancel: Vec<SendId>,
    /// Sessions to delete, of leaves that succeeded and are not to leave any behind.
    pub forget: Vec<SessionId>,
    /// Asks that could not be met, by their place among the events, and why.
    pub refused: Vec<(usize, Failure)>,
}
