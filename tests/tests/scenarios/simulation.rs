//! Simulated worlds generated from seeds. `cargo xtask simulate` runs thousands of them.

use mainspring_shared::agent::OnBusy;
use mainspring_tests::simulation::{Backing, Fault, Harm, Op, POINTS, Plan, What, run, shrunk};
use serde_json::{Value, json};

/// Runs seeds, and reports which fail and how.
fn sound(from: u64, seeds: u64, backing: Backing) {
    let mut failed = Vec::new();
    for seed in from..from + seeds {
        let outcome = run(&Plan::of(seed), backing, false);
        if !outcome.violations.is_empty() {
            failed.push((seed, outcome.violations));
        }
    }
    assert!(
        failed.is_empty(),
        "cargo xtask simulate --seeds 1 --from SEED tells more of {failed:#?}"
    );
}

/// Split into two tests, for two threads.
#[test]
fn fifty_worlds_keep_every_promise() {
    sound(0, 50, Backing::Model);
}

#[test]
fn fifty_other_worlds_keep_every_promise() {
    sound(50, 50, Backing::Model);
}

#[test]
fn worlds_on_sqlite_keep_every_promise() {
    sound(0, 10, Backing::Sqlite);
}

/// Runs a world of one session and one client for each of a few seeds.
fn small_worlds(ops: &[(u64, What)], faults: &[Fault]) {
    for seed in 0..20 {
        let ops = ops.iter().cloned().map(|(pause_ms, what)| Op {
            client: 0,
            pause_ms,
            what,
        });
        let plan = Plan {
            seed,
            workers: 1,
            schedulers: 1,
            sessions: 1,
            concurrency: 2,
            priced: seed % 2 == 0,
            ops: ops.collect(),
            faults: faults.to_vec(),
        };
        let outcome = run(&plan, Backing::Model, false);
        assert!(outcome.violations.is_empty(), "{seed}: {outcome:#?}");
    }
}

fn send(mode: OnBusy, words: Value) -> What {
    What::Send {
        session: 0,
        words,
        mode,
        delay_ms: None,
        deadline_ms: None,
    }
}

#[test]
fn an_end_that_the_database_refuses_leaves_no_call_without_its_result() {
    let works = json!({ "fail": 0, "ms": 20, "rounds": [[["slow", { "ms": 5_000, "n": 1 }]]] });
    let after = json!({ "fail": 0, "ms": 20, "rounds": [] });
    let ops = [
        (50, send(OnBusy::Enqueue, works)),
        (1_000, What::Cancel(0)),
        (3_000, send(OnBusy::Enqueue, after)),
    ];
    for more in 0..3 {
        for harm in [Harm::Refused(more), Harm::Unreadable(more)] {
            let refused = Fault::Call {
                method: "complete_sends",
                nth: 0,
                harm,
            };
            small_worlds(&ops, &[refused]);
        }
    }
}

#[test]
fn a_message_that_cuts_a_back_off_short_is_answered() {
    let fails = json!({ "fail": 1, "ms": 20, "rounds": [] });
    for mode in [OnBusy::Interrupt, OnBusy::Steer] {
        let thinks = json!({ "fail": 0, "ms": 9_000, "rounds": [] });
        let ops = [
            (50, send(OnBusy::Enqueue, fails.clone())),
            (150, send(mode, thinks)),
        ];
        small_worlds(&ops, &[]);
    }
}

#[test]
fn messages_that_interrupt_a_round_take_none_of_its_retries() {
    let thinks = |ms: u32| json!({ "fail": 0, "ms": ms, "rounds": [] });
    let fails = json!({ "fail": 2, "ms": 15, "rounds": [] });
    let ops = [
        (50, send(OnBusy::Enqueue, thinks(9_000))),
        (500, send(OnBusy::Interrupt, thinks(9_000))),
        (500, send(OnBusy::Interrupt, thinks(9_000))),
        (500, send(OnBusy::Interrupt, thinks(9_000))),
        (500, send(OnBusy::Interrupt, fails)),
    ];
    small_worlds(&ops, &[]);
}

/// A point that no world passes finds nothing.
#[test]
fn worlds_pass_every_named_point_and_suffer_there() {
    for (name, _) in POINTS {
        let suffered = (0..200).any(|seed| {
            let mut plan = Plan::of(seed);
            plan.faults = vec![Fault::Point { name, nth: 0 }];
            let outcome = run(&plan, Backing::Model, true);
            assert!(
                outcome.violations.is_empty(),
                "{name}, {seed}: {outcome:#?}"
            );
            outcome
                .trace
                .iter()
                .any(|line| line.ends_with(&format!(" {name} #0")))
        });
        assert!(suffered, "{name}");
    }
}

/// What is set aside for calls is settled, whatever happens to reservations and settlements.
#[test]
fn money_that_was_set_aside_is_settled_whatever_dies() {
    let works =
        |ms: u32| json!({ "fail": 0, "ms": ms, "rounds": [[["look", { "ms": 5, "n": 1 }]]] });
    let ops: Vec<_> = (0..6)
        .map(|n| (300, send(OnBusy::Enqueue, works(20 + n))))
        .collect();
    for method in ["reserve_money", "settle_money", "sweep_money"] {
        for harm in [
            Harm::Before,
            Harm::After,
            Harm::DiesBefore(500),
            Harm::DiesAfter(500),
            Harm::StopsAfter(15_000),
        ] {
            for nth in [0, 2] {
                small_worlds(&ops, &[Fault::Call { method, nth, harm }]);
            }
        }
    }
}

#[test]
fn a_seed_takes_the_same_course_again_and_another_seed_another() {
    for backing in [Backing::Model, Backing::Sqlite] {
        let courses = [7, 7, 8].map(|seed| run(&Plan::of(seed), backing, true));
        assert_eq!(courses[0].trace, courses[1].trace, "{backing:?}");
        assert_eq!(courses[0], courses[1], "{backing:?}");
        assert_ne!(courses[0].digest, courses[2].digest, "{backing:?}");
        assert!(courses[0].trace.len() > 100, "{:?}", courses[0].trace);
    }
}

#[test]
fn a_world_that_fails_is_made_smaller_and_still_fails() {
    // A database that refuses every send for good keeps its clients waiting for ever.
    let refuses = Fault::Call {
        method: "accept_sends",
        nth: 0,
        harm: Harm::Refused(usize::MAX >> 1),
    };
    let mut plan = (0..10_000)
        .map(Plan::of)
        .find(|plan| {
            let sends = |op: &Op| matches!(op.what, What::Send { .. });
            (3..6).contains(&plan.ops.len()) && plan.ops.iter().any(sends) && plan.faults.len() > 1
        })
        .expect("one of the first seeds is such a one");
    plan.faults.push(refuses);
    let small = shrunk(&plan, Backing::Model, 100);
    assert_eq!(small.faults, [refuses]);
    assert_eq!(small.ops.len(), 1, "{:?}", small.ops);
    let outcome = run(&small, Backing::Model, false);
    let mut violations = outcome.violations.iter();
    assert!(
        violations.any(|violation| violation.contains("is not answered")),
        "{:?}",
        outcome.violations
    );
}
