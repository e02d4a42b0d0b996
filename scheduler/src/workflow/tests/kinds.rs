//! Each kind of node, by tables of what happens.

use mainspring_shared::error::Code;
use mainspring_shared::workflow::run::{LeafStart, NodeState, RunAsk, RunStatus};
use serde_json::json;

use super::bed::*;

fn research() -> serde_json::Value {
    json!({"name": "digest", "input": "tea", "root": {"type": "sequence", "steps": [
        agent("plan", &json!({"output_schema": {"type": "object"}})),
        {"type": "foreach", "id": "research", "as": "t", "items_from": "plan.subtopics",
         "max_concurrency": 3, "body": agent("r", &json!({"input": "Subtopic {{t}} of {{plan.n}}, {{t_index}}"}))},
        agent("write", &json!({"inputs_from": ["research"]})),
    ]}})
}

#[test]
fn the_worked_example_runs() {
    let mut bed = Bed::new(&research());
    assert_eq!(bed.paths(), ["/0:plan"]);
    bed.answer(
        "/0:plan",
        says(r#"{"subtopics": ["a", "b", "c", "d"], "n": 4}"#),
    );
    assert_eq!(
        bed.paths(),
        ["/1:research[0]/r", "/1:research[1]/r", "/1:research[2]/r"]
    );
    assert_eq!(said(&bed.live[1].start), "Subtopic b of 4, 1");
    assert_eq!(bed.run.record().counts.leaves, 5);
    bed.answer("/1:research[1]/r", says("B"));
    assert_eq!(bed.paths().last(), Some(&"/1:research[3]/r"));
    bed.answer("/1:research[3]/r", says("D"));
    bed.reload();
    bed.answer("/1:research[0]/r", says("A"));
    bed.answer("/1:research[2]/r", says("C"));
    assert_eq!(bed.paths(), ["/2:write"]);
    assert_eq!(
        said(&bed.live[0].start),
        "in\n\n--- context ---\nA\n\nB\n\nC\n\nD"
    );
    bed.answer("/2:write", says("all"));
    assert_eq!((bed.status(), bed.text()), (RunStatus::Completed, "all"));
    let counts = bed.run.record().counts;
    assert_eq!((counts.leaves, counts.completed, counts.live), (6, 6, 0));
    assert_eq!(bed.run.record().usage.input_tokens, 60);
}

#[test]
fn a_failed_item_halts_only_its_own_fan_out() {
    let inner = json!({"type": "foreach", "as": "x", "items": [1, 2, 3], "id": "in", "body": agent("i", &json!({}))});
    let spec = envelope(
        &json!({"type": "parallel", "id": "out", "on_error": "continue", "branches": [inner, agent("b", &json!({}))]}),
    );
    let mut bed = Bed::new(&spec);
    assert_eq!(bed.live.len(), 4);
    bed.answer("/0:in[1]/i", fails("away"));
    let marks: Vec<_> = bed.live.iter().map(|live| live.cancelled).collect();
    assert_eq!(marks, [true, true, false]);
    bed.answer("/0:in[0]/i", says("late"));
    bed.answer("/0:in[2]/i", says("late"));
    assert_eq!(bed.state("/0:in"), NodeState::Failed);
    bed.answer("/1:b", says("b"));
    assert_eq!((bed.status(), bed.text()), (RunStatus::Completed, "b"));
}

#[test]
fn a_continuing_fan_out_keeps_places() {
    let fan = json!({"type": "foreach", "id": "f", "as": "x", "items": ["a", "b", "c"],
        "on_error": "continue", "body": agent("i", &json!({"input": "{{x}}"}))});
    let mut bed = Bed::new(&envelope(&json!({"type": "sequence", "steps": [fan,
        agent("w", &json!({"input": "{{f.items}} {{f}}"}))]})));
    bed.answer("/0:f[1]/i", fails("away"));
    bed.answer("/0:f[0]/i", says("A"));
    bed.answer("/0:f[2]/i", says(r#"{"k": 1}"#));
    assert_eq!(
        said(&bed.live[0].start),
        "[\"A\",null,{\"k\":1}] A\n\n[item 1 failed: away]\n\n{\"k\": 1}"
    );
    bed.answer("/1:w", says("w"));
    assert_eq!(bed.status(), RunStatus::Completed);
}

#[test]
fn a_failure_ends_a_sequence_and_a_retry_goes_on_from_it() {
    let mut bed = Bed::new(&envelope(&json!({"type": "sequence", "steps": [
        agent("a", &json!({})), agent("b", &json!({})), agent("c", &json!({}))]})));
    bed.answer("/0:a", says("A"));
    bed.answer("/1:b", fails("away"));
    assert_eq!(
        (bed.status(), bed.code()),
        (RunStatus::Failed, Some(Code::LlmUnavailable))
    );
    bed.reload();
    bed.ask(RunAsk::Retry { max_tokens: None });
    assert_eq!(
        (bed.status(), bed.run.record().attempt),
        (RunStatus::Running, 2)
    );
    assert_eq!(bed.paths(), ["/1:b"]);
    assert_eq!(bed.live[0].start.attempt, 2);
    bed.answer("/1:b", says("B"));
    bed.answer("/2:c", says("C"));
    assert_eq!((bed.status(), bed.text()), (RunStatus::Completed, "C"));
    let counts = bed.run.record().counts;
    assert_eq!((counts.leaves, counts.completed, counts.failed), (3, 3, 0));
}

#[test]
fn every_order_of_ends_and_every_crash_gives_the_same_result() {
    let script = |start: &LeafStart| match start.path.as_str() {
        "/0:plan" => says(r#"{"subtopics": ["a", "b", "c", "d", "e"], "n": 5}"#),
        _ => says(&format!("<{}>", said(start))),
    };
    let mut results = Vec::new();
    for seed in 0..20_u64 {
        let mut bed = Bed::new(&research());
        bed.crashes = seed % 2 == 1;
        let mut state = seed;
        bed.finish(&script, |width| {
            state = state.wrapping_mul(25_214_903_917).wrapping_add(11) % (1 << 48);
            (state >> 20) as usize % width
        });
        assert!(bed.live_most <= 3);
        results.push(bed.run.record().result.clone());
    }
    assert!(results[0].is_some());
    assert!(results.iter().all(|result| *result == results[0]));
}
