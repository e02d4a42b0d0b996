//! The rows that a session's transitions change: its hot row, and the scheduling columns of a send.

use crate::agent::Priority;
use crate::budget::Spent;
use crate::id::{BootId, LeaseToken, SendId, SessionKey};
use crate::lease::Lease;
use crate::send::{SendRecord, SendStatus, WaitingOn};
use crate::session::Lifecycle;
use crate::store::{Counters, ReadySession};
use crate::time::Timestamp;
use crate::usage::Usage;

/// A session's hot row: what every step of the session reads and writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotRow {
    /// The session.
    pub key: SessionKey,
    /// Whether it takes sends.
    pub lifecycle: Lifecycle,
    /// The boot that holds the lease.
    pub owner: Option<BootId>,
    /// The fencing token of the lease; set exactly while there is an owner.
    pub token: Option<LeaseToken>,
    /// The number of the last grant; never decreases.
    pub epoch: i64,
    /// Writes under the last grant.
    pub writes: i64,
    /// The `seq` of the next message.
    pub next_seq: i64,
    /// The position of the next send or inbox item.
    pub next_position: i64,
    /// The number of the next step.
    pub next_step: i64,
    /// Queued sends that have a position.
    pub pending: i64,
    /// Raised signals, a sum of the `SIGNAL_` constants.
    pub signals: i32,
    /// Counts changes of the context other than appended messages.
    pub context_version: i64,
    /// What the session has spent; kept only if its agent has a budget.
    pub spent: Option<Spent>,
    /// Since when it has had runnable work; stays set while a worker runs it.
    pub ready_since: Option<Timestamp>,
    /// The worker pool that may claim it.
    pub pool: String,
    /// The priority of the send that made it ready.
    pub priority: Priority,
}

impl HotRow {
    /// Adds a model call's cost to `spent`, if the session's agent has a budget.
    pub fn pay(&mut self, usage: &Usage) {
        if let Some(spent) = &mut self.spent {
            *spent = spent.plus(Spent::of(usage, 0));
        }
    }

    /// The row of a new, idle session.
    pub fn new(key: SessionKey, pool: &str) -> Self {
        Self {
            key,
            lifecycle: Lifecycle::Open,
            owner: None,
            token: None,
            epoch: 0,
            writes: 0,
            next_seq: 1,
            next_position: 1,
            next_step: 1,
            pending: 0,
            signals: 0,
            context_version: 0,
            spent: None,
            ready_since: None,
            pool: pool.to_owned(),
            priority: Priority::High,
        }
    }

    /// Whether this lease is the current one.
    pub fn is_held_by(&self, lease: Lease) -> bool {
        self.token == Some(lease.token) && self.owner == Some(lease.boot)
    }

    /// The fence: whether this lease is the current one and the write is its next one.
    pub fn passes_fence(&self, lease: Lease) -> bool {
        self.is_held_by(lease) && self.writes == lease.write
    }

    /// The numbers that every write under a lease returns.
    pub fn counters(&self) -> Counters {
        Counters {
            next_seq: self.next_seq,
            pending: self.pending,
            signals: self.signals,
            context_version: self.context_version,
        }
    }

    /// The notification that enqueues the session; `None` unless it is ready.
    pub fn ready(&self) -> Option<ReadySession> {
        self.ready_since.map(|ready_since| ReadySession {
            key: self.key,
            pool: self.pool.clone(),
            priority: self.priority,
            ready_since,
        })
    }
}

/// The columns of a send that a session's transitions read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendState {
    /// The send.
    pub id: SendId,
    /// Its status.
    pub status: SendStatus,
    /// What it waits for; set exactly while it is `waiting`.
    pub waiting_on: Option<WaitingOn>,
    /// Its position in the session; `None` for a delayed send until it is due.
    pub position: Option<i64>,
    /// The priority of the queue lane that its session is enqueued in. Never changes.
    pub priority: Priority,
    /// Its deadline.
    pub deadline_at: Option<Timestamp>,
    /// When the alarm sweep must check it.
    pub alarm_at: Option<Timestamp>,
    /// Number of durable rounds.
    pub rounds: i32,
    /// Model calls started in the current round, as of the last durable step.
    pub attempts: i32,
    /// Worker deaths during this send since its last durable progress.
    pub crashes: i32,
    /// Whether a cancel was requested.
    pub cancel_requested: bool,
    /// When a worker first started it.
    pub started_at: Option<Timestamp>,
    /// When it became final.
    pub finished_at: Option<Timestamp>,
}

impl SendState {
    /// Reads the state from a stored send.
    pub fn of(record: &SendRecord) -> Self {
        Self {
            id: record.id,
            status: record.status,
            waiting_on: record.waiting_on,
            position: record.position,
            priority: record.options.priority,
            deadline_at: record.deadline_at,
            alarm_at: record.alarm_at,
            rounds: record.rounds,
            attempts: record.attempts,
            crashes: record.crashes,
            cancel_requested: record.cancel_requested,
            started_at: record.started_at,
            finished_at: record.finished_at,
        }
    }

    /// Writes the state into the record of the same send.
    pub fn store_in(self, record: &mut SendRecord) {
        record.status = self.status;
        record.waiting_on = self.waiting_on;
        record.position = self.position;
        record.deadline_at = self.deadline_at;
        record.alarm_at = self.alarm_at;
        record.rounds = self.rounds;
        record.attempts = self.attempts;
        record.crashes = self.crashes;
        record.cancel_requested = self.cancel_requested;
        record.started_at = self.started_at;
        record.finished_at = self.finished_at;
    }

    /// Whether it is running or waiting.
    pub fn is_active(&self) -> bool {
        matches!(self.status, SendStatus::Running | SendStatus::Waiting)
    }
}
