//! Sends that go directly to the keeper of their session.
//!
//! The accept grants the session in its own transaction, and the bus brings the worker what it
//! needs to start: no job, no claim, no read. A message may be lost, duplicated or late. The grant
//! is in the database, and the lease fences all writes under it; a worker releases sessions that it
//! owns but does not run.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::agent::{AgentSpec, SendOptions};
use crate::budget::Held;
use crate::id::{BootId, LeaseToken, SendId, SessionKey};
use crate::lease::Lease;
use crate::message::ContentPart;
use crate::send::{SendRecord, SendStatus};
use crate::store::{AcceptSend, Accepted, GrantedSend, ReleaseLoss, ReleaseSession, StartedSend};
use crate::stored;
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

/// A message about a grant.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// One that can be started.
    Dispatch(Box<Dispatch>),
    /// One that another release wrote, in words that are not known here: what is left is to give
    /// the session back.
    Grant(Box<Grant>),
}

/// What every release says of a grant.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Grant {
    send: SendId,
    /// The grant to its keeper.
    pub granted: GrantedSend,
}

impl Grant {
    /// Releases the grant without having started.
    pub fn release(&self, boot: BootId) -> ReleaseSession {
        release(self.send, &self.granted, boot)
    }
}

/// Reads messages about grants, written by this release or another. One that cannot be read does
/// not take the others with it.
pub fn read(json: &[u8]) -> Result<Vec<Told>, serde_json::Error> {
    let messages: Vec<Box<RawValue>> = serde_json::from_slice(json)?;
    let mut told = Vec::with_capacity(messages.len());
    for message in messages {
        match stored::read(message.get()) {
            Ok(dispatch) => told.push(Told::Dispatch(Box::new(dispatch))),
            // Without even that, it is found as a stray.
            Err(_) => told.extend(stored::read(message.get()).ok().map(Told::Grant)),
        }
    }
    Ok(told)
}

fn lease(send: SendId, granted: &GrantedSend, boot: BootId) -> Lease {
    Lease {
        boot,
        token: LeaseToken(send.0),
        epoch: granted.epoch,
        write: 0,
    }
}

fn release(send: SendId, granted: &GrantedSend, boot: BootId) -> ReleaseSession {
    ReleaseSession {
        key: granted.ready.key,
        lease: lease(send, granted, boot),
        lost: ReleaseLoss::Nothing,
    }
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
        lease(self.send, &self.granted, boot)
    }

    /// Releases the grant without having started.
    pub fn release(&self, boot: BootId) -> ReleaseSession {
        release(self.send, &self.granted, boot)
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    fn message() -> Value {
        let dispatch = Dispatch {
            send: SendId(Uuid::from_u128(1)),
            granted: GrantedSend {
                ready: crate::store::ReadySession {
                    key: SessionKey {
                        tenant: crate::id::TenantId(7),
                        session: crate::id::SessionId(Uuid::from_u128(2)),
                    },
                    pool: "default".to_owned(),
                    priority: crate::agent::Priority::High,
                    ready_since: Timestamp(5),
                },
                epoch: 3,
                counters: crate::store::Counters {
                    next_seq: 1,
                    pending: 1,
                    signals: 0,
                    context_version: 0,
                },
                spent: None,
                agent_version: 1,
            },
            input: vec![ContentPart::text("hello")],
            options: SendOptions::default(),
            position: 1,
            first_step: 1,
        };
        serde_json::to_value(dispatch).expect("it is JSON")
    }

    /// A scheduler of a later release sends options that this one does not know, in one message with
    /// the sends of others.
    #[test]
    fn a_message_of_another_release_takes_no_other_with_it() {
        let mut newer = message();
        newer["options"]["later"] = json!(1);
        let mut strange = message();
        strange["input"] = json!([{"type": "hologram", "of": "a cat"}]);
        let json = json!([message(), newer, strange, {"what": "ever"}, message()]);
        let told = read(json.to_string().as_bytes()).expect("it is an array");
        let [
            Told::Dispatch(_),
            Told::Dispatch(newer),
            Told::Grant(grant),
            Told::Dispatch(last),
        ] = told.as_slice()
        else {
            panic!("{told:#?}");
        };
        assert_eq!(newer.key(), last.key());
        let boot = BootId(Uuid::from_u128(9));
        assert_eq!(grant.release(boot), last.release(boot));
    }
}
