use std::time::Duration;

use super::work::{Excess, STEPS_MAX};
use super::*;

/// Far longer than any check takes even on a busy machine, and far shorter than an unbounded one.
const SOON: Duration = Duration::from_secs(10);

/// The steps of a check, which are counted and so independent of the machine.
fn steps(schema: &Schema, value: &Value) -> Result<u64, Excess> {
    let Compiled { json, targets, .. } = &*schema.0;
    Work::of(json, targets, value, STEPS_MAX)
}

/// Levels that each apply the one below twice: 2^`levels` checks of a single value.
fn doubling(levels: usize) -> Value {
    let mut defs = serde_json::Map::new();
    defs.insert("a0".into(), json!({ "type": "string" }));
    for level in 1..=levels {
        let below = json!({ "$ref": format!("#/$defs/a{}", level - 1) });
        defs.insert(format!("a{level}"), json!({ "allOf": [below, below] }));
    }
    json!({ "$defs": defs, "$ref": format!("#/$defs/a{levels}") })
}

/// How long it takes in real time.
fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    #[expect(clippy::disallowed_methods, reason = "real time is what is measured")]
    let began = std::time::Instant::now();
    let done = what();
    (done, began.elapsed())
}

fn pointer(schema: &Value) -> String {
    Schema::compile(schema).expect_err("refused").pointer
}

#[test]
fn faults_say_where_and_what() {
    let schema = Schema::compile(&json!({
        "type": "object",
        "required": ["path"],
        "properties": {"path": {"type": "string"}, "n": {"type": "integer", "minimum": 1}},
        "additionalProperties": false,
    }))
    .expect("compiles");
    assert!(schema.faults(&json!({"path": "a", "n": 2})).is_empty());
    let faults = schema.faults(&json!({"n": 0, "z": 1})).join("\n");
    for part in ["path", "/n", "z"] {
        assert!(faults.contains(part), "{part} in {faults}");
    }
}

#[test]
fn a_schema_that_points_outside_is_refused() {
    let away = json!({"type": "object", "properties": {"a": {"$ref": "https://x.example/s"}}});
    assert_eq!(pointer(&away), "/properties/a/$ref");
    let file = json!({"$ref": "file:///etc/passwd"});
    assert_eq!(pointer(&file), "/$ref");
    let inner = json!({"properties": {"a": {"$id": "https://x.example/s", "$ref": "#/b"}}});
    assert_eq!(pointer(&inner), "/properties/a/$id");
    assert_eq!(pointer(&json!({"$ref": "#/nowhere"})), "/$ref");
}

#[test]
fn references_that_repeat_each_other_are_refused_at_once() {
    let (fault, took) = timed(|| Schema::compile(&doubling(30)));
    let fault = fault.expect_err("refused");
    assert!(fault.pointer.starts_with("/$defs/a"), "{fault:?}");
    assert!(fault.detail.contains("subschemas apply"), "{fault:?}");
    assert!(took < SOON, "{took:?}");
    // A few levels may be a legitimate style.
    let small = Schema::compile(&doubling(5)).expect("compiles");
    assert!(small.faults(&json!("text")).is_empty());
    assert_eq!(small.faults(&json!(1)).len(), FAULTS_MAX);
}

#[test]
fn a_schema_that_applies_itself_is_refused() {
    for (schema, at) in [
        (json!({"$ref": "#"}), ""),
        (
            json!({"anyOf": [{"type": "null"}, {"not": {"$ref": "#"}}]}),
            "",
        ),
        (
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            "/$defs/a",
        ),
    ] {
        assert_eq!(pointer(&schema), at, "{schema}");
    }
}

