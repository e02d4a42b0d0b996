use proptest::prelude::*;
use serde_json::{Value, json};

use super::samples::{agent, envelope, foreach, samples, steps, with};
use super::*;
use crate::agent::{AgentSpec, SendOptions};
use crate::workflow::spec::{DEPTH_MAX, NODES_MAX};

fn spec_with(key: &str, value: Value) -> Value {
    let mut node = agent("a");
    node["spec"][key] = value;
    node
}

/// An example violation of every rule, in the order of the tables in the manual.
fn faulty() -> Vec<(&'static str, Value)> {
    let mut cases = vec![
        ("text that is not JSON", json!("{nope")),
        ("text of something else", json!("[1]")),
        ("not an object", json!([1])),
        (
            "unknown members",
            json!({"name": "w", "root": agent("a"), "colour": 1, "Root": 2}),
        ),
        ("no name, no root", json!({})),
        (
            "blank name, null input",
            json!({"name": " ", "input": null, "root": agent("a")}),
        ),
        (
            "metadata and timeout",
            json!({"name": "w", "metadata": null, "timeout": "soon", "root": agent("a")}),
        ),
        (
            "budget is a list",
            json!({"name": "w", "budget": [], "root": agent("a")}),
        ),
        (
            "budget members",
            json!({"name": "w", "budget": {"max_tokens": true, "stop_at_remaining_pct": 101, "x": 1}, "root": agent("a")}),
        ),
        (
            "budget without tokens",
            json!({"name": "w", "budget": {}, "root": agent("a")}),
        ),
        ("a node that is a text", envelope(&json!("agent"))),
        ("no type", envelope(&json!({"id": "a"}))),
        (
            "unknown type",
            envelope(&json!({"type": "agnt", "id": "a"})),
        ),
        (
            "duplicate ids",
            envelope(&steps(&json!([
                agent("a"),
                foreach(&json!({"body": agent("a")})),
                agent("b"),
                agent("b")
            ]))),
        ),
    ];
    cases.extend(faulty_leaves());
    cases.extend(faulty_containers());
    cases.extend(faulty_references());
    cases
        .into_iter()
        .map(|(name, value)| {
            let whole = value.get("type").is_none() || value.get("root").is_some();
            (name, if whole { value } else { envelope(&value) })
        })
        .collect()
}

fn faulty_leaves() -> Vec<(&'static str, Value)> {
    vec![
        (
            "agent: everything",
            json!({"type": "agent", "id": "", "input": null, "inputs_from": "a", "output_schema": 1, "z": 1}),
        ),
        ("agent: id is a number", with("a", "id", json!(1))),
        ("agent: spec text", with("a", "spec", json!("{"))),
        ("agent: spec is a list", with("a", "spec", json!([]))),
        (
            "agent: spec is a text of a list",
            with("a", "spec", json!("[]")),
        ),
        (
            "agent: every fault of its spec",
            with(
                "a",
                "spec",
                json!({
                    "name": "", "tools": [1, "no spaces"], "max_rounds": 51, "max_tokens": 0, "temperature": "warm",
                    "model": "", "output_schema": {"type": "text"}, "lifecycle": "linkd", "metadata": [],
                    "budget": {"token": 1}, "pool": 3, "isolation": "vm", "colour": 1,
                }),
            ),
        ),
        ("agent: tools", spec_with("tools", json!("all"))),
        ("agent: rounds", spec_with("max_rounds", json!("many"))),
        ("agent: budget", spec_with("budget", json!(5))),
        (
            "agent: schema shape",
            with(
                "a",
                "output_schema",
                json!({"schema": {"type": "nope"}, "kind": 1}),
            ),
        ),
        (
            "agent: schema",
            with(
                "a",
                "output_schema",
                json!({"name": "X", "schema": {"type": "nope"}}),
            ),
        ),
        ("agent: template", with("a", "input", json!("{{ input"))),
        (
            "agent: template that explodes",
            with("a", "input", json!("{{ input * 1000000000 }}")),
        ),
        (
            "agent: prompt template",
            spec_with("system_prompt", json!("{% set x = 1 %}")),
        ),
        (
            "leaf: retry",
            with(
                "a",
                "retry",
                json!({"max_attempts": 9, "on": ["always"], "backoff": "2h", "backoff_factor": 0, "x": 1}),
            ),
        ),
        ("leaf: retry is a number", with("a", "retry", json!(3))),
        ("leaf: policy", with("a", "timeout", json!(-1))),
        (
            "leaf: continue",
            with("a", "continue_on_error", json!("yes")),
        ),
        (
            "leaf: fallback of a fallback",
            with("a", "fallback", with("b", "fallback", agent("c"))),
        ),
        (
            "when",
            with("a", "when", json!({"ref": 1, "op": "like", "x": 1})),
        ),
        (
            "when without a value",
            with("a", "when", json!({"ref": "input", "op": "eq"})),
        ),
        (
            "when in a text",
            with(
                "a",
                "when",
                json!({"ref": "input", "op": "in", "value": "a"}),
            ),
        ),
        ("approval", json!({"type": "approval", "message": ""})),
        ("tool", json!({"type": "tool", "id": "t", "arguments": []})),
        (
            "tool: arguments",
            json!({"type": "tool", "id": "t", "tool": "x", "arguments": {"a/b": ["{{"]}}),
        ),
        ("nul", with("a", "input", json!("a\0b"))),
    ]
}

