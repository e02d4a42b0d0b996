//! What happens next in a send that a worker runs: a pure function of (state, event).
//!
//! The worker interprets the commands: it asks the model, stores what came back in one
//! transaction, and reports what happened as the next event. Nothing here waits, draws or reads a
//! clock; chance comes in with the event.

use std::time::Duration;

use crate::agent::Recovery;
use crate::error::Code;
use crate::retry;
use crate::send::{StopReason, WaitingOn};

/// What a send may use, fixed when a worker takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Rounds in all.
    pub rounds_max: u32,
    /// Takeovers from dead workers without a durable step between them.
    pub crashes_max: u32,
    /// When a failed model call is tried again.
    pub retry: retry::Policy,
    /// Waits longer than this park the send instead of holding the worker's memory.
    pub hold_max: Duration,
    /// What happens to a round that a dead worker left open.
    pub recovery: Recovery,
}

/// Where a running send stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A worker took it; nothing was asked in this life.
    Taken {
        /// Durable rounds.
        rounds: u32,
        /// Model calls already begun in the round that comes.
        attempts: u32,
        /// Deaths of workers under it since the last durable step.
        crashes: u32,
    },
    /// The model is asked.
    Asking {
        /// The round, from 0.
        round: u32,
        /// The attempt within the round, from 1.
        attempt: u32,
        /// Whether the worker is to give the session back at the next boundary.
        draining: bool,
    },
    /// The next attempt waits in memory.
    BackingOff {
        /// The round.
        round: u32,
        /// The attempt that failed.
        attempt: u32,
    },
    /// A round with tool calls is being stored.
    Storing {
        /// The round.
        round: u32,
        /// Whether the worker is to give the session back then.
        draining: bool,
    },
    /// Its end is being stored.
    Ending,
    /// It is being parked.
    Parking,
    /// The session is being given back with the send as it is.
    Releasing,
    /// This worker has nothing more to do with it.
    Left,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// The worker is ready to go on.
    Begun,
    /// The model answered.
    Replied(Answer),
    /// The model call failed.
    Failed {
        /// Why.
        code: Code,
        /// Whether the same call would fail again.
        permanent: bool,
        /// What the provider asked for.
        retry_after: Option<Duration>,
        /// Drawn from `[0, 1)`, for the jitter.
        fraction: f64,
    },
    /// The wait in memory is over.
    BackoffOver,
    /// The round is durable.
    RoundStored {
        /// Whether a cancel was raised by then.
        cancelled: bool,
    },
    /// The end, the park or the release is durable.
    Stored,
    /// Someone asked to end the send.
    CancelRaised,
    /// The send's deadline passed.
    DeadlinePassed,
    /// The process is to stop: hand over at the next boundary.
    DrainAsked,
    /// The process stops now, in the middle of whatever it does.
    DrainOver,
    /// Another owner has the session, or may have.
    LeaseLost,
}

/// What an answer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A final answer.
    Final,
    /// A final answer that was cut at its token limit.
    Cut,
    /// The model declined.
    Refused,
    /// Tools are to be called.
    Calls,
}

/// What the worker is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Ask the model.
    Ask {
        /// The round.
        round: u32,
        /// The attempt.
        attempt: u32,
    },
    /// Drop the model call that is under way.
    AbortAsking,
    /// Store the round's messages, calls and results.
    StoreRound,
    /// Store the end. The answer's messages go with it where there are some.
    End(End),
    /// Wait in memory, then report `BackoffOver`.
    Wait(Duration),
    /// Park the send.
    Park {
        /// What it waits for.
        on: WaitingOn,
        /// How long; until someone acts when absent.
        after: Option<Duration>,
    },
    /// Give the session back with the send as it is, and ring.
    Release,
    /// Forget the send: write nothing.
    Drop,
}

/// How a send ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The model answered.
    Completed(StopReason),
    /// It could not be answered.
    Failed(StopReason, Code),
    /// Someone ended it.
    Cancelled,
}

/// The state after an event and what is to be done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Where the send stands now.
    pub next: State,
    /// What to do.
    pub commands: Vec<Command>,
}

