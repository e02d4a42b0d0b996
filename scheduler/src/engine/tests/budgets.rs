//! Budgets: the sum of what is handed out and what is spent never exceeds the limit.

use mainspring_shared::agent::Delegation;
use mainspring_shared::budget::Budget;
use mainspring_shared::error::Code;
use mainspring_shared::time::{Span, Timestamp};
use mainspring_shared::workflow::run::{
    LeafStart, RunAsk, RunEvent, RunOptions, RunStatus, Starter,
};
use serde_json::{Value, json};

use super::fixture::{Fixture, agent, envelope, fails, says};
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

/// The budget that a send reserved for the run it starts.
fn set_aside(budget: Budget) -> RunOptions {
    RunOptions {
        starter: Some(Box::new(Starter {
            call_id: "call".to_owned(),
            delegation: Delegation::default(),
            budget: Some(budget),
            used: None,
        })),
        ..RunOptions::default()
    }
}

#[test]
fn money_and_rounds_are_given_out_in_slices_as_tokens_are() {
    let budget = Budget {
        usd: Some(0.01),
        rounds: Some(10),
        ..Budget::default()
    };
    let mut fixture = Fixture::with(&fan(40, 1_000_000), json!("x"), set_aside(budget));
    fixture.crashes = true;
    let (mut dollars, mut rounds) = (0.0, 0);
    while !fixture.live.is_empty() {
        let out = fixture
            .live
            .iter()
            .map(|live| live.start.options.budget.expect("a budget"));
        let out: Vec<Budget> = out.collect();
        let given: f64 = out.iter().map(|one| one.usd.expect("dollars")).sum();
        let given_rounds: u32 = out.iter().map(|one| one.rounds.expect("rounds")).sum();
        assert!(dollars + given <= 0.010_000_1, "{dollars} and {given}");
        assert!(rounds + given_rounds <= 10, "{rounds} and {given_rounds}");
        let mut end = says("x");
        end.usage.cost_usd = out[0].usd;
        dollars += out[0].usd.expect("dollars");
        rounds += 1;
        fixture.end(0, end);
    }
    assert_eq!(fixture.code(), Some(Code::BudgetExceeded));
    let used = fixture
        .run
        .record()
        .options
        .starter
        .as_ref()
        .and_then(|starter| starter.used);
    let used = used.expect("it has ended");
    assert_eq!(
        (used.kept.rounds, used.usage),
        (u64::from(rounds), fixture.run.record().usage)
    );
    assert!(
        (dollars - 0.01).abs() < 1e-6 || rounds == 10,
        "{dollars} {rounds}"
    );
}

#[test]
fn what_went_back_is_not_there_for_a_retry() {
    let budget = Budget {
        tokens: Some(1_000),
        ..Budget::default()
    };
    let mut fixture = Fixture::with(&fan(1, 1_000_000), json!("x"), set_aside(budget));
    assert_eq!(slice(&fixture.live[0].start), 1_000);
    fixture.end(0, fails("no"));
    assert!(fixture.status().is_final());
    fixture.reload();
    fixture.ask(RunAsk::Retry { max_tokens: None });
    assert_eq!(
        (fixture.live.len(), fixture.code()),
        (0, Some(Code::BudgetExceeded))
    );
    let max_tokens = Some(5_000);
    fixture.ask(RunAsk::Retry { max_tokens });
    assert_eq!(slice(&fixture.live[0].start), 5_000 - 15);
    fixture.end(0, says("yes"));
    assert_eq!(fixture.status(), RunStatus::Completed);
    let used = fixture
        .run
        .record()
        .options
        .starter
        .as_ref()
        .and_then(|starter| starter.used);
    let used = used.expect("it has ended").usage;
    assert_eq!(
        used.input_tokens + used.output_tokens,
        15,
        "what the first end said"
    );
}

#[test]
fn a_slice_that_is_still_out_when_its_leaf_ends_is_not_given_out_again() {
    let budget = Budget {
        tokens: Some(1_000),
        ..Budget::default()
    };
    let mut fixture = Fixture::with(&fan(2, 600), json!("x"), set_aside(budget));
    let first = slice(&fixture.live[0].start);
    let mut end = says("x");
    end.kept.tokens = first - 15;
    fixture.end(0, end);
    fixture.reload();
    let out: u64 = fixture.live.iter().map(|live| slice(&live.start)).sum();
    assert!(first + out <= 600, "{first} and {out}");
}

