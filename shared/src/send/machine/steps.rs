//! One function per state; every event has its arm.

use std::time::Duration;

use super::{Answer, Command, End, Event, Open, Rules, State, Step};
use crate::agent::Recovery;
use crate::error::Code;
use crate::send::{StopReason, WaitingOn};

const DEADLINE: End = End::Failed(StopReason::Deadline, Code::SendDeadline);

const ATTEMPT_LIMIT: End = End::Failed(StopReason::AttemptLimit, Code::LimitExceeded);

const ROUND_LIMIT: End = End::Completed(StopReason::RoundLimit);

/// The model says that it has nothing to answer.
const PASSED: End = End::Completed(StopReason::End);

/// The step after an event; none when the event cannot happen.
pub(super) fn step(state: State, event: Event, rules: &Rules) -> Option<Step> {
    if event == Event::LeaseLost {
        return lease_lost(state);
    }
    match state {
        State::Taken {
            rounds,
            attempts,
            crashes,
            open,
        } => taken(rounds, attempts, crashes, open, event, rules),
        State::Asking {
            round,
            attempt,
            draining,
        } => asking(round, attempt, draining, event, rules),
        State::Folding {
            round,
            attempt,
            draining,
        } => folding(round, attempt, draining, event, rules),
        State::BackingOff { round, attempt } => backing_off(round, attempt, event, rules),
        State::Storing { round, draining } => storing(round, draining, event, rules),
        State::Calling { round, draining } => calling(round, draining, event, rules),
        State::Stopping { why } => stopping(why, event),
        State::Settling { round, draining } => settling(round, draining, event, rules),
        State::Ending { round } => ending(round, event),
        State::Parking { round, attempt } => parking(round, attempt, event, rules),
        State::Releasing => releasing(event),
        State::Left => left(event),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "every legal arm reads the same")]
fn to(next: State, commands: impl Into<Vec<Command>>) -> Option<Step> {
    Some(Step {
        next,
        commands: commands.into(),
    })
}

fn stay(state: State) -> Option<Step> {
    to(state, [])
}

/// Whatever the state: without the lease nothing may be written.
fn lease_lost(state: State) -> Option<Step> {
    match state {
        State::Asking { .. } => to(State::Left, [Command::AbortAsking, Command::Drop]),
        State::Folding { .. } => to(State::Left, [Command::AbortFold, Command::Drop]),
        State::Calling { .. } | State::Stopping { .. } => {
            to(State::Left, [Command::AbortCalls, Command::Drop])
        }
        State::Taken { .. }
        | State::BackingOff { .. }
        | State::Storing { .. }
        | State::Settling { .. }
        | State::Ending { .. }
        | State::Parking { .. }
        | State::Releasing => to(State::Left, [Command::Drop]),
        State::Left => stay(State::Left),
    }
}

fn ask(round: u32, attempt: u32) -> Option<Step> {
    let next = State::Asking {
        round,
        attempt,
        draining: false,
    };
    to(next, [Command::Ask { round, attempt }])
}

fn end(round: u32, end: End) -> Option<Step> {
    to(State::Ending { round }, [Command::End(end)])
}

fn park(round: u32, attempt: u32, on: WaitingOn, after: Option<Duration>) -> Option<Step> {
    let next = State::Parking { round, attempt };
    to(next, [Command::Park { on, after }])
}

fn abort_and_end(round: u32, why: End) -> Option<Step> {
    to(
        State::Ending { round },
        [Command::AbortAsking, Command::End(why)],
    )
}

/// What follows a stored round, by what its calls need.
fn after_round(round: u32, draining: bool, open: Open, rules: &Rules) -> Option<Step> {
    match open {
        Open::Here => to(State::Calling { round, draining }, [Command::RunCalls]),
        Open::Outside { on, within } => park(round, 0, on, within),
        Open::Passed => end(round, PASSED),
        Open::Nothing if round + 1 >= rules.rounds_max => end(round, ROUND_LIMIT),
        Open::Nothing if draining => to(State::Releasing, [Command::Release]),
        Open::Nothing => ask(round + 1, lost(round + 1, rules) + 1),
    }
}

