//! Writes under a lease. Each must first pass the fence: the token, the owner and the write number
//! must match the row's, or nothing is written.

use super::{Change, finish, min, start};
use crate::lease::Lease;
use crate::send::{SendResult, SendStatus, WaitingOn};
use crate::session::SIGNAL_CANCEL;
use crate::session::hot::{HotRow, SendState};
use crate::step::{RoundRef, StepKind, StepRefs};
use crate::store::{AfterSend, ParkUntil, ReleaseLoss, SendTotals};
use crate::time::Timestamp;

/// How a worker ends its send.
#[derive(Debug, Clone)]
pub struct Completion<'c> {
    /// How it ends, unless a cancel was raised.
    pub result: SendResult,
    /// The last round, if a model answered.
    pub round: Option<RoundRef>,
    /// The send's totals.
    pub totals: &'c SendTotals,
    /// Signals that prevent the end if raised.
    pub unless: i32,
    /// What happens to the session next.
    pub then: AfterSend,
}

/// The effect of a worker's request to end its send.
#[derive(Debug, Clone, PartialEq)]
pub enum Complete {
    /// The fence refused it.
    LeaseLost,
    /// A signal prevented the end; all signals are cleared, the lease is kept.
    Undelivered(Change),
    /// The send is final and the lease is released.
    Ended(Change),
    /// The send is final and the lease is kept: [`start_next`] follows in the same transaction.
    Continues(Change),
}

/// How a worker parks its send.
#[derive(Debug, Clone, Copy)]
pub struct Parking<'p> {
    /// What it waits for.
    pub on: WaitingOn,
    /// When it continues by itself.
    pub until: ParkUntil,
    /// Signals that make the wait unnecessary.
    pub unless: i32,
    /// The send's totals.
    pub totals: &'p SendTotals,
}

/// The effect of parking a send.
#[derive(Debug, Clone, PartialEq)]
pub enum Park {
    /// The fence refused it.
    LeaseLost,
    /// A signal made the wait unnecessary; all signals are cleared, the lease is kept.
    Woken(Change),
    /// A cancel had been raised: the send is final, the lease is released.
    Cancelled(Change),
    /// The send is waiting, the lease is released.
    Parked(Change),
}

/// Appends a round, appends outcomes of its calls, or attaches a fold, depending on `refs`. `None`
/// if the fence refuses it.
///
/// In the returned row every signal except a cancel is cleared; the caller gets the signals as they
/// were before.
pub fn append(
    hot: &HotRow,
    send: &SendState,
    lease: Lease,
    refs: StepRefs,
    totals: &SendTotals,
    now: Timestamp,
) -> Option<Change> {
    let mut hot = write(hot, send, lease)?;
    hot.spend(totals);
    hot.signals &= SIGNAL_CANCEL;
    // Merely starting more model calls is not progress.
    let begun = send.rounds == totals.rounds && send.attempts < totals.attempts;
    let mut send = send.with_totals(totals);
    if !begun {
        send.crashes = 0;
    }
    let kind = if refs.fold.is_some() {
        hot.context_version += 1;
        StepKind::Folded
    } else if refs.round.is_some() {
        StepKind::Round
    } else {
        StepKind::Calls
    };
    let change = Change::of(hot).with_send(send);
    Some(change.with_step(send.id, kind, lease.into(), now, refs))
}

/// Whether a write that the fence refused is a repeat of the last write under its lease, whose
/// response was lost.
pub fn is_repeat(hot: &HotRow, lease: Lease) -> bool {
    hot.is_held_by(lease) && hot.writes == lease.write + 1
}

/// Makes a send final. A cancel that was raised meanwhile wins over the result.
pub fn complete(
    hot: &HotRow,
    send: &SendState,
    lease: Lease,
    completion: Completion<'_>,
    now: Timestamp,
) -> Complete {
    let Some(mut hot) = write(hot, send, lease) else {
        return Complete::LeaseLost;
    };
    if is_kept(&mut hot, completion.unless) {
        return Complete::Undelivered(Change::of(hot));
    }
    let result = if hot.signals & SIGNAL_CANCEL == 0 {
        completion.result
    } else {
        SendResult::cancelled()
    };
    hot.forget_signals();
    hot.spend(completion.totals);
    let send = send.with_totals(completion.totals);
    let continues = hot.pending > 0 && completion.then == AfterSend::Continue;
    if !continues {
        hot.give_back(now);
    }
    let mut change = finish(hot, &send, result, lease.into(), now);
    if let Some(step) = &mut change.step {
        step.refs.round = completion.round;
    }
    if continues {
        Complete::Continues(change)
    } else {
        Complete::Ended(change.notify_ready())
    }
}

