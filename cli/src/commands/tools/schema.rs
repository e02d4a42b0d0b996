//! Cuts the schemas of OpenAPI documents to what a model needs.

use std::cell::Cell;

use serde_json::{Map, Value, json};

/// Schemas that are looked at for one operation, so that no document can make much of little.
const STEPS_MAX: usize = 20_000;

/// Characters of a description.
const DESCRIPTION_CHARS_MAX: usize = 300;

/// Values of an enumeration.
const VALUES_MAX: usize = 100;

/// Bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 200;

/// What a schema keeps as it is.
const KEPT: [&str; 18] = [
    "type",
    "const",
    "default",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "required",
    "additionalProperties",
];

/// Cuts schemas of a document at a depth.
#[derive(Debug)]
pub(super) struct Cutter<'a> {
    document: &'a Value,
    depth: usize,
    steps: Cell<usize>,
}

impl<'a> Cutter<'a> {
    pub(super) fn new(document: &'a Value, depth: usize) -> Self {
        Self {
            document,
            depth,
            steps: Cell::new(0),
        }
    }

    /// The schema with its references followed, as deep as is shown; below that anything is allowed.
    pub(super) fn cut(&self, schema: &Value) -> Value {
        self.at(schema, self.depth)
    }

    fn at(&self, schema: &Value, depth: usize) -> Value {
        self.steps.set(self.steps.get() + 1);
        if depth == 0 || self.steps.get() > STEPS_MAX {
            return json!({});
        }
        let target = super::openapi::resolved(self.document, schema);
        let Some(own) = target.as_object() else {
            return json!({});
        };
        let mut cut = Map::new();
        for name in KEPT {
            if let Some(value) = own.get(name) {
                cut.insert(name.to_owned(), value.clone());
            }
        }
        // A schema with members is one of an object, whether or not it says so.
        if own.contains_key("properties") && !cut.contains_key("type") {
            cut.insert("type".to_owned(), json!("object"));
        }
        let said = schema.get("description").or(own.get("description"));
        if let Some(said) = said.and_then(Value::as_str) {
            cut.insert("description".to_owned(), json!(shortened(said)));
        }
        let values = own.get("enum").and_then(Value::as_array);
        if let Some(values) = values.filter(|values| values.len() <= VALUES_MAX) {
            cut.insert("enum".to_owned(), json!(values));
        }
        let pattern = own.get("pattern").and_then(Value::as_str);
        if let Some(pattern) = pattern.filter(|pattern| is_linear(pattern)) {
            cut.insert("pattern".to_owned(), json!(pattern));
        }
        self.parts(own, depth, &mut cut);
        in_3_1(own, &mut cut);
        Value::Object(cut)
    }

    fn parts(&self, own: &Map<String, Value>, depth: usize, cut: &mut Map<String, Value>) {
        if let Some(properties) = own.get("properties").and_then(Value::as_object) {
            // What only answers have is nothing to ask with.
            let written = properties.iter().filter(|(_, schema)| {
                super::openapi::resolved(self.document, schema)["readOnly"] != true
            });
            let written = written.map(|(name, schema)| (name.clone(), self.at(schema, depth - 1)));
            let written: Map<String, Value> = written.collect();
            if let Some(required) = cut.get_mut("required").and_then(Value::as_array_mut) {
                required
                    .retain(|name| name.as_str().is_some_and(|name| written.contains_key(name)));
            }
            cut.insert("properties".to_owned(), Value::Object(written));
        }
        for name in ["items", "not"] {
            if let Some(inner) = own.get(name) {
                cut.insert(name.to_owned(), self.at(inner, depth - 1));
            }
        }
        if let Some(inner) = own
            .get("additionalProperties")
            .filter(|inner| inner.is_object())
        {
            let inner = self.at(inner, depth - 1);
            cut.insert("additionalProperties".to_owned(), inner);
        }
        for name in ["allOf", "anyOf", "oneOf"] {
            if let Some(inner) = own.get(name).and_then(Value::as_array) {
                let inner = inner.iter().map(|inner| self.at(inner, depth - 1));
                cut.insert(name.to_owned(), inner.collect());
            }
        }
    }
}

/// Writes as 3.1 does what 3.0 has words of its own for.
fn in_3_1(own: &Map<String, Value>, cut: &mut Map<String, Value>) {
    if own.get("nullable") == Some(&json!(true))
        && let Some(Value::String(kind)) = cut.get("type").cloned()
    {
        cut.insert("type".to_owned(), json!([kind, "null"]));
    }
    for (limit, exclusive) in [
        ("minimum", "exclusiveMinimum"),
        ("maximum", "exclusiveMaximum"),
    ] {
        match cut.get(exclusive) {
            Some(Value::Bool(true)) => {
                cut.remove(exclusive);
                if let Some(value) = cut.remove(limit) {
                    cut.insert(exclusive.to_owned(), value);
                }
            }
            Some(Value::Bool(false)) => drop(cut.remove(exclusive)),
            _ => {}
        }
    }
}

/// Whether a pattern has nothing that looks around or back, which tools cannot check.
fn is_linear(pattern: &str) -> bool {
    let has_reference = pattern
        .as_bytes()
        .windows(2)
        .any(|pair| pair[0] == b'\\' && (pair[1].is_ascii_digit() || pair[1] == b'k'));
    pattern.len() <= PATTERN_BYTES_MAX && !pattern.contains("(?") && !has_reference
}

/// A description of bounded length.
pub(super) fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(DESCRIPTION_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
