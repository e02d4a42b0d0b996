use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

const RULES: Rules = Rules {
    rounds_max: 3,
    crashes_max: 5,
    retry: retry::Policy {
        attempts_max: 3,
        base: Duration::from_secs(1),
        cap: Duration::from_secs(30),
        retry_after_max: Duration::from_mins(10),
    },
    hold_max: Duration::from_secs(5),
    recovery: Recovery::Auto,
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

fn states() -> Vec<(&'static str, State)> {
    vec![
        (
            "taken",
            State::Taken {
                rounds: 0,
                attempts: 0,
                crashes: 0,
            },
        ),
        (
            "taken, crash limit",
            State::Taken {
                rounds: 0,
                attempts: 0,
                crashes: 5,
            },
        ),
        (
            "taken, round limit",
            State::Taken {
                rounds: 3,
                attempts: 0,
                crashes: 0,
            },
        ),
        (
            "asking",
            State::Asking {
                round: 0,
                attempt: 1,
                draining: false,
            },
        ),
        (
            "asking, last attempt",
            State::Asking {
                round: 0,
                attempt: 3,
                draining: false,
            },
        ),
        (
            "asking, draining",
            State::Asking {
                round: 0,
                attempt: 1,
                draining: true,
            },
        ),
        (
            "backing off",
            State::BackingOff {
                round: 0,
                attempt: 1,
            },
        ),
        (
            "storing",
            State::Storing {
                round: 0,
                draining: false,
            },
        ),
        (
            "storing, last round",
            State::Storing {
                round: 2,
                draining: false,
            },
        ),
        (
            "storing, draining",
            State::Storing {
                round: 0,
                draining: true,
            },
        ),
        ("ending", State::Ending),
        ("parking", State::Parking),
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
    }
}

fn events() -> Vec<(&'static str, Event)> {
    vec![
        ("begun", Event::Begun),
        ("replied, final", Event::Replied(Answer::Final)),
        ("replied, cut", Event::Replied(Answer::Cut)),
        ("replied, refused", Event::Replied(Answer::Refused)),
        ("replied, calls", Event::Replied(Answer::Calls)),
        ("failed", failed(false, None)),
        ("failed, retry after 60 s", failed(false, Some(60))),
        ("failed for good", failed(true, None)),
        ("backoff over", Event::BackoffOver),
        ("round stored", Event::RoundStored { cancelled: false }),
        (
            "round stored, cancelled",
            Event::RoundStored { cancelled: true },
        ),
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
        Event::DeadlinePassed,
        Event::DrainAsked,
        Event::DrainOver,
        Event::LeaseLost,
    ];
    match step.next {
        State::Taken { .. } => possible.push(Event::Begun),
        State::Asking { .. } => possible.extend([
            Event::Replied(Answer::Final),
            Event::Replied(Answer::Cut),
            Event::Replied(Answer::Refused),
            Event::Replied(Answer::Calls),
            failed(false, None),
            failed(false, Some(60)),
            failed(true, None),
        ]),
        State::BackingOff { .. } => possible.push(Event::BackoffOver),
        State::Storing { .. } => possible.extend([
            Event::RoundStored { cancelled: false },
            Event::RoundStored { cancelled: true },
        ]),
        State::Ending | State::Parking | State::Releasing => possible.push(Event::Stored),
        State::Left => possible.retain(|event| *event != Event::LeaseLost),
    }
    possible
}

fn is_write(command: Command) -> bool {
    match command {
        Command::StoreRound | Command::End(_) | Command::Park { .. } | Command::Release => true,
        Command::Ask { .. } | Command::AbortAsking | Command::Wait(_) | Command::Drop => false,
    }
}

proptest! {
    #[test]
    fn any_history_that_the_world_can_make_is_legal_and_bounded(
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 1..200),
        crashes in 0u32..7,
        rounds in 0u32..5,
    ) {
        let mut step = Step { next: State::Taken { rounds, attempts: 0, crashes }, commands: vec![] };
        let (mut asked, mut under_way, mut ends, mut lost) = (0, false, 0, false);
        for pick in picks {
            let events = possible(&step);
            let event = *pick.get(&events);
            let before = step.next;
            lost |= event == Event::LeaseLost;
            if matches!(event, Event::Replied(_) | Event::Failed { .. }) {
                under_way = false;
            }
            step = transition(&before, event, &RULES).map_err(|e| TestCaseError::fail(e.to_string()))?;
            for command in &step.commands {
                match command {
                    Command::Ask { round, attempt } => {
                        prop_assert!(!under_way, "asks twice at once");
                        prop_assert!(*round < RULES.rounds_max);
                        prop_assert!(*attempt <= RULES.retry.attempts_max);
                        under_way = true;
                        asked += 1;
                    }
                    Command::AbortAsking => {
                        prop_assert!(under_way, "aborts nothing");
                        under_way = false;
                    }
                    Command::End(_) | Command::Park { .. } | Command::Release => ends += 1,
                    Command::Wait(wait) => prop_assert!(*wait <= RULES.hold_max),
                    Command::StoreRound | Command::Drop => {}
                }
                prop_assert!(!(lost && is_write(*command)), "writes without the lease");
            }
            prop_assert!(ends <= 1, "leaves the send twice");
            if ends > 0 || lost {
                prop_assert!(!under_way, "leaves a model call behind");
            }
        }
        prop_assert!(asked <= RULES.rounds_max * RULES.retry.attempts_max);
    }
}
