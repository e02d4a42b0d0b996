mod histories;

use std::fmt::Write as _;

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
    begun: 0,
    lost: 0,
    recovery: Recovery::Auto,
    decides: false,
};

/// The same rules, with a decision before each end of a send.
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
        ("work lost", Event::WorkLost),
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

const COMPLETED: End = End::Completed(StopReason::End);

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
    let rules = Rules {
        begun: 3,
        lost: 3,
        ..RULES
    };
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
fn the_numbers_of_calls_that_were_begun_are_not_used_again_behind_calls_that_are_run_again() {
    let rules = Rules {
        first_round: 1,
        begun: 2,
        lost: 1,
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
    // The rounds that follow were not asked for.
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
        // As without a decision.
        let unasked = transition(&state, event, &RULES).expect("legal");
        assert_eq!(ended, unasked);
    }
    let ended = Event::Replied(Answer::Ended);
    let step = transition(&asking(1, false), ended, &JUDGED).expect("legal");
    assert_eq!(step.commands, [Command::End(COMPLETED)]);
}
