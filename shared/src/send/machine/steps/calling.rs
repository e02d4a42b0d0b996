//! The states from a stored answer to the results of its calls.

use super::{DEADLINE, abort_and_end, after_round, end, pause, stay, to};
use crate::error::Code;
use crate::send::StopReason;
use crate::send::machine::{Command, End, Event, Open, Rules, State, Step};

pub(super) fn storing(round: u32, draining: bool, event: Event, rules: &Rules) -> Option<Step> {
    match event {
        Event::RoundStored {
            cancelled: true, ..
        } => end(round + 1, End::Cancelled),
        Event::RoundStored {
            cancelled: false,
            open,
        } => after_round(round, draining, open, rules),
        Event::DrainAsked | Event::DrainOver => stay(State::Storing {
            round,
            draining: true,
        }),
        // The transaction in flight reads a cancel itself and reports it in `RoundStored`; a passed
        // deadline fails the next model call at once; the inbox is read before the next model call.
        Event::CancelRaised | Event::DeadlinePassed | Event::Interrupted => {
            stay(State::Storing { round, draining })
        }
        Event::Begun
        | Event::Replied(_)
        | Event::Paused { .. }
        | Event::Failed { .. }
        | Event::BackoffOver
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

pub(super) fn calling(round: u32, draining: bool, event: Event, rules: &Rules) -> Option<Step> {
    match event {
        Event::CallsOver {
            open: Open::Nothing,
            may_ride: true,
        } if !draining => after_round(round, draining, Open::Nothing, rules),
        Event::CallsOver {
            open: Open::Passed,
            may_ride: true,
        } => after_round(round, draining, Open::Passed, rules),
        Event::CallsOver { .. } => to(State::Settling { round, draining }, [Command::StoreResults]),
        // Results received so far are stored before the send is parked.
        Event::Paused { within } => pause(within),
        Event::CallsAborted => end(
            round + 1,
            End::Failed(StopReason::ToolAbort, Code::ToolFailed),
        ),
        Event::CancelRaised => stop(End::Cancelled),
        Event::DeadlinePassed => stop(DEADLINE),
        Event::Interrupted => to(
            State::Calling { round, draining },
            [Command::InterruptCalls],
        ),
        // Wait for calls that were started: the next worker could only guess what they did.
        Event::DrainAsked => stay(State::Calling {
            round,
            draining: true,
        }),
        // The next worker sees from the calls' rows which may be repeated, as after a worker's death.
        Event::DrainOver | Event::WorkLost => {
            to(State::Releasing, [Command::AbortCalls, Command::Release])
        }
        Event::Begun
        | Event::Replied(_)
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::ResultsStored { .. }
        | Event::Woken { .. }
        | Event::Undelivered
        | Event::Stored
        | Event::TooLong
        | Event::Overflowed
        | Event::Folded { .. }
        | Event::Decided(_)
        | Event::LeaseLost => None,
    }
}

fn stop(why: End) -> Option<Step> {
    to(State::Stopping { why }, [Command::StopCalls])
}

pub(super) fn stopping(why: End, event: Event) -> Option<Step> {
    match event {
        Event::CallsOver { .. } | Event::CallsAborted => end(0, why),
        // The process has no more time to wait for them, or they are gone.
        Event::DrainOver | Event::WorkLost => abort_and_end(0, Command::AbortCalls, why),
        // It is ending already.
        Event::CancelRaised | Event::DeadlinePassed | Event::DrainAsked | Event::Interrupted => {
            stay(State::Stopping { why })
        }
        Event::Begun
        | Event::Replied(_)
        | Event::Paused { .. }
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::ResultsStored { .. }
        | Event::Woken { .. }
        | Event::Undelivered
        | Event::Stored
        | Event::TooLong
        | Event::Overflowed
        | Event::Folded { .. }
        | Event::Decided(_)
        | Event::LeaseLost => None,
    }
}

pub(super) fn settling(round: u32, draining: bool, event: Event, rules: &Rules) -> Option<Step> {
    match event {
        Event::ResultsStored {
            cancelled: true, ..
        } => end(round + 1, End::Cancelled),
        Event::ResultsStored {
            cancelled: false,
            open,
        } => after_round(round, draining, open, rules),
        Event::DrainAsked | Event::DrainOver => stay(State::Settling {
            round,
            draining: true,
        }),
        // As while a round is stored.
        Event::CancelRaised | Event::DeadlinePassed | Event::Interrupted => {
            stay(State::Settling { round, draining })
        }
        Event::Begun
        | Event::Replied(_)
        | Event::Paused { .. }
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::CallsOver { .. }
        | Event::CallsAborted
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
