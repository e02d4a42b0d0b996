//! What a leaf's session gets from its spec, and runs that were accepted in another version of the
//! language.

use mainspring_shared::workflow::run::{DSL_VERSION, RunOptions};
use mainspring_shared::workflow::validate::validate;
use serde_json::{Value, json};

use super::super::{LoadError, Run};
use super::fixture::{Fixture, agent, cut, envelope, fails, record, says};

fn with_lifecycle(id: &str, lifecycle: &str) -> Value {
    let mut leaf = agent(id, &json!({}));
    leaf["spec"]["lifecycle"] = json!(lifecycle);
    leaf
}

/// A spec that version 1 accepted and the current version refuses.
fn of_version_1() -> Value {
    let mut leaf = with_lifecycle("a", "ephemeral");
    leaf["continuation"] = json!({"max": 1, "gate": "always"});
    envelope(&leaf)
}

#[test]
fn a_run_goes_on_in_the_version_that_it_was_accepted_in() {
    let problems = validate(&of_version_1()).expect_err("refused by now");
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert_eq!(
        (problems[0].pointer.as_str(), problems[0].rule),
        ("/root/continuation", "lifecycle")
    );
    let plain = envelope(&agent("a", &json!({})));
    let mut old = record(&plain, json!("in"), RunOptions::default());
    old.spec = of_version_1();
    let today = Run::load(old.clone(), Vec::new());
    assert!(matches!(today, Err(LoadError::Spec(_))), "{today:?}");
    old.dsl_version = 1;
    let mut fixture = Fixture::of(old);
    fixture.answer("/", cut(true));
    fixture.reload();
    let forgotten = fixture.answer("/", says("done")).forget;
    assert!(
        fixture.status().is_final() && fixture.code().is_none(),
        "{:?}",
        fixture.code()
    );
    assert_eq!(fixture.run.record().dsl_version, 1);
    assert_eq!(forgotten, [], "in version 1 no session went");
}

#[test]
fn a_newer_version_is_not_read() {
    let plain = envelope(&agent("a", &json!({})));
    let mut newer = record(&plain, json!("in"), RunOptions::default());
    newer.dsl_version = DSL_VERSION + 1;
    let found = Run::load(newer, Vec::new());
    assert!(matches!(found, Err(LoadError::Version(version)) if version == DSL_VERSION + 1));
}

/// The agent of the leaf that a run of this spec starts, read in this version of the language.
fn agent_of(spec: &Value, version: i32) -> mainspring_shared::agent::AgentSpec {
    let plain = envelope(&agent("a", &json!({})));
    let mut record = record(&plain, json!("in"), RunOptions::default());
    record.spec = spec.clone();
    record.dsl_version = version;
    let fixture = Fixture::of(record);
    fixture.live[0].start.agent.clone()
}

#[test]
fn a_leaf_has_a_temperature_only_if_its_author_wrote_one() {
    let plain = envelope(&agent("a", &json!({})));
    assert_eq!(agent_of(&plain, DSL_VERSION).temperature, None);
    let written = validate(&plain).expect("valid").to_value();
    assert_eq!(agent_of(&written, DSL_VERSION).temperature, None);
    for heat in [json!(0), json!(0.0), json!(0.7)] {
        let mut own = agent("a", &json!({}));
        own["spec"]["temperature"] = heat.clone();
        let written = validate(&envelope(&own)).expect("valid").to_value();
        assert_eq!(agent_of(&written, DSL_VERSION).temperature, heat.as_f64());
    }
}

#[test]
fn the_zero_that_older_versions_stored_for_every_leaf_is_no_temperature() {
    let stored = |heat: f64| {
        let mut leaf = agent("a", &json!({}));
        leaf["spec"]["temperature"] = json!(heat);
        envelope(&leaf)
    };
    for version in 1..4 {
        assert_eq!(agent_of(&stored(0.0), version).temperature, None);
        assert_eq!(agent_of(&stored(0.5), version).temperature, Some(0.5));
    }
    assert_eq!(agent_of(&stored(0.0), 4).temperature, Some(0.0));
}

