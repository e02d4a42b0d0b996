//! Values and schemas of all kinds, to break rules with.

use serde_json::{Value, json};

use crate::judge::schema_fault;
use crate::rules::Dialect;

/// Schemas that a dialect does not take, one for each thing that it says.
pub(super) fn faulty(dialect: &Dialect) -> Vec<Value> {
    let with = |property: Value| json!({"type": "object", "properties": {"a": property}});
    let one = json!([{"type": "object", "properties": {"b": {"type": "string"}}}]);
    let value = |name: &str| match name {
        "anyOf" | "oneOf" | "allOf" => one.clone(),
        "enum" => json!(["a"]),
        "$ref" => json!("#/$defs/a"),
        "$schema" => json!("http://json-schema.org/draft-07/schema#"),
        "additionalProperties" => json!(false),
        _ => json!({}),
    };
    let mut schemas = Vec::new();
    for name in &dialect.deny {
        let mut property = json!({"type": "string"});
        property[name] = value(name);
        schemas.push(with(property));
    }
    for name in &dialect.deny_at_root {
        let mut schema = with(json!({"type": "string"}));
        schema[name] = value(name);
        schemas.push(schema);
    }
    let others = [
        (dialect.root_is_object, json!({"properties": {}})),
        (
            dialect.needs_properties.is_some(),
            json!({"type": "object"}),
        ),
        (
            dialect.no_empty_objects,
            with(json!({"type": "object", "properties": {}})),
        ),
        (dialect.needs_type, with(json!({"description": "anything"}))),
        (
            dialect.no_type_beside_any_of,
            with(json!({"type": "object", "anyOf": one, "properties": {"c": {"type": "string"}}})),
        ),
        (dialect.needs_items, with(json!({"type": "array"}))),
        (
            dialect.no_type_lists,
            with(json!({"type": ["string", "null"]})),
        ),
        (
            dialect.enum_of_texts,
            with(json!({"type": "string", "enum": ["a", ""]})),
        ),
        (
            dialect.keys.is_some(),
            json!({"type": "object", "properties": {"filter[name]": {"type": "string"}}}),
        ),
    ];
    schemas.extend(
        others
            .into_iter()
            .filter(|(said, _)| *said)
            .map(|(_, schema)| schema),
    );
    debug_assert!(
        schemas
            .iter()
            .all(|schema| schema_fault(dialect, schema).is_some())
    );
    schemas
}

/// Values of all kinds.
pub(super) fn samples() -> Vec<Value> {
    let texts = [
        "",
        " ",
        "x",
        "none",
        "minimal",
        "low",
        "medium",
        "high",
        "xhigh",
        "max",
        "default",
        "auto",
        "required",
        "any",
        "enabled",
        "disabled",
        "adaptive",
        "json_object",
        "json_schema",
        "call_0-strange:id",
        "{half",
        "developer",
        "https://example.com/a.png",
        "gs://bucket/a.png",
    ];
    let mut samples: Vec<Value> = texts.iter().map(|text| json!(text)).collect();
    for length in [41, 65, 129, 1025] {
        samples.push(json!("a".repeat(length)));
    }
    samples.extend([0.5, 1.5, 2.5, -1.0, 99.5].map(|number| json!(number)));
    samples.extend([0, 1, 15, -1, 1_000, 100_000_000].map(|number| json!(number)));
    samples.extend([json!(true), json!(false), json!({}), json!([]), json!(null)]);
    for length in [1, 5, 21, 129, 600] {
        let element = json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}});
        samples.push(Value::Array(vec![element; length]));
        samples.push(Value::Array(vec![json!("x"); length]));
    }
    samples.push(json!({"type": "function", "function": {"name": "look"}}));
    samples
}
