use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const RULES: Rules = Rules {
    rounds_max: 3,
    crashes_max: 5,
    attempts_max: 100,
    retry: retry::Policy {
        attempts_max: 3,
        base: Duration::from_secs(1),
        cap: Duration::from_secs(30),
        retry_after_max: Duration::from_mins(10),
    },
    hold_max: Duration::from_secs(5),
    first_round: 0,
    lost: 0,
    recovery: Recovery::Auto,
    decides: false,
};

/// The same, where somebody is asked before a send ends.
const JUDGED: Rules = Rules {
    decides: true,
    ..RULES
};

#[test]
fn a_manual_session_waits_for_someone_after_a_death_and_only_then() {
    let rules = Rules {
        recovery: Recovery::Manual,
        ..RULES
    };
    let taken = |crashes| State::Taken {
        rounds: 1,
        attempts: 0,
        crashes,
        open: Open::Nothing,
    };
    let begin = |crashes| transition(&taken(crashes), Event::Begun, &rules).expect("is legal");
    let park = Command::Park {
        on: WaitingOn::Recovery,
        after: None,
    };
    assert_eq!(begin(1).commands, [park]);
    assert_eq!(begin(9).commands, [park]);
    let ask = Command::Ask {
        round: 1,
        attempt: 1,
    };
    assert_eq!(begin(0).commands, [ask]);
}

const OUTSIDE: Open = Open::Outside {
    on: WaitingOn::Human,
    within: None,
};

fn taken(rounds: u32, crashes: u32, open: Open) -> State {
    State::Taken {
        rounds,
        attempts: 0,
        crashes,
        open,
    }
}

fn asking(attempt: u32, draining: bool) -> State {
    State::Asking {
        round: 0,
        attempt,
        draining,
    }
}

#[expect(clippy::too_many_lines, reason = "a table of states")]
fn states() -> Vec<(&'static str, State)> {
    let (round, last) = (0, 2);
    vec![
        ("taken", taken(0, 0, Open::Nothing)),
        ("taken with calls to run", taken(1, 0, Open::Here)),
        ("taken with calls outside", taken(1, 0, OUTSIDE)),
        ("taken, turn passed", taken(1, 0, Open::Passed)),
        ("taken, crash limit", taken(0, 5, Open::Nothing)),
        ("taken, round limit", taken(3, 0, Open::Nothing)),
        ("asking", asking(1, false)),
        ("asking, last attempt", asking(3, false)),
        ("asking, draining", asking(1, true)),
        (
            "folding",
            State::Folding {
                round,
                attempt: 1,
                draining: false,
            },
        ),
        (
            "folding, last attempt",
            State::Folding {
                round,
                attempt: 3,
                draining: false,
            },
        ),
        (
            "folding, draining",
            State::Folding {
                round,
                attempt: 1,
                draining: true,
            },
        ),
        ("backing off", State::BackingOff { round, attempt: 1 }),
        (
            "storing",
            State::Storing {
                round,
                draining: false,
            },
        ),
        (
            "storing, last round",
            State::Storing {
                round: last,
                draining: false,
            },
        ),
        (
            "storing, draining",
            State::Storing {
                round,
                draining: true,
            },
        ),
        (
            "calling",
            State::Calling {
                round,
                draining: false,
            },
        ),
        (
            "calling, last round",
            State::Calling {
                round: last,
                draining: false,
            },
        ),
        (
            "calling, draining",
            State::Calling {
                round,
                draining: true,
            },
        ),
        (
            "stopping",
            State::Stopping {
                why: End::Cancelled,
            },
        ),
        (
            "settling",
            State::Settling {
                round,
                draining: false,
            },
        ),
        (
            "settling, last round",
            State::Settling {
                round: last,
                draining: false,
            },
        ),
        (
            "settling, draining",
            State::Settling {
                round,
                draining: true,
            },
        ),
        (
            "deciding of an answer",
            State::Deciding {
                round,
                attempt: 1,
                last: round,
                why: COMPLETED,
                draining: false,
            },
        ),
        (
            "deciding of the round limit, draining",
            State::Deciding {
                round: last + 1,
                attempt: 1,
                last,
                why: End::Completed(StopReason::RoundLimit),
                draining: true,
            },
        ),
        ("ending", State::Ending { round }),
        ("parking for a retry", State::Parking { round, attempt: 1 }),
        ("parking for calls", State::Parking { round, attempt: 0 }),
        ("parking for the end of a pause", State::Pausing),
        ("releasing", State::Releasing),
        ("left", State::Left),
    ]
}

fn failed(permanent: bool, retry_after: Option<u64>) -> Event {
    Event::Failed {
        code: Code::LlmUnavailable,
        permanent,
        retry_after: retry_after.map(Duration::from_secs),
        fraction: 0.5,
        not_failed: 0,
    }
}

const BROKE: Event = Event::Failed {
    code: Code::BudgetExceeded,
    permanent: true,
    retry_after: None,
    fraction: 0.5,
    not_failed: 0,
};