/// An event that cannot happen in this state: a defect of the interpreter.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("send: {event:?} cannot happen in {state:?}")]
pub struct IllegalTransition {
    /// The state.
    pub state: State,
    /// The event.
    pub event: Event,
}

/// Decides what happens next.
pub fn transition(state: &State, event: Event, rules: &Rules) -> Result<Step, IllegalTransition> {
    if let Some(step) = lease_lost(*state, event) {
        return Ok(step);
    }
    match *state {
        State::Taken {
            rounds,
            attempts,
            crashes,
        } => taken(rounds, attempts, crashes, event, rules),
        State::Asking {
            round,
            attempt,
            draining,
        } => asking(round, attempt, draining, event, rules),
        State::BackingOff { round, attempt } => backing_off(round, attempt, event),
        State::Storing { round, draining } => storing(round, draining, event, rules),
        State::Ending | State::Parking | State::Releasing => storing_last(*state, event),
        State::Left => left(event),
    }
    .ok_or(IllegalTransition {
        state: *state,
        event,
    })
}

#[expect(clippy::unnecessary_wraps, reason = "every legal arm reads the same")]
fn step(next: State, commands: impl Into<Vec<Command>>) -> Option<Step> {
    Some(Step {
        next,
        commands: commands.into(),
    })
}

/// Whatever the state: without the lease nothing may be written.
fn lease_lost(state: State, event: Event) -> Option<Step> {
    if event != Event::LeaseLost {
        return None;
    }
    match state {
        State::Asking { .. } => step(State::Left, [Command::AbortAsking, Command::Drop]),
        State::Taken { .. }
        | State::BackingOff { .. }
        | State::Storing { .. }
        | State::Ending
        | State::Parking
        | State::Releasing => step(State::Left, [Command::Drop]),
        State::Left => step(State::Left, []),
    }
}

fn end(end: End) -> Option<Step> {
    step(State::Ending, [Command::End(end)])
}

fn park(on: WaitingOn, after: Option<Duration>) -> Option<Step> {
    step(State::Parking, [Command::Park { on, after }])
}

fn abort_and_end(why: End) -> Option<Step> {
    step(State::Ending, [Command::AbortAsking, Command::End(why)])
}

const DEADLINE: End = End::Failed(StopReason::Deadline, Code::SendDeadline);

fn taken(rounds: u32, attempts: u32, crashes: u32, event: Event, rules: &Rules) -> Option<Step> {
    match event {
        // Parking is a durable step, after which deaths are counted anew: a send that someone
        // resumes goes on.
        Event::Begun if crashes > 0 && rules.recovery == Recovery::Manual => {
            park(WaitingOn::Recovery, None)
        }
        Event::Begun if crashes >= rules.crashes_max => end(End::Failed(
            StopReason::WorkerCrashLimit,
            Code::SendWorkerCrashLimit,
        )),
        Event::Begun if rounds >= rules.rounds_max => end(End::Completed(StopReason::RoundLimit)),
        Event::Begun => {
            let attempt = attempts + 1;
            step(
                State::Asking {
                    round: rounds,
                    attempt,
                    draining: false,
                },
                [Command::Ask {
                    round: rounds,
                    attempt,
                }],
            )
        }
        Event::CancelRaised => end(End::Cancelled),
        Event::DeadlinePassed => end(DEADLINE),
        Event::DrainAsked | Event::DrainOver => step(State::Releasing, [Command::Release]),
        Event::Replied(_)
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::Stored
        | Event::LeaseLost => None,
    }
}

