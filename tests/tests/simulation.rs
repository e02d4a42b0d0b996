//! Simulated worlds from seeds. `cargo xtask simulate` runs thousands of them.

use mainspring_tests::simulation::{Backing, Fault, Harm, Op, Plan, What, run, shrunk};

/// Runs seeds, and says which fail and how.
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

#[test]
fn a_hundred_worlds_keep_every_promise() {
    sound(0, 100, Backing::Model);
}

#[test]
fn worlds_on_sqlite_keep_every_promise() {
    sound(0, 10, Backing::Sqlite);
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
