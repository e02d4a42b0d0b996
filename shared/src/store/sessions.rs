//! Parameters of creating, copying, changing and deleting sessions.

use serde_json::{Map, Value};

use super::calls::Parent;
use super::sends::IdempotencyKey;
use crate::agent::AgentSpec;
use crate::id::{BootId, SendId, SessionId, SessionKey};
use crate::message::Message;
use crate::session::SessionRecord;

/// A session to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    /// Its id, made by the caller, and its owner.
    pub key: SessionKey,
    /// Its agent, which becomes version 1.
    pub agent: AgentSpec,
    /// The creator's data.
    pub metadata: Map<String, Value>,
    /// Whose child it is.
    pub parent: Option<Parent>,
}

/// A session to create with a transcript that was written elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportSession {
    /// The session.
    pub session: NewSession,
    /// The transcript in its order. It is stored as [`copies`](crate::message::copies) makes it.
    pub messages: Vec<Message>,
    /// What makes a repeat harmless.
    pub idempotency: Option<IdempotencyKey>,
}

/// What became of a session to create.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateOutcome {
    /// It exists now.
    Created(Box<SessionRecord>),
    /// The key was used for the same request: this session was created then.
    Replayed(SessionId),
    /// The key was used for another request.
    Mismatch,
}

/// Changes of a session; `None` leaves as is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionPatch {
    /// Replaces the agent with a new version.
    pub agent: Option<AgentSpec>,
    /// Replaces the metadata.
    pub metadata: Option<Map<String, Value>>,
    /// Closes or reopens the session.
    pub closed: Option<bool>,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum UpdateOutcome {
    /// The session as it is now.
    Updated(Box<SessionRecord>),
    /// No such session.
    NotFound,
}

/// What became of a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// It is gone.
    Deleted {
        /// The sends that ended with it.
        cancelled: Vec<SendId>,
        /// The boot that ran it and should hear of it.
        owner: Option<BootId>,
        /// The number of its last step.
        last_step: i64,
    },
    /// No such session.
    NotFound,
}
