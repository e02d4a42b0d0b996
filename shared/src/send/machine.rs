//! What happens next in a send that a worker runs: a pure function of (state, event).
//!
//! The worker interprets the commands: it asks the model, stores what came back in one
//! transaction, and reports what happened as the next event. Nothing here waits, draws or reads a
//! clock; chance comes in with the event.

mod steps;

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
    /// Model calls begun in one round, those that messages interrupted included.
    pub attempts_max: u32,
    /// When a failed model call is tried again.
    pub retry: retry::Policy,
    /// Waits longer than this park the send instead of holding the worker's memory.
    pub hold_max: Duration,
    /// The first round that is asked for here.
    pub first_round: u32,
    /// Model calls of that round that earlier workers began, or may have: their numbers are taken.
    pub begun: u32,
    /// Of these, calls of which nobody told what became of them: they are no failures, and no interruptions.
    pub lost: u32,
    /// What to do with a round that was open when its worker died.
    pub recovery: Recovery,
    /// Whether somebody is asked before the send ends.
    pub decides: bool,
}

/// What a round's calls still need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// Nothing: each has its result.
    Nothing,
    /// Nothing either, and one of them ended the model's turn.
    Passed,
    /// Some are this worker's to run.
    Here,
    /// All that is left waits for someone outside.
    Outside {
        /// Whom.
        on: WaitingOn,
        /// How long at most; without an end when absent.
        within: Option<Duration>,
    },
}

/// Where a running send stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A worker took it; nothing was done in this life.
    Taken {
        /// Durable rounds.
        rounds: u32,
        /// Model calls already begun in the round that comes.
        attempts: u32,
        /// Deaths of workers under it since the last durable step.
        crashes: u32,
        /// What the calls of the last round need.
        open: Open,
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
    /// What the model would be shown is too long for it: a part is folded before it is asked.
    Folding {
        /// The round.
        round: u32,
        /// The attempt that comes then.
        attempt: u32,
        /// Whether the worker is to give the session back then.
        draining: bool,
    },
    /// The next attempt waits in memory.
    BackingOff {
        /// The round.
        round: u32,
        /// The attempt that failed.
        attempt: u32,
    },
    /// A round is being stored.
    Storing {
        /// The round.
        round: u32,
        /// Whether the worker is to give the session back then.
        draining: bool,
    },
    /// Calls of the round run here.
    Calling {
        /// The round.
        round: u32,
        /// Whether the worker is to give the session back then.
        draining: bool,
    },
    /// Calls are being ended, because the send ends.
    Stopping {
        /// How it ends.
        why: End,
    },
    /// Results of calls are being stored.
    Settling {
        /// The round.
        round: u32,
        /// Whether the worker is to give the session back then.
        draining: bool,
    },
    /// Somebody is asked whether the send may end.
    Deciding {
        /// The round of the answer, or the one that comes next where there is no answer.
        round: u32,
        /// The attempt at that round which was made, or comes next.
        attempt: u32,
        /// The round with which the send ends.
        last: u32,
        /// How it ends.
        why: End,
        /// Whether the worker is to give the session back if it goes on.
        draining: bool,
    },
    /// Its end is being stored.
    Ending {
        /// The round that its answer closes.
        round: u32,
    },
    /// It is being parked.
    Parking {
        /// The round that it is at.
        round: u32,
        /// Model calls begun in that round.
        attempt: u32,
    },
    /// It is being parked until a pause ends: nothing that comes meanwhile keeps it from that.
    Pausing,
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
        /// Earlier model calls of the round that did not fail: each gave a part of its answer, or
        /// was interrupted by a message.
        not_failed: u32,
    },
    /// The model was not asked: what it would be shown is too long.
    TooLong,
    /// The model was asked, and what it was shown was too long.
    Overflowed,
    /// The fold is attached, or the model is asked without one.
    Folded {
        /// Whether a cancel was raised by then.
        cancelled: bool,
    },
    /// What comes next is paused: the model, the tool of a call, the agent or the tenant. Nothing of it was
    /// begun, and nothing else is under way.
    Paused {
        /// When to look again whether it still is, at the latest.
        within: Duration,
    },
    /// The wait in memory is over.
    BackoffOver,
    /// The round is durable.
    RoundStored {
        /// Whether a cancel was raised by then.
        cancelled: bool,
        /// What its calls need.
        open: Open,
    },
    /// Every call that ran here is over.
    CallsOver {
        /// What the others need.
        open: Open,
        /// Whether the results may be stored with the next round, or have to be at once.
        may_ride: bool,
    },
    /// A tool or a person ended the send.
    CallsAborted,
    /// The process that made the calls is gone, as a worker is that dies.
    WorkLost,
    /// The results are durable.
    ResultsStored {
        /// Whether a cancel was raised by then.
        cancelled: bool,
        /// What is left.
        open: Open,
    },
    /// It was to be parked, but what it would wait for has come.
    Woken {
        /// What is left.
        open: Open,
    },
    /// Somebody decided whether it ends.
    Decided(Decision),
    /// It was to end, but the inbox has something for it.
    Undelivered,
    /// The end, the park or the release is durable.
    Stored,
    /// Someone asked to end the send.
    CancelRaised,
    /// Someone has something to say that does not wait for the next boundary.
    Interrupted,
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
    /// A final answer that was cut at its token limit, and is taken as it is.
    Cut,
    /// A part of an answer: the model is asked for the rest.
    Part,
    /// The model declined.
    Refused,
    /// Tools are to be called.
    Calls,
    /// The round counts, but the model has to be asked again: its answer does not fit.
    Again,
    /// Somebody ends the send here, whatever the model asks for: nobody else is asked.
    Ended,
}

/// What somebody decided who was asked whether a send may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It ends.
    End,
    /// It goes on behind its answer, which becomes a round.
    Again,
    /// It goes on without an answer: what the model is told is durable.
    Asked {
        /// Whether a cancel was raised by then.
        cancelled: bool,
    },
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
    /// Fold a part of what the model is shown.
    Fold,
    /// Drop the fold that is under way.
    AbortFold,
    /// Store the round's messages and calls.
    StoreRound,
    /// Run the calls that are this worker's.
    RunCalls,
    /// Tell the calls that can be interrupted to stop.
    InterruptCalls,
    /// Tell all calls to stop, and wait for them as long as each may take.
    StopCalls,
    /// Drop all calls.
    AbortCalls,
    /// Store the results that came.
    StoreResults,
    /// Ask whether the send may end like this.
    Decide(End),
    /// Drop that question.
    AbortDeciding,
    /// Store the end. The answer's messages and the results go with it where there are some.
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
    /// Give the session back with the send as it is, and enqueue it.
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
    steps::step(*state, event, rules).ok_or(IllegalTransition {
        state: *state,
        event,
    })
}

#[cfg(test)]
mod tests;
