//! One function per state, with an arm for every event.

mod asking;
mod calling;
mod leaving;

use std::time::Duration;

use self::asking::{asking, backing_off, folding, taken};
use self::calling::{calling, settling, stopping, storing};
use self::leaving::{deciding, ending, left, parking, pausing, releasing};
use super::{Command, End, Event, Open, Rules, State, Step};
use crate::error::Code;
use crate::send::{StopReason, WaitingOn};

const DEADLINE: End = End::Failed(StopReason::Deadline, Code::SendDeadline);

const ATTEMPT_LIMIT: End = End::Failed(StopReason::AttemptLimit, Code::LimitExceeded);

const ROUND_LIMIT: End = End::Completed(StopReason::RoundLimit);

/// The model says that it has nothing to answer.
const PASSED: End = End::Completed(StopReason::End);

/// The step after an event; `None` if the event cannot happen.
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
        State::Deciding {
            round,
            attempt,
            last,
            why,
            draining,
        } => deciding((round, attempt, last), why, draining, event),
        State::Ending { round } => ending(round, event),
        State::Parking { round, attempt } => parking(round, attempt, event, rules),
        State::Pausing => pausing(event),
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

/// The step after losing the lease, in any state: nothing may be written without it.
fn lease_lost(state: State) -> Option<Step> {
    match state {
        State::Asking { .. } => to(State::Left, [Command::AbortAsking, Command::Drop]),
        State::Folding { .. } => to(State::Left, [Command::AbortFold, Command::Drop]),
        State::Calling { .. } | State::Stopping { .. } => {
            to(State::Left, [Command::AbortCalls, Command::Drop])
        }
        State::Deciding { .. } => to(State::Left, [Command::AbortDeciding, Command::Drop]),
        State::Taken { .. }
        | State::BackingOff { .. }
        | State::Storing { .. }
        | State::Settling { .. }
        | State::Ending { .. }
        | State::Parking { .. }
        | State::Pausing
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

/// Ends the send. If hooks are to be asked first and they let it continue, it does so with this
/// round and attempt.
fn finish(
    (round, attempt): (u32, u32),
    last: u32,
    why: End,
    draining: bool,
    rules: &Rules,
) -> Option<Step> {
    if !rules.decides {
        return end(last, why);
    }
    let next = State::Deciding {
        round,
        attempt,
        last,
        why,
        draining,
    };
    to(next, [Command::Decide(why)])
}

fn park(round: u32, attempt: u32, on: WaitingOn, after: Option<Duration>) -> Option<Step> {
    let next = State::Parking { round, attempt };
    to(next, [Command::Park { on, after }])
}

/// Parks the send for a pause. The worker that continues it starts from the rows.
fn pause(within: Duration) -> Option<Step> {
    let (on, after) = (WaitingOn::Retry, Some(within));
    to(State::Pausing, [Command::Park { on, after }])
}

/// Aborts what is in flight, and ends the send.
fn abort_and_end(round: u32, abort: Command, why: End) -> Option<Step> {
    to(State::Ending { round }, [abort, Command::End(why)])
}

/// The step after a stored round, depending on what its calls still need.
fn after_round(round: u32, draining: bool, open: Open, rules: &Rules) -> Option<Step> {
    let next = (round + 1, begun(round + 1, rules) + 1);
    match open {
        Open::Here => to(State::Calling { round, draining }, [Command::RunCalls]),
        Open::Outside { on, within } => park(round, 0, on, within),
        Open::Passed => finish(next, round, PASSED, draining, rules),
        Open::Nothing if round + 1 >= rules.rounds_max => {
            finish(next, round, ROUND_LIMIT, draining, rules)
        }
        Open::Nothing if draining => to(State::Releasing, [Command::Release]),
        Open::Nothing => ask(next.0, next.1),
    }
}

/// Attempts of a round that earlier workers started. Results may be stored with the round after
/// them, so a round that was already requested may be requested again only after its predecessor's calls.
fn begun(round: u32, rules: &Rules) -> u32 {
    if round == rules.first_round {
        rules.begun
    } else {
        0
    }
}
