//! Arbitrary histories that the world can produce.

use proptest::prelude::*;

use super::*;

/// What the world may answer to the commands of a step, and what may happen at any time.
fn possible(step: &Step) -> Vec<Event> {
    let mut possible = vec![
        Event::CancelRaised,
        Event::Interrupted,
        Event::DeadlinePassed,
        Event::DrainAsked,
        Event::DrainOver,
        Event::LeaseLost,
    ];
    match step.next {
        State::Taken { .. } => possible.extend([Event::Begun, PAUSED]),
        State::Asking { .. } => possible.extend([
            Event::Replied(Answer::Final),
            Event::Replied(Answer::Cut),
            Event::Replied(Answer::Part),
            Event::Replied(Answer::Refused),
            Event::Replied(Answer::Calls),
            Event::Replied(Answer::Again),
            Event::Replied(Answer::Ended),
            BROKE,
            failed(false, None),
            failed(false, Some(60)),
            failed(true, None),
            Event::TooLong,
            Event::Overflowed,
            PAUSED,
        ]),
        State::Folding { .. } => possible.extend([
            Event::Folded { cancelled: false },
            Event::Folded { cancelled: true },
            failed(false, None),
            failed(true, None),
            PAUSED,
        ]),
        State::BackingOff { .. } => possible.push(Event::BackoffOver),
        State::Deciding { .. } => possible.extend([
            Event::Decided(Decision::End),
            Event::Decided(Decision::Again),
            ASKED,
            ASKED_LATE,
        ]),
        State::Storing { .. } => possible.extend([
            stored(Open::Nothing),
            stored(Open::Here),
            stored(OUTSIDE),
            CANCELLED_ROUND,
        ]),
        State::Calling { .. } => possible.extend([
            over(Open::Nothing, true),
            over(Open::Passed, true),
            over(Open::Passed, false),
            over(Open::Nothing, false),
            over(OUTSIDE, true),
            Event::CallsAborted,
            Event::WorkLost,
            PAUSED,
        ]),
        State::Stopping { .. } => possible.extend([
            over(Open::Nothing, true),
            over(Open::Passed, true),
            over(Open::Passed, false),
            over(Open::Nothing, false),
            over(OUTSIDE, true),
            Event::CallsAborted,
            Event::WorkLost,
        ]),
        State::Settling { .. } => possible.extend([
            settled(Open::Nothing),
            settled(Open::Passed),
            settled(Open::Here),
            settled(OUTSIDE),
            CANCELLED_RESULTS,
        ]),
        State::Ending { .. } if step.commands.contains(&Command::End(COMPLETED)) => {
            possible.extend([Event::Stored, Event::Undelivered]);
        }
        State::Parking { .. } => possible.extend([
            Event::Stored,
            Event::Woken {
                open: Open::Nothing,
            },
            Event::Woken { open: Open::Here },
            Event::Woken { open: OUTSIDE },
        ]),
        State::Ending { .. } | State::Pausing | State::Releasing => possible.push(Event::Stored),
        State::Left => possible.retain(|event| *event != Event::LeaseLost),
    }
    possible
}

fn is_write(command: Command) -> bool {
    match command {
        Command::StoreRound
        | Command::StoreResults
        | Command::End(_)
        | Command::Park { .. }
        | Command::Release => true,
        Command::Ask { .. }
        | Command::AbortAsking
        | Command::Fold
        | Command::AbortFold
        | Command::RunCalls
        | Command::InterruptCalls
        | Command::StopCalls
        | Command::AbortCalls
        | Command::Wait(_)
        | Command::Decide(_)
        | Command::AbortDeciding
        | Command::Drop => false,
    }
}

/// The state to check along a history.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of a history")]
#[derive(Debug, Default)]
struct Watch {
    asking: bool,
    folding: bool,
    calling: bool,
    deciding: bool,
    /// Rounds that it may take: by the rules, or as granted in an earlier life.
    rounds: u32,
    /// How often a decision made it continue.
    asked: u32,
    /// Ends, parks and releases that were not undone.
    ends: u32,
    lost: bool,
    interrupts: u32,
    parts: u32,
    overflows: u32,
}

