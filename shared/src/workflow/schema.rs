//! The JSON Schema of specs: for editors and models. The validator knows more rules; what it lets
//! through always fits.

use serde_json::{Map, Value, json};

use super::spec::{
    CONCURRENCY_DEFAULT, CONCURRENCY_MAX, ITEMS_MAX, ITERATIONS_MAX, MAX_ROUNDS_DEFAULT,
    MAX_ROUNDS_MAX, MAX_TOKENS_DEFAULT, MAX_TOKENS_MAX, Op, RetryOn,
};

/// Where the schema says it lives.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The schema of a whole spec.
pub fn schema() -> Value {
    let mut spec = envelope();
    spec["$schema"] = json!(DIALECT);
    spec["title"] = json!("Workflow");
    let kinds = [
        ("agent", agent()),
        ("sequence", sequence()),
        ("parallel", parallel()),
        ("foreach", foreach()),
        ("branch", branch()),
        ("loop", repeat()),
        ("wait", wait()),
        ("approval", approval()),
        ("tool", tool()),
        ("workflow", workflow()),
    ];
    let refs: Vec<_> = kinds
        .iter()
        .map(|(kind, _)| json!({"$ref": at(kind)}))
        .collect();
    let mut defs: Map<String, Value> = kinds
        .into_iter()
        .map(|(kind, one)| {
            (
                kind.to_owned(),
                one.with("type", json!({ "const": kind })).done(),
            )
        })
        .collect();
    defs.insert(
        "node".into(),
        json!({"description": "A node, by its `type`.", "oneOf": refs}),
    );
    defs.insert("agent_spec".into(), agent_spec());
    defs.insert("condition".into(), condition());
    defs.insert("retry".into(), retry());
    defs.insert("continuation".into(), continuation());
    defs.insert("duration".into(), duration());
    defs.insert("output_schema".into(), output_schema());
    spec["$defs"] = Value::Object(defs);
    spec
}

fn at(name: &str) -> String {
    format!("#/$defs/{name}")
}

fn of(name: &str) -> Value {
    json!({ "$ref": at(name) })
}

/// The same, where null stands for nothing.
fn maybe(name: &str) -> Value {
    json!({"anyOf": [of(name), {"type": "null"}]})
}

/// An object that takes no other members.
struct Object {
    description: &'static str,
    members: Map<String, Value>,
    required: Vec<&'static str>,
    any_of: Option<Value>,
}

fn object(description: &'static str, required: &[&'static str]) -> Object {
    Object {
        description,
        members: Map::new(),
        required: required.to_vec(),
        any_of: None,
    }
}

impl Object {
    fn with(mut self, name: &str, schema: Value) -> Self {
        self.members.insert(name.to_owned(), schema);
        self
    }

    fn one_of(mut self, forms: Value) -> Self {
        self.any_of = Some(forms);
        self
    }

    fn done(self) -> Value {
        let mut required = self.required;
        if self.members.contains_key("type") {
            required.insert(0, "type");
        }
        let mut out = json!({
            "type": "object",
            "description": self.description,
            "properties": self.members,
            "required": required,
            "additionalProperties": false,
        });
        if let Some(forms) = self.any_of {
            out["oneOf"] = forms;
        }
        out
    }
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn label(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "pattern": "\\S", "description": description})
}

fn whole(low: u64, high: u64, default: Value) -> Value {
    let mut out = json!({"type": "integer", "minimum": low, "maximum": high});
    if !default.is_null() {
        out["default"] = default;
    }
    out
}

/// A node, with what every node may have.
fn node(description: &'static str, required: &[&'static str]) -> Object {
    object(description, required)
        .with(
            "id",
            json!({"type": ["string", "null"], "pattern": "\\S",
            "description": "A name that no other node of this workflow has; references use it."}),
        )
        .with("when", maybe("condition"))
}

/// A leaf, with what every leaf may have.
fn leaf(description: &'static str, required: &[&'static str]) -> Object {
    node(description, required)
        .with(
            "id",
            label("A name that no other node of this workflow has; references use it."),
        )
        .with("retry", maybe("retry"))
        .with("timeout", maybe("duration"))
        .with("fallback", maybe("node"))
        .with(
            "continue_on_error",
            json!({"type": "boolean", "default": false,
                "description": "Its failure does not fail what is around it."}),
        )
}

fn envelope() -> Value {
    object("A tree of nodes whose leaves are agents.", &["name", "root"])
        .with("name", label("For people and lists."))
        .with("input", text("The value of `input` unless the starter gives one."))
        .with(
            "budget",
            json!({"anyOf": [{"type": "null"}, object("What all leaves together may use.", &["max_tokens"])
                .with("max_tokens", whole(1, i64::MAX as u64, Value::Null))
                .with("stop_at_remaining_pct", json!({"type": "number", "minimum": 0, "maximum": 100, "default": 0}))
                .done()]}),
        )
        .with("metadata", json!({"type": "object", "description": "Carried along."}))
        .with("timeout", maybe("duration"))
        .with("root", of("node"))
        .done()
}

