//! Specs for tests.

use serde_json::{Value, json};

pub(crate) fn agent(id: &str) -> Value {
    json!({"type": "agent", "id": id, "spec": {"name": "n", "system_prompt": "p"}})
}

pub(crate) fn with(id: &str, key: &str, value: Value) -> Value {
    let mut node = agent(id);
    node[key] = value;
    node
}

pub(crate) fn envelope(root: &Value) -> Value {
    json!({"name": "w", "root": root})
}

pub(crate) fn steps(steps: &Value) -> Value {
    json!({"type": "sequence", "steps": steps})
}

pub(crate) fn foreach(more: &Value) -> Value {
    let mut node = json!({"type": "foreach", "as": "x", "items": [1], "body": agent("b")});
    for (key, value) in more.as_object().expect("members") {
        if value.is_null() {
            node.as_object_mut().expect("an object").remove(key);
        } else {
            node[key] = value.clone();
        }
    }
    node
}

/// Specs that use everything.
pub(crate) fn samples() -> Vec<Value> {
    vec![
        envelope(&agent("a")),
        envelope(
            &json!({"type": "agent", "id": "a", "spec": {"name": "n", "system_prompt": "p",
            "temperature": 0, "top_p": 0.9, "reasoning_effort": "high", "tools": ["look"],
            "tool_choice": {"name": "look"}, "parallel_tool_calls": true, "model_options": {"seed": 1}}}),
        ),
        serde_json::from_str(include_str!("../../../../examples/workflows/research.json"))
            .expect("JSON"),
        json!({"name": "all", "input": "x", "metadata": {"k": 1}, "timeout": 90,
        "budget": {"max_tokens": 1000, "stop_at_remaining_pct": 2.5},
        "root": steps(&json!([
            {"type": "agent", "id": "a", "inputs_from": [], "output_schema": {"type": "object"},
             "retry": {"max_attempts": 3, "on": ["empty", "hit_round_limit"], "backoff": 0, "backoff_factor": 1.5},
             "continuation": {"max": 2, "extra_rounds": 4, "gate": "always"},
             "timeout": "30s", "continue_on_error": true, "fallback": agent("f"),
             "spec": {"name": "n", "system_prompt": "{{input}}", "tools": ["core", {"type": "external", "name": "e"}],
                "max_rounds": "7", "max_tokens": 10, "temperature": 0.5, "model": "m",
                "output_schema": {"name": "X", "schema": {}}, "lifecycle": "detached", "metadata": {"a": 1},
                "budget": {"tokens": 7}, "pool": "p"}},
            {"type": "agent", "id": "t", "spec": "{\"name\": \"n\", \"system_prompt\": \"s\"}"},
            {"type": "parallel", "id": "p", "branches": [agent("p1"), foreach(&json!({"id": "f1", "items": [], "parallel": false}))],
             "max_concurrency": 64, "on_error": "continue"},
            {"type": "branch", "on": "a.k", "cases": {"yes": agent("y"), "no": {"type": "wait", "seconds": 1.5}},
             "default": {"type": "wait", "until": "2030-01-01T00:00:00Z"}},
            {"type": "loop", "id": "l", "as": "n", "max_iterations": 100, "on_exhausted": "continue", "continue_nodes": ["lb"],
             "until": {"ref": "lb.ok", "op": "in", "value": [1, true]}, "body": with("lb", "input", json!("{{n}} {{previous.x}}"))},
            {"type": "approval", "id": "g", "message": "{{a}}?", "when": {"ref": "a.k", "op": "ne", "value": null}},
            {"type": "tool", "id": "u", "tool": "grep", "arguments": {"a": ["{{g.note}}", 1]}},
            {"type": "workflow", "id": "w", "input": "{{a}}", "spec": {"name": "i", "root": agent("a")}},
            {"type": "wait", "until": "{{a.time}}"},
            {"type": "foreach", "id": "ff", "as": "it", "items_from": "a.list", "when": {"ref": "w"},
             "body": steps(&json!([agent("s1"), with("s2", "input", json!("{{s1}} {{it.k}} {{it_index}} {{a}}"))]))},
        ]))}),
    ]
}
