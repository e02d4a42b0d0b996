//! Leaves that continue in an existing session.

use serde_json::{Value, json};

use mainspring_shared::id::SessionId;
use mainspring_shared::message::plain_text;
use mainspring_shared::workflow::run::{NodeState, RunStatus};

use super::fixture::{Fixture, agent, cut, envelope, fails, says};

fn leaf(more: &Value) -> Fixture {
    Fixture::new(&envelope(&agent("leaf", more)))
}

/// The session of the leaf in flight, its input, and its round limit if overridden.
fn under_way(fixture: &Fixture) -> (SessionId, String, Option<u32>) {
    let [live] = fixture.live.as_slice() else {
        panic!("one leaf is under way: {:?}", fixture.paths());
    };
    let session = fixture
        .run
        .node(&live.start.path)
        .and_then(|node| node.session);
    let there = live.start.resume_in.as_ref();
    let told = there.map_or(&live.start.input, |there| &there.input);
    let rounds = there.and_then(|there| there.max_rounds);
    (session.expect("a session"), plain_text(told), rounds)
}

#[test]
fn a_leaf_without_rounds_goes_on_in_its_session_as_often_as_it_may() {
    let more = json!({ "continuation": { "max": 2, "extra_rounds": 5, "gate": "always" } });
    let mut fixture = leaf(&more);
    let (session, first, rounds) = under_way(&fixture);
    assert_eq!((first.as_str(), rounds), ("in", None));
    for _ in 0..2 {
        fixture.end(0, cut(false));
        fixture.reload();
        let (same, told, rounds) = under_way(&fixture);
        assert_eq!((same, rounds), (session, Some(5)));
        assert!(told.starts_with("Your rounds were used up"), "{told}");
    }
    fixture.end(0, cut(false));
    assert_eq!(fixture.state("/"), NodeState::Failed);
    let node = fixture.run.node("/").expect("it is there");
    assert_eq!((node.attempt, node.earlier.len()), (3, 2));
}

#[test]
fn only_open_things_to_do_make_it_go_on_unless_it_says_otherwise() {
    let more = json!({ "continuation": {} });
    let mut fixture = leaf(&more);
    assert!(fixture.run.needs_todo("/"));
    fixture.end(0, cut(true));
    assert_eq!(under_way(&fixture).2, Some(8));
    // Only one more was allowed.
    assert!(!fixture.run.needs_todo("/"));
    fixture.end(0, says("done"));
    assert_eq!(fixture.status(), RunStatus::Completed);
    let mut fixture = leaf(&more);
    fixture.end(0, cut(false));
    assert_eq!(fixture.status(), RunStatus::Failed);
}

#[test]
fn a_retry_begins_anew_and_may_go_on_as_often_as_the_first() {
    let retry = json!({ "max_attempts": 2, "on": ["failed", "hit_round_limit"], "backoff": 0 });
    let more = json!({ "retry": retry, "continuation": { "gate": "always" } });
    let mut fixture = leaf(&more);
    let (first, ..) = under_way(&fixture);
    fixture.end(0, cut(false));
    assert_eq!(under_way(&fixture).0, first);
    // The second attempt.
    fixture.end(0, fails("away"));
    let (second, told, _) = under_way(&fixture);
    assert_eq!((second == first, told.as_str()), (false, "in"));
    fixture.end(0, cut(false));
    assert_eq!(under_way(&fixture).0, second);
    fixture.end(0, cut(false));
    assert_eq!(fixture.status(), RunStatus::Failed);
}

#[test]
fn a_loop_keeps_the_sessions_that_it_names() {
    let steps = json!([
        agent("build", &json!({ "input": "build {{round}}" })),
        agent("review", &json!({ "input": "review {{build}}" })),
    ]);
    let spec = envelope(&json!({
        "type": "loop", "id": "cycle", "as": "round", "max_iterations": 3,
        "until": { "ref": "review.ok" }, "continue_nodes": ["build"],
        "body": { "type": "sequence", "steps": steps },
    }));
    let mut fixture = Fixture::new(&spec);
    let (mut builds, mut reviews) = (Vec::new(), Vec::new());
    for round in 1..=3 {
        let (session, told, _) = under_way(&fixture);
        assert_eq!(told, format!("build {round}"));
        builds.push(session);
        fixture.end(0, says("built"));
        reviews.push(under_way(&fixture).0);
        fixture.end(0, says(if round == 3 { r#"{"ok": true}"# } else { "no" }));
    }
    assert_eq!(fixture.status(), RunStatus::Completed);
    assert!(builds.iter().all(|one| *one == builds[0]), "{builds:?}");
    reviews.sort_unstable();
    reviews.dedup();
    assert_eq!(reviews.len(), 3);
}
