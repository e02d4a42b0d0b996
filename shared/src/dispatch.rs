//! Sends that go directly to the keeper of their session.
//!
//! The accept grants the session in its own transaction, and the bus brings the worker what it
//! needs to start: no job, no claim, no read. A message may be lost, duplicated or late. The grant
//! is in the database, and the lease fences all writes under it; a worker releases sessions that it
//! owns but does not run.

use serde::{Deserialize, Serialize};

use crate::agent::{AgentSpec, SendOptions};
use crate::budget::Held;
use crate::id::{BootId, LeaseToken, SendId, SessionKey};
use crate::lease::Lease;
use crate::message::ContentPart;
use crate::send::{SendRecord, SendStatus};
use crate::store::{AcceptSend, Accepted, GrantedSend, ReleaseLoss, ReleaseSession, StartedSend};
use crate::time::Timestamp;
use crate::usage::Usage;

/// Maximum size in bytes. Larger sends are enqueued and claimed as usual, since the bus is for
/// small messages.
pub const BYTES_MAX: usize = 64 * 1024;

/// A session that was granted to a worker with its send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dispatch {
    /// The send.
    pub send: SendId,
    /// The grant to its keeper.
    pub granted: GrantedSend,
    input: Vec<ContentPart>,
    options: SendOptions,
    position: i64,
    first_step: i64,
}

impl Dispatch {
    /// The message to the keeper of a send's session; `None` if it was not granted the session.
    pub fn of(item: AcceptSend, accepted: &mut Accepted) -> Option<(BootId, Self)> {
        let (boot, granted) = (item.keeper?, *accepted.granted.take()?);
        let dispatch = Self {
            send: item.id,
            granted,
            input: item.input,
            options: item.options,
            position: accepted.position?,
            first_step: accepted.step,
        };
        Some((boot, dispatch))
    }

    /// The session.
    pub fn key(&self) -> SessionKey {
        self.granted.ready.key
    }

    /// When it was accepted, granted and started, by the database's clock.
    pub fn at(&self) -> Timestamp {
        self.granted.ready.ready_since
    }

    /// The grant.
    pub fn lease(&self, boot: BootId) -> Lease {
        Lease {
            boot,
            token: LeaseToken(self.send.0),
            epoch: self.granted.epoch,
            write: 0,
        }
    }

    /// Releases the grant without having started.
    pub fn release(&self, boot: BootId) -> ReleaseSession {
        ReleaseSession {
            key: self.key(),
            lease: self.lease(boot),
            lost: ReleaseLoss::Nothing,
        }
    }

    /// The send as stored, with its session's agent.
    pub fn started(self, agent: AgentSpec) -> StartedSend {
        let (key, at) = (self.key(), self.at());
        let deadline_at = self.options.deadline.map(|span| at.after(span.0));
        let record = SendRecord {
            id: self.send,
            key,
            position: Some(self.position),
            status: SendStatus::Running,
            waiting_on: None,
            stop_reason: None,
            input: self.input,
            options: self.options,
            agent_version: Some(self.granted.agent_version),
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
            created_at: at,
            started_at: Some(at),
            finished_at: None,
        };
        StartedSend::new(record, agent, None)
    }
}

/// Whether a send may go directly to a worker: it needs nothing that only a claim provides.
pub fn is_direct(item: &AcceptSend) -> bool {
    let is_own = item.options.agent.is_none() && item.reports_to.is_none() && item.run.is_none();
    is_own && item.options.delay.is_none() && item.weight() <= BYTES_MAX
}
