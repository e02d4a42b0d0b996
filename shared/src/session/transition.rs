//! The session machine: what each event does to a session's hot row and to one of its sends.
//!
//! Every function here is pure. It takes the hot row, any other facts that it needs, and the event;
//! it returns a [`Change`]: the new row, the send as it is afterwards, the step to append to the
//! event log, and who is to be notified after the commit. A store must write all of a change in one
//! transaction, under a lock on the hot row.
//!
//! Facts that recur:
//!
//! - The *head* is the open send with the lowest position: the active one if a send runs or waits,
//!   otherwise the next queued one. A delayed send has no position and is never the head.
//! - `lease_until` is when the lease of the session's owner expires; `None` if the session has no
//!   owner or the owner was declared dead.
//!
//! Two rules decide whether workers find a session. `ready_since` is set while the head is queued
//! or running, with or without an owner, and cleared while the head is waiting. A session that is
//! ready and has no live owner may be claimed.

mod accept;
mod claim;
mod end;
mod lease;
mod outside;

pub use accept::{Offer, accept, refuse_accept};
pub use claim::{
    Claim, ClaimFacts, ClaimRefusal, Claimer, Granted, GrantedAccept, claim, grant_accepted,
    refuse_claim,
};
pub use end::{cancel, delete, end_queued, expire, finish};
pub use lease::{
    Complete, Completion, Park, Parking, abandon, append, complete, is_repeat, park, release,
    start_next,
};
pub use outside::{
    AtRest, Delivery, DeliveryFacts, NotFolded, Post, Stored, answer, deliver, fold_at_rest,
    item_signals, post, report, resume, settle, take,
};

use super::SIGNAL_INBOX;
use super::hot::{HotRow, SendState};
use crate::agent::Priority;
use crate::id::{BootId, SendId};
use crate::lease::Lease;
use crate::send::{SendResult, SendStatus};
use crate::step::{Step, StepKind, StepRefs};
use crate::store::{ReadySession, SendTotals};
use crate::time::Timestamp;

/// The effect of an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The hot row afterwards.
    pub hot: HotRow,
    /// The send that changes, as it is afterwards.
    pub send: Option<SendState>,
    /// The send's result; set exactly when this change makes it final.
    pub end: Option<SendResult>,
    /// The step to append.
    pub step: Option<Step>,
    /// Whom to notify after the commit.
    pub notify: Notify,
}

/// Whom to notify of a change. A notification may be lost: the sweep and the next lease renewal
/// find the same thing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notify {
    /// The workers of this session's pool: it became ready.
    pub ready: Option<ReadySession>,
    /// The boot that runs the active send: a signal was raised.
    pub owner: Option<BootId>,
}

/// The writing process and the grant under which it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The number of the grant; 0 where none is needed.
    pub epoch: i64,
    /// The process.
    pub boot: BootId,
}

impl Grant {
    /// Writes that need no grant.
    pub fn none(boot: BootId) -> Self {
        Self { epoch: 0, boot }
    }
}

impl From<Lease> for Grant {
    fn from(lease: Lease) -> Self {
        Self {
            epoch: lease.epoch,
            boot: lease.boot,
        }
    }
}

impl Change {
    /// A change of only the hot row.
    fn of(hot: HotRow) -> Self {
        Self {
            hot,
            send: None,
            end: None,
            step: None,
            notify: Notify::default(),
        }
    }

    fn with_send(self, send: SendState) -> Self {
        Self {
            send: Some(send),
            ..self
        }
    }

    /// Appends a step about `send`.
    fn with_step(
        mut self,
        send: SendId,
        kind: StepKind,
        grant: Grant,
        now: Timestamp,
        refs: StepRefs,
    ) -> Self {
        self.step = Some(Step {
            n: self.hot.next_step,
            send_id: send,
            kind,
            epoch: grant.epoch,
            boot: grant.boot,
            at: now,
            refs,
        });
        self.hot.next_step += 1;
        self
    }

    /// Assigns numbers to the `count` messages stored with the step. They are appended to the
    /// transcript, from the row's previous `next_seq` on.
    #[must_use]
    pub fn with_messages(mut self, count: u32) -> Self {
        if let Some(step) = &mut self.step
            && count > 0
        {
            step.refs.first_seq = Some(self.hot.next_seq);
            step.refs.messages = count;
        }
        self.hot.next_seq += i64::from(count);
        self
    }

    /// The number of the appended step; 0, which no step has, if there is none.
    pub fn step_n(&self) -> i64 {
        self.step.as_ref().map_or(0, |step| step.n)
    }

    fn notify_ready(mut self) -> Self {
        self.notify.ready = self.hot.ready();
        self
    }
}

// Building blocks shared by several events --------------------------------------------------------

impl HotRow {
    /// Takes the next position, for a send or an inbox item.
    fn take_position(&mut self) -> i64 {
        let position = self.next_position;
        self.next_position += 1;
        position
    }

    /// Counts a queued send that just got its position. Returns the session if that made it ready:
    /// nothing can run behind a waiting send.
    fn enqueue(
        &mut self,
        head: Option<SendStatus>,
        priority: Priority,
        now: Timestamp,
    ) -> Option<ReadySession> {
        self.pending += 1;
        if head == Some(SendStatus::Waiting) || self.ready_since.is_some() {
            return None;
        }
        self.priority = priority;
        self.ready_since = Some(now);
        self.ready()
    }

    fn clear_lease(&mut self) {
        self.owner = None;
        self.token = None;
    }

    /// Releases the lease after a final send. The session is ready if sends are queued, otherwise idle.
    fn give_back(&mut self, now: Timestamp) {
        self.clear_lease();
        self.ready_since = (self.pending > 0).then_some(now);
    }

    /// Issues a grant that is used only in this transaction.
    fn grant(&mut self, boot: BootId) -> Grant {
        self.epoch += 1;
        Grant {
            epoch: self.epoch,
            boot,
        }
    }

    /// Clears the signals of a send that ends; the inbox outlives it.
    fn forget_signals(&mut self) {
        self.signals &= SIGNAL_INBOX;
    }

    fn spend(&mut self, totals: &SendTotals) {
        self.spent = totals.session.or(self.spent);
    }
}

impl SendState {
    /// Makes a waiting send runnable again once a worker claims its session; its deadline becomes
    /// its next alarm.
    fn woken(mut self) -> Self {
        self.alarm_at = self.deadline_at;
        self
    }

    fn with_totals(mut self, totals: &SendTotals) -> Self {
        self.rounds = totals.rounds;
        self.attempts = totals.attempts;
        self
    }
}

/// Makes a session ready whose head was waiting or lost its worker.
fn wake(mut hot: HotRow, send: &SendState, now: Timestamp) -> Change {
    hot.ready_since = Some(now);
    Change::of(hot).with_send(send.woken()).notify_ready()
}

/// Starts the queued head.
fn start(hot: &mut HotRow, send: &SendState, now: Timestamp) -> SendState {
    hot.pending -= 1;
    SendState {
        status: SendStatus::Running,
        started_at: send.started_at.or(Some(now)),
        alarm_at: send.deadline_at,
        ..*send
    }
}

fn min(times: [Option<Timestamp>; 2]) -> Option<Timestamp> {
    times.into_iter().flatten().min()
}

#[cfg(test)]
mod tests;