impl Watch {
    fn event(&mut self, event: Event) {
        match event {
            Event::Replied(answer) => {
                self.asking = false;
                self.parts += u32::from(answer == Answer::Part);
            }
            Event::Failed { .. } => (self.asking, self.folding) = (false, false),
            Event::TooLong => self.asking = false,
            Event::Paused { .. } => {
                (self.asking, self.folding, self.calling) = (false, false, false);
            }
            Event::Overflowed => {
                self.asking = false;
                self.overflows += 1;
            }
            Event::Folded { .. } => self.folding = false,
            Event::CallsOver { .. } | Event::CallsAborted => self.calling = false,
            Event::Decided(decision) => {
                self.deciding = false;
                self.asked += u32::from(decision != Decision::End);
            }
            Event::Woken { .. } | Event::Undelivered => self.ends -= 1,
            Event::Interrupted => self.interrupts += 1,
            Event::LeaseLost => self.lost = true,
            // Calls whose process is gone are dropped by a command.
            Event::WorkLost
            | Event::Begun
            | Event::BackoffOver
            | Event::RoundStored { .. }
            | Event::ResultsStored { .. }
            | Event::Stored
            | Event::CancelRaised
            | Event::DeadlinePassed
            | Event::DrainAsked
            | Event::DrainOver => {}
        }
    }

    fn command(&mut self, command: Command) -> Result<(), TestCaseError> {
        match command {
            Command::Ask { round, attempt } => {
                let idle = !self.asking && !self.folding && !self.calling && !self.deciding;
                prop_assert!(idle, "asks beside other work");
                prop_assert!(round < self.rounds + self.asked);
                let more = self.interrupts + self.parts + self.overflows;
                prop_assert!(attempt <= RULES.retry.attempts_max + more);
                self.asking = true;
            }
            Command::AbortAsking => {
                prop_assert!(self.asking, "aborts nothing");
                self.asking = false;
            }
            Command::Fold => {
                let idle = !self.asking && !self.folding && !self.calling;
                prop_assert!(idle, "folds beside other work");
                self.folding = true;
            }
            Command::AbortFold => {
                prop_assert!(self.folding, "aborts nothing");
                self.folding = false;
            }
            Command::RunCalls => {
                prop_assert!(!self.asking && !self.calling, "calls beside other work");
                self.calling = true;
            }
            Command::InterruptCalls | Command::StopCalls => {
                prop_assert!(self.calling, "stops nothing");
            }
            Command::AbortCalls => {
                prop_assert!(self.calling, "drops nothing");
                self.calling = false;
            }
            Command::Decide(_) => {
                let idle = !self.asking && !self.folding && !self.calling && !self.deciding;
                prop_assert!(idle, "decides beside other work");
                self.deciding = true;
            }
            Command::AbortDeciding => {
                prop_assert!(self.deciding, "aborts nothing");
                self.deciding = false;
            }
            Command::End(_) | Command::Park { .. } | Command::Release => self.ends += 1,
            Command::Wait(wait) => prop_assert!(wait <= RULES.hold_max),
            Command::StoreRound | Command::StoreResults | Command::Drop => {}
        }
        prop_assert!(
            !(self.lost && is_write(command)),
            "writes without the lease"
        );
        prop_assert!(self.ends <= 1, "leaves the send twice");
        Ok(())
    }
}

proptest! {
    #[test]
    fn any_history_that_the_world_can_make_is_legal_and_bounded(
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..200),
        crashes in 0u32..7,
        rounds in 0u32..5,
        decides in any::<bool>(),
        open in prop_oneof![Just(Open::Nothing), Just(Open::Passed), Just(Open::Here), Just(OUTSIDE)],
    ) {
        let mut step = Step { next: taken(rounds, crashes, open), commands: vec![] };
        let mut watch = Watch { rounds: rounds.max(RULES.rounds_max), ..Watch::default() };
        for pick in picks {
            let events = possible(&step);
            let event = *pick.get(&events);
            let (before, said) = (step.next, std::mem::take(&mut step.commands));
            watch.event(event);
            let rules = if decides { &JUDGED } else { &RULES };
            step = transition(&before, event, rules).map_err(|e| TestCaseError::fail(e.to_string()))?;
            for command in &step.commands {
                watch.command(*command)?;
            }
            if watch.ends > 0 || watch.lost {
                prop_assert!(!watch.asking && !watch.calling && !watch.deciding, "leaves work behind");
            }
            // The commands of the last step are still the ones to answer.
            if step.commands.is_empty() && step.next == before {
                step.commands = said;
            }
        }
    }
}