fn taken(
    rounds: u32,
    attempts: u32,
    crashes: u32,
    open: Open,
    event: Event,
    rules: &Rules,
) -> Option<Step> {
    let last = rounds.saturating_sub(1);
    match event {
        // Parking is a durable step, after which deaths are counted anew: a send that someone
        // resumes goes on.
        Event::Begun if crashes > 0 && rules.recovery == Recovery::Manual => {
            park(last, attempts, WaitingOn::Recovery, None)
        }
        Event::Begun if crashes >= rules.crashes_max => end(
            rounds,
            End::Failed(StopReason::WorkerCrashLimit, Code::SendWorkerCrashLimit),
        ),
        Event::Begun => match open {
            Open::Here => to(
                State::Calling {
                    round: last,
                    draining: false,
                },
                [Command::RunCalls],
            ),
            Open::Outside { on, within } => park(last, 0, on, within),
            Open::Passed => end(last, PASSED),
            Open::Nothing if rounds >= rules.rounds_max => end(rounds, ROUND_LIMIT),
            Open::Nothing => ask(rounds, attempts + 1),
        },
        Event::CancelRaised => end(rounds, End::Cancelled),
        Event::DeadlinePassed => end(rounds, DEADLINE),
        Event::DrainAsked | Event::DrainOver => to(State::Releasing, [Command::Release]),
        // The inbox is read before the model is asked.
        Event::Interrupted => stay(State::Taken {
            rounds,
            attempts,
            crashes,
            open,
        }),
        Event::Replied(_)
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

fn asking(round: u32, attempt: u32, draining: bool, event: Event, rules: &Rules) -> Option<Step> {
    match event {
        Event::Replied(Answer::Calls | Answer::Again) => {
            to(State::Storing { round, draining }, [Command::StoreRound])
        }
        Event::Replied(Answer::Part) => {
            let attempt = attempt + 1;
            let next = State::Asking {
                round,
                attempt,
                draining,
            };
            to(next, [Command::Ask { round, attempt }])
        }
        Event::Replied(Answer::Final) => end(round, End::Completed(StopReason::End)),
        Event::Replied(Answer::Cut) => end(round, End::Completed(StopReason::Length)),
        Event::Replied(Answer::Refused) => end(
            round,
            End::Failed(StopReason::ProviderError, Code::LlmRefused),
        ),
        Event::Failed { .. } => failed(round, attempt, draining, event, rules),
        Event::TooLong => fold(round, attempt, draining),
        Event::Overflowed => fold(round, attempt + 1, draining),
        Event::CancelRaised => abort_and_end(round, End::Cancelled),
        Event::DeadlinePassed => abort_and_end(round, DEADLINE),
        Event::Interrupted if own(round, attempt, rules) >= rules.attempts_max => {
            abort_and_end(round, ATTEMPT_LIMIT)
        }
        // What the model was about to say is void: it is asked anew with what came.
        Event::Interrupted => {
            let attempt = attempt + 1;
            to(
                State::Asking {
                    round,
                    attempt,
                    draining,
                },
                [Command::AbortAsking, Command::Ask { round, attempt }],
            )
        }
        // The answer that is under way is paid for: it is awaited, and handed over stored.
        Event::DrainAsked => stay(State::Asking {
            round,
            attempt,
            draining: true,
        }),
        Event::DrainOver => to(State::Releasing, [Command::AbortAsking, Command::Release]),
        Event::Begun
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::CallsOver { .. }
        | Event::CallsAborted
        | Event::ResultsStored { .. }
        | Event::Woken { .. }
        | Event::Undelivered
        | Event::Stored
        | Event::Folded { .. }
        | Event::LeaseLost => None,
    }
}

fn fold(round: u32, attempt: u32, draining: bool) -> Option<Step> {
    let next = State::Folding {
        round,
        attempt,
        draining,
    };
    to(next, [Command::Fold])
}

/// A model call that failed, of a round or of the fold before it.
fn failed(round: u32, attempt: u32, draining: bool, event: Event, rules: &Rules) -> Option<Step> {
    let Event::Failed {
        code,
        permanent,
        retry_after,
        fraction,
        not_failed,
    } = event
    else {
        return None;
    };
    let tries = own(round, attempt, rules).saturating_sub(not_failed);
    let wait = if permanent {
        None
    } else {
        rules.retry.wait(tries, retry_after, fraction)
    };
    match wait {
        None => end(round, End::Failed(reason_of(code), code)),
        Some(wait) if draining || wait > rules.hold_max => {
            park(round, attempt, WaitingOn::Retry, Some(wait))
        }
        Some(wait) => to(State::BackingOff { round, attempt }, [Command::Wait(wait)]),
    }
}

fn folding(round: u32, attempt: u32, draining: bool, event: Event, rules: &Rules) -> Option<Step> {
    let fold_and_end = |why| {
        let commands = [Command::AbortFold, Command::End(why)];
        to(State::Ending { round }, commands)
    };
    match event {
        Event::Folded { cancelled: true } => end(round, End::Cancelled),
        Event::Folded { cancelled: false } if draining => to(State::Releasing, [Command::Release]),
        Event::Folded { cancelled: false } => ask(round, attempt),
        Event::Failed { .. } => failed(round, attempt, draining, event, rules),
        Event::CancelRaised => fold_and_end(End::Cancelled),
        Event::DeadlinePassed => fold_and_end(DEADLINE),
        // What came is read before the model is asked, for which there is no room yet.
        Event::Interrupted => stay(State::Folding {
            round,
            attempt,
            draining,
        }),
        // The fold that is under way is paid for: it is awaited, and handed over stored.
        Event::DrainAsked => stay(State::Folding {
            round,
            attempt,
            draining: true,
        }),
        Event::DrainOver => to(State::Releasing, [Command::AbortFold, Command::Release]),
        Event::Begun
        | Event::Replied(_)
        | Event::TooLong
        | Event::Overflowed
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::CallsOver { .. }
        | Event::CallsAborted
        | Event::ResultsStored { .. }
        | Event::Woken { .. }
        | Event::Undelivered
        | Event::Stored
        | Event::LeaseLost => None,
    }
}

/// Attempts that were seen to end.
fn own(round: u32, attempt: u32, rules: &Rules) -> u32 {
    attempt.saturating_sub(lost(round, rules))
}

/// Attempts at a round that earlier workers may have begun. Results can ride with the round behind
/// them, so that one which was asked for is asked for again only after its predecessor's calls.
fn lost(round: u32, rules: &Rules) -> u32 {
    if round == rules.first_round {
        rules.lost
    } else {
        0
    }
}

fn reason_of(code: Code) -> StopReason {
    if code == Code::BudgetExceeded {
        StopReason::Budget
    } else if code == Code::LlmTruncated {
        StopReason::Length
    } else if code == Code::ContextCannotFit {
        StopReason::Context
    } else if matches!(code, Code::PolicyDenied | Code::PolicyUnavailable) {
        StopReason::Policy
    } else {
        StopReason::ProviderError
    }
}

fn backing_off(round: u32, attempt: u32, event: Event, rules: &Rules) -> Option<Step> {
    match event {
        Event::Interrupted if own(round, attempt, rules) >= rules.attempts_max => {
            end(round, ATTEMPT_LIMIT)
        }
        // Whoever interrupts wants the model asked now.
        Event::BackoffOver | Event::Interrupted => ask(round, attempt + 1),
        Event::CancelRaised => end(round, End::Cancelled),
        Event::DeadlinePassed => end(round, DEADLINE),
        // Parked rather than released, so that the failed attempts stay counted.
        Event::DrainAsked | Event::DrainOver => {
            park(round, attempt, WaitingOn::Retry, Some(Duration::ZERO))
        }
        Event::Begun
        | Event::Replied(_)
        | Event::Failed { .. }
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

fn storing(round: u32, draining: bool, event: Event, rules: &Rules) -> Option<Step> {
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
        // The transaction under way reads a cancel itself and says so in `RoundStored`; the next
        // model call is bounded by the deadline again, which then passes at once; the inbox is
        // read before the next model call.
        Event::CancelRaised | Event::DeadlinePassed | Event::Interrupted => {
            stay(State::Storing { round, draining })
        }
        Event::Begun
        | Event::Replied(_)
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
        | Event::LeaseLost => None,
    }
}

fn calling(round: u32, draining: bool, event: Event, rules: &Rules) -> Option<Step> {
    match event {
        Event::CallsOver {
            open: Open::Nothing,
            may_ride: true,
        } if !draining => after_round(round, draining, Open::Nothing, rules),
        Event::CallsOver {
            open: Open::Passed,
            may_ride: true,
        } => end(round, PASSED),
        Event::CallsOver { .. } => to(State::Settling { round, draining }, [Command::StoreResults]),
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
        // Calls that were begun are awaited: whoever takes over could only guess what they did.
        Event::DrainAsked => stay(State::Calling {
            round,
            draining: true,
        }),
        Event::DrainOver => to(State::Releasing, [Command::AbortCalls, Command::Release]),
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
        | Event::LeaseLost => None,
    }
}

fn stop(why: End) -> Option<Step> {
    to(State::Stopping { why }, [Command::StopCalls])
}

fn stopping(why: End, event: Event) -> Option<Step> {
    match event {
        Event::CallsOver { .. } | Event::CallsAborted => end(0, why),
        // The process has no more time to wait for them.
        Event::DrainOver => to(
            State::Ending { round: 0 },
            [Command::AbortCalls, Command::End(why)],
        ),
        // It ends already.
        Event::CancelRaised | Event::DeadlinePassed | Event::DrainAsked | Event::Interrupted => {
            stay(State::Stopping { why })
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
        | Event::LeaseLost => None,
    }
}

fn settling(round: u32, draining: bool, event: Event, rules: &Rules) -> Option<Step> {
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
        | Event::LeaseLost => None,
    }
}

fn ending(round: u32, event: Event) -> Option<Step> {
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

fn parking(round: u32, attempt: u32, event: Event, rules: &Rules) -> Option<Step> {
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

fn releasing(event: Event) -> Option<Step> {
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

fn left(event: Event) -> Option<Step> {
    match event {
        // What was on its way when the send was left concerns nobody any more.
        Event::CancelRaised
        | Event::DeadlinePassed
        | Event::DrainAsked
        | Event::DrainOver
        | Event::Interrupted => stay(State::Left),
        Event::Begun
        | Event::Replied(_)
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