fn agent() -> Object {
    let texts = json!({"type": "array", "items": {"type": "string"},
        "description": "Earlier nodes whose texts are put behind the input."});
    leaf("A send in a session of its own.", &["id", "spec"])
        .with(
            "spec",
            json!({"anyOf": [of("agent_spec"), {"type": "string", "description": "The same as a text of JSON."}]}),
        )
        .with("input", json!({"type": "string", "default": "{{input}}", "description": "What it is told, a template."}))
        .with("inputs_from", texts)
        .with("output_schema", maybe("output_schema"))
        .with("continuation", maybe("continuation"))
}

fn agent_spec() -> Value {
    let rounds = json!({"anyOf": [whole(1, MAX_ROUNDS_MAX.into(), Value::Null),
        {"type": "string", "pattern": "^\\s*[0-9.]+\\s*$"}], "default": MAX_ROUNDS_DEFAULT});
    object("The agent of a leaf.", &["name", "system_prompt"])
        .with("name", label("A label to filter by."))
        .with("system_prompt", label("Who it is and what it does, a template."))
        .with(
            "tools",
            json!({"description": "Tools by name, or declared; null for those of whoever started the run.",
                "anyOf": [{"type": "null"}, {"type": "array", "items": {"type": ["string", "object"]}}]}),
        )
        .with("max_rounds", rounds)
        .with("max_tokens", whole(1, MAX_TOKENS_MAX.into(), json!(MAX_TOKENS_DEFAULT)))
        .with("temperature", json!({"type": "number", "minimum": 0, "maximum": 2, "default": 0}))
        .with("model", json!({"type": ["string", "null"], "description": "MODEL or PROVIDER/MODEL."}))
        .with("output_schema", maybe("output_schema"))
        .with("lifecycle", json!({"enum": ["ephemeral", "linked", "detached"], "default": "linked"}))
        .with("metadata", json!({"type": "object"}))
        .with(
            "budget",
            json!({"anyOf": [{"type": "null"}, object("What it may use in all.", &["tokens"])
                .with("tokens", whole(1, i64::MAX as u64, Value::Null))
                .done()]}),
        )
        .with("pool", json!({"type": ["string", "null"], "description": "The workers that may run it."}))
        .done()
}

fn output_schema() -> Value {
    json!({"type": "object",
        "description": "The shape of the answer: {name, schema, strict}, or a JSON Schema alone."})
}

fn nodes(description: &str) -> Value {
    json!({"type": "array", "minItems": 1, "items": of("node"), "description": description})
}

fn fan(one: Object) -> Object {
    let most = whole(1, CONCURRENCY_MAX.into(), json!(CONCURRENCY_DEFAULT));
    one.with("max_concurrency", most).with(
        "on_error",
        json!({"enum": ["halt", "continue"], "default": "halt",
            "description": "Whether a failed child ends the others."}),
    )
}

fn sequence() -> Object {
    node("Its steps in order.", &["steps"]).with("steps", nodes("At least one."))
}

fn parallel() -> Object {
    fan(node("Its branches at once.", &["branches"]).with("branches", nodes("At least one.")))
}

fn foreach() -> Object {
    let items = json!({"anyOf": [{"type": "null"}, {"type": "array", "maxItems": ITEMS_MAX}],
        "description": "The list, written down."});
    let from = json!({"type": ["string", "null"],
        "description": "The list, from an earlier node: `node.key`."});
    fan(node("One body for each item of a list.", &["as", "body"]))
        .with("as", variable("The variable that holds the item; `NAME_index` holds its place, from 0."))
        .with("items", items)
        .with("items_from", from)
        .with("body", of("node"))
        .with("parallel", json!({"type": "boolean", "default": true}))
        .one_of(json!([
            {"required": ["items"], "properties": {"items": {"type": "array"}, "items_from": {"type": "null"}}},
            {"required": ["items_from"], "properties": {"items_from": {"type": "string"}, "items": {"type": "null"}}},
        ]))
}

fn variable(description: &str) -> Value {
    json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "description": description})
}

fn branch() -> Object {
    node("One of several nodes, by a value.", &["on", "cases"])
        .with("on", label("What decides: `node` or `node.key`."))
        .with(
            "cases",
            json!({"type": "object", "minProperties": 1, "additionalProperties": of("node"),
                "description": "By the text of the value; JSON true is the case `true`."}),
        )
        .with("default", maybe("node"))
}

fn repeat() -> Object {
    let as_default = json!({"anyOf": [variable("The variable that holds the round, from 1."), {"type": "null"}],
        "default": "iteration"});
    node(
        "Its body until a condition holds.",
        &["id", "body", "until"],
    )
    .with("as", as_default)
    .with("body", of("node"))
    .with("until", of("condition"))
    .with("max_iterations", whole(1, ITERATIONS_MAX.into(), json!(3)))
    .with(
        "on_exhausted",
        json!({"enum": ["fail", "continue"], "default": "fail"}),
    )
    .with(
        "continue_nodes",
        json!({"type": "array", "items": {"type": "string"},
            "description": "Agents of the body that go on in the session of the round before."}),
    )
}

