//! The state machine of a send that a worker runs: a pure function of (state, event).
//!
//! The worker executes the commands: it calls the model, stores the response in one transaction,
//! and reports the outcome as the next event. Nothing here waits, draws random numbers or reads a
//! clock; randomness comes in with the events.

mod steps;

use std::time::Duration;

use crate::agent::Recovery;
use crate::error::Code;
use crate::retry;
use crate::send::{StopReason, WaitingOn};

/// The limits of a send, fixed when a worker takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Maximum number of rounds.
    pub rounds_max: u32,
    /// Maximum number of takeovers from dead workers without a durable step in between.
    pub crashes_max: u32,
    /// Maximum number of model calls started in one round, including those interrupted by messages.
    pub attempts_max: u32,
    /// The retry policy for failed model calls.
    pub retry: retry::Policy,
    /// Waits longer than this park the send instead of holding the worker's memory.
    pub hold_max: Duration,
    /// The first round that this worker asks for.
    pub first_round: u32,
    /// Model calls of that round that earlier workers started, or may have started; their attempt
    /// numbers are used up.
    pub begun: u32,
    /// Those of `begun` whose outcome is unknown; they count neither as failures nor as
    /// interruptions.
    pub lost: u32,
    /// What to do with a round that a worker's death interrupted.
    pub recovery: Recovery,
    /// Whether hooks are asked before the send ends.
    pub decides: bool,
}

/// What a round's calls still need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// Nothing: each has its result.
    Nothing,
    /// Nothing, and one of them ended the model's turn.
    Passed,
    /// Some are for this worker to run.
    Here,
    /// All remaining calls wait for something outside.
    Outside {
        /// What they wait for.
        on: WaitingOn,
        /// Maximum wait; unlimited when absent.
        within: Option<Duration>,
    },
}

/// Where a running send stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A worker has just taken it; nothing was done under this grant yet.
    Taken {
        /// Number of durable rounds.
        rounds: u32,
        /// Model calls already started in the next round.
        attempts: u32,
        /// Worker deaths since the last durable step.
        crashes: u32,
        /// What the calls of the last round need.
        open: Open,
    },
    /// A model call is in flight.
    Asking {
        /// The round, from 0.
        round: u32,
        /// The attempt within the round, from 1.
        attempt: u32,
        /// Whether to release the session at the next boundary.
        draining: bool,
    },
    /// The request is too long for the model: part of it is folded before the call.
    Folding {
        /// The round.
        round: u32,
        /// The attempt that follows.
        attempt: u32,
        /// Whether to release the session afterwards.
        draining: bool,
    },
    /// Waiting in memory for the next attempt.
    BackingOff {
        /// The round.
        round: u32,
        /// The attempt that failed.
        attempt: u32,
    },
    /// The round is being stored.
    Storing {
        /// The round.
        round: u32,
        /// Whether to release the session afterwards.
        draining: bool,
    },
    /// The round's calls are running in this worker.
    Calling {
        /// The round.
        round: u32,
        /// Whether to release the session afterwards.
        draining: bool,
    },
    /// Calls are being stopped because the send ends.
    Stopping {
        /// How it ends.
        why: End,
    },
    /// Results of calls are being stored.
    Settling {
        /// The round.
        round: u32,
        /// Whether to release the session afterwards.
        draining: bool,
    },
    /// Hooks are being asked whether the send may end.
    Deciding {
        /// The round of the answer, or the next one if there is no answer.
        round: u32,
        /// The attempt of that round that was made, or comes next.
        attempt: u32,
        /// The send's last round if it ends.
        last: u32,
        /// How it ends.
        why: End,
        /// Whether to release the session if the send continues.
        draining: bool,
    },
    /// The end is being stored.
    Ending {
        /// The round that its answer closes.
        round: u32,
    },
    /// The send is being parked.
    Parking {
        /// The current round.
        round: u32,
        /// Model calls started in that round.
        attempt: u32,
    },
    /// The send is being parked until a pause ends; nothing that arrives in the meantime prevents that.
    Pausing,
    /// The session is being released with the send unfinished.
    Releasing,
    /// This worker is done with the send.
    Left,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// The worker is ready to start or continue the send.
    Begun,
    /// The model answered.
    Replied(Answer),
    /// The model call failed.
    Failed {
        /// Why.
        code: Code,
        /// Whether the same call would fail again.
        permanent: bool,
        /// The delay that the provider asked for.
        retry_after: Option<Duration>,
        /// Drawn from `[0, 1)`, for the jitter.
        fraction: f64,
        /// Earlier model calls of the round that did not fail: each returned a partial answer or
        /// was interrupted by a message.
        not_failed: u32,
    },
    /// The model was not called: the request is too long.
    TooLong,
    /// The model was called and refused the request as too long.
    Overflowed,
    /// The fold is attached, or the model will be called without one.
    Folded {
        /// Whether a cancel had been raised by then.
        cancelled: bool,
    },
    /// The next action is paused: the model, the tool of a call, the agent or the tenant. Nothing
    /// of it was started, and nothing else is in flight.
    Paused {
        /// Check again after at most this time.
        within: Duration,
    },
    /// The in-memory wait is over.
    BackoffOver,
    /// The round is durable.
    RoundStored {
        /// Whether a cancel had been raised by then.
        cancelled: bool,
        /// What its calls still need.
        open: Open,
    },
    /// All calls that ran in this worker have ended.
    CallsOver {
        /// What the other calls still need.
        open: Open,
        /// Whether the results may be stored with the next round, rather than at once.
        may_ride: bool,
    },
    /// A tool or a person ended the send.
    CallsAborted,
    /// The process that made the calls is gone; like a worker's death.
    WorkLost,
    /// The results are durable.
    ResultsStored {
        /// Whether a cancel had been raised by then.
        cancelled: bool,
        /// What the calls still need.
        open: Open,
    },
    /// The send was not parked: what it would wait for has already arrived.
    Woken {
        /// What the calls still need.
        open: Open,
    },
    /// Hooks decided whether the send ends.
    Decided(Decision),
    /// The send did not end: the inbox has an item for it.
    Undelivered,
    /// The end, the park or the release is durable.
    Stored,
    /// A cancel was requested.
    CancelRaised,
    /// A message arrived that must not wait for the next boundary.
    Interrupted,
    /// The send's deadline passed.
    DeadlinePassed,
    /// The process is draining: release the session at the next boundary.
    DrainAsked,
    /// The drain time is over: the process stops now, even in the middle of something.
    DrainOver,
    /// Another boot owns the session, or may own it.
    LeaseLost,
}

