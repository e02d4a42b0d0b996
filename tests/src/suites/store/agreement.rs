//! The model store as an oracle: random steps on it and on a database must agree in every outcome,
//! and in what is stored after each step.

mod make;
mod op;
mod world;

use std::future::Future;

use proptest::collection::vec;
use proptest::test_runner::{Config, TestCaseError};

use super::harness::{Opened, drawn};
use world::World;

/// Sequences in a normal run; `MAINSPRING_TEST_CASES` overrides this.
const CASES: u32 = 12;

/// Steps in one sequence, at most.
const STEPS_MAX: usize = 90;

/// How long to shrink a disagreeing sequence, in milliseconds.
const SHRINK_MS_MAX: u32 = 120_000;

/// Runs random sequences on the model and, each on a fresh instance, on the store. Panics at the
/// first disagreement with the shortest sequence found that shows it, and with the seed that
/// reproduces it when set as `MAINSPRING_TEST_SEED`. Does nothing if the store cannot be opened
/// here.
pub fn assert_agrees<O, F>(open: impl Fn() -> F)
where
    O: Opened,
    F: Future<Output = Option<O>>,
{
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 400,
        max_shrink_time: SHRINK_MS_MAX,
        ..Config::default()
    };
    let (seed, mut runner) = drawn(config);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let sequences = vec(op::any(), 1..STEPS_MAX);
    let outcome = runner.run(&sequences, |ops| {
        runtime.block_on(async {
            let Some(opened) = open().await else {
                return Ok(());
            };
            let outcome = World::run(opened.store(), ops).await;
            opened.close().await;
            outcome.map_err(TestCaseError::fail)
        })
    });
    if let Err(disagreement) = outcome {
        panic!("MAINSPRING_TEST_SEED={seed}\n{disagreement}");
    }
}