const PAUSED: Event = Event::Paused {
    within: Duration::from_hours(1),
};

const ASKED: Event = Event::Decided(Decision::Asked { cancelled: false });

const ASKED_LATE: Event = Event::Decided(Decision::Asked { cancelled: true });

const CANCELLED_ROUND: Event = Event::RoundStored {
    cancelled: true,
    open: Open::Nothing,
};

const CANCELLED_RESULTS: Event = Event::ResultsStored {
    cancelled: true,
    open: Open::Nothing,
};

const fn stored(open: Open) -> Event {
    Event::RoundStored {
        cancelled: false,
        open,
    }
}

const fn settled(open: Open) -> Event {
    Event::ResultsStored {
        cancelled: false,
        open,
    }
}

const fn over(open: Open, may_ride: bool) -> Event {
    Event::CallsOver { open, may_ride }
}

fn events() -> Vec<(&'static str, Event)> {
    vec![
        ("begun", Event::Begun),
        ("replied, final", Event::Replied(Answer::Final)),
        ("replied, cut", Event::Replied(Answer::Cut)),
        ("replied, part", Event::Replied(Answer::Part)),
        ("replied, refused", Event::Replied(Answer::Refused)),
        ("replied, calls", Event::Replied(Answer::Calls)),
        ("replied, again", Event::Replied(Answer::Again)),
        ("replied, ended", Event::Replied(Answer::Ended)),
        ("failed", failed(false, None)),
        ("failed, retry after 60 s", failed(false, Some(60))),
        ("failed for good", failed(true, None)),
        ("too long", Event::TooLong),
        ("overflowed", Event::Overflowed),
        ("folded", Event::Folded { cancelled: false }),
        ("folded, cancelled", Event::Folded { cancelled: true }),
        ("paused", PAUSED),
        ("backoff over", Event::BackoffOver),
        ("round stored", stored(Open::Nothing)),
        ("round stored, calls to run", stored(Open::Here)),
        ("round stored, calls outside", stored(OUTSIDE)),
        ("round stored, cancelled", CANCELLED_ROUND),
        ("calls over, turn passed", over(Open::Passed, true)),
        ("calls over", over(Open::Nothing, false)),
        ("calls over, results may ride", over(Open::Nothing, true)),
        ("calls over, others outside", over(OUTSIDE, true)),
        ("calls aborted", Event::CallsAborted),
        ("results stored", settled(Open::Nothing)),
        ("results stored, turn passed", settled(Open::Passed)),
        ("results stored, one may run now", settled(Open::Here)),
        ("results stored, others outside", settled(OUTSIDE)),
        ("results stored, cancelled", CANCELLED_RESULTS),
        (
            "woken",
            Event::Woken {
                open: Open::Nothing,
            },
        ),
        ("woken, one may run now", Event::Woken { open: Open::Here }),
        ("woken, others outside", Event::Woken { open: OUTSIDE }),
        ("decided, it ends", Event::Decided(Decision::End)),
        (
            "decided, behind its answer",
            Event::Decided(Decision::Again),
        ),
        ("decided, it goes on", ASKED),
        ("decided, cancelled", ASKED_LATE),
        ("undelivered", Event::Undelivered),
        ("interrupted", Event::Interrupted),
        ("stored", Event::Stored),
        ("cancel raised", Event::CancelRaised),
        ("deadline passed", Event::DeadlinePassed),
        ("drain asked", Event::DrainAsked),
        ("drain over", Event::DrainOver),
        ("lease lost", Event::LeaseLost),
    ]
}

#[test]
fn the_whole_matrix_is_as_reviewed() {
    let mut matrix = String::new();
    for (state_name, state) in states() {
        writeln!(matrix, "{state_name}").expect("writes");
        for (event_name, event) in events() {
            match transition(&state, event, &RULES) {
                Ok(step) => {
                    writeln!(
                        matrix,
                        "  {event_name}: {:?} {:?}",
                        step.next, step.commands
                    )
                }
                Err(_) => writeln!(matrix, "  {event_name}: illegal"),
            }
            .expect("writes");
        }
    }
    insta::assert_snapshot!(matrix);
}

/// What the world may answer to the commands of a step, and what may come at any time.
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
            PAUSED,
        ]),
        State::Stopping { .. } => possible.extend([
            over(Open::Nothing, true),
            over(Open::Passed, true),
            over(Open::Passed, false),
            over(Open::Nothing, false),
            over(OUTSIDE, true),
            Event::CallsAborted,
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

const COMPLETED: End = End::Completed(StopReason::End);

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

/// What must hold along any history.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of a history")]
#[derive(Debug, Default)]
struct Watch {
    asking: bool,
    folding: bool,
    calling: bool,
    deciding: bool,
    /// Times that somebody had it go on without an answer.
    asked: u32,
    /// Ends, parks and releases that were not taken back.
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
                self.asked += u32::from(matches!(decision, Decision::Asked { .. }));
            }
            Event::Woken { .. } | Event::Undelivered => self.ends -= 1,
            Event::Interrupted => self.interrupts += 1,
            Event::LeaseLost => self.lost = true,
            Event::Begun
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
                prop_assert!(round < RULES.rounds_max + self.asked);
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
        let mut watch = Watch::default();
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
            // What the world may answer is what it was asked last.
            if step.commands.is_empty() && step.next == before {
                step.commands = said;
            }
        }
    }
}

