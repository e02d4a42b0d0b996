//! Sends that go straight to the worker that keeps their session.
//!
//! The accept grants the session in its own transaction, and the bus brings the worker what it needs to begin: no
//! job, no claim, no read. A message may be lost, come twice or come late. The grant is in the database, and the
//! lease fences whoever writes under it; a worker gives back what it owns and does not run.

use serde::{Deserialize, Serialize};

use crate::agent::{AgentSpec, SendOptions};
use crate::budget::{Held, Spent};
use crate::id::{BootId, LeaseToken, SendId, SessionKey};
use crate::lease::Lease;
use crate::message::ContentPart;
use crate::send::{SendRecord, SendStatus};
use crate::store::{AcceptSend, Accepted, Counters, ReadySession, ReleaseSession, StartedSend};
use crate::time::Timestamp;
use crate::usage::Usage;

/// Sends of more bytes are claimed by whoever comes: the bus is for small messages.
pub const BYTES_MAX: usize = 64 * 1024;

/// A session that was granted to a worker with its send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dispatch {
    /// The session.
    pub key: SessionKey,
    /// The send.
    pub send: SendId,
    /// When it was accepted, granted and started, by the database's clock.
    pub at: Timestamp,
    input: Vec<ContentPart>,
    options: SendOptions,
    position: i64,
    first_step: i64,
    epoch: i64,
    next_seq: i64,
    pending: i64,
    signals: i32,
    context_version: i64,
    agent_version: i32,
    spent: Option<Spent>,
}

impl Dispatch {
    /// What the keeper of a send's session is to be told; none where it was not granted the session.
    pub fn of(item: &AcceptSend, accepted: &Accepted) -> Option<(BootId, Self)> {
        let (boot, granted) = (item.keeper?, accepted.granted.as_ref()?);
        let dispatch = Self {
            key: item.target.key(),
            send: item.id,
            at: accepted.created_at,
            input: item.input.clone(),
            options: item.options.clone(),
            position: accepted.position?,
            first_step: accepted.step,
            epoch: granted.epoch,
            next_seq: granted.counters.next_seq,
            pending: granted.counters.pending,
            signals: granted.counters.signals,
            context_version: granted.counters.context_version,
            agent_version: granted.agent_version,
            spent: granted.spent,
        };
        Some((boot, dispatch))
    }

    /// The grant.
    pub fn lease(&self, boot: BootId) -> Lease {
        Lease {
            boot,
            token: LeaseToken(self.send.0),
            epoch: self.epoch,
            write: 0,
        }
    }

    /// How the grant is given back by somebody who did not begin.
    pub fn release(&self, boot: BootId) -> ReleaseSession {
        ReleaseSession {
            key: self.key,
            lease: self.lease(boot),
            lost: false,
        }
    }

    /// Its session, which is of this pool, to be enqueued once the grant was given back.
    pub fn ready(&self, pool: &str) -> ReadySession {
        ReadySession {
            key: self.key,
            pool: pool.to_owned(),
            priority: self.options.priority,
            ready_since: self.at,
        }
    }

    /// The hot row's numbers.
    pub fn counters(&self) -> Counters {
        Counters {
            next_seq: self.next_seq,
            pending: self.pending,
            signals: self.signals,
            context_version: self.context_version,
        }
    }

    /// The version of the session's agent that the send is pinned to.
    pub fn agent_version(&self) -> i32 {
        self.agent_version
    }

    /// What the session has spent.
    pub fn spent(&self) -> Spent {
        self.spent.unwrap_or_default()
    }

    /// The send as it is stored, with its session's agent.
    pub fn started(self, agent: AgentSpec) -> StartedSend {
        let deadline_at = self.options.deadline.map(|span| self.at.after(span.0));
        let record = SendRecord {
            id: self.send,
            key: self.key,
            position: Some(self.position),
            status: SendStatus::Running,
            waiting_on: None,
            stop_reason: None,
            input: self.input,
            options: self.options,
            agent_version: Some(self.agent_version),
            output_text: None,
            output: None,
            error: None,
            usage: Usage::default(),
            held: Held::default(),
            rounds: 0,
            attempts: 0,
            counted: 0,
            not_failed: 0,
            shown: None,
            crashes: 0,
            cancel_requested: false,
            reports_to: None,
            run: None,
            deadline_at,
            alarm_at: deadline_at,
            first_step: self.first_step,
            created_at: self.at,
            started_at: Some(self.at),
            finished_at: None,
        };
        StartedSend::new(record, agent, None)
    }
}

/// Whether a send may go straight to a worker: it needs nothing that only a claim knows of.
pub fn is_direct(item: &AcceptSend) -> bool {
    let is_own = item.options.agent.is_none() && item.reports_to.is_none() && item.run.is_none();
    is_own && item.options.delay.is_none() && item.weight() <= BYTES_MAX
}