#[test]
fn a_run_takes_no_longer_than_its_starter_may() {
    let budget = Budget {
        wall: Some(Span(std::time::Duration::from_mins(1))),
        ..Budget::default()
    };
    let spec = envelope(&agent("a", &json!({})));
    let mut fixture = Fixture::with(&spec, json!("x"), set_aside(budget));
    assert_eq!(fixture.run.record().alarm_at, Some(Timestamp(61_000)));
    fixture.now = Timestamp(61_000);
    fixture.feed(vec![RunEvent::Looked]);
    fixture.answer("/", says("too late"));
    assert_eq!(fixture.code(), Some(Code::BudgetExceeded));
}

/// Ends leaves after they used a random part of their slice, checking the limit at each step.
fn run_through(fixture: &mut Fixture, limit: u64, dice: &mut Dice) {
    for _ in 0..10_000 {
        let spent = fixture.run.record().usage;
        let spent = spent.input_tokens + spent.output_tokens;
        let out: u64 = fixture.live.iter().map(|live| slice(&live.start)).sum();
        assert!(
            spent + out <= limit,
            "{spent} spent and {out} given out of {limit}"
        );
        if fixture.live.is_empty() {
            return;
        }
        let place = dice.below(fixture.live.len() as u64) as usize;
        let mut end = says("x");
        end.usage.input_tokens = dice.below(slice(&fixture.live[place].start) / 2 + 1);
        end.usage.output_tokens = 5.min(slice(&fixture.live[place].start) - end.usage.input_tokens);
        fixture.end(place, end);
    }
}

#[test]
fn a_fan_out_never_overspends() {
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let limit = 100 + dice.below(5_000);
        let mut fixture = Fixture::new(&fan(40, limit));
        fixture.crashes = seed % 2 == 0;
        run_through(&mut fixture, limit, &mut dice);
        assert!(fixture.status().is_final());
        match fixture.status() {
            RunStatus::Failed => assert_eq!(fixture.code(), Some(Code::BudgetExceeded)),
            status => assert_eq!(status, RunStatus::Completed),
        }
    }
}

#[test]
fn a_raised_budget_goes_on_where_the_old_one_ended() {
    let mut fixture = Fixture::new(&fan(4, 150));
    assert_eq!(fixture.live.len(), 1, "there is enough for one call");
    fixture.end(0, {
        let mut end = says("one");
        end.usage.input_tokens = 95;
        end
    });
    assert_eq!(
        (fixture.status(), fixture.code()),
        (RunStatus::Failed, Some(Code::BudgetExceeded))
    );
    fixture.reload();
    fixture.ask(RunAsk::Retry {
        max_tokens: Some(10_000),
    });
    fixture.reload();
    assert_eq!(fixture.live.len(), 3);
    fixture.finish(&|_| says("more"), |_| 0);
    assert_eq!(
        (fixture.status(), fixture.started.len()),
        (RunStatus::Completed, 4)
    );
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
        Fixture::with(&spec, json!("x"), options.clone())
    };
    assert_eq!(slice(&one(0).live[0].start), 1_000);
    assert_eq!(slice(&one(40).live[0].start), 600);
    assert_eq!(one(100).code(), Some(Code::BudgetExceeded));
}

#[test]
fn a_declared_budget_and_a_nested_limit_bound_the_slice() {
    let mut leaf = agent("a", &json!({}));
    leaf["spec"]["budget"] = json!({"tokens": 70});
    let fixture = Fixture::new(&envelope(&leaf));
    assert_eq!(slice(&fixture.live[0].start), 70);
    let mut wide = agent("b", &json!({}));
    wide["spec"]["max_tokens"] = json!(10);
    let inner = json!({"name": "inner", "budget": {"max_tokens": 50},
        "root": {"type": "sequence", "steps": [wide, agent("c", &json!({}))]}});
    let mut fixture = Fixture::new(&envelope(
        &json!({"type": "workflow", "id": "w", "spec": inner}),
    ));
    assert_eq!(slice(&fixture.live[0].start), 50);
    fixture.end(0, says("b"));
    assert_eq!(
        (fixture.status(), fixture.code()),
        (RunStatus::Failed, Some(Code::BudgetExceeded))
    );
}