#[test]
fn a_tree_is_checked_as_deep_as_a_value_can_be() {
    let tree = Schema::compile(&json!({
        "$defs": {"node": {
            "type": "object",
            "required": ["v"],
            "properties": {
                "v": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
        }},
        "$ref": "#/$defs/node",
    }))
    .expect("compiles");
    let chain = |last: Value, depth: usize| {
        (0..depth).fold(
            json!({ "v": last }),
            |next, v| json!({"v": v, "next": next}),
        )
    };
    assert!(tree.faults(&chain(json!(1), 120)).is_empty());
    assert!(!tree.faults(&chain(json!("x"), 120)).is_empty());
    let faults = tree.faults(&chain(json!(1), 400));
    assert!(faults[0].contains("nested too deeply"), "{faults:?}");
}

#[test]
fn a_tree_whose_branches_repeat_is_not_checked_for_ever() {
    let both = json!({"properties": {"a": {"$ref": "#"}}});
    let schema = Schema::compile(&json!({
        "properties": {"a": {"allOf": [both, both]}, "v": {"type": "integer"}},
    }))
    .expect("compiles");
    let value = (0..100).fold(json!({"v": "x"}), |below, _| json!({ "a": below }));
    assert_eq!(steps(&schema, &value), Err(Excess::Steps));
    let (faults, took) = timed(|| schema.faults(&value));
    assert_eq!(faults.len(), 1);
    assert!(took < SOON, "{took:?}");
}

#[test]
fn a_long_list_of_faults_is_told_by_its_first() {
    let schema = Schema::compile(&json!({"items": {"type": "string"}})).expect("compiles");
    let numbers = |count: usize| Value::from(vec![1; count]);
    assert_eq!(schema.faults(&numbers(100)).len(), FAULTS_MAX);
    let faults = schema.faults(&numbers(20_000));
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("/0: "), "{faults:?}");
    assert_eq!(steps(&schema, &numbers(20_000)), Ok(20_001));
    assert_eq!(steps(&schema, &numbers(500_000)), Err(Excess::Steps));
    let (faults, took) = timed(|| schema.faults(&numbers(500_000)));
    assert!(faults[0].contains("too large"), "{faults:?}");
    assert!(took < SOON, "{took:?}");
    assert!(schema.is_small_for(&numbers(100)) && !schema.is_small_for(&numbers(20_000)));
}

#[test]
fn a_fault_does_not_repeat_a_long_value() {
    let schema = Schema::compile(&json!({"type": "integer"})).expect("compiles");
    let faults = schema.faults(&json!("é".repeat(100_000)));
    assert!(
        faults[0].chars().count() <= FAULT_CHARS_MAX + 1,
        "{}",
        faults[0].len()
    );
}

#[test]
fn patterns_are_few_short_and_linear() {
    let many: serde_json::Map<String, Value> = (0..100)
        .map(|n| (format!("p{n}"), json!({"pattern": format!("^a{n}$")})))
        .collect();
    assert_eq!(pointer(&json!({ "properties": many })), "");
    let long = json!({"properties": {"a": {"pattern": "a".repeat(1_001)}}});
    assert_eq!(pointer(&long), "/properties/a/pattern");
    for (pattern, fits) in [
        ("^[a-z0-9-]{1,255}$", true),
        ("^.{1,1000}$", true),
        (r"^\p{L}{1,20}$", true),
        ("^(.{1,1000}){1,1000}$", false),
        ("(", false),
        ("(?=a)b", false),
    ] {
        let schema = json!({"type": "string", "pattern": pattern});
        assert_eq!(Schema::compile(&schema).is_ok(), fits, "{pattern}");
    }
    // A pattern that costs a backtracking matcher exponential time.
    let evil = Schema::compile(&json!({"pattern": "^(a|a)*$"})).expect("compiles");
    let (faults, took) = timed(|| evil.faults(&json!("a".repeat(100_000) + "b")));
    assert_eq!(faults.len(), 1);
    assert!(took < SOON, "{took:?}");
}

#[test]
fn references_are_found_as_the_library_finds_them() {
    let schema = Schema::compile(&json!({
        "$defs": {
            "a/b": {"type": "integer"},
            "c d": {"$anchor": "here", "type": "string"},
        },
        "properties": {
            "a": {"$ref": "#/$defs/a~1b"},
            "b": {"$ref": "#/$defs/c%20d"},
            "c": {"$ref": "#here"},
            "d": {"$ref": "#"},
        },
    }))
    .expect("compiles");
    assert!(
        schema
            .faults(&json!({"a": 1, "b": "x", "c": "y", "d": {"a": 2}}))
            .is_empty()
    );
    let faults = schema.faults(&json!({"a": "x", "b": 1, "c": 2, "d": {"a": "y"}}));
    assert_eq!(faults.len(), 4, "{faults:?}");
}
