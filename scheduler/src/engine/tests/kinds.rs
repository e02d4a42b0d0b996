//! Each kind of node, tested by tables of events.

use mainspring_shared::agent::Isolation;
use mainspring_shared::error::Code;
use mainspring_shared::send::{SendStatus, StopReason};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::ToolEntry;
use mainspring_shared::workflow::run::{
    LeafStart, NodeState, RunAsk, RunEvent, RunOptions, RunStatus,
};
use serde_json::{Value, json};

use super::fixture::*;

fn research() -> Value {
    json!({"name": "digest", "input": "tea", "root": {"type": "sequence", "steps": [
        agent("plan", &json!({"output_schema": {"type": "object"}})),
        {"type": "foreach", "id": "research", "as": "t", "items_from": "plan.subtopics",
         "max_concurrency": 3, "body": agent("r", &json!({"input": "Subtopic {{t}} of {{plan.n}}, {{t_index}}"}))},
        agent("write", &json!({"inputs_from": ["research"]})),
    ]}})
}

#[test]
fn the_worked_example_runs() {
    let mut fixture = Fixture::new(&research());
    assert_eq!(fixture.paths(), ["/0:plan"]);
    fixture.answer(
        "/0:plan",
        says(r#"{"subtopics": ["a", "b", "c", "d"], "n": 4}"#),
    );
    assert_eq!(
        fixture.paths(),
        ["/1:research[0]/r", "/1:research[1]/r", "/1:research[2]/r"]
    );
    assert_eq!(said(&fixture.live[1].start), "Subtopic b of 4, 1");
    assert_eq!(fixture.run.record().counts.leaves, 5);
    fixture.answer("/1:research[1]/r", says("B"));
    assert_eq!(fixture.paths().last(), Some(&"/1:research[3]/r"));
    fixture.answer("/1:research[3]/r", says("D"));
    fixture.reload();
    fixture.answer("/1:research[0]/r", says("A"));
    fixture.answer("/1:research[2]/r", says("C"));
    assert_eq!(fixture.paths(), ["/2:write"]);
    assert_eq!(
        said(&fixture.live[0].start),
        "in\n\n--- context ---\nA\n\nB\n\nC\n\nD"
    );
    fixture.answer("/2:write", says("all"));
    assert_eq!(
        (fixture.status(), fixture.text()),
        (RunStatus::Completed, "all")
    );
    let counts = fixture.run.record().counts;
    assert_eq!((counts.leaves, counts.completed, counts.live), (6, 6, 0));
    assert_eq!(fixture.run.record().usage.input_tokens, 60);
}

#[test]
fn a_failed_item_halts_only_its_own_fan_out() {
    let inner = json!({"type": "foreach", "as": "x", "items": [1, 2, 3], "id": "in", "body": agent("i", &json!({}))});
    let spec = envelope(
        &json!({"type": "parallel", "id": "out", "on_error": "continue", "branches": [inner, agent("b", &json!({}))]}),
    );
    let mut fixture = Fixture::new(&spec);
    assert_eq!(fixture.live.len(), 4);
    fixture.answer("/0:in[1]/i", fails("away"));
    let marks: Vec<_> = fixture.live.iter().map(|live| live.cancelled).collect();
    assert_eq!(marks, [true, true, false]);
    fixture.answer("/0:in[0]/i", says("late"));
    fixture.answer("/0:in[2]/i", says("late"));
    assert_eq!(fixture.state("/0:in"), NodeState::Failed);
    fixture.answer("/1:b", says("b"));
    assert_eq!(
        (fixture.status(), fixture.text()),
        (RunStatus::Completed, "b")
    );
}

#[test]
fn a_continuing_fan_out_keeps_places() {
    let fan = json!({"type": "foreach", "id": "f", "as": "x", "items": ["a", "b", "c"],
        "on_error": "continue", "body": agent("i", &json!({"input": "{{x}}"}))});
    let mut fixture = Fixture::new(&envelope(&json!({"type": "sequence", "steps": [fan,
        agent("w", &json!({"input": "{{f.items}} {{f}}"}))]})));
    fixture.answer("/0:f[1]/i", fails("away"));
    fixture.answer("/0:f[0]/i", says("A"));
    fixture.answer("/0:f[2]/i", says(r#"{"k": 1}"#));
    assert_eq!(
        said(&fixture.live[0].start),
        "[\"A\",null,{\"k\":1}] A\n\n[item 1 failed: away]\n\n{\"k\": 1}"
    );
    fixture.answer("/1:w", says("w"));
    assert_eq!(fixture.status(), RunStatus::Completed);
}

#[test]
fn a_failure_ends_a_sequence_and_a_retry_goes_on_from_it() {
    let mut fixture = Fixture::new(&envelope(&json!({"type": "sequence", "steps": [
        agent("a", &json!({})), agent("b", &json!({})), agent("c", &json!({}))]})));
    fixture.answer("/0:a", says("A"));
    fixture.answer("/1:b", fails("away"));
    assert_eq!(
        (fixture.status(), fixture.code()),
        (RunStatus::Failed, Some(Code::LlmUnavailable))
    );
    fixture.reload();
    fixture.ask(RunAsk::Retry { max_tokens: None });
    assert_eq!(
        (fixture.status(), fixture.run.record().attempt),
        (RunStatus::Running, 2)
    );
    assert_eq!(fixture.paths(), ["/1:b"]);
    assert_eq!(fixture.live[0].start.attempt, 2);
    fixture.answer("/1:b", says("B"));
    fixture.answer("/2:c", says("C"));
    assert_eq!(
        (fixture.status(), fixture.text()),
        (RunStatus::Completed, "C")
    );
    let counts = fixture.run.record().counts;
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
        let mut fixture = Fixture::new(&research());
        fixture.crashes = seed % 2 == 1;
        let mut state = seed;
        fixture.finish(&script, |width| {
            state = state.wrapping_mul(25_214_903_917).wrapping_add(11) % (1 << 48);
            (state >> 20) as usize % width
        });
        assert!(fixture.live_most <= 3);
        results.push(fixture.run.record().result.clone());
    }
    assert!(results[0].is_some());
    assert!(results.iter().all(|result| *result == results[0]));
}

fn steps(steps: &Value) -> Value {
    envelope(&json!({"type": "sequence", "steps": steps}))
}

#[test]
fn a_branch_takes_the_case_of_a_json_value() {
    for (value, taken) in [
        ("true", "/1/case=true"),
        ("1", "/1/case=1"),
        ("1.0", "/1/case=1"),
        ("null", "/1/case=None"),
        ("\"x\"", "/1/default"),
    ] {
        let mut fixture = Fixture::new(&steps(&json!([
            agent("a", &json!({})),
            {"type": "branch", "on": "a.v", "cases": {
                "true": agent("t", &json!({})), "1": agent("one", &json!({})), "None": agent("n", &json!({})),
            }, "default": agent("d", &json!({}))},
        ])));
        fixture.answer("/0:a", says(&format!("{{\"v\": {value}}}")));
        assert_eq!(fixture.paths(), [taken], "{value}");
    }
    let mut fixture = Fixture::new(&steps(&json!([
        agent("a", &json!({})),
        {"type": "branch", "on": "a", "cases": {"yes": agent("t", &json!({}))}},
    ])));
    fixture.answer("/0:a", says("no"));
    assert_eq!(fixture.code(), Some(Code::WorkflowBranchUnmatched));
}

#[test]
fn a_loop_repeats_until_its_condition_holds() {
    let spec = |exhausted: &str| {
        envelope(
            &json!({"type": "loop", "id": "fix", "max_iterations": 2, "on_exhausted": exhausted,
            "until": {"ref": "check.ok", "op": "eq", "value": true},
            "body": {"type": "sequence", "steps": [
                agent("build", &json!({"input": "{{iteration}} {{previous.why}}"})),
                agent("check", &json!({"input": "{{build}}"})),
            ]}}),
        )
    };
    let mut fixture = Fixture::new(&spec("fail"));
    assert_eq!(said(&fixture.live[0].start), "1 ");
    fixture.answer("/[0]/body/0:build", says("b1"));
    assert_eq!(said(&fixture.live[0].start), "b1");
    fixture.answer(
        "/[0]/body/1:check",
        says(r#"{"ok": false, "why": "small"}"#),
    );
    assert_eq!(said(&fixture.live[0].start), "2 small");
    fixture.reload();
    fixture.answer("/[1]/body/0:build", says("b2"));
    fixture.answer("/[1]/body/1:check", says(r#"{"ok": "True"}"#));
    assert_eq!(fixture.status(), RunStatus::Completed);
    let result = fixture.run.record().result.clone().expect("a result");
    assert_eq!(
        result["payload"],
        json!({"converged": true, "iterations": 2, "last": {"ok": "True"}})
    );
    for (exhausted, status) in [
        ("fail", RunStatus::Failed),
        ("continue", RunStatus::Completed),
    ] {
        let mut fixture = Fixture::new(&spec(exhausted));
        fixture.finish(&|_| says(r#"{"ok": false, "why": "no"}"#), |_| 0);
        assert_eq!(fixture.status(), status);
        assert_eq!(fixture.started.len(), 4);
    }
}

#[test]
fn a_pause_waits_for_its_time() {
    let mut fixture = Fixture::new(&steps(&json!([
        {"type": "wait", "duration": "5m"},
        {"type": "wait", "until": "1970-01-01T00:00:00Z"},
        agent("a", &json!({})),
    ])));
    assert_eq!(
        (fixture.status(), fixture.live.len()),
        (RunStatus::Waiting, 0)
    );
    assert_eq!(fixture.run.record().alarm_at, Some(Timestamp(301_000)));
    fixture.now = Timestamp(300_999);
    fixture.feed(vec![RunEvent::Looked]);
    assert_eq!(fixture.live.len(), 0);
    fixture.reload();
    fixture.now = Timestamp(301_000);
    fixture.feed(vec![RunEvent::Looked]);
    assert_eq!(
        (fixture.status(), fixture.paths()),
        (RunStatus::Running, vec!["/2:a"])
    );
    assert_eq!(fixture.run.record().alarm_at, None);
}

#[test]
fn a_persons_no_fails_a_run_unless_something_decides_by_it() {
    let gate = json!({"type": "approval", "id": "gate", "message": "Publish {{input}}?"});
    let answers = [
        ("yes, with care", Some(true)),
        (r#"{"approved": true, "note": "fine"}"#, Some(true)),
        ("approve", Some(true)),
        ("deny", Some(false)),
        ("no: too long", Some(false)),
        ("hm", Some(false)),
        ("", Some(false)),
    ];
    for (answer, approved) in answers {
        let mut fixture = Fixture::new(&steps(&json!([gate, agent("a", &json!({}))])));
        assert_eq!(fixture.status(), RunStatus::Waiting);
        let start = &fixture.live[0].start;
        assert_eq!(start.agent.model.as_deref(), Some("mainspring/direct"));
        assert_eq!(
            serde_json::from_str::<Value>(&said(start)).expect("JSON"),
            json!({"tool": "ask_person", "arguments": {"question": "Publish in?", "options": ["approve", "deny"]}})
        );
        fixture.answer("/0:gate", says(answer));
        let code = (approved == Some(false)).then_some(Code::ToolDenied);
        assert_eq!(fixture.code(), code, "{answer}");
        let mut fixture = Fixture::new(&steps(&json!([gate,
            {"type": "branch", "on": "gate.approved", "cases": {
                "true": agent("y", &json!({})), "false": agent("n", &json!({"input": "{{gate}}"}))}}])));
        fixture.answer("/0:gate", says(answer));
        let taken = if approved == Some(true) {
            "/1/case=true"
        } else {
            "/1/case=false"
        };
        assert_eq!(fixture.paths(), [taken], "{answer}");
    }
}

#[test]
fn a_tool_leaf_is_a_call_with_rendered_arguments() {
    let call = json!({"type": "tool", "id": "t", "tool": "read_file",
        "arguments": {"path": "{{input}}.md", "n": "{{a.n}}", "deep": ["{{a}}"]}});
    let mut fixture = Fixture::new(&steps(&json!([
        agent("a", &json!({})),
        call,
        agent("b", &json!({"input": "{{t.lines}}"}))
    ])));
    fixture.answer("/0:a", says(r#"{"n": 3}"#));
    let start = &fixture.live[0].start;
    assert_eq!(
        serde_json::from_str::<Value>(&said(start)).expect("JSON"),
        json!({"tool": "read_file", "arguments": {"path": "in.md", "n": 3, "deep": [{"n": 3}]}})
    );
    fixture.answer("/1:t", says(r#"{"lines": [1, 2]}"#));
    assert_eq!(said(&fixture.live[0].start), "[1,2]");
}

#[test]
fn a_nested_workflow_sees_only_its_input() {
    let inner = json!({"name": "inner", "input": "unused", "root":
        {"type": "sequence", "steps": [agent("a", &json!({})), agent("b", &json!({"input": "{{a}}"}))]}});
    let mut fixture = Fixture::new(&steps(&json!([
        agent("a", &json!({})),
        {"type": "workflow", "id": "w", "spec": inner, "input": "<{{a}}>"},
        agent("c", &json!({"input": "{{w}}"})),
    ])));
    fixture.answer("/0:a", says("outer"));
    assert_eq!(
        (fixture.paths()[0], said(&fixture.live[0].start)),
        ("/1:w/body/0:a", "<outer>".to_owned())
    );
    fixture.reload();
    fixture.answer("/1:w/body/0:a", says("inner"));
    assert_eq!(said(&fixture.live[0].start), "inner");
    fixture.answer("/1:w/body/1:b", says("end"));
    assert_eq!(said(&fixture.live[0].start), "end");
}

#[test]
fn a_leaf_is_tried_again_after_a_growing_pause_and_then_replaced() {
    let mut fixture = Fixture::new(&envelope(&agent(
        "a",
        &json!({
            "retry": {"max_attempts": 3, "backoff": "2s", "backoff_factor": 3},
            "timeout": "30s", "fallback": agent("f", &json!({"input": "instead of {{input}}"})),
        }),
    )));
    assert!(fixture.live[0].start.options.deadline.is_some());
    fixture.answer("/", fails("one"));
    assert_eq!(
        (fixture.state("/"), fixture.run.record().alarm_at),
        (NodeState::Waiting, Some(Timestamp(3_000)))
    );
    fixture.now = Timestamp(3_000);
    fixture.feed(vec![RunEvent::Looked]);
    fixture.answer("/", says("  "));
    assert_eq!(fixture.run.record().alarm_at, Some(Timestamp(9_000)));
    fixture.now = Timestamp(9_000);
    fixture.reload();
    fixture.feed(vec![RunEvent::Looked]);
    assert_eq!(fixture.live[0].start.attempt, 3);
    let mut late = says("");
    late.status = SendStatus::Failed;
    late.stop_reason = StopReason::Deadline;
    fixture.answer("/", late);
    assert_eq!(fixture.paths(), ["/fallback"]);
    let earlier = &fixture.run.node("/").expect("the leaf").earlier;
    let codes: Vec<_> = earlier
        .iter()
        .map(|one| one.error.as_ref().map(|error| error.code))
        .collect();
    assert_eq!(
        codes,
        [
            Some(Code::LlmUnavailable),
            Some(Code::OutputNoJson),
            Some(Code::WorkflowTimeout)
        ]
    );
    fixture.answer("/fallback", says("other"));
    assert_eq!(
        (fixture.status(), fixture.text()),
        (RunStatus::Completed, "other")
    );
    assert_eq!(fixture.run.record().usage.input_tokens, 40);
}

#[test]
fn what_failed_is_said_to_those_who_read_it() {
    let mut fixture = Fixture::new(&steps(&json!([
        agent("a", &json!({"continue_on_error": true})),
        agent("s", &json!({"when": {"ref": "a.k"}})),
        agent(
            "b",
            &json!({"input": "{{a}} {{a.key}}", "inputs_from": ["a", "s"]})
        ),
    ])));
    fixture.answer("/0:a", fails("away"));
    assert_eq!(fixture.state("/1:s"), NodeState::Skipped);
    let notice = "[the node \"a\" failed: away]";
    let skipped = "[the node \"s\" was skipped: its condition did not hold]";
    assert_eq!(
        said(&fixture.live[0].start),
        format!("{notice} {notice}\n\n--- context ---\n{notice}\n\n{skipped}")
    );
    fixture.answer("/2:b", says("b"));
    assert_eq!(fixture.status(), RunStatus::Completed);
    let counts = fixture.run.record().counts;
    assert_eq!((counts.completed, counts.failed, counts.skipped), (1, 1, 1));
}

#[test]
fn a_reference_without_a_value_fails_its_leaf_and_starts_nothing() {
    let mut fixture = Fixture::new(&steps(&json!([
        agent("a", &json!({})),
        agent("b", &json!({"input": "{{a.nope}}"}))
    ])));
    fixture.answer("/0:a", says("text"));
    assert_eq!(
        (fixture.status(), fixture.code()),
        (RunStatus::Failed, Some(Code::WorkflowRefUnresolved))
    );
    assert_eq!(fixture.started.len(), 1);
    let mut fixture = Fixture::new(&steps(&json!([agent("a", &json!({})),
        {"type": "foreach", "as": "x", "items_from": "a.list", "body": agent("b", &json!({}))}])));
    fixture.answer("/0:a", says(r#"{"list": "no"}"#));
    assert_eq!(fixture.code(), Some(Code::WorkflowRefUnresolved));
}

#[test]
fn a_list_that_is_too_long_is_refused_when_it_is_made() {
    let mut fixture = Fixture::new(&steps(&json!([agent("a", &json!({})),
        {"type": "foreach", "as": "x", "items_from": "a.list", "body": agent("b", &json!({}))}])));
    let list: Vec<_> = (0..4_097).collect();
    fixture.answer("/0:a", says(&json!({"list": list}).to_string()));
    assert_eq!(
        (fixture.status(), fixture.code()),
        (RunStatus::Failed, Some(Code::WorkflowTooLarge))
    );
    let list: Vec<_> = (0..101).collect();
    let nested =
        json!({"type": "foreach", "as": "y", "items": list, "body": agent("b", &json!({}))});
    let fixture = Fixture::new(&envelope(
        &json!({"type": "foreach", "as": "x", "items": list, "body": nested}),
    ));
    assert_eq!(
        (fixture.status(), fixture.code()),
        (RunStatus::Failed, Some(Code::WorkflowTooLarge))
    );
}

#[test]
fn a_run_that_takes_too_long_ends_its_leaves() {
    let mut spec = steps(&json!([agent("a", &json!({})), agent("b", &json!({}))]));
    spec["timeout"] = json!(60);
    let mut fixture = Fixture::new(&spec);
    assert_eq!(fixture.run.record().alarm_at, Some(Timestamp(61_000)));
    fixture.now = Timestamp(61_000);
    fixture.feed(vec![RunEvent::Looked]);
    assert!(fixture.live[0].cancelled && !fixture.status().is_final());
    fixture.reload();
    fixture.answer("/0:a", says("too late"));
    assert_eq!(
        (fixture.status(), fixture.code()),
        (RunStatus::Failed, Some(Code::WorkflowTimeout))
    );
    assert_eq!(fixture.started.len(), 1);
}

#[test]
fn a_leaf_chooses_its_isolation_and_a_run_may_ask_for_more() {
    let mut own = agent("a", &json!({}));
    let isolated = |leaf: &Value, options: RunOptions| {
        let fixture = Fixture::with(&envelope(leaf), json!("x"), options);
        fixture.live[0].start.agent.isolation
    };
    let run = RunOptions {
        isolation: Isolation::Process,
        ..RunOptions::default()
    };
    assert_eq!(isolated(&own, RunOptions::default()), Isolation::None);
    assert_eq!(isolated(&own, run.clone()), Isolation::Process);
    own["spec"]["isolation"] = json!("process");
    assert_eq!(isolated(&own, RunOptions::default()), Isolation::Process);
    own["spec"]["isolation"] = json!("none");
    assert_eq!(isolated(&own, run), Isolation::Process);
}

#[test]
fn leaves_get_no_more_tools_than_whoever_started_the_run() {
    let options = RunOptions {
        allow: Some(vec!["grep".to_owned()]),
        ..RunOptions::default()
    };
    let inherit = Fixture::with(
        &envelope(&agent("a", &json!({}))),
        json!("x"),
        options.clone(),
    );
    let started = &inherit.live[0].start.agent;
    assert_eq!(started.tools, [ToolEntry::Named("grep".to_owned())]);
    let mut own = agent("a", &json!({}));
    own["spec"]["tools"] = json!(["shell", "grep"]);
    let fixture = Fixture::with(&envelope(&own), json!("x"), options);
    assert_eq!(
        fixture.live[0].start.agent.allow,
        Some(vec!["grep".to_owned()])
    );
    assert_eq!(fixture.live[0].start.agent.tools.len(), 2);
}