#[test]
fn a_pause_parks_a_send_wherever_something_would_begin() {
    let park = Command::Park {
        on: WaitingOn::Retry,
        after: Some(Duration::from_hours(1)),
    };
    let calling = State::Calling {
        round: 1,
        draining: true,
    };
    for state in [taken(1, 0, Open::Here), asking(2, true), calling] {
        let step = transition(&state, PAUSED, &RULES).expect("is legal");
        assert_eq!(
            (step.next, &step.commands[..]),
            (State::Pausing, &[park][..])
        );
    }
    let storing = State::Storing {
        round: 0,
        draining: false,
    };
    assert!(transition(&storing, PAUSED, &RULES).is_err());
}

#[test]
fn calls_lost_with_other_workers_are_no_failures() {
    let rules = Rules { lost: 3, ..RULES };
    let state = State::Asking {
        round: 0,
        attempt: 4,
        draining: false,
    };
    let failed = Event::Failed {
        code: Code::LlmUnavailable,
        permanent: false,
        retry_after: None,
        fraction: 0.5,
        not_failed: 0,
    };
    let wait = |rules: &Rules| transition(&state, failed, rules).expect("legal").commands;
    // As after the first failure.
    let first = RULES.retry.wait(1, None, 0.5).expect("there are more");
    assert_eq!(wait(&rules), [Command::Wait(first)]);
    assert_ne!(wait(&RULES), [Command::Wait(first)]);
}

#[test]
fn calls_that_messages_interrupted_are_no_failures() {
    let state = State::Asking {
        round: 0,
        attempt: RULES.retry.attempts_max,
        draining: false,
    };
    let failed = |not_failed| Event::Failed {
        code: Code::LlmUnavailable,
        permanent: false,
        retry_after: None,
        fraction: 0.5,
        not_failed,
    };
    let next = |event| transition(&state, event, &RULES).expect("legal").commands;
    let first = RULES.retry.wait(1, None, 0.5).expect("there are more");
    let interrupted = RULES.retry.attempts_max - 1;
    assert_eq!(next(failed(interrupted)), [Command::Wait(first)]);
    assert!(matches!(
        next(failed(0))[..],
        [Command::End(End::Failed(StopReason::ProviderError, _))]
    ));
}

#[test]
fn the_numbers_of_lost_calls_are_not_used_again_behind_calls_that_are_run_again() {
    let rules = Rules {
        first_round: 1,
        lost: 2,
        ..RULES
    };
    let asked = |round| {
        let state = State::Calling {
            round,
            draining: false,
        };
        let over = Event::CallsOver {
            open: Open::Nothing,
            may_ride: true,
        };
        transition(&state, over, &rules).expect("legal").commands
    };
    let ask = |round, attempt| [Command::Ask { round, attempt }];
    assert_eq!(asked(0), ask(1, 3));
    // Nobody asked for the rounds that follow.
    assert_eq!(asked(1), ask(2, 1));
}

#[test]
fn whoever_is_asked_hears_of_every_end_that_is_not_forced() {
    let final_answer = Event::Replied(Answer::Final);
    let settling = State::Settling {
        round: 0,
        draining: false,
    };
    let limit = End::Completed(StopReason::RoundLimit);
    let broke = End::Failed(StopReason::Budget, Code::BudgetExceeded);
    for (state, event, why, next) in [
        (asking(1, false), final_answer, COMPLETED, (0, 1)),
        (asking(2, false), BROKE, broke, (0, 2)),
        (settling, settled(Open::Passed), COMPLETED, (1, 1)),
        (taken(3, 0, Open::Nothing), Event::Begun, limit, (3, 1)),
        (taken(1, 0, Open::Passed), Event::Begun, COMPLETED, (1, 1)),
    ] {
        let step = transition(&state, event, &JUDGED).expect("legal");
        assert_eq!(step.commands, [Command::Decide(why)], "{state:?}");
        let State::Deciding { round, attempt, .. } = step.next else {
            panic!("{step:?}");
        };
        assert_eq!((round, attempt), next, "{state:?}");
        let ends = Event::Decided(Decision::End);
        let ended = transition(&step.next, ends, &JUDGED).expect("legal");
        assert_eq!(ended.commands, [Command::End(why)]);
        // As if nobody had been asked.
        let unasked = transition(&state, event, &RULES).expect("legal");
        assert_eq!(ended, unasked);
    }
    let ended = Event::Replied(Answer::Ended);
    let step = transition(&asking(1, false), ended, &JUDGED).expect("legal");
    assert_eq!(step.commands, [Command::End(COMPLETED)]);
}
