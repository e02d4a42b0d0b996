//! The states in which the last write is made, and what follows it.

use super::{after_round, ask, stay, to};
use crate::send::machine::{Command, Event, Open, Rules, State, Step};

pub(super) fn ending(round: u32, event: Event) -> Option<Step> {
    let state = State::Ending { round };
    match event {
        Event::Stored => stay(State::Left),
        // The answer, where there is one, becomes a round like any other, and the send goes on with what
        // came.
        Event::Undelivered => to(
            State::Storing {
                round,
                draining: false,
            },
            [Command::StoreRound],
        ),
        // The transaction under way decides; a cancel that it misses finds a final send.
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
        | Event::LeaseLost => None,
    }
}

pub(super) fn parking(round: u32, attempt: u32, event: Event, rules: &Rules) -> Option<Step> {
    let state = State::Parking { round, attempt };
    match event {
        Event::Stored => stay(State::Left),
        // An attempt that failed is tried again; otherwise the round's calls are over.
        Event::Woken {
            open: Open::Nothing,
        } if attempt > 0 => ask(round, attempt + 1),
        Event::Woken { open } => after_round(round, false, open, rules),
        // The transaction under way decides; a cancel that it misses finds a parked send, which
        // the canceller ends itself.
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
        | Event::LeaseLost => None,
    }
}

pub(super) fn pausing(event: Event) -> Option<Step> {
    match event {
        Event::Stored => stay(State::Left),
        // The transaction under way decides; what it misses finds a parked send.
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
        | Event::LeaseLost => None,
    }
}

pub(super) fn releasing(event: Event) -> Option<Step> {
    match event {
        Event::Stored => stay(State::Left),
        // A send without owner is ended by whoever cancels it.
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
        | Event::LeaseLost => None,
    }
}

pub(super) fn left(event: Event) -> Option<Step> {
    match event {
        // What was on its way when the send was left concerns nobody any more.
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
        | Event::LeaseLost => None,
    }
}
