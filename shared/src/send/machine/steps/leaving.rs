//! The states around a worker's last write for a send.

use super::{abort_and_end, after_round, ask, end, stay, to};
use crate::send::machine::{Command, Decision, End, Event, Open, Rules, State, Step};

/// `(round, attempt)` is where the send continues; `last` is the round with which it ends.
pub(super) fn deciding(
    (round, attempt, last): (u32, u32, u32),
    why: End,
    draining: bool,
    event: Event,
) -> Option<Step> {
    let state = |draining| State::Deciding {
        round,
        attempt,
        last,
        why,
        draining,
    };
    match event {
        Event::Decided(Decision::End) => end(last, why),
        Event::Decided(Decision::Again) => {
            to(State::Storing { round, draining }, [Command::StoreRound])
        }
        Event::Decided(Decision::Asked { cancelled: true }) => end(last, End::Cancelled),
        Event::Decided(Decision::Asked { cancelled: false }) if draining => {
            to(State::Releasing, [Command::Release])
        }
        Event::Decided(Decision::Asked { cancelled: false }) => ask(round, attempt),
        Event::CancelRaised => abort_and_end(last, Command::AbortDeciding, End::Cancelled),
        // The answer, if there is one, arrived in time.
        Event::DeadlinePassed => abort_and_end(last, Command::AbortDeciding, why),
        // The new message is found when the end is stored, or read before the next model call.
        Event::Interrupted => stay(state(draining)),
        Event::DrainAsked => stay(state(true)),
        // Hooks have not allowed it to end yet.
        Event::DrainOver => to(State::Releasing, [Command::AbortDeciding, Command::Release]),
        Event::Begun
        | Event::Replied(_)
        | Event::Paused { .. }
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::CallsOver { .. }
        | Event::CallsAborted
        | Event::ResultsStored { .. }
        | Event::Woken { .. }
        | Event::Undelivered
        | Event::Stored
        | Event::TooLong
        | Event::Overflowed
        | Event::Folded { .. }
        | Event::WorkLost
        | Event::LeaseLost => None,
    }
}

pub(super) fn ending(round: u32, event: Event) -> Option<Step> {
    let state = State::Ending { round };
    match event {
        Event::Stored => stay(State::Left),
        // The answer, if there is one, becomes a round like any other, and the send continues with
        // the new inbox item.
        Event::Undelivered => to(
            State::Storing {
                round,
                draining: false,
            },
            [Command::StoreRound],
        ),
        // The transaction in flight decides; a cancel that it misses finds a final send.
        Event::CancelRaised
        | Event::DeadlinePassed
        | Event::DrainAsked
        | Event::DrainOver
        | Event::Interrupted => stay(state),
        Event::Begun
        | Event::Replied(_)
        | Event::Paused { .. }
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::CallsOver { .. }
        | Event::CallsAborted
        | Event::ResultsStored { .. }
        | Event::Woken { .. }
        | Event::TooLong
        | Event::Overflowed
        | Event::Folded { .. }
        | Event::Decided(_)
        | Event::WorkLost
        | Event::LeaseLost => None,
    }
}

pub(super) fn parking(round: u32, attempt: u32, event: Event, rules: &Rules) -> Option<Step> {
    let state = State::Parking { round, attempt };
    match event {
        Event::Stored => stay(State::Left),
        // After a failed attempt, try again; otherwise the round's calls are over.
        Event::Woken {
            open: Open::Nothing,
        } if attempt > 0 => ask(round, attempt + 1),
        Event::Woken { open } => after_round(round, false, open, rules),
        // The transaction in flight decides; a cancel that it misses finds a parked send and ends
        // it itself.
        Event::CancelRaised
        | Event::DeadlinePassed
        | Event::DrainAsked
        | Event::DrainOver
        | Event::Interrupted => stay(state),
        Event::Begun
        | Event::Replied(_)
        | Event::Paused { .. }
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::CallsOver { .. }
        | Event::CallsAborted
        | Event::ResultsStored { .. }
        | Event::Undelivered
        | Event::TooLong
        | Event::Overflowed
        | Event::Folded { .. }
        | Event::Decided(_)
        | Event::WorkLost
        | Event::LeaseLost => None,
    }
}

pub(super) fn pausing(event: Event) -> Option<Step> {
    match event {
        Event::Stored => stay(State::Left),
        // The transaction in flight decides; events that it misses find a parked send.
        Event::CancelRaised
        | Event::DeadlinePassed
        | Event::DrainAsked
        | Event::DrainOver
        | Event::Interrupted => stay(State::Pausing),
        Event::Begun
        | Event::Replied(_)
        | Event::Paused { .. }
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::CallsOver { .. }
        | Event::CallsAborted
        | Event::ResultsStored { .. }
        | Event::Woken { .. }
        | Event::Undelivered
        | Event::TooLong
        | Event::Overflowed
        | Event::Folded { .. }
        | Event::Decided(_)
        | Event::WorkLost
        | Event::LeaseLost => None,
    }
}

pub(super) fn releasing(event: Event) -> Option<Step> {
    match event {
        Event::Stored => stay(State::Left),
        // A cancel ends a send without an owner by itself.
        Event::CancelRaised
        | Event::DeadlinePassed
        | Event::DrainAsked
        | Event::DrainOver
        | Event::Interrupted => stay(State::Releasing),
        Event::Begun
        | Event::Replied(_)
        | Event::Paused { .. }
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::CallsOver { .. }
        | Event::CallsAborted
        | Event::ResultsStored { .. }
        | Event::Woken { .. }
        | Event::Undelivered
        | Event::TooLong
        | Event::Overflowed
        | Event::Folded { .. }
        | Event::Decided(_)
        | Event::WorkLost
        | Event::LeaseLost => None,
    }
}

pub(super) fn left(event: Event) -> Option<Step> {
    match event {
        // Late events after the send was left are ignored.
        Event::CancelRaised
        | Event::DeadlinePassed
        | Event::DrainAsked
        | Event::DrainOver
        | Event::Interrupted => stay(State::Left),
        Event::Begun
        | Event::Replied(_)
        | Event::Paused { .. }
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::CallsOver { .. }
        | Event::CallsAborted
        | Event::ResultsStored { .. }
        | Event::Woken { .. }
        | Event::Undelivered
        | Event::Stored
        | Event::TooLong
        | Event::Overflowed
        | Event::Folded { .. }
        | Event::Decided(_)
        | Event::WorkLost
        | Event::LeaseLost => None,
    }
}
