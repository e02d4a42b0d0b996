//! The session machine: what each event does to a session's hot row and to one of its sends.
//!
//! Every function here is pure. It takes the hot row, the facts that it needs besides, and the event;
//! it returns a [`Change`]: the new row, the send as it is afterwards, the step to append to the event
//! log, and who is to be notified once the change is committed. Whoever stores a change stores all of
//! it in one transaction, under a lock of the hot row.
//!
//! Facts that recur:
//!
//! - The *head* is the open send with the lowest position: the active one if a send runs or waits,
//!   otherwise the next queued one. A delayed send has no position and is never the head.
//! - `lease_until` is the end of the lease of the session's owner; none where the session has no
//!   owner, or where the owner was declared dead.
//!
//! Two rules decide whether a session is found by workers. `ready_since` is set while the head is
//! queued or running, with or without an owner, and cleared while it waits. A session that is ready
//! and has no live owner may be claimed.

mod accept;
mod claim;
mod end;
mod lease;
mod outside;

pub use accept::{Offer, accept, refuse_accept};
pub use claim::{
    Claim, ClaimFacts, ClaimRefusal, Claimer, Eager, Granted, claim, grant_accepted, refuse_claim,
};
pub use end::{cancel, delete, end_queued, expire, finish};
pub use lease::{
    Complete, Completion, Park, Parking, abandon, append, complete, is_repeat, park, release,
    start_next,
};
pub use outside::{
    AtRest, Delivery, DeliveryFacts, NotFolded, Post, Stored, answer, deliver, fold_at_rest,
    item_signals, post, report, resume,
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

/// What an event does.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The hot row afterwards.
    pub hot: HotRow,
    /// The send that changes, as it is afterwards.
    pub send: Option<SendState>,
    /// How that send ends; set exactly when it becomes final here.
    pub end: Option<SendResult>,
    /// The step to append.
    pub step: Option<Step>,
    /// Whom to notify after the commit.
    pub notify: Notify,
}

/// Who has to hear of a change. A notification may be lost: the sweep and the next renewal find what
/// it would have told.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notify {
    /// The workers of this session's pool: it became ready.
    pub ready: Option<ReadySession>,
    /// The boot that runs the active send: a signal was raised.
    pub owner: Option<BootId>,
}

/// Who writes, and under which grant.
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
    /// A change of nothing but the hot row.
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

    /// Numbers the messages that are stored together with the step: they follow the transcript, from
    /// the `next_seq` that the row had before.
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

    /// The number of the step that was appended; 0 without one, which no step has.
    pub fn step_n(&self) -> i64 {
        self.step.as_ref().map_or(0, |step| step.n)
    }

    fn notify_ready(mut self) -> Self {
        self.notify.ready = self.hot.ready();
        self
    }
}

// Moves that several events share -----------------------------------------------------------------

impl HotRow {
    /// Draws the next position, for a send or an inbox item.
    fn take_position(&mut self) -> i64 {
        let position = self.next_position;
        self.next_position += 1;
        position
    }

    /// Counts a queued send that just got its position. Returns the session if that made it ready:
    /// after a send that waits nothing can run yet.
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

    /// Gives the lease back after a final send: ready from now on if sends are queued, otherwise at
    /// rest.
    fn give_back(&mut self, now: Timestamp) {
        self.clear_lease();
        self.ready_since = (self.pending > 0).then_some(now);
    }

    /// A grant that begins and ends in this transaction.
    fn grant(&mut self, boot: BootId) -> Grant {
        self.epoch += 1;
        Grant {
            epoch: self.epoch,
            boot,
        }
    }

    /// Clears the signals that were meant for a send that ends; the inbox outlives it.
    fn forget_signals(&mut self) {
        self.signals &= SIGNAL_INBOX;
    }

    fn spend(&mut self, totals: &SendTotals) {
        self.spent = totals.session.or(self.spent);
    }
}

impl SendState {
    /// Lets a waiting send run again as soon as a worker claims its session: its next alarm is its
    /// deadline.
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

/// Makes a session ready from now on whose head waited or lost its worker.
fn wake(mut hot: HotRow, send: &SendState, now: Timestamp) -> Change {
    hot.ready_since = Some(now);
    Change::of(hot).with_send(send.woken()).notify_ready()
}

/// Starts the head, which is queued.
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
