//! The cost of a finished leaf does not depend on the number of other leaves.

use serde_json::json;

use super::fixture::{Fixture, agent, envelope, says};
use mainspring_shared::workflow::run::{RunEvent, RunOptions, RunStatus};

/// Nodes visited per leaf in a run of this many leaves, 64 at a time.
fn looks_per_leaf(leaves: usize) -> f64 {
    let inner: Vec<_> = (0..leaves / 10).collect();
    let outer: Vec<_> = (0..10).collect();
    let fan = json!({"type": "foreach", "as": "y", "items": inner, "max_concurrency": 64,
        "id": "g", "body": agent("r", &json!({"input": "{{x}} {{y}}"}))});
    let spec = envelope(
        &json!({"type": "foreach", "as": "x", "id": "f", "items": outer,
        "max_concurrency": 10, "body": fan}),
    );
    let mut fixture = Fixture::lean(&spec, json!("in"), RunOptions::default());
    assert_eq!(fixture.run.record().counts.leaves as usize, leaves);
    while !fixture.run.record().status.is_final() {
        assert!(fixture.live.len() <= 64);
        let events: Vec<RunEvent> = (0..fixture.live.len().min(32))
            .map(|_| fixture.take(0, says("done")))
            .collect();
        fixture.feed(events);
    }
    assert_eq!(fixture.status(), RunStatus::Completed);
    assert_eq!(fixture.run.record().counts.completed as usize, leaves);
    fixture.run.visits() as f64 / leaves as f64
}

#[test]
fn ten_times_the_leaves_cost_ten_times_as_much() {
    let (small, large) = (looks_per_leaf(1_000), looks_per_leaf(10_000));
    assert!(
        large <= small * 1.2,
        "{small} nodes per leaf became {large}"
    );
    assert!(large < 20.0, "{large} nodes are looked at per leaf");
}