fn faulty_containers() -> Vec<(&'static str, Value)> {
    vec![
        ("sequence: empty", steps(&json!([]))),
        ("sequence: a number", steps(&json!(3))),
        ("sequence: numbers", steps(&json!([1, null]))),
        (
            "parallel",
            json!({"type": "parallel", "branches": {}, "max_concurrency": true, "on_error": "stop", "x": 1}),
        ),
        (
            "parallel: too many at once",
            json!({"type": "parallel", "branches": [agent("a")], "max_concurrency": 65}),
        ),
        ("foreach: nothing", json!({"type": "foreach"})),
        (
            "foreach: both lists",
            foreach(&json!({"items_from": "a.b"})),
        ),
        ("foreach: no list", foreach(&json!({"items": null}))),
        ("foreach: items", foreach(&json!({"items": "abc"}))),
        (
            "foreach: reference",
            foreach(&json!({"items": null, "items_from": 5})),
        ),
        (
            "foreach: flags",
            foreach(&json!({"parallel": "yes", "max_concurrency": 0, "on_error": 1})),
        ),
        ("foreach: as", foreach(&json!({"as": "my item"}))),
        (
            "foreach: a word of templates",
            foreach(&json!({"as": "loop"})),
        ),
        (
            "foreach: too many items",
            foreach(&json!({"items": vec![0; 4_097]})),
        ),
        ("branch", json!({"type": "branch", "on": " ", "cases": []})),
        (
            "branch: case",
            json!({"type": "branch", "on": "input", "cases": {"a/b~c": 1}, "default": "x"}),
        ),
        (
            "loop",
            json!({"type": "loop", "id": "l", "max_iterations": 0, "on_exhausted": "stop"}),
        ),
        (
            "loop: until",
            json!({"type": "loop", "id": "l", "body": agent("a"), "until": {"ref": "nope"}}),
        ),
        (
            "loop: continued",
            json!({"type": "loop", "id": "l", "until": {"ref": "a"}, "continue_nodes": ["a", "b", "nope"],
                   "body": {"type": "sequence", "steps": [agent("a"), foreach(&json!({"body": agent("b")}))]}}),
        ),
        (
            "continuation",
            with(
                "a",
                "continuation",
                json!({"max": 4, "extra_rounds": 0, "gate": "never", "more": 1}),
            ),
        ),
        ("wait: nothing", json!({"type": "wait"})),
        (
            "wait: both",
            json!({"type": "wait", "seconds": 1, "duration": "1s"}),
        ),
        ("wait: text", json!({"type": "wait", "seconds": "1"})),
        ("wait: time", json!({"type": "wait", "until": "tomorrow"})),
        (
            "wait: leaf members",
            json!({"type": "wait", "seconds": 1, "retry": {"max_attempts": 2}}),
        ),
        (
            "workflow",
            json!({"type": "workflow", "id": "w", "spec": "x"}),
        ),
        (
            "workflow: inner faults",
            json!({"type": "workflow", "id": "w", "spec": {"name": "", "root": agent("")}}),
        ),
    ]
}

