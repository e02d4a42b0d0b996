//! Parameters of reads.

use super::{AuditOptions, AuditPiece, Audited, Error, ReadOnly, Result, SchemaFault, Violation};
use async_trait::async_trait;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{SendId, SessionKey, TenantId};
use crate::message::Message;
use crate::send::SendStatus;
use crate::session::SessionStatus;
use crate::session::fold::Fold;
use crate::step::Step;
use crate::time::Timestamp;
use crate::usage::{Purpose, Usage};

/// Reads of transcripts and steps, statistics, and audits.
#[async_trait]
pub trait Reads: Send + Sync {
    /// The database's clock.
    async fn now(&self) -> Result<Timestamp>;

    /// Fails unless the database responds and its schema is compatible with this program.
    async fn check(&self) -> Result<ServerInfo>;

    /// Differences between the database's schema and what its version should have; empty unless
    /// someone tampered with it. Reads the database's catalog, which may take a second.
    async fn schema_faults(&self) -> Result<Vec<SchemaFault>>;

    /// The numbers of sessions' last steps; 0 if unknown.
    async fn last_steps(&self, keys: Vec<SessionKey>) -> Result<Vec<i64>>;

    /// A page of a transcript by `seq`; empty if unknown or deleted.
    async fn read_messages(&self, query: ReadMessages) -> Result<Vec<Message>>;

    /// The folds of a session, including covered ones, by number; empty if unknown or deleted.
    async fn read_folds(&self, key: SessionKey) -> Result<Vec<Fold>>;

    /// Messages of a transcript, newest first; empty if unknown or deleted.
    async fn find_messages(&self, query: FindMessages) -> Result<Vec<Message>>;

    /// Steps of a session with numbers above `after`, in order, at most `limit`.
    async fn read_steps(&self, key: SessionKey, after: i64, limit: u32) -> Result<Vec<Step>>;

    /// Creates the index for [`find_steps`](Self::find_steps), in databases where it is not part of
    /// the schema, since every step would pay for it. May take a while the first time; a repeat
    /// does nothing. Fails with the statement to run if the schema must not be changed, or the
    /// database does not let this program do so.
    async fn index_steps(&self) -> Result<()>;

    /// Sessions with steps committed within a time range, of all tenants, by key. A step whose
    /// transaction is still in flight is not seen, and may later show a time before that of steps
    /// that are.
    async fn find_steps(&self, query: FindSteps) -> Result<Vec<FoundSteps>>;

    /// Counts of waiting and running work, per pool.
    async fn queue_stats(&self) -> Result<Vec<QueueStats>>;

    /// What an autoscaler of one pool needs.
    async fn scaling(&self, pool: &str) -> Result<ScalingStats>;

    /// Runs every invariant as a query; returns the violations.
    async fn audit(&self, options: AuditOptions) -> Result<Vec<Violation>>;

    /// Checks the next sessions, runs or timers against the invariants that apply to each alone
    /// ([`piecewise`](crate::invariants::piecewise)), on one snapshot of the database and by their
    /// own rows only, so that the cost does not grow with the rest of the database.
    async fn audit_piece(&self, piece: AuditPiece) -> Result<Audited>;
}

/// The methods of [`Reads`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! reads_methods {
    ($apply:ident) => {
        $apply! { Reads:
            read now() -> $crate::time::Timestamp;
            read check() -> $crate::store::ServerInfo;
            read schema_faults() -> Vec<$crate::store::SchemaFault>;
            read last_steps(keys: Vec<$crate::id::SessionKey>) -> Vec<i64>;
            read read_messages(query: $crate::store::ReadMessages) -> Vec<$crate::message::Message>;
            read read_folds(key: $crate::id::SessionKey) -> Vec<$crate::session::fold::Fold>;
            read find_messages(query: $crate::store::FindMessages) -> Vec<$crate::message::Message>;
            read read_steps(
                key: $crate::id::SessionKey,
                after: i64,
                limit: u32
            ) -> Vec<$crate::step::Step>;
            read index_steps() -> ();
            read find_steps(query: $crate::store::FindSteps) -> Vec<$crate::store::FoundSteps>;
            read queue_stats() -> Vec<$crate::store::QueueStats>;
            read scaling(pool: &str) -> $crate::store::ScalingStats;
            read audit(options: $crate::store::AuditOptions) -> Vec<$crate::store::Violation>;
            read audit_piece(piece: $crate::store::AuditPiece) -> $crate::store::Audited;
        }
    };
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// The items.
    pub data: Vec<T>,
    /// Whether more follow; the next query continues after the last item.
    pub more: bool,
}

