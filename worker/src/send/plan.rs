//! Which calls run when, and what an open round still needs: functions of the calls' rows.

use mainspring_shared::error::Code;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::send::machine::Open;
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{
    CallRecord, CallResult, CallState, Repeat, expired, unknown_outcome,
};

use crate::tool::{Concurrency, Executor, Offers};

/// What the round still needs.
pub(super) fn open(calls: &[CallRecord], now: Timestamp) -> Open {
    let mut waits: Option<(WaitingOn, Option<Timestamp>)> = None;
    for call in calls {
        match call.state() {
            CallState::Settled => {}
            CallState::Requested | CallState::Started { .. } => return Open::Here,
            // Past its deadline: this worker settles it.
            CallState::Waits(_) if call.deadline_at.is_some_and(|at| at <= now) => {
                return Open::Here;
            }
            CallState::Waits(on) => {
                let due = call.deadline_at;
                waits = Some(match waits {
                    None => (on, due),
                    Some((other, before)) => (
                        more_telling(on, other),
                        [due, before].into_iter().flatten().min(),
                    ),
                });
            }
        }
    }
    match waits {
        None => Open::Nothing,
        Some((on, due)) => Open::Outside {
            on,
            within: due.map(|at| at.since(now)),
        },
    }
}

/// Of two things that are waited for, the one that a reader should be told of.
fn more_telling(a: WaitingOn, b: WaitingOn) -> WaitingOn {
    let rank = |on| match on {
        WaitingOn::Human => 0,
        WaitingOn::Tool => 1,
        WaitingOn::Agent => 2,
        WaitingOn::Run => 3,
        WaitingOn::Timer | WaitingOn::Retry | WaitingOn::Recovery => 4,
    };
    if rank(a) <= rank(b) { a } else { b }
}

/// The places of the calls that run next: several parallel ones, or one that runs alone. Calls that
/// are settled or wait outside are skipped.
///
/// Held calls wait in their place: parallel calls beside them still run, but an exclusive call does
/// not run before them.
pub(super) fn first(
    calls: &[CallRecord],
    offers: &Offers,
    is_held: impl Fn(&str) -> bool,
) -> Vec<usize> {
    let mut together = Vec::new();
    let mut any_held = false;
    for (place, call) in calls.iter().enumerate() {
        if !matches!(
            call.state(),
            CallState::Requested | CallState::Started { .. }
        ) {
            continue;
        }
        let Some(offer) = offers.get(&call.name) else {
            continue;
        };
        let Executor::Here(_) = offer.place else {
            continue;
        };
        let held = is_held(&call.name);
        any_held |= held;
        match offer.traits.concurrency {
            Concurrency::Parallel if held => {}
            Concurrency::Parallel => together.push(place),
            Concurrency::Exclusive if together.is_empty() && !any_held => return vec![place],
            Concurrency::Exclusive => return together,
        }
    }
    together
}

/// The reason for which the first held call of this worker is held.
pub(super) fn held<T>(
    calls: &[CallRecord],
    offers: &Offers,
    hold: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let mut waiting = calls.iter().filter(|call| {
        let is_open = matches!(
            call.state(),
            CallState::Requested | CallState::Started { .. }
        );
        let offer = offers.get(&call.name);
        is_open && offer.is_some_and(|offer| matches!(offer.place, Executor::Here(_)))
    });
    waiting.find_map(|call| hold(&call.name))
}

/// The result of a call that this worker must not or cannot make, whatever its turn.
pub(super) fn verdict(
    call: &CallRecord,
    offers: &Offers,
    epoch: i64,
    now: Timestamp,
) -> Option<CallResult> {
    match call.state() {
        CallState::Settled => None,
        CallState::Waits(_) => call
            .deadline_at
            .filter(|at| *at <= now)
            .map(|_| expired(call)),
        // It began under an earlier worker; how far it got is unknown.
        CallState::Started { epoch: begun } if begun != epoch && call.repeat == Repeat::Once => {
            Some(unknown_outcome())
        }
        CallState::Requested | CallState::Started { .. } => {
            offers.get(&call.name).is_none().then(|| {
                CallResult::error(
                    Code::ToolNotFound,
                    format!("there is no tool named {:?} any more", call.name),
                )
            })
        }
    }
}

/// Whether the start of this call must be durable before the call is made.
pub(super) fn needs_mark(call: &CallRecord, epoch: i64) -> bool {
    call.repeat != Repeat::Safe && call.state() != CallState::Started { epoch }
}