fn faulty_references() -> Vec<(&'static str, Value)> {
    let branch = |on: &str| json!({"type": "branch", "on": on, "cases": {"k": agent("c")}});
    let from = |id: &str| foreach(&json!({"items": null, "items_from": id}));
    vec![
        (
            "unknown names",
            steps(&json!([
                agent("plan"),
                from("plam.x"),
                branch("nope"),
                with("z", "inputs_from", json!(["nope", "plan"]))
            ])),
        ),
        (
            "inside a body",
            steps(&json!([
                foreach(&json!({})),
                with("z", "inputs_from", json!(["b"])),
                branch("b.k")
            ])),
        ),
        (
            "later, itself, beside",
            steps(&json!([
                with("a", "inputs_from", json!(["a", "z"])),
                {"type": "parallel", "branches": [agent("p"), with("q", "input", json!("{{p}}"))]},
                agent("z"),
            ])),
        ),
        (
            "another case",
            json!({"type": "branch", "on": "input", "cases": {"a": agent("a"), "b": with("b", "input", json!("{{a}}"))}}),
        ),
        (
            "no result",
            steps(
                &json!([{"type": "sequence", "id": "s", "steps": [agent("a")]}, with("b", "input", json!("{{s}}"))]),
            ),
        ),
        (
            "a variable is no context",
            foreach(&json!({"body": with("b", "inputs_from", json!(["x"]))})),
        ),
        (
            "a variable outside",
            steps(&json!([
                foreach(&json!({})),
                with("z", "input", json!("{{x}} {{previous}}"))
            ])),
        ),
        (
            "inside a nested workflow",
            steps(&json!([
                agent("a"),
                {"type": "workflow", "id": "w", "spec": {"name": "i", "root": with("b", "input", json!("{{a}}"))}},
                with("c", "input", json!("{{b}}")),
            ])),
        ),
        (
            "a fallback",
            steps(&json!([
                with("a", "fallback", agent("f")),
                with("b", "input", json!("{{f}}"))
            ])),
        ),
        (
            "a dotted context",
            steps(&json!([
                agent("a"),
                with("b", "inputs_from", json!(["a.key"]))
            ])),
        ),
    ]
}