/// A query for sessions, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct ListSessions {
    /// The owner.
    pub tenant: TenantId,
    /// Only those with this status.
    pub status: Option<SessionStatus>,
    /// Only sessions whose agent has this name.
    pub agent: Option<String>,
    /// Only those whose metadata has these members with these string values.
    pub metadata: BTreeMap<String, String>,
    /// Only those older than this one.
    pub before: Option<crate::id::SessionId>,
    /// At most this many.
    pub limit: u32,
}

/// A query for sends, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct ListSends {
    /// The owner.
    pub tenant: TenantId,
    /// Only those of this session.
    pub session: Option<crate::id::SessionId>,
    /// Only those with this status.
    pub status: Option<SendStatus>,
    /// Only those older than this one.
    pub before: Option<SendId>,
    /// At most this many.
    pub limit: u32,
}

/// A query for sessions by the commit times of their steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindSteps {
    /// Start of the time range, inclusive.
    pub from: Timestamp,
    /// End of the time range, exclusive.
    pub until: Timestamp,
    /// Only sessions after this one.
    pub after: Option<SessionKey>,
    /// Maximum number of sessions.
    pub limit: u32,
}

impl FindSteps {
    /// Where to start: before all sessions unless `after` is set.
    #[must_use]
    pub fn begin(&self) -> SessionKey {
        self.after.unwrap_or(SessionKey {
            tenant: TenantId(0),
            session: crate::id::SessionId(uuid::Uuid::nil()),
        })
    }
}

/// The steps of a session that were committed within a time range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundSteps {
    /// The session.
    pub key: SessionKey,
    /// The first step.
    pub first: i64,
    /// The last step. Steps between them may have times outside the range.
    pub last: i64,
}

/// A query for messages, by `seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadMessages {
    /// The session.
    pub key: SessionKey,
    /// Only those with a higher `seq`.
    pub after: i64,
    /// At most this many.
    pub limit: u32,
}

/// A query for messages, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindMessages {
    /// The session.
    pub key: SessionKey,
    /// Only those of this send.
    pub send: Option<SendId>,
    /// Only the result of this call.
    pub call: Option<String>,
    /// Only those with a higher `seq`.
    pub after: i64,
    /// Only those with a lower `seq`.
    pub before: i64,
    /// At most this many.
    pub limit: u32,
}

/// How much waits and runs in one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QueueStats {
    /// The pool.
    pub pool: String,
    /// Sessions with work and no live owner.
    pub ready: u64,
    /// Sessions that a worker holds.
    pub running: u64,
    /// Milliseconds that the oldest ready session has waited.
    pub oldest_ready_ms: u64,
}

/// What an autoscaler of one pool needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ScalingStats {
    /// Sessions with work and no live owner.
    pub ready: u64,
    /// Sessions that a worker holds.
    pub running: u64,
    /// Worker slots needed to serve everything concurrently: `ready + running`.
    pub demand: u64,
}

/// Information about a database server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its kind and version, for people.
    pub server: String,
    /// The schema's version.
    pub schema: i64,
    /// Its clock.
    pub now: Timestamp,
    /// Whether it accepts no writes, so that no work can be done.
    pub is_read_only: bool,
    /// How many connections it allows this program, if it says so and that is fewer than this
    /// process may open: `(allowed, needed)`.
    pub connections_short: Option<(u32, u32)>,
}

impl ServerInfo {
    /// Fails if the server accepts no writes.
    pub fn writable(self) -> Result<Self> {
        if self.is_read_only {
            return Err(Error::Unavailable {
                source: Box::new(ReadOnly),
            });
        }
        Ok(self)
    }
}

/// The usage of one model's calls for one purpose.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelUsage {
    /// The requested model.
    pub model: String,
    /// The purpose of the calls.
    pub purpose: Purpose,
    /// Number of responses, including incomplete ones.
    pub calls: u64,
    /// Their usage.
    pub usage: Usage,
}

/// The usage of a session and the sessions below it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionUsage {
    /// Number of sessions, including this one.
    pub sessions: u64,
    /// Usage of its own calls, by model and purpose.
    pub own: Vec<ModelUsage>,
    /// Usage of the sessions below it, by model and purpose.
    pub below: Vec<ModelUsage>,
}
