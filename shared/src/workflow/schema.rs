//! The members of a spec's objects, each declared once. The JSON Schema for editors and models, the
//! validator's list of known members and its hints are all derived from these declarations.
//!
//! The validator knows more rules than the schema; a valid spec always matches the schema.

use serde_json::{Map, Value, json};

use super::nodes::{AGENT_SPEC, CONTINUATION, NodeKind, output_schema};
use super::spec::{CONDITION, ENVELOPE, RETRY};

/// The dialect of the schema.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

const ID: &str = "A name that no other node of this workflow has; references use it.";
const ID_HINT: &str = "give the node a name that no other node has";

/// The schema of a whole spec.
pub fn schema() -> Value {
    let kinds = NodeKind::ALL.iter().map(|kind| kind.as_str());
    let refs: Vec<_> = kinds.map(of).collect();
    let mut defs: Map<String, Value> = NodeKind::ALL
        .iter()
        .map(|kind| (kind.as_str().to_owned(), kind.object().to_value()))
        .collect();
    for (name, schema) in [
        (
            "node",
            json!({"description": "A node, by its `type`.", "oneOf": refs}),
        ),
        ("agent_spec", AGENT_SPEC.to_value()),
        ("condition", CONDITION.to_value()),
        ("retry", RETRY.to_value()),
        ("continuation", CONTINUATION.to_value()),
        ("duration", duration()),
        ("output_schema", output_schema()),
    ] {
        defs.insert(name.to_owned(), schema);
    }
    let mut spec = ENVELOPE.to_value();
    spec["$schema"] = json!(DIALECT);
    spec["title"] = json!("Workflow");
    spec["$defs"] = Value::Object(defs);
    spec
}

fn duration() -> Value {
    json!({"description": "Seconds as a number, or a text like 30s, 5m, 2h, 1d.",
        "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}]})
}

/// An object that may have only these members.
pub(super) struct Object {
    description: &'static str,
    members: Vec<Member>,
    required: Vec<&'static str>,
    one_of: Option<Value>,
}

struct Member {
    name: &'static str,
    schema: Value,
    /// What to do if it is missing or malformed; empty if the reader's own hint suffices.
    hint: &'static str,
}

pub(super) fn object(description: &'static str, required: &[&'static str]) -> Object {
    Object {
        description,
        members: Vec::new(),
        required: required.to_vec(),
        one_of: None,
    }
}

impl Object {
    /// Adds a member.
    pub(super) fn with(self, name: &'static str, schema: Value) -> Self {
        self.hinted(name, schema, "")
    }

    /// Adds a member with a hint of its own.
    pub(super) fn hinted(mut self, name: &'static str, schema: Value, hint: &'static str) -> Self {
        self.members.push(Member { name, schema, hint });
        self
    }

    /// Adds a text that is not blank.
    pub(super) fn label(self, name: &'static str, description: &str, hint: &'static str) -> Self {
        self.hinted(name, label(description), hint)
    }

    /// Adds a node.
    pub(super) fn child(self, name: &'static str) -> Self {
        self.hinted(name, of("node"), "write a node, an object with a `type`")
    }

    /// Requires that one of these schemas matches too.
    pub(super) fn one_of(mut self, forms: Value) -> Self {
        self.one_of = Some(forms);
        self
    }

    /// Adds the members that every leaf has.
    pub(super) fn leaf(self) -> Self {
        self.with("retry", maybe("retry"))
            .with("timeout", maybe("duration"))
            .with("fallback", maybe("node"))
            .with(
                "continue_on_error",
                json!({"type": "boolean", "default": false,
                    "description": "Its failure does not fail its parent."}),
            )
    }

    /// Adds the members that every node has, before those of its kind.
    pub(super) fn node(mut self, kind: NodeKind) -> Self {
        let id = if self.names().any(|name| name == "continue_on_error") {
            label(ID)
        } else {
            json!({"type": ["string", "null"], "pattern": "\\S", "description": ID})
        };
        let own = std::mem::take(&mut self.members);
        self.required.insert(0, "type");
        let mut node = self
            .with("type", json!({ "const": kind.as_str() }))
            .hinted("id", id, ID_HINT)
            .with("when", maybe("condition"));
        node.members.extend(own);
        node
    }

    /// The names of its members.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + Clone + '_ {
        self.members.iter().map(|member| member.name)
    }

    /// Whether a member is required.
    pub(super) fn requires(&self, name: &str) -> bool {
        self.required.contains(&name)
    }

    /// What to do if a member is missing or malformed.
    pub(super) fn hint(&self, name: &str) -> &'static str {
        let member = self.members.iter().find(|member| member.name == name);
        member.map_or("", |member| member.hint)
    }

    pub(super) fn to_value(&self) -> Value {
        let members = self.members.iter();
        let members = members.map(|member| (member.name.to_owned(), member.schema.clone()));
        let mut out = json!({
            "type": "object",
            "description": self.description,
            "properties": members.collect::<Map<_, _>>(),
            "required": self.required,
            "additionalProperties": false,
        });
        if let Some(forms) = &self.one_of {
            out["oneOf"] = forms.clone();
        }
        out
    }
}

/// A reference to a definition of the schema.
pub(super) fn of(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// A reference to a definition; null counts as absent.
pub(super) fn maybe(name: &str) -> Value {
    json!({"anyOf": [of(name), {"type": "null"}]})
}

pub(super) fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

pub(super) fn label(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "pattern": "\\S", "description": description})
}

pub(super) fn whole(low: u64, high: u64, default: Value) -> Value {
    let mut out = json!({"type": "integer", "minimum": low, "maximum": high});
    if !default.is_null() {
        out["default"] = default;
    }
    out
}

pub(super) fn nodes(description: &str) -> Value {
    json!({"type": "array", "minItems": 1, "items": of("node"), "description": description})
}

pub(super) fn variable(description: &str) -> Value {
    json!({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "description": description})
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
        assert_eq!(kinds.len(), NodeKind::ALL.len());
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
