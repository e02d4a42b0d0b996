//! Whether the schema of a tool is of the dialect that a vendor takes.

use serde_json::Value;

use crate::rules::{Dialect, Where};

/// What is wrong, and where below the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    pub at: String,
    pub what: String,
}

/// The first fault of a schema.
pub fn fault(dialect: &Dialect, schema: &Value) -> Option<Fault> {
    node(dialect, schema, "", true)
}

fn node(dialect: &Dialect, schema: &Value, at: &str, root: bool) -> Option<Fault> {
    let Some(object) = schema.as_object() else {
        // `true` and `false` are schemas, but to nobody here.
        return (dialect.needs_type || root).then(|| Fault {
            at: at.to_owned(),
            what: "not an object".to_owned(),
        });
    };
    if let Some(what) = here(dialect, object, root) {
        return Some(Fault {
            at: at.to_owned(),
            what,
        });
    }
    if let Some(keys) = &dialect.keys
        && let Some(properties) = object.get("properties").and_then(Value::as_object)
        && let Some(key) = properties.keys().find(|key| !keys.matches(key))
    {
        return Some(Fault {
            at: at.to_owned(),
            what: key.clone(),
        });
    }
    below(object)
        .into_iter()
        .find_map(|(name, schema)| node(dialect, schema, &format!("{at}.{name}"), false))
}

fn here(dialect: &Dialect, object: &serde_json::Map<String, Value>, root: bool) -> Option<String> {
    let has = |name: &str| object.contains_key(name);
    let kind = object.get("type").and_then(Value::as_str);
    let no_properties = object
        .get("properties")
        .and_then(Value::as_object)
        .is_none_or(serde_json::Map::is_empty);
    let denied = dialect
        .deny
        .iter()
        .chain(dialect.deny_at_root.iter().filter(|_| root))
        .find(|name| has(name));
    if let Some(name) = denied {
        return Some(name.clone());
    }
    if root && dialect.root_is_object && kind != Some("object") {
        return Some("type".to_owned());
    }
    let wants_properties = match dialect.needs_properties {
        Some(Where::Root) => root,
        Some(Where::Everywhere) => kind == Some("object"),
        None => false,
    };
    if wants_properties && !has("properties") {
        return Some("properties".to_owned());
    }
    if dialect.no_empty_objects && !root && kind == Some("object") && no_properties {
        return Some("properties".to_owned());
    }
    if dialect.needs_type && !root && !has("type") && !has("anyOf") && !has("$ref") {
        return Some("type".to_owned());
    }
    if dialect.no_type_beside_any_of && has("type") && has("anyOf") {
        return Some("anyOf".to_owned());
    }
    if dialect.needs_items && kind == Some("array") && !has("items") {
        return Some("items".to_owned());
    }
    if dialect.no_type_lists && object.get("type").is_some_and(Value::is_array) {
        return Some("type".to_owned());
    }
    let texts = |list: &Vec<Value>| {
        list.iter()
            .all(|value| value.as_str().is_some_and(|text| !text.is_empty()))
    };
    let listed = object.get("enum").and_then(Value::as_array);
    (dialect.enum_of_texts && listed.is_some_and(|list| !texts(list))).then(|| "enum".to_owned())
}

/// The schemas below one, with their names.
fn below(object: &serde_json::Map<String, Value>) -> Vec<(String, &Value)> {
    let mut schemas = Vec::new();
    for name in ["properties", "$defs", "definitions", "patternProperties"] {
        if let Some(named) = object.get(name).and_then(Value::as_object) {
            schemas.extend(
                named
                    .iter()
                    .map(|(key, schema)| (format!("{name}.{key}"), schema)),
            );
        }
    }
    for name in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        if let Some(list) = object.get(name).and_then(Value::as_array) {
            schemas.extend(
                list.iter()
                    .enumerate()
                    .map(|(number, schema)| (format!("{name}.{number}"), schema)),
            );
        }
    }
    for name in ["items", "additionalProperties", "not"] {
        if let Some(schema) = object.get(name).filter(|schema| schema.is_object()) {
            schemas.push((name.to_owned(), schema));
        }
    }
    schemas
}
