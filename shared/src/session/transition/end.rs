//! Ending sends without a worker: cancels, alarms and deletion.

use std::time::Duration;

use super::{Change, Grant, min, wake};
use crate::error::{Code, Failure};
use crate::id::BootId;
use crate::send::{SendResult, SendStatus, StopReason};
use crate::session::hot::{HotRow, SendState};
use crate::session::{Lifecycle, SIGNAL_CANCEL};
use crate::step::{StepKind, StepRefs};
use crate::time::Timestamp;

/// Cancels an open send. If it is running and its worker lives, a signal is raised and the worker
/// is notified; otherwise the send ends here. `None` if it is already final.
///
/// When the change ends a send that had started, the caller must answer its open calls and, if
/// nothing of it is in the transcript yet, store its input: see [`Change::with_messages`].
pub fn cancel(
    hot: &HotRow,
    send: &SendState,
    head: Option<SendStatus>,
    lease_until: Option<Timestamp>,
    boot: BootId,
    now: Timestamp,
) -> Option<Change> {
    let mut send = *send;
    send.cancel_requested = true;
    match (send.status, lease_until) {
        (SendStatus::Queued, _) => Some(end_queued(
            hot,
            &send,
            head,
            SendResult::cancelled(),
            boot,
            now,
        )),
        (SendStatus::Running, Some(lease_until)) => {
            let mut hot = hot.clone();
            hot.signals |= SIGNAL_CANCEL;
            // If the worker dies before it acts on the signal, the alarm finds the send.
            send.alarm_at = min([send.alarm_at, Some(just_after(lease_until))]);
            let mut change = Change::of(hot).with_send(send);
            change.notify.owner = change.hot.owner;
            Some(change)
        }
        (SendStatus::Running | SendStatus::Waiting, _) => {
            Some(end_unowned(hot, &send, SendResult::cancelled(), boot, now))
        }
        (SendStatus::Completed | SendStatus::Failed | SendStatus::Cancelled, _) => None,
    }
}

/// Handles a send's due alarm: its delay, its retry wait or its deadline is over, or its worker
/// failed to act on a cancel in time. What [`cancel`] says about messages applies here too.
pub fn expire(
    hot: &HotRow,
    send: &SendState,
    head: Option<SendStatus>,
    lease_until: Option<Timestamp>,
    boot: BootId,
    now: Timestamp,
) -> Change {
    let too_late = send.deadline_at.is_some_and(|deadline| deadline <= now);
    match (send.status, lease_until) {
        (SendStatus::Queued, _) if too_late => {
            end_queued(hot, send, head, past_deadline(), boot, now)
        }
        (SendStatus::Queued, _) => place(hot, send, head, now),
        // Its worker will end it, unless the worker dies first.
        (SendStatus::Running, Some(lease_until)) => {
            let to_end = too_late || send.cancel_requested;
            let alarm_at = if to_end {
                Some(just_after(lease_until))
            } else {
                send.deadline_at
            };
            Change::of(hot.clone()).with_send(SendState { alarm_at, ..*send })
        }
        (SendStatus::Running | SendStatus::Waiting, _) if send.cancel_requested => {
            end_unowned(hot, send, SendResult::cancelled(), boot, now)
        }
        (SendStatus::Running | SendStatus::Waiting, _) if too_late => {
            end_unowned(hot, send, past_deadline(), boot, now)
        }
        (SendStatus::Running | SendStatus::Waiting, _) => wake(hot.clone(), send, now),
        (SendStatus::Completed | SendStatus::Failed | SendStatus::Cancelled, _) => {
            let alarm_at = None;
            Change::of(hot.clone()).with_send(SendState { alarm_at, ..*send })
        }
    }
}

/// Gives a delayed send its position.
fn place(hot: &HotRow, send: &SendState, head: Option<SendStatus>, now: Timestamp) -> Change {
    let mut hot = hot.clone();
    let position = Some(hot.take_position());
    let ready = hot.enqueue(head, send.priority, now);
    let send = SendState {
        position,
        alarm_at: send.deadline_at,
        ..*send
    };
    let mut change = Change::of(hot).with_send(send);
    change.notify.ready = ready;
    change
}

/// Ends a queued send, which needs no grant and leaves no messages. The session becomes idle if no
/// other send has a position.
pub fn end_queued(
    hot: &HotRow,
    send: &SendState,
    head: Option<SendStatus>,
    result: SendResult,
    boot: BootId,
    now: Timestamp,
) -> Change {
    let mut hot = hot.clone();
    hot.pending -= i64::from(send.position.is_some());
    let is_active = matches!(head, Some(SendStatus::Running | SendStatus::Waiting));
    if hot.pending == 0 && !is_active {
        hot.ready_since = None;
    }
    finish(hot, send, result, Grant::none(boot), now)
}

/// Ends a send that had started and that no worker is running, under a grant of its own, which
/// fences off a late worker.
fn end_unowned(
    hot: &HotRow,
    send: &SendState,
    result: SendResult,
    boot: BootId,
    now: Timestamp,
) -> Change {
    let mut hot = hot.clone();
    let grant = hot.grant(boot);
    hot.forget_signals();
    hot.give_back(now);
    finish(hot, send, result, grant, now).notify_ready()
}

/// Turns a session into a tombstone. The caller must then end each of its open sends with
/// [`finish`] under the returned grant, in the same transaction.
pub fn delete(hot: &HotRow, boot: BootId) -> (HotRow, Grant) {
    let mut hot = hot.clone();
    let grant = hot.grant(boot);
    hot.clear_lease();
    hot.lifecycle = Lifecycle::Deleted;
    hot.ready_since = None;
    hot.pending = 0;
    hot.signals = 0;
    (hot, grant)
}

/// Makes a send final and appends its step; the rest of the row is unchanged.
pub fn finish(
    hot: HotRow,
    send: &SendState,
    result: SendResult,
    grant: Grant,
    now: Timestamp,
) -> Change {
    let refs = StepRefs {
        reason: Some(result.stop_reason.as_str().to_owned()),
        status: Some(result.status.as_str().to_owned()),
        ..StepRefs::default()
    };
    let send = SendState {
        status: result.status,
        waiting_on: None,
        alarm_at: None,
        finished_at: Some(now),
        ..*send
    };
    let change = Change::of(hot).with_send(send);
    Change {
        end: Some(result),
        ..change.with_step(send.id, StepKind::Finished, grant, now, refs)
    }
}

/// The first instant at which a lease has expired.
fn just_after(lease_until: Timestamp) -> Timestamp {
    lease_until.after(Duration::from_millis(1))
}

fn past_deadline() -> SendResult {
    let message = "the deadline passed before the send ended";
    let failure = Failure::new(Code::SendDeadline, message);
    SendResult::failed(StopReason::Deadline, failure)
}
