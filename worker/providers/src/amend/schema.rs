//! Schemas of tools in forms that any provider takes. Arguments are still checked against the
//! tool's own schema.

use serde_json::{Map, Value, json};

/// How deep a schema is kept.
const DEPTH_MAX: usize = 12;

/// The longest schema that a description shows.
const SHOWN_CHARS_MAX: usize = 2_000;

/// A schema without anything but types, properties, items and texts to choose from.
pub(super) fn plain(schema: &Value) -> Value {
    let mut plain = node(schema, schema, 0);
    plain["type"] = json!("object");
    for member in ["items", "enum"] {
        plain.as_object_mut().map(|members| members.remove(member));
    }
    if plain.get("properties").is_none() {
        plain["properties"] = json!({});
    }
    plain
}

/// A schema that takes any object.
pub(super) fn simplest() -> Value {
    json!({"type": "object", "properties": {}})
}

/// What a description says of a schema that is not sent.
pub(super) fn in_words(schema: &Value) -> String {
    let text: String = schema.to_string().chars().take(SHOWN_CHARS_MAX).collect();
    format!("The arguments follow this JSON Schema: {text}")
}

fn node(schema: &Value, root: &Value, depth: usize) -> Value {
    let Some(members) = schema.as_object() else {
        return json!({"type": "string"});
    };
    if depth > DEPTH_MAX {
        return json!({"type": "string"});
    }
    if let Some(target) = members.get("$ref").and_then(Value::as_str) {
        let target = target
            .strip_prefix('#')
            .and_then(|place| root.pointer(place));
        return target.map_or_else(simplest, |target| node(target, root, depth + 1));
    }
    let mut kept = Map::new();
    if let Some(Value::String(text)) = members.get("description") {
        kept.insert("description".to_owned(), json!(text));
    }
    let variants = ["anyOf", "oneOf", "allOf"].iter();
    let variants: Vec<&Value> = variants
        .filter_map(|name| members.get(*name)?.as_array())
        .flatten()
        .filter(|variant| variant.get("type") != Some(&json!("null")))
        .collect();
    let has_own = members.contains_key("properties") || members.contains_key("type");
    if let Some(first) = variants.first().filter(|_| !has_own) {
        let mut first = node(first, root, depth + 1);
        if let (Some(own), Value::Object(first)) = (kept.remove("description"), &mut first) {
            first.insert("description".to_owned(), own);
        }
        return first;
    }
    let kind = kind(members);
    kept.insert("type".to_owned(), json!(kind));
    match kind {
        "object" => object(members, &variants, root, depth, &mut kept),
        "array" => {
            let items = members.get("items").filter(|items| items.is_object());
            let items =
                items.map_or_else(|| json!({"type": "string"}), |i| node(i, root, depth + 1));
            kept.insert("items".to_owned(), items);
        }
        "string" => {
            let choices = members.get("enum").and_then(Value::as_array);
            let choices: Vec<&Value> = choices
                .into_iter()
                .flatten()
                .filter(|choice| choice.as_str().is_some_and(|text| !text.is_empty()))
                .collect();
            if !choices.is_empty() {
                kept.insert("enum".to_owned(), json!(choices));
            }
        }
        _ => {}
    }
    Value::Object(kept)
}

fn object(
    members: &Map<String, Value>,
    variants: &[&Value],
    root: &Value,
    depth: usize,
    kept: &mut Map<String, Value>,
) {
    let fits = |name: &str| {
        (1..=64).contains(&name.len())
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
    };
    let mut properties = Map::new();
    let theirs = variants
        .iter()
        .filter_map(|variant| variant.get("properties"));
    for all in members.get("properties").into_iter().chain(theirs) {
        for (name, value) in all.as_object().into_iter().flatten() {
            if fits(name) && !properties.contains_key(name) {
                properties.insert(name.clone(), node(value, root, depth + 1));
            }
        }
    }
    let required = members.get("required").and_then(Value::as_array);
    let required: Vec<&Value> = required
        .into_iter()
        .flatten()
        .filter(|name| {
            name.as_str()
                .is_some_and(|name| properties.contains_key(name))
        })
        .collect();
    if !required.is_empty() {
        kept.insert("required".to_owned(), json!(required));
    }
    kept.insert("properties".to_owned(), Value::Object(properties));
}

fn kind(members: &Map<String, Value>) -> &'static str {
    let said = match members.get("type") {
        Some(Value::String(said)) => Some(said.as_str()),
        Some(Value::Array(all)) => {
            let mut all = all.iter().filter_map(Value::as_str);
            all.find(|kind| *kind != "null")
        }
        _ => None,
    };
    match said {
        Some("object") => "object",
        Some("array") => "array",
        Some("integer") => "integer",
        Some("number") => "number",
        Some("boolean") => "boolean",
        None if members.contains_key("properties") => "object",
        None if members.contains_key("items") => "array",
        Some(_) | None => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_schema_has_nothing_that_anybody_refuses() {
        let schema = json!({
            "$schema": "x",
            "type": ["object", "null"],
            "anyOf": [{"required": ["id"], "properties": {"id": {"type": "string"}}}],
            "properties": {
                "a": {"$ref": "#/$defs/A"},
                "b": {"anyOf": [{"type": "null"}, {"type": "array"}], "description": "d"},
                "$c": {"type": "string"},
                "d": {"enum": ["", null, "x"], "const": 1},
                "e": {"type": "object", "additionalProperties": false},
            },
            "required": ["a", "$c"],
            "$defs": {"A": {"type": "integer", "minimum": 1}},
        });
        let wanted = json!({
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"type": "array", "items": {"type": "string"}, "description": "d"},
                "d": {"type": "string", "enum": ["x"]},
                "e": {"type": "object", "properties": {}},
                "id": {"type": "string"},
            },
            "required": ["a"],
        });
        assert_eq!(plain(&schema), wanted);
        let round = json!({"properties": {"a": {"$ref": "#"}}});
        assert!(plain(&round).to_string().len() < 2_000);
    }
}
