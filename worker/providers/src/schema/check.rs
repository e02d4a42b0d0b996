//! What providers refuse in schemas, written from what they say of it and apart from the code that fits schemas.

use serde_json::Value;

use crate::rules::SchemaDialect;

/// What a provider would refuse in the schema of a tool's arguments.
pub(in super::super) fn faults(schema: &Value, dialect: SchemaDialect) -> Vec<String> {
    let mut faults = Vec::new();
    if schema.get("type") != Some(&Value::from("object")) {
        faults.push("the root is no object".to_owned());
    }
    if dialect == SchemaDialect::Plain {
        return faults;
    }
    for keyword in ["oneOf", "anyOf", "allOf", "enum", "const", "not", "$ref"] {
        if schema.get(keyword).is_some() {
            faults.push(format!("{keyword} at the root"));
        }
    }
    walk(schema, schema, dialect, "", &mut faults);
    faults
}

fn walk(root: &Value, schema: &Value, dialect: SchemaDialect, at: &str, faults: &mut Vec<String>) {
    let Some(node) = schema.as_object() else {
        faults.push(format!("{at}: no object"));
        return;
    };
    let mut fault = |what: &str| faults.push(format!("{at}: {what}"));
    let has = |keyword: &str| node.contains_key(keyword);
    for keyword in [
        "oneOf",
        "not",
        "if",
        "then",
        "$schema",
        "$id",
        "dependencies",
        "additionalItems",
    ] {
        if has(keyword) {
            fault(keyword);
        }
    }
    common(node, &mut fault);
    if let Some(reference) = node.get("$ref") {
        let target = reference.as_str().and_then(|it| it.strip_prefix('#'));
        if target.is_none_or(|pointer| root.pointer(&pointer.replace("%C3%A9", "é")).is_none()) {
            fault("a reference to nothing");
        }
    }
    match dialect {
        SchemaDialect::Plain => {}
        SchemaDialect::OpenAi | SchemaDialect::OpenAiResponses => {
            if is(node, "object") && !has("properties") {
                fault("object schema missing properties");
            }
            if is(node, "array") && !node.get("items").is_some_and(Value::is_object) {
                fault("array schema missing items");
            }
        }
        SchemaDialect::Anthropic => {
            for name in node
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
                if !(1..=64).contains(&name.0.len()) || !name.0.chars().all(fits) {
                    fault("a property key of other letters");
                }
            }
        }
        SchemaDialect::Gemini => gemini(node, &mut fault),
        SchemaDialect::Kimi => kimi(node, &mut fault),
    }
    below(root, node, dialect, at, faults);
}

fn is(node: &serde_json::Map<String, Value>, kind: &str) -> bool {
    match node.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|it| it == kind),
        Some(it) => it == kind,
        None => false,
    }
}

/// What the metaschema demands.
fn common(node: &serde_json::Map<String, Value>, fault: &mut dyn FnMut(&str)) {
    let kinds = [
        "array", "boolean", "integer", "null", "number", "object", "string",
    ];
    match node.get("type") {
        None => {}
        Some(Value::String(kind)) if kinds.contains(&kind.as_str()) => {}
        Some(Value::Array(list)) if list.len() > 1 => {}
        Some(_) => fault("a type that isn't one"),
    }
    if let Some(values) = node.get("enum") {
        let values = values.as_array().map_or(&[][..], Vec::as_slice);
        let repeated = values
            .iter()
            .enumerate()
            .any(|(at, it)| values[..at].contains(it));
        if values.is_empty() || repeated {
            fault("an enum that is empty or has repetitions");
        }
    }
    if let Some(required) = node.get("required") {
        let names = required.as_array().map_or(&[][..], Vec::as_slice);
        let repeated = names
            .iter()
            .enumerate()
            .any(|(at, it)| names[..at].contains(it));
        if names.iter().any(|name| !name.is_string()) || repeated {
            fault("required");
        }
    }
    for keyword in ["exclusiveMinimum", "exclusiveMaximum", "minimum", "maximum"] {
        if node.get(keyword).is_some_and(|bound| !bound.is_number()) {
            fault("a bound that is no number");
        }
    }
}

fn gemini(node: &serde_json::Map<String, Value>, fault: &mut dyn FnMut(&str)) {
    let known = [
        "anyOf",
        "description",
        "enum",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "nullable",
        "properties",
        "required",
        "type",
    ];
    for keyword in node
        .keys()
        .filter(|keyword| !known.contains(&keyword.as_str()))
    {
        fault(&format!("unknown name {keyword}"));
    }
    if node.contains_key("anyOf") {
        if node.len() > 1 {
            fault("other fields alongside any_of");
        }
        return;
    }
    let kind = node.get("type").and_then(Value::as_str);
    match kind {
        Some("object") => {
            let properties = node.get("properties").and_then(Value::as_object);
            if properties.is_none_or(serde_json::Map::is_empty) {
                fault("properties: should be non-empty for OBJECT type");
            }
            let required = node.get("required").and_then(Value::as_array);
            for name in required.into_iter().flatten().filter_map(Value::as_str) {
                if !properties.is_some_and(|it| it.contains_key(name)) {
                    fault("required: property is not defined");
                }
            }
            for name in properties.into_iter().flatten().map(|(name, _)| name) {
                if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                    || name.len() > 64
                {
                    fault("a property's name");
                }
            }
        }
        Some("array") if !node.contains_key("items") => fault("items: missing field"),
        Some("string" | "array" | "boolean" | "integer" | "number") => {}
        _ => fault("no type"),
    }
    if let Some(values) = node.get("enum").and_then(Value::as_array) {
        let fits = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        if kind != Some("string") || !values.iter().all(fits) {
            fault("enum: only allowed for STRING type, and not empty");
        }
    }
}

fn kimi(node: &serde_json::Map<String, Value>, fault: &mut dyn FnMut(&str)) {
    match (node.contains_key("type"), node.contains_key("anyOf")) {
        (true, false) | (false, true) => {}
        (false, false) => fault("type is not defined"),
        (true, true) => fault("when using anyOf, type should be defined in anyOf items"),
    }
    if node.get("type").is_some_and(|kind| !kind.is_string()) {
        fault("a list of types");
    }
    for keyword in [
        "$ref",
        "$defs",
        "allOf",
        "const",
        "patternProperties",
        "propertyNames",
    ] {
        if node.contains_key(keyword) {
            fault(keyword);
        }
    }
}

fn below(
    root: &Value,
    node: &serde_json::Map<String, Value>,
    dialect: SchemaDialect,
    at: &str,
    faults: &mut Vec<String>,
) {
    for keyword in ["properties", "patternProperties", "$defs", "definitions"] {
        for (name, schema) in node
            .get(keyword)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            walk(
                root,
                schema,
                dialect,
                &format!("{at}/{keyword}/{name}"),
                faults,
            );
        }
    }
    for keyword in ["anyOf", "allOf", "prefixItems"] {
        for (place, schema) in node
            .get(keyword)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            walk(
                root,
                schema,
                dialect,
                &format!("{at}/{keyword}/{place}"),
                faults,
            );
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(schema) = node.get(keyword).filter(|it| !it.is_boolean()) {
            walk(root, schema, dialect, &format!("{at}/{keyword}"), faults);
        }
    }
}