fn asking(round: u32, attempt: u32, draining: bool, event: Event, rules: &Rules) -> Option<Step> {
    match event {
        Event::Replied(Answer::Calls) => {
            step(State::Storing { round, draining }, [Command::StoreRound])
        }
        Event::Replied(Answer::Final) => end(End::Completed(StopReason::End)),
        Event::Replied(Answer::Cut) => end(End::Completed(StopReason::Length)),
        Event::Replied(Answer::Refused) => {
            end(End::Failed(StopReason::ProviderError, Code::LlmRefused))
        }
        Event::Failed {
            code,
            permanent,
            retry_after,
            fraction,
        } => {
            let wait = if permanent {
                None
            } else {
                rules.retry.wait(attempt, retry_after, fraction)
            };
            match wait {
                None => end(End::Failed(StopReason::ProviderError, code)),
                Some(wait) if draining || wait > rules.hold_max => {
                    park(WaitingOn::Retry, Some(wait))
                }
                Some(wait) => step(State::BackingOff { round, attempt }, [Command::Wait(wait)]),
            }
        }
        Event::CancelRaised => abort_and_end(End::Cancelled),
        Event::DeadlinePassed => abort_and_end(DEADLINE),
        // The answer that is under way is paid for: it is awaited, and handed over stored.
        Event::DrainAsked => step(
            State::Asking {
                round,
                attempt,
                draining: true,
            },
            [],
        ),
        Event::DrainOver => step(State::Releasing, [Command::AbortAsking, Command::Release]),
        Event::Begun
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::Stored
        | Event::LeaseLost => None,
    }
}

fn backing_off(round: u32, attempt: u32, event: Event) -> Option<Step> {
    match event {
        Event::BackoffOver => {
            let attempt = attempt + 1;
            step(
                State::Asking {
                    round,
                    attempt,
                    draining: false,
                },
                [Command::Ask { round, attempt }],
            )
        }
        Event::CancelRaised => end(End::Cancelled),
        Event::DeadlinePassed => end(DEADLINE),
        // Parked rather than released, so that the failed attempts stay counted.
        Event::DrainAsked | Event::DrainOver => park(WaitingOn::Retry, Some(Duration::ZERO)),
        Event::Begun
        | Event::Replied(_)
        | Event::Failed { .. }
        | Event::RoundStored { .. }
        | Event::Stored
        | Event::LeaseLost => None,
    }
}

fn storing(round: u32, draining: bool, event: Event, rules: &Rules) -> Option<Step> {
    match event {
        Event::RoundStored { cancelled: true } => end(End::Cancelled),
        Event::RoundStored { cancelled: false } if round + 1 >= rules.rounds_max => {
            end(End::Completed(StopReason::RoundLimit))
        }
        Event::RoundStored { cancelled: false } if draining => {
            step(State::Releasing, [Command::Release])
        }
        Event::RoundStored { cancelled: false } => {
            let round = round + 1;
            step(
                State::Asking {
                    round,
                    attempt: 1,
                    draining: false,
                },
                [Command::Ask { round, attempt: 1 }],
            )
        }
        Event::DrainAsked | Event::DrainOver => step(
            State::Storing {
                round,
                draining: true,
            },
            [],
        ),
        // The transaction under way reads a cancel itself and says so in `RoundStored`; the next
        // model call is bounded by the deadline again, which then passes at once.
        Event::CancelRaised | Event::DeadlinePassed => step(State::Storing { round, draining }, []),
        Event::Begun
        | Event::Replied(_)
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::Stored
        | Event::LeaseLost => None,
    }
}

fn storing_last(state: State, event: Event) -> Option<Step> {
    match event {
        Event::Stored => step(State::Left, []),
        // The transaction under way decides; a cancel that it misses finds a final send, a parked
        // one or one without owner, each of which the canceller ends itself.
        Event::CancelRaised | Event::DeadlinePassed | Event::DrainAsked | Event::DrainOver => {
            step(state, [])
        }
        Event::Begun
        | Event::Replied(_)
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::LeaseLost => None,
    }
}

fn left(event: Event) -> Option<Step> {
    match event {
        // What was on its way when the send was left concerns nobody any more.
        Event::CancelRaised | Event::DeadlinePassed | Event::DrainAsked | Event::DrainOver => {
            step(State::Left, [])
        }
        Event::Begun
        | Event::Replied(_)
        | Event::Failed { .. }
        | Event::BackoffOver
        | Event::RoundStored { .. }
        | Event::Stored
        | Event::LeaseLost => None,
    }
}

#[cfg(test)]
mod tests;
