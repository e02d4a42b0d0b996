//! A session: a durable conversation, the unit of ordering and of ownership.

pub mod fold;
pub mod hot;
pub mod preview;
pub mod projection;
pub mod render;
pub mod shown;
pub mod transition;
pub mod window;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::agent::{AgentRef, AgentSpec};
use crate::id::{SessionId, SessionKey};
use crate::store::Parent;
use crate::time::Timestamp;
use crate::tool::ToolFault;

/// Bytes of JSON that a session's metadata may have: labels to filter by, not documents.
const METADATA_BYTES_MAX: usize = 16 << 10;

/// The error text for metadata that is too large.
pub const METADATA_TOO_LONG: &str = "must have at most 16 KiB of JSON";

/// Whether this metadata is within the size limit.
pub fn has_room(metadata: &Map<String, Value>) -> bool {
    serde_json::to_vec(metadata).is_ok_and(|json| json.len() <= METADATA_BYTES_MAX)
}

/// The status of a session. Derived from its hot row and its sends, never stored.
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
pub enum SessionStatus {
    /// Nothing to do.
    Idle,
    /// Work is waiting for a worker.
    Queued,
    /// A worker holds it.
    Running,
    /// Its first send is waiting for something outside.
    Waiting,
    /// It takes no more sends.
    Closed,
}

impl SessionStatus {
    /// Every status.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::Queued,
        Self::Running,
        Self::Waiting,
        Self::Closed,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Closed => "closed",
        }
    }

    /// The status with this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// Whether a session takes sends; kept in its hot row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifecycle {
    /// It takes sends.
    Open,
    /// It was closed and can only be read.
    Closed,
    /// It was deleted: only the tombstone that keeps its epoch is left.
    Deleted,
}

impl Lifecycle {
    /// The number in the database.
    pub const fn as_i16(self) -> i16 {
        match self {
            Self::Open => 0,
            Self::Closed => 1,
            Self::Deleted => 2,
        }
    }

    /// The value with this number.
    pub const fn from_i16(number: i16) -> Option<Self> {
        match number {
            0 => Some(Self::Open),
            1 => Some(Self::Closed),
            2 => Some(Self::Deleted),
            _ => None,
        }
    }
}

/// Signal: the running send was asked to end.
pub const SIGNAL_CANCEL: i32 = 1;

/// Signal: the inbox has an item that the model has not been shown.
pub const SIGNAL_INBOX: i32 = 2;

/// Signal: an inbox item is to interrupt the work in flight.
pub const SIGNAL_INTERRUPT: i32 = 4;

/// Signal: a call of the active send was settled or approved from outside.
pub const SIGNAL_RESULT: i32 = 8;

/// A session as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRecord {
    /// Its identity and owner.
    pub key: SessionKey,
    /// Its status.
    pub status: SessionStatus,
    /// The current agent.
    pub agent: AgentSpec,
    /// Counts changes of the agent, from 1.
    pub agent_version: i32,
    /// The creator's data.
    pub metadata: Map<String, Value>,
    /// Messages in the transcript.
    pub messages: i64,
    /// The `seq` of the first message: 1, or higher once older ones were pruned.
    pub first_seq: i64,
    /// The session and call that created it, if it is a child.
    pub parent: Option<Parent>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its agent, metadata or lifecycle last changed.
    pub updated_at: Timestamp,
}

impl SessionRecord {
    /// The `seq` of the last message; `first_seq - 1` if there are no messages.
    pub fn last_seq(&self) -> i64 {
        self.first_seq + self.messages - 1
    }
}

/// A session as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SessionView {
    /// Its identity.
    #[schema(value_type = String)]
    pub id: SessionId,
    /// Where it stands.
    pub status: SessionStatus,
    /// The current agent.
    pub agent: AgentSpec,
    /// Counts changes of the agent, from 1.
    pub agent_version: i32,
    /// The published version of its agent; absent if the session defined its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_ref: Option<AgentRef>,
    /// The values of its agent's variables that were set.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object, required = false)]
    pub variables: Map<String, Value>,
    /// The creator's data.
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// Messages in the transcript.
    pub messages: i64,
    /// The `seq` of the first of them: 1, or higher once older ones were pruned.
    pub first_seq: i64,
    /// The session that created it as its child.
    #[schema(value_type = Option<String>)]
    pub parent_id: Option<SessionId>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When its agent, metadata or lifecycle last changed.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// Tools that its agent names and no live worker of its pool has; in responses that show one session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub warnings: Vec<ToolFault>,
}

impl From<SessionRecord> for SessionView {
    fn from(mut record: SessionRecord) -> Self {
        let bound = record.agent.bound.take().unwrap_or_default();
        Self {
            agent_ref: bound.agent,
            variables: bound.variables,
            id: record.key.session,
            status: record.status,
            agent: record.agent.shown(),
            agent_version: record.agent_version,
            metadata: record.metadata,
            messages: record.messages,
            first_seq: record.first_seq,
            parent_id: record.parent.map(|parent| parent.session),
            created_at: record.created_at,
            updated_at: record.updated_at,
            warnings: Vec::new(),
        }
    }
}