fn wait() -> Object {
    let until = json!({"type": ["string", "null"],
        "description": "A time like 2030-01-01T00:00:00Z, or a template that gives one."});
    node(
        "A durable pause: exactly one of `seconds`, `duration` and `until`.",
        &[],
    )
    .with("seconds", json!({"type": ["number", "null"], "minimum": 0}))
    .with("duration", maybe("duration"))
    .with("until", until)
}

fn approval() -> Object {
    leaf(
        "A person's decision; its value is {approved, note}.",
        &["id", "message"],
    )
    .with("message", label("The question, a template."))
}

fn tool() -> Object {
    leaf("A tool call without a model.", &["id", "tool"])
        .with("tool", label("The tool's name."))
        .with("arguments", json!({"type": "object", "default": {},
            "description": "What it is called with; texts are templates, and `{{x}}` alone keeps its type."}))
}

fn workflow() -> Object {
    let mut inner = envelope();
    inner["description"] = json!("A whole workflow, with its own ids and its own `input`.");
    node("Another workflow in its own scope.", &["id", "spec"])
        .with("spec", inner)
        .with(
            "input",
            text("Its input, a template; that of its spec when absent."),
        )
}

fn condition() -> Value {
    let ops: Vec<_> = Op::ALL.iter().map(|op| op.as_str()).collect();
    object(
        "Something that holds or does not. What does not exist makes it false.",
        &["ref"],
    )
    .with("ref", label("`node`, `node.key`, or a variable."))
    .with("op", json!({"enum": ops, "default": "truthy"}))
    .with(
        "value",
        json!({"description": "For eq and ne a value, for in a list."}),
    )
    .done()
}

fn retry() -> Value {
    let on: Vec<_> = RetryOn::ALL.iter().map(|on| on.as_str()).collect();
    object("Further attempts, each in a new session.", &["max_attempts"])
        .with("max_attempts", whole(1, 5, Value::Null))
        .with(
            "on",
            json!({"type": "array", "minItems": 1, "items": {"enum": on}, "default": ["failed", "empty"]}),
        )
        .with("backoff", maybe("duration"))
        .with("backoff_factor", json!({"type": "number", "minimum": 1, "maximum": 10, "default": 2}))
        .done()
}

fn continuation() -> Value {
    object("Further sends in the same session, after one that used up its rounds.", &[])
        .with("max", whole(1, 3, json!(1)))
        .with("extra_rounds", whole(1, MAX_ROUNDS_MAX.into(), json!(MAX_ROUNDS_DEFAULT)))
        .with(
            "gate",
            json!({"enum": ["todo_remaining", "always"], "default": "todo_remaining",
                "description": "Only while its list of things to do has open ones, or in any case."}),
        )
        .done()
}

fn duration() -> Value {
    json!({"description": "Seconds as a number, or a text like 30s, 5m, 2h, 1d.",
        "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}]})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::schema::Schema;
    use crate::workflow::validate::samples::samples;
    use crate::workflow::validate::validate;

    #[test]
    fn every_valid_sample_fits_in_both_forms() {
        let schema = Schema::compile(&schema()).expect("compiles");
        for sample in samples() {
            let spec = validate(&sample).expect("valid");
            for value in [sample, spec.to_value()] {
                assert_eq!(schema.faults(&value), Vec::<String>::new(), "{value:#}");
            }
        }
    }

    #[test]
    fn every_member_that_the_schema_names_is_known_to_the_validator() {
        let schema = schema();
        let kinds = schema["$defs"]["node"]["oneOf"].as_array().expect("kinds");
        assert_eq!(kinds.len(), super::super::run::NodeKind::ALL.len());
        for kind in kinds {
            let pointer = kind["$ref"]
                .as_str()
                .expect("a reference")
                .trim_start_matches('#');
            let members = schema.pointer(pointer).expect("it is there")["properties"].as_object();
            let mut node = Map::new();
            for (name, _) in members.expect("members") {
                node.insert(name.clone(), Value::Null);
            }
            let name = pointer.rsplit('/').next().expect("a name");
            node.insert("type".into(), json!(name));
            let problems = validate(&json!({"name": "x", "root": node})).expect_err("all null");
            let unknown: Vec<_> = problems
                .iter()
                .filter(|one| one.rule == "unknown_key")
                .collect();
            assert!(unknown.is_empty(), "{name}: {unknown:?}");
        }
    }

    #[test]
    fn what_the_schema_can_tell_it_refuses() {
        let schema = Schema::compile(&schema()).expect("compiles");
        for wrong in [
            json!({"name": "x"}),
            json!({"name": "x", "root": {"type": "nope"}}),
            json!({"name": "x", "colour": 1, "root": {"type": "wait", "seconds": 1}}),
            json!({"name": "x", "root": {"type": "sequence", "steps": []}}),
            json!({"name": "x", "root": {"type": "foreach", "as": "a b", "items": [], "body": {"type": "wait", "seconds": 1}}}),
            json!({"name": "x", "root": {"type": "foreach", "as": "a", "body": {"type": "wait", "seconds": 1}}}),
        ] {
            assert!(!schema.faults(&wrong).is_empty(), "{wrong}");
        }
    }
}
