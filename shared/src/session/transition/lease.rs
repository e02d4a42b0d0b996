//! Writes under a lease. Each first passes the fence: the token, the owner and the number of the
//! write are those of the row, or nothing is written.

use super::{Change, finish, min, start};
use crate::lease::Lease;
use crate::send::{SendResult, SendStatus, WaitingOn};
use crate::session::SIGNAL_CANCEL;
use crate::session::hot::{HotRow, SendState};
use crate::step::{RoundRef, StepKind, StepRefs};
use crate::store::{Lost, ParkUntil, SendTotals, Then};
use crate::time::Timestamp;

/// How a worker ends its send.
#[derive(Debug, Clone)]
pub struct Completion<'c> {
    /// How it ends, unless a cancel was raised.
    pub result: SendResult,
    /// The last round, where a model answered.
    pub round: Option<RoundRef>,
    /// The send's sums.
    pub totals: &'c SendTotals,
    /// Signals that keep it from ending.
    pub unless: i32,
    /// What happens next.
    pub then: Then,
}

/// What an end by the worker does.
#[derive(Debug, Clone, PartialEq)]
pub enum Complete {
    /// The fence refused it.
    LeaseLost,
    /// A signal kept the send from ending; all signals are cleared, the lease is kept.
    Undelivered(Change),
    /// The send is final and the lease is given back.
    Ended(Change),
    /// The send is final and the lease is kept: [`start_next`] follows in the same transaction.
    Continues(Change),
}

/// How a worker parks its send.
#[derive(Debug, Clone, Copy)]
pub struct Parking<'p> {
    /// What it waits for.
    pub on: WaitingOn,
    /// When it goes on by itself.
    pub until: ParkUntil,
    /// Signals that say that it need not wait.
    pub unless: i32,
    /// The send's sums.
    pub totals: &'p SendTotals,
}

/// What parking a send does.
#[derive(Debug, Clone, PartialEq)]
pub enum Park {
    /// The fence refused it.
    LeaseLost,
    /// A signal says that the send need not wait; all signals are cleared, the lease is kept.
    Woken(Change),
    /// A cancel had been raised: the send is final, the lease is given back.
    Cancelled(Change),
    /// The send waits, the lease is given back.
    Parked(Change),
}

/// Appends a round, or what became of its calls, or attaches a fold, which `refs` says. None where the
/// fence refuses it.
///
/// The returned row has every signal but a cancel cleared: the caller is told of them as they were.
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
    // That more model calls were begun is no progress.
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

/// Whether a write that the fence refused is a repeat of the last one under its lease, whose answer
/// was lost.
pub fn is_repeat(hot: &HotRow, lease: Lease) -> bool {
    hot.obeys(lease) && hot.writes == lease.write + 1
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
    let continues = hot.pending > 0 && completion.then == Then::Continue;
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

/// Starts the next queued send under the lease that the send before it ran under; gives the lease
/// back where there is none.
pub fn start_next(hot: &HotRow, head: Option<&SendState>, now: Timestamp) -> Change {
    let mut hot = hot.clone();
    let Some(head) = head.filter(|head| head.status == SendStatus::Queued) else {
        hot.give_back(now);
        return Change::of(hot).notify_ready();
    };
    let send = start(&mut hot, head, now);
    Change::of(hot).with_send(send)
}

/// Parks a send. Whatever is queued after it has to wait too, so the session is not ready.
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

/// Gives a lease back with its send as it is: the session stays ready. The running send counts what was
/// lost. None where the lease does not hold; the number of the write does not matter.
pub fn release(hot: &HotRow, head: Option<&SendState>, lease: Lease, lost: Lost) -> Option<Change> {
    if !hot.obeys(lease) {
        return None;
    }
    Some(match lost {
        Lost::Nothing => abandon(hot, None),
        Lost::ModelCall => abandon(hot, head),
        Lost::Work => {
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

/// Takes the lease from a boot that ends. `head` counts a model call that may have been begun, if it
/// runs.
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

/// The fence: the row with the write counted. A send that does not run is nobody's to write under a
/// lease, which may go on with the session's next one.
fn write(hot: &HotRow, send: &SendState, lease: Lease) -> Option<HotRow> {
    let admits = hot.admits(lease) && send.status == SendStatus::Running;
    admits.then(|| HotRow {
        writes: hot.writes + 1,
        ..hot.clone()
    })
}

/// Whether a raised signal keeps the send from what its worker wants; then all are cleared, since the
/// worker is told of them. A cancel takes precedence: it is obeyed at once.
fn is_kept(hot: &mut HotRow, unless: i32) -> bool {
    let is_kept = hot.signals & SIGNAL_CANCEL == 0 && hot.signals & unless != 0;
    if is_kept {
        hot.signals = 0;
    }
    is_kept
}
