//! Budgets: what is given out and what was spent never pass the limit.

use mainspring_shared::error::Code;
use mainspring_shared::workflow::run::{LeafStart, RunAsk, RunOptions, RunStatus};
use serde_json::{Value, json};

use super::bed::{Bed, agent, envelope, says};
use super::random::Dice;

fn fan(items: usize, max_tokens: u64) -> Value {
    let list: Vec<_> = (0..items).collect();
    let mut leaf = agent("r", &json!({}));
    leaf["spec"]["max_tokens"] = json!(100);
    let mut spec = envelope(
        &json!({"type": "foreach", "id": "f", "as": "x", "items": list,
        "max_concurrency": 8, "body": leaf}),
    );
    spec["budget"] = json!({ "max_tokens": max_tokens });
    spec
}

fn slice(start: &LeafStart) -> u64 {
    let budget = start.options.budget.as_ref().expect("a budget");
    budget.tokens.expect("tokens")
}

/// Ends leaves with whatever part of their slice they used, checking the limit at each step.
fn run_through(bed: &mut Bed, limit: u64, dice: &mut Dice) {
    for _ in 0..10_000 {
        let spent = bed.run.record().usage;
        let spent = spent.input_tokens + spent.output_tokens;
        let out: u64 = bed.live.iter().map(|live| slice(&live.start)).sum();
        assert!(
            spent + out <= limit,
            "{spent} spent and {out} given out of {limit}"
        );
        if bed.live.is_empty() {
            return;
        }
        let place = dice.below(bed.live.len() as u64) as usize;
        let mut end = says("x");
        end.usage.input_tokens = dice.below(slice(&bed.live[place].start) / 2 + 1);
        end.usage.output_tokens = 5.min(slice(&bed.live[place].start) - end.usage.input_tokens);
        bed.end(place, end);
    }
}

#[test]
fn a_fan_out_never_overspends() {
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let limit = 100 + dice.below(5_000);
        let mut bed = Bed::new(&fan(40, limit));
        bed.crashes = seed % 2 == 0;
        run_through(&mut bed, limit, &mut dice);
        assert!(bed.status().is_final());
        match bed.status() {
            RunStatus::Failed => assert_eq!(bed.code(), Some(Code::BudgetExceeded)),
            status => assert_eq!(status, RunStatus::Completed),
        }
    }
}

#[test]
fn a_raised_budget_goes_on_where_the_old_one_ended() {
    let mut bed = Bed::new(&fan(4, 150));
    assert_eq!(bed.live.len(), 1, "there is enough for one call");
    bed.end(0, {
        let mut end = says("one");
        end.usage.input_tokens = 95;
        end
    });
    assert_eq!(
        (bed.status(), bed.code()),
        (RunStatus::Failed, Some(Code::BudgetExceeded))
    );
    bed.reload();
    bed.ask(RunAsk::Retry {
        max_tokens: Some(10_000),
    });
    bed.reload();
    assert_eq!(bed.live.len(), 3);
    bed.finish(&|_| says("more"), |_| 0);
    assert_eq!((bed.status(), bed.started.len()), (RunStatus::Completed, 4));
}

#[test]
fn the_smaller_limit_counts_and_a_part_is_kept_back() {
    let options = RunOptions {
        max_tokens: Some(1_000),
        ..RunOptions::default()
    };
    let one = |pct: u64| {
        let mut spec = fan(1, 5_000);
        spec["budget"]["stop_at_remaining_pct"] = json!(pct);
        Bed::with(&spec, json!("x"), options.clone())
    };
    assert_eq!(slice(&one(0).live[0].start), 1_000);
    assert_eq!(slice(&one(40).live[0].start), 600);
    assert_eq!(one(100).code(), Some(Code::BudgetExceeded));
}

#[test]
fn a_declared_budget_and_a_nested_limit_bound_the_slice() {
    let mut leaf = agent("a", &json!({}));
    leaf["spec"]["budget"] = json!({"tokens": 70});
    let bed = Bed::new(&envelope(&leaf));
    assert_eq!(slice(&bed.live[0].start), 70);
    let mut wide = agent("b", &json!({}));
    wide["spec"]["max_tokens"] = json!(10);
    let inner = json!({"name": "inner", "budget": {"max_tokens": 50},
        "root": {"type": "sequence", "steps": [wide, agent("c", &json!({}))]}});
    let mut bed = Bed::new(&envelope(
        &json!({"type": "workflow", "id": "w", "spec": inner}),
    ));
    assert_eq!(slice(&bed.live[0].start), 50);
    bed.end(0, says("b"));
    assert_eq!(
        (bed.status(), bed.code()),
        (RunStatus::Failed, Some(Code::BudgetExceeded))
    );
}
