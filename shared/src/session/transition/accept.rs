//! Accepting a send.

use super::{Change, Grant, min};
use crate::agent::{OnBusy, SendOptions};
use crate::id::{BootId, SendId};
use crate::send::SendStatus;
use crate::session::Lifecycle;
use crate::session::hot::{HotRow, SendState};
use crate::step::{StepKind, StepRefs};
use crate::store::RefuseReason;
use crate::time::Timestamp;

/// A send to accept.
#[derive(Debug, Clone, Copy)]
pub struct Offer<'o> {
    /// Its id.
    pub id: SendId,
    /// The sender's options.
    pub options: &'o SendOptions,
    /// The accepting process.
    pub boot: BootId,
}

/// Why an existing session refuses a send, if it does. `busy` is whether any of its sends is open,
/// delayed ones included.
pub fn refuse_accept(
    hot: &HotRow,
    busy: bool,
    on_busy: OnBusy,
    queued_max: i64,
) -> Option<RefuseReason> {
    match hot.lifecycle {
        Lifecycle::Deleted => Some(RefuseReason::SessionNotFound),
        Lifecycle::Closed => Some(RefuseReason::SessionClosed),
        Lifecycle::Open if on_busy == OnBusy::Reject && busy => Some(RefuseReason::Busy),
        Lifecycle::Open => (hot.pending >= queued_max).then_some(RefuseReason::QueueFull),
    }
}

/// Accepts a send. A delayed one gets its position only when it is due.
pub fn accept(hot: &HotRow, head: Option<SendStatus>, offer: Offer<'_>, now: Timestamp) -> Change {
    let mut hot = hot.clone();
    let options = offer.options;
    let deadline_at = options.deadline.map(|span| now.after(span.0));
    let due = options.delay.map(|span| now.after(span.0));
    let mut position = None;
    let mut ready = None;
    if due.is_none() {
        position = Some(hot.take_position());
        ready = hot.enqueue(head, options.priority, now);
    }
    let send = SendState {
        id: offer.id,
        status: SendStatus::Queued,
        waiting_on: None,
        position,
        priority: options.priority,
        deadline_at,
        alarm_at: min([due, deadline_at]),
        rounds: 0,
        attempts: 0,
        crashes: 0,
        cancel_requested: false,
        started_at: None,
        finished_at: None,
    };
    let grant = Grant::none(offer.boot);
    let kind = StepKind::Accepted;
    let mut change =
        Change::of(hot)
            .with_send(send)
            .with_step(offer.id, kind, grant, now, StepRefs::default());
    change.notify.ready = ready;
    change
}