#[test]
fn a_leaf_says_how_its_model_is_called() {
    let mut leaf = agent("a", &json!({}));
    let spec = leaf["spec"].as_object_mut().expect("an object");
    spec.insert("tools".into(), json!(["look"]));
    spec.insert("top_p".into(), json!(0.5));
    spec.insert("reasoning_effort".into(), json!("low"));
    spec.insert("tool_choice".into(), json!({"name": "look"}));
    spec.insert("parallel_tool_calls".into(), json!(false));
    spec.insert("model_options".into(), json!({"seed": 7}));
    let written = validate(&envelope(&leaf)).expect("valid").to_value();
    let agent = agent_of(&written, DSL_VERSION);
    let said = serde_json::to_value(&agent).expect("JSON");
    for (name, value) in [
        ("top_p", json!(0.5)),
        ("reasoning_effort", json!("low")),
        ("tool_choice", json!({"name": "look"})),
        ("parallel_tool_calls", json!(false)),
        ("model_options", json!({"seed": 7})),
    ] {
        assert_eq!(said[name], value, "{name}");
    }
}

#[test]
fn how_a_leaf_s_model_is_called_is_checked_with_pointers() {
    let mut leaf = agent("a", &json!({}));
    let spec = leaf["spec"].as_object_mut().expect("an object");
    spec.insert("temperature".into(), json!(3));
    spec.insert("tools".into(), json!(["look"]));
    spec.insert("tool_choice".into(), json!({"name": "go"}));
    spec.insert("model_options".into(), json!({"messages": []}));
    spec.insert("reasoning_effort".into(), json!("huge"));
    let problems = validate(&envelope(&leaf)).expect_err("faulty");
    let found: Vec<_> = problems.iter().map(|one| one.pointer.as_str()).collect();
    assert_eq!(
        found,
        [
            "/root/spec/model_options/messages",
            "/root/spec/reasoning_effort",
            "/root/spec/temperature",
            "/root/spec/tool_choice",
        ]
    );
}

#[test]
fn an_ephemeral_session_goes_once_its_leaf_succeeded() {
    let mut retried = with_lifecycle("a", "ephemeral");
    retried["retry"] = json!({"max_attempts": 2, "backoff": 0});
    let steps = [
        retried,
        with_lifecycle("b", "linked"),
        agent("c", &json!({})),
    ];
    let mut fixture = Fixture::new(&envelope(&json!({"type": "sequence", "steps": steps})));
    assert_eq!(
        fixture.answer("/0:a", fails("no")).forget,
        [],
        "it is kept to be looked at"
    );
    let session = fixture.run.node("/0:a").expect("is there").session;
    assert_eq!(
        fixture.answer("/0:a", says("yes")).forget,
        session.into_iter().collect::<Vec<_>>()
    );
    assert_eq!(fixture.answer("/1:b", says("yes")).forget, []);
    assert_eq!(fixture.answer("/2:c", says("yes")).forget, []);
    assert!(fixture.status().is_final());
}

#[test]
fn what_cannot_go_on_is_told() {
    let body = with_lifecycle("a", "ephemeral");
    let spec = envelope(
        &json!({"type": "loop", "id": "l", "body": body, "until": {"ref": "a"},
        "continue_nodes": ["a"]}),
    );
    let problems = validate(&spec).expect_err("it cannot both go on and be gone");
    let found: Vec<_> = problems
        .iter()
        .map(|one| (one.pointer.as_str(), one.rule))
        .collect();
    assert_eq!(found, [("/root/continue_nodes/0", "lifecycle")]);
}

#[test]
fn sessions_carry_the_metadata_of_their_specs() {
    let mut own = with_lifecycle("a", "detached");
    own["spec"]["metadata"] = json!({"team": "leaf", "own": 1});
    let inner = json!({"name": "inner", "metadata": {"team": "inner", "inner": 2}, "root": own});
    let nested = json!({"type": "workflow", "id": "w", "spec": inner});
    let tool = json!({"type": "tool", "id": "t", "tool": "look"});
    let mut spec = envelope(&json!({"type": "parallel", "branches": [nested, tool]}));
    spec["metadata"] = json!({"team": "outer", "outer": 3});
    let fixture = Fixture::new(&spec);
    let start = |id: &str| {
        let mut live = fixture.live.iter();
        let found = live.find(|live| live.start.path.ends_with(id));
        found.expect("it started").start.clone()
    };
    let leaf = start("a");
    let expected = json!({"team": "leaf", "own": 1, "inner": 2, "outer": 3});
    assert_eq!(
        (Value::Object(leaf.metadata), leaf.detached),
        (expected, true)
    );
    let tool = start("t");
    let expected = json!({"team": "outer", "outer": 3});
    assert_eq!(
        (Value::Object(tool.metadata), tool.detached),
        (expected, false)
    );
}