/// Starts the next queued send under the lease of the send that just ended; releases the lease if
/// nothing is queued.
pub fn start_next(hot: &HotRow, head: Option<&SendState>, now: Timestamp) -> Change {
    let mut hot = hot.clone();
    let Some(head) = head.filter(|head| head.status == SendStatus::Queued) else {
        hot.give_back(now);
        return Change::of(hot).notify_ready();
    };
    let send = start(&mut hot, head, now);
    Change::of(hot).with_send(send)
}

/// Parks a send. Sends queued behind it must wait too, so the session is not ready.
pub fn park(
    hot: &HotRow,
    send: &SendState,
    lease: Lease,
    parking: Parking<'_>,
    now: Timestamp,
) -> Park {
    let Some(mut hot) = write(hot, send, lease) else {
        return Park::LeaseLost;
    };
    if is_kept(&mut hot, parking.unless) {
        return Park::Woken(Change::of(hot));
    }
    hot.spend(parking.totals);
    let mut send = send.with_totals(parking.totals);
    if hot.signals & SIGNAL_CANCEL != 0 {
        hot.forget_signals();
        hot.give_back(now);
        let change = finish(hot, &send, SendResult::cancelled(), lease.into(), now);
        return Park::Cancelled(change.notify_ready());
    }
    let due = match parking.until {
        ParkUntil::After(wait) => Some(now.after(wait)),
        ParkUntil::Asked => None,
    };
    send.status = SendStatus::Waiting;
    send.waiting_on = Some(parking.on);
    send.alarm_at = min([due, send.deadline_at]);
    send.crashes = 0;
    hot.clear_lease();
    hot.ready_since = None;
    let refs = StepRefs {
        reason: Some(parking.on.as_str().to_owned()),
        ..StepRefs::default()
    };
    let change = Change::of(hot).with_send(send);
    Park::Parked(change.with_step(send.id, StepKind::Waiting, lease.into(), now, refs))
}

/// Releases a lease without ending its send; the session stays ready. The running send counts what
/// was lost. `None` if the lease is not the current one; the write number is not checked.
pub fn release(
    hot: &HotRow,
    head: Option<&SendState>,
    lease: Lease,
    lost: ReleaseLoss,
) -> Option<Change> {
    if !hot.is_held_by(lease) {
        return None;
    }
    Some(match lost {
        ReleaseLoss::Nothing => abandon(hot, None),
        ReleaseLoss::ModelCall => abandon(hot, head),
        ReleaseLoss::Work => {
            let running = head.filter(|head| head.status == SendStatus::Running);
            Change {
                send: running.map(|send| SendState {
                    crashes: send.crashes + 1,
                    ..*send
                }),
                ..abandon(hot, None)
            }
        }
    })
}

/// Takes the lease from a boot that ends. If `head` is running, it counts a model call that may
/// have been started.
pub fn abandon(hot: &HotRow, head: Option<&SendState>) -> Change {
    let mut hot = hot.clone();
    hot.clear_lease();
    let running = head.filter(|head| head.status == SendStatus::Running);
    Change {
        send: running.map(|send| SendState {
            attempts: send.attempts + 1,
            ..*send
        }),
        ..Change::of(hot)
    }
}

/// The fence: returns the row with the write counted. Nothing may be written to a send that is not
/// running, even under a valid lease, which may have moved on to the session's next send.
fn write(hot: &HotRow, send: &SendState, lease: Lease) -> Option<HotRow> {
    let passes = hot.passes_fence(lease) && send.status == SendStatus::Running;
    passes.then(|| HotRow {
        writes: hot.writes + 1,
        ..hot.clone()
    })
}

/// Whether a raised signal prevents what the worker wants. If so, all signals are cleared, since
/// the worker is told of them. A cancel takes precedence and is handled at once.
fn is_kept(hot: &mut HotRow, unless: i32) -> bool {
    let is_kept = hot.signals & SIGNAL_CANCEL == 0 && hot.signals & unless != 0;
    if is_kept {
        hot.signals = 0;
    }
    is_kept
}