#[test]
fn every_rule_is_told_with_its_place() {
    let mut lines = Vec::new();
    for (name, value) in faulty() {
        let problems = validate(&value).expect_err(name);
        assert!(!problems.is_empty());
        lines.push(format!("{name}:"));
        for problem in problems {
            assert!(!problem.hint.is_empty() && !problem.message.is_empty());
            if !problem.pointer.is_empty() && !value.is_string() {
                let above = problem
                    .pointer
                    .rsplit_once('/')
                    .map_or("", |(above, _)| above);
                let is_text = value.pointer(above).is_none_or(Value::is_string);
                assert!(
                    value.pointer(above).is_some() || is_text,
                    "{} is nowhere",
                    problem.pointer
                );
            }
            let Problem {
                pointer,
                rule,
                message,
                ..
            } = problem;
            lines.push(format!("  {pointer} {rule}: {message}"));
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn tool_names_are_checked_where_they_are_known() {
    let mut spec = envelope(&steps(&json!([
        spec_with("tools", json!(["grep", "grap"])),
        {"type": "tool", "id": "t", "tool": "glob"},
    ])));
    let tools = json!(["grep", {"type": "http", "name": "glob", "url": "https://own.example/"}]);
    let agent = AgentSpec {
        tools: serde_json::from_value(tools).expect("tools"),
        ..AgentSpec::default()
    };
    let granted = [("grep".to_owned(), 0), ("glob".to_owned(), 1)];
    let known = Delegation::new(&agent, &SendOptions::default(), granted);
    let problems = validate_with(&spec, Some(&known)).expect_err("unknown");
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].pointer, "/root/steps/0/spec/tools/1");
    assert_eq!(problems[0].hint, "write \"grep\"");
    assert_eq!(problems[0].rule, "unknown_tool");
    let another = json!([{"type": "http", "name": "glob", "url": "https://other.example/"}]);
    spec["root"]["steps"][0]["spec"]["tools"] = another;
    let problems = validate_with(&spec, Some(&known)).expect_err("another tool of that name");
    assert_eq!((problems.len(), problems[0].rule), (1, "tool"));
    assert_eq!(problems[0].pointer, "/root/steps/0/spec/tools/0");
    assert_eq!(problems[0].hint, "write \"glob\" alone");
    spec["root"]["steps"][0]["spec"]["tools"] = Value::Null;
    assert!(validate_with(&spec, Some(&known)).is_ok());
}

#[test]
fn ten_faults_are_ten_problems() {
    let spec = json!({"name": "", "colour": 1, "input": 5, "metadata": 1, "root": steps(&json!([
        {"type": "agent", "id": "a", "spec": {"name": "n"}},
        with("b", "inputs_from", json!(["nope"])),
        foreach(&json!({"max_concurrency": 0, "on_error": "x"})),
        agent("b"),
        {"type": "nope"},
    ]))});
    assert_eq!(validate(&spec).expect_err("faulty").len(), 10);
}

#[test]
fn the_canonical_form_is_the_same_tree() {
    for sample in samples() {
        let spec = validate(&sample).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let written = spec.to_value();
        let again = validate(&written).unwrap_or_else(|problems| panic!("{problems:#?}"));
        assert_eq!(again, spec);
        assert_eq!(again.to_value(), written);
        let text = Value::String(written.to_string());
        assert_eq!(validate(&text), Ok(spec), "a text of JSON will do");
    }
}

#[test]
fn hostile_shapes_are_problems_and_take_no_time() {
    let mut deep = agent("a");
    for _ in 0..DEPTH_MAX {
        deep = foreach(&json!({ "body": deep }));
    }
    let rules = |value: &Value| -> Vec<&str> {
        validate(value)
            .expect_err("hostile")
            .iter()
            .map(|problem| problem.rule)
            .collect()
    };
    assert!(rules(&envelope(&deep)).contains(&"too_deep"));
    let mut deeper = json!(1);
    for _ in 0..20_000 {
        deeper = Value::Array(vec![deeper]);
    }
    let mut spec = json!({"name": "w"});
    spec.as_object_mut()
        .expect("an object")
        .insert("root".to_owned(), deeper);
    assert_eq!(rules(&spec), ["too_deep"]);
    dismantle(spec);
    let wide: Vec<_> = (0..=NODES_MAX).map(|n| agent(&format!("a{n}"))).collect();
    assert!(rules(&envelope(&steps(&json!(wide)))).contains(&"too_many_nodes"));
    let many: serde_json::Map<_, _> = (0..10_000).map(|n| (format!("k{n}"), json!(n))).collect();
    assert!(rules(&Value::Object(many)).len() <= PROBLEMS_MAX);
    let long = envelope(&with("a", "input", json!("x".repeat(2 << 20))));
    assert_eq!(rules(&long), ["too_large"]);
}

/// Drops a deep value without recursing.
fn dismantle(value: Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(list) => open.extend(list),
            Value::Object(map) => open.extend(map.into_iter().map(|(_, value)| value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Any JSON, with enough of the language's keywords to get past the first checks.
fn any_json() -> impl Strategy<Value = Value> {
    let words = [
        "type",
        "id",
        "spec",
        "agent",
        "sequence",
        "parallel",
        "foreach",
        "branch",
        "loop",
        "wait",
        "approval",
        "tool",
        "workflow",
        "steps",
        "branches",
        "body",
        "cases",
        "default",
        "on",
        "as",
        "items",
        "items_from",
        "until",
        "ref",
        "op",
        "value",
        "when",
        "retry",
        "fallback",
        "name",
        "root",
        "budget",
        "max_tokens",
        "input",
        "{{input}}",
        "{{",
        "output_schema",
        "system_prompt",
        "tools",
        "arguments",
        "message",
        "timeout",
        "a",
        "inputs_from",
        "schema",
    ];
    let word = proptest::sample::select(words.to_vec()).prop_map(str::to_owned);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    let keys = word.clone();
    leaf.prop_recursive(6, 64, 8, move |inner| {
        let members = proptest::collection::btree_map(keys.clone(), inner.clone(), 0..8);
        prop_oneof![
            proptest::collection::vec(inner, 0..5).prop_map(Value::from),
            members
                .clone()
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            (
                members,
                proptest::sample::select(vec![
                    "agent", "sequence", "foreach", "branch", "loop", "workflow"
                ])
            )
                .prop_map(|(map, kind)| {
                    let mut map: serde_json::Map<_, _> = map.into_iter().collect();
                    map.insert("type".to_owned(), json!(kind));
                    Value::Object(map)
                }),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_is_a_spec_or_problems(value in any_json(), place in 0_usize..3) {
        let mut samples = samples();
        let mut whole = samples.swap_remove(place);
        whole["root"] = value.clone();
        for value in [value, whole] {
            match validate(&value) {
                Ok(spec) => prop_assert_eq!(validate(&spec.to_value()), Ok(spec)),
                Err(problems) => prop_assert!(!problems.is_empty()),
            }
        }
    }

    #[test]
    fn a_valid_spec_with_one_part_replaced_is_judged(part in any_json(), place in any::<proptest::sample::Index>()) {
        let mut whole = samples().swap_remove(2);
        let mut pointers = vec![String::new()];
        let mut at = 0;
        while at < pointers.len() {
            let here = pointers[at].clone();
            match whole.pointer(&here) {
                Some(Value::Object(map)) => pointers.extend(map.keys().map(|key| format!("{here}/{key}"))),
                Some(Value::Array(list)) => pointers.extend((0..list.len()).map(|n| format!("{here}/{n}"))),
                _ => {}
            }
            at += 1;
        }
        let pointer: &String = place.get(&pointers);
        *whole.pointer_mut(pointer).expect("it is there") = part;
        if let Ok(spec) = validate(&whole) {
            prop_assert_eq!(validate(&spec.to_value()), Ok(spec));
        }
    }
}
