//! The states until the model has answered: taken, asking, folding and backing off.

use std::time::Duration;

use super::{
    ATTEMPT_LIMIT, DEADLINE, PASSED, ROUND_LIMIT, abort_and_end, ask, end, finish, park, pause,
    stay, to,
};
use crate::agent::Recovery;
use crate::error::Code;
use crate::send::machine::{Answer, Command, End, Event, Open, Rules, State, Step};
use crate::send::{StopReason, WaitingOn};

pub(super) fn taken(
    rounds: u32,
    attempts: u32,
    crashes: u32,
    open: Open,
    event: Event,
    rules: &Rules,
) -> Option<Step> {
    let last = rounds.saturating_sub(1);
    match event {
        // Parking is a durable step, after which crashes are counted afresh, so a send that someone
        // resumes continues.
        Event::Begun if crashes > 0 && rules.recovery == Recovery::Manual => {
            park(last, attempts, WaitingOn::Recovery, None)
        }
        Event::Begun if crashes >= rules.crashes_max => end(
            rounds,
            End::Failed(StopReason::WorkerCrashLimit, Code::SendWorkerCrashLimit),
        ),
        Event::Paused { within } => pause(within),
        Event::Begun => match open {
            Open::Here => to(
                State::Calling {
                    round: last,
                    draining: false,
                },
                [Command::RunCalls],
            ),
            Open::Outside { on, within } => park(last, 0, on, within),
            Open::Passed => finish((rounds, attempts + 1), last, PASSED, false, rules),
            Open::Nothing if rounds >= rules.rounds_max => {
                finish((rounds, attempts + 1), rounds, ROUND_LIMIT, false, rules)
            }
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
        | Event::Decided(_)
        | Event::WorkLost
        | Event::LeaseLost => None,
    }
}

pub(super) fn asking(
    round: u32,
    attempt: u32,
    draining: bool,
    event: Event,
    rules: &Rules,
) -> Option<Step> {
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
        Event::Replied(answer @ (Answer::Final | Answer::Cut)) => {
            let reason = if answer == Answer::Cut {
                StopReason::Length
            } else {
                StopReason::End
            };
            let why = End::Completed(reason);
            finish((round, attempt), round, why, draining, rules)
        }
        Event::Replied(Answer::Ended) => end(round, End::Completed(StopReason::End)),
        Event::Replied(Answer::Refused) => end(
            round,
            End::Failed(StopReason::ProviderError, Code::LlmRefused),
        ),
        Event::Failed { .. } => failed(round, attempt, draining, event, rules),
        Event::Paused { within } => pause(within),
        Event::TooLong => fold(round, attempt, draining),
        Event::Overflowed => fold(round, attempt + 1, draining),
        Event::CancelRaised => abort_and_end(round, Command::AbortAsking, End::Cancelled),
        Event::DeadlinePassed => abort_and_end(round, Command::AbortAsking, DEADLINE),
        Event::Interrupted if own(round, attempt, rules) >= rules.attempts_max => {
            abort_and_end(round, Command::AbortAsking, ATTEMPT_LIMIT)
        }
        // The answer in flight is void: the model is called again with the new message.
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
        // The answer in flight costs money anyway: wait for it, store it, then hand over.
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
        | Event::Decided(_)
        | Event::WorkLost
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
        None if is_of_budget(code) => {
            let why = End::Failed(reason_of(code), code);
            finish((round, attempt), round, why, draining, rules)
        }
        None => end(round, End::Failed(reason_of(code), code)),
        Some(wait) if draining || wait > rules.hold_max => {
            park(round, attempt, WaitingOn::Retry, Some(wait))
        }
        Some(wait) => to(State::BackingOff { round, attempt }, [Command::Wait(wait)]),
    }
}

pub(super) fn folding(
    round: u32,
    attempt: u32,
    draining: bool,
    event: Event,
    rules: &Rules,
) -> Option<Step> {
    match event {
        Event::Folded { cancelled: true } => end(round, End::Cancelled),
        Event::Folded { cancelled: false } if draining => to(State::Releasing, [Command::Release]),
        Event::Folded { cancelled: false } => ask(round, attempt),
        Event::Failed { .. } => failed(round, attempt, draining, event, rules),
        Event::Paused { within } => pause(within),
        Event::CancelRaised => abort_and_end(round, Command::AbortFold, End::Cancelled),
        Event::DeadlinePassed => abort_and_end(round, Command::AbortFold, DEADLINE),
        // The new message is read before the model call, which there is no room for yet.
        Event::Interrupted => stay(State::Folding {
            round,
            attempt,
            draining,
        }),
        // The fold in progress costs money anyway: wait for it, store it, then hand over.
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
        | Event::Decided(_)
        | Event::WorkLost
        | Event::LeaseLost => None,
    }
}

/// Attempts whose outcome is known.
fn own(round: u32, attempt: u32, rules: &Rules) -> u32 {
    let lost = if round == rules.first_round {
        rules.lost
    } else {
        0
    };
    attempt.saturating_sub(lost)
}

/// Whether a send fails with this code because of its budget: then its answers so far stand.
fn is_of_budget(code: Code) -> bool {
    matches!(code, Code::BudgetExceeded | Code::BudgetNoPrice)
}

fn reason_of(code: Code) -> StopReason {
    if is_of_budget(code) {
        StopReason::Budget
    } else if code == Code::LlmTruncated {
        StopReason::Length
    } else if code == Code::ContextCannotFit {
        StopReason::Context
    } else if matches!(code, Code::PolicyDenied | Code::PolicyUnavailable) {
        StopReason::Policy
    } else if code == Code::IsolationUnavailable {
        StopReason::ToolAbort
    } else {
        StopReason::ProviderError
    }
}

pub(super) fn backing_off(round: u32, attempt: u32, event: Event, rules: &Rules) -> Option<Step> {
    match event {
        Event::Interrupted if own(round, attempt, rules) >= rules.attempts_max => {
            end(round, ATTEMPT_LIMIT)
        }
        // An interrupt wants the model called now.
        Event::BackoffOver | Event::Interrupted => ask(round, attempt + 1),
        Event::CancelRaised => end(round, End::Cancelled),
        Event::DeadlinePassed => end(round, DEADLINE),
        // Parked rather than released, so that the failed attempts stay counted.
        Event::DrainAsked | Event::DrainOver => {
            park(round, attempt, WaitingOn::Retry, Some(Duration::ZERO))
        }
        Event::Begun
        | Event::Replied(_)
        | Event::Paused { .. }
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
        | Event::Decided(_)
        | Event::WorkLost
        | Event::LeaseLost => None,
    }
}