/// What an answer asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A final answer.
    Final,
    /// A final answer that was truncated at its token limit and is accepted as it is.
    Cut,
    /// A partial answer: the model is asked for the rest.
    Part,
    /// The model declined.
    Refused,
    /// Tool calls.
    Calls,
    /// The round counts, but the answer does not fit the output schema: the model is asked again.
    Again,
    /// A hook ends the send here, whatever the model answered; hooks are not asked again.
    Ended,
}

/// What hooks decided about the end of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It ends.
    End,
    /// It continues after its answer, which becomes a round.
    Again,
    /// It continues without an answer; the message to the model is durable.
    Asked {
        /// Whether a cancel had been raised by then.
        cancelled: bool,
    },
}

/// What the worker must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Call the model.
    Ask {
        /// The round.
        round: u32,
        /// The attempt.
        attempt: u32,
    },
    /// Drop the model call in flight.
    AbortAsking,
    /// Fold part of the model's request.
    Fold,
    /// Drop the fold in progress.
    AbortFold,
    /// Store the round's messages and calls.
    StoreRound,
    /// Run the calls that are for this worker.
    RunCalls,
    /// Tell the calls that can be interrupted to stop.
    InterruptCalls,
    /// Tell all calls to stop, and wait for each as long as it may take.
    StopCalls,
    /// Drop all calls.
    AbortCalls,
    /// Store the results received.
    StoreResults,
    /// Ask hooks whether the send may end like this.
    Decide(End),
    /// Drop that question.
    AbortDeciding,
    /// Store the end, together with the answer's messages and the results, if there are any.
    End(End),
    /// Wait in memory, then report `BackoffOver`.
    Wait(Duration),
    /// Park the send.
    Park {
        /// What it waits for.
        on: WaitingOn,
        /// For how long; until someone acts when absent.
        after: Option<Duration>,
    },
    /// Release the session with the send unfinished, and enqueue it.
    Release,
    /// Drop the send without writing anything.
    Drop,
}

/// How a send ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The model answered.
    Completed(StopReason),
    /// It could not be answered.
    Failed(StopReason, Code),
    /// It was cancelled.
    Cancelled,
}

/// The state after an event, and the commands to execute, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Where the send stands now.
    pub next: State,
    /// What to do.
    pub commands: Vec<Command>,
}

/// An event that cannot happen in this state: a bug in the worker.
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
