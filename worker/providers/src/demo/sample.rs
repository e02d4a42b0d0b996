//! Generates a small value that matches a JSON Schema.
//!
//! Best effort: patterns, negations and conditions are not solved for.

use serde_json::{Map, Number, Value};

/// How many items an array gets, if it may have as many.
const ITEMS: usize = 3;

/// Depth in the schema from which on only required members are filled in: schemas may be recursive.
const DEPTH_FULL: usize = 4;

/// Depth from which on nothing is filled in.
const DEPTH_MAX: usize = 24;

/// Maximum number of nodes of a value.
const NODES_MAX: usize = 2_000;

/// How many characters of the input a string begins with.
const TEXT_CHARS: usize = 60;

/// Generates a value that matches `schema`, with strings made from `input`.
pub(super) fn sample(schema: &Value, input: &str) -> Value {
    let line = input.lines().map(str::trim).find(|line| !line.is_empty());
    let mut maker = Maker {
        root: schema,
        text: line.unwrap_or("demo").chars().take(TEXT_CHARS).collect(),
        nodes: 0,
    };
    maker.value(schema, Position::default())
}

struct Maker<'s> {
    root: &'s Value,
    text: String,
    nodes: usize,
}

/// The position of a value.
#[derive(Debug, Clone, Copy, Default)]
struct Position {
    depth: usize,
    /// Its index among its siblings in an array.
    nth: usize,
}

impl Position {
    fn inside(self, nth: usize) -> Self {
        Self {
            depth: self.depth + 1,
            nth,
        }
    }
}

impl Maker<'_> {
    fn value(&mut self, schema: &Value, place: Position) -> Value {
        self.nodes += 1;
        let Some(schema) = self.flat(schema, place.depth) else {
            return Value::Null;
        };
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array)
            && !values.is_empty()
        {
            return values[place.nth % values.len()].clone();
        }
        match kind(&schema) {
            "object" => self.object(&schema, place),
            "array" => self.array(&schema, place),
            "integer" => number(&schema, place.nth, true),
            "number" => number(&schema, place.nth, false),
            "boolean" => Value::Bool(place.nth.is_multiple_of(2)),
            "null" => Value::Null,
            _ => Value::String(self.string(&schema, place.nth)),
        }
    }

    /// The schema with references resolved, parts merged and one choice taken; `None` if it is too
    /// deep.
    fn flat(&self, schema: &Value, depth: usize) -> Option<Map<String, Value>> {
        let mut flat = Map::new();
        let mut open = vec![schema];
        let mut steps = 0;
        while let Some(schema) = open.pop() {
            steps += 1;
            if depth > DEPTH_MAX || steps > DEPTH_MAX || self.nodes > NODES_MAX {
                return None;
            }
            let Value::Object(members) = schema else {
                continue;
            };
            for (name, value) in members {
                match name.as_str() {
                    "$ref" => open.extend(self.target(value)),
                    "allOf" => open.extend(value.as_array().into_iter().flatten()),
                    "anyOf" | "oneOf" => open.extend(choice(value, depth)),
                    _ => join(&mut flat, name, value),
                }
            }
        }
        Some(flat)
    }

    /// Resolves a reference within the schema.
    fn target(&self, reference: &Value) -> Option<&Value> {
        let reference = reference.as_str()?.strip_prefix('#')?;
        self.root.pointer(reference)
    }

    fn object(&mut self, schema: &Map<String, Value>, place: Position) -> Value {
        let none = Map::new();
        let declared = schema
            .get("properties")
            .and_then(Value::as_object)
            .unwrap_or(&none);
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let most = count(schema, "maxProperties").unwrap_or(usize::MAX);
        let others = schema.get("additionalProperties").unwrap_or(&Value::Null);
        let mut members = Map::new();
        for name in &required {
            let schema = declared.get(*name).unwrap_or(others);
            let value = self.value(schema, place.inside(place.nth));
            members.insert((*name).to_owned(), value);
        }
        if place.depth < DEPTH_FULL {
            for (name, schema) in declared {
                let possible = schema != &Value::Bool(false) && !members.contains_key(name);
                if possible && members.len() < most && self.nodes < NODES_MAX {
                    let value = self.value(schema, place.inside(place.nth));
                    members.insert(name.clone(), value);
                }
            }
        }
        let least = count(schema, "minProperties").unwrap_or(0).min(NODES_MAX);
        for n in 1.. {
            if members.len() >= least {
                break;
            }
            let value = self.value(others, place.inside(n));
            members.insert(format!("member_{n}"), value);
        }
        Value::Object(members)
    }

    fn array(&mut self, schema: &Map<String, Value>, place: Position) -> Value {
        let heads = schema.get("prefixItems").and_then(Value::as_array);
        let heads = heads.map_or(&[][..], Vec::as_slice);
        let rest = schema.get("items").unwrap_or(&Value::Null);
        let contains = schema.get("contains");
        let least = count(schema, "minItems").unwrap_or(0);
        let most = count(schema, "maxItems").unwrap_or(usize::MAX);
        let wanted = if place.depth >= DEPTH_FULL {
            least
        } else if rest == &Value::Bool(false) {
            heads.len()
        } else {
            ITEMS.max(heads.len())
        };
        let unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
        let mut items: Vec<Value> = Vec::new();
        for nth in 0..wanted.clamp(least, most.max(least)).min(NODES_MAX) {
            let schema = heads.get(nth).unwrap_or(match contains {
                Some(contains) if rest.is_null() => contains,
                _ => rest,
            });
            let item = self.value(schema, place.inside(nth));
            if !(unique && items.contains(&item)) {
                items.push(item);
            }
        }
        Value::Array(items)
    }

    fn string(&self, schema: &Map<String, Value>, nth: usize) -> String {
        let format = schema.get("format").and_then(Value::as_str);
        let day = nth % 28 + 1;
        let fixed = match format.unwrap_or_default() {
            "date" => Some(format!("2001-01-{day:02}")),
            "date-time" => Some(format!("2001-01-{day:02}T12:00:00Z")),
            "time" => Some("12:00:00Z".to_owned()),
            "email" => Some(format!("demo{nth}@example.org")),
            "uri" | "url" => Some(format!("https://example.org/{nth}")),
            "uuid" => Some(format!("00000000-0000-4000-8000-{nth:012}")),
            "ipv4" => Some(format!("192.0.2.{day}")),
            _ => None,
        };
        let text = fixed.unwrap_or_else(|| match nth {
            0 => self.text.clone(),
            nth => format!("{} {}", nth + 1, self.text),
        });
        let least = count(schema, "minLength").unwrap_or(0).min(NODES_MAX);
        let most = count(schema, "maxLength").unwrap_or(usize::MAX);
        let missing = least.saturating_sub(text.chars().count());
        let padding = std::iter::repeat_n('.', missing);
        text.chars().chain(padding).take(most).collect()
    }
}

/// The first choice that is not null. Deep down: null, or else the last one, because that ends most
/// recursions.
fn choice(choices: &Value, depth: usize) -> Option<&Value> {
    let choices = choices.as_array()?;
    let is_null = |choice: &&Value| choice.get("type") == Some(&Value::from("null"));
    if depth < DEPTH_FULL {
        let other = choices.iter().find(|choice| !is_null(choice));
        other.or(choices.first())
    } else {
        choices.iter().find(is_null).or(choices.last())
    }
}

/// Merges one keyword into the others: object members are combined; of other values the first one
/// wins.
fn join(flat: &mut Map<String, Value>, name: &str, value: &Value) {
    match (flat.get_mut(name), value) {
        (Some(Value::Object(old)), Value::Object(new)) if name == "properties" => {
            for (name, schema) in new {
                old.entry(name).or_insert_with(|| schema.clone());
            }
        }
        (Some(Value::Array(old)), Value::Array(new)) if name == "required" => {
            old.extend(new.iter().cloned());
        }
        (Some(_), _) => {}
        (None, _) => {
            flat.insert(name.to_owned(), value.clone());
        }
    }
}

/// The type to generate: the first that is not null, or the one that the other keywords imply.
fn kind(schema: &Map<String, Value>) -> &str {
    let named = match schema.get("type") {
        Some(Value::String(kind)) => Some(kind.as_str()),
        Some(Value::Array(kinds)) => {
            let kinds = || kinds.iter().filter_map(Value::as_str);
            kinds().find(|kind| *kind != "null").or(kinds().next())
        }
        _ => None,
    };
    let has = |names: &[&str]| names.iter().any(|name| schema.contains_key(*name));
    match named {
        Some(kind) => kind,
        None if has(&[
            "properties",
            "required",
            "additionalProperties",
            "minProperties",
        ]) =>
        {
            "object"
        }
        None if has(&["items", "prefixItems", "minItems", "contains"]) => "array",
        None if has(&[
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ]) =>
        {
            "number"
        }
        None => "string",
    }
}

fn count(schema: &Map<String, Value>, name: &str) -> Option<usize> {
    let number = schema.get(name)?;
    let number = number
        .as_u64()
        .or_else(|| number.as_f64().map(|n| n as u64))?;
    usize::try_from(number).ok()
}

/// A small number within the bounds, different for each index.
fn number(schema: &Map<String, Value>, nth: usize, whole: bool) -> Value {
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let step = bound("multipleOf")
        .filter(|step| *step > 0.0)
        .unwrap_or(1.0);
    let step = if whole && step.fract() != 0.0 {
        1.0
    } else {
        step
    };
    let (min, above) = (bound("minimum"), bound("exclusiveMinimum"));
    let (max, below) = (bound("maximum"), bound("exclusiveMaximum"));
    let low =
        |value: f64| min.is_none_or(|min| value >= min) && above.is_none_or(|min| value > min);
    let high =
        |value: f64| max.is_none_or(|max| value <= max) && below.is_none_or(|max| value < max);
    let lowest = min.into_iter().chain(above).reduce(f64::max);
    let highest = max.into_iter().chain(below).reduce(f64::min);
    let begin = match (lowest, highest) {
        (Some(lowest), _) if !low(step) => (lowest / step).ceil() * step,
        (_, Some(highest)) if !high(step) => (highest / step).floor() * step,
        _ => step,
    };
    // If an excluded bound is itself a multiple, go one step further in.
    let begin = if !low(begin) {
        begin + step
    } else if !high(begin) {
        begin - step
    } else {
        begin
    };
    let moved = [begin + nth as f64 * step, begin - nth as f64 * step];
    let mut value = moved
        .into_iter()
        .find(|value| low(*value) && high(*value))
        .unwrap_or(begin);
    if let (Some(lowest), Some(highest), false) = (lowest, highest, whole)
        && !(low(value) && high(value))
    {
        value = f64::midpoint(lowest, highest);
    }
    // Integers are written as integers.
    if value.fract() == 0.0 && value.abs() < 9e15 {
        Value::from(value as i64)
    } else {
        Number::from_f64(value).map_or(Value::Null, Value::Number)
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::tool::schema::Schema;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn fits(schema: &Value) -> Value {
        let value = sample(schema, "\n hello there \nand more");
        let faults = Schema::compile(schema).expect("a schema").faults(&value);
        assert!(faults.is_empty(), "{value} under {schema}: {faults:?}");
        value
    }

    #[test]
    fn texts_are_made_of_the_input_and_lists_have_three() {
        let value = fits(&json!({
            "type": "object",
            "required": ["title", "items"],
            "properties": {
                "title": {"type": "string"},
                "items": {"type": "array", "items": {
                    "type": "object",
                    "required": ["n", "done"],
                    "properties": {"n": {"type": "integer"}, "done": {"type": "boolean"}},
                    "additionalProperties": false,
                }},
                "note": {"type": ["null", "string"]},
            },
            "additionalProperties": false,
        }));
        assert_eq!(
            value,
            json!({
                "title": "hello there",
                "note": "hello there",
                "items": [{"n": 1, "done": true}, {"n": 2, "done": false}, {"n": 3, "done": true}],
            })
        );
    }

    #[test]
    fn bounds_are_kept() {
        for schema in [
            json!({"type": "integer", "minimum": 10, "maximum": 10}),
            json!({"type": "integer", "maximum": -5}),
            json!({"type": "integer", "exclusiveMinimum": 7, "exclusiveMaximum": 9}),
            json!({"type": "integer", "minimum": 1, "multipleOf": 7}),
            json!({"type": "number", "minimum": 0, "maximum": 0.5}),
            json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
            json!({"type": "number", "multipleOf": 0.5, "minimum": 2.2}),
            json!({"type": "string", "minLength": 40}),
            json!({"type": "string", "maxLength": 3}),
            json!({"type": "string", "format": "date-time"}),
            json!({"type": "array", "minItems": 5, "items": {"type": "number", "maximum": 2}}),
            json!({"type": "array", "maxItems": 2, "items": {"enum": ["a", "b", "c"]}}),
            json!({"type": "array", "uniqueItems": true, "items": {"enum": ["a", "b"]}}),
            json!({"type": "array", "prefixItems": [{"const": 1}, {"type": "null"}], "items": false}),
            json!({"type": "array", "contains": {"const": 4}}),
            json!({"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}}),
            json!({"required": ["a", "b"]}),
            json!({"properties": {"a": false, "b": {"minimum": 3}}, "maxProperties": 1}),
            json!({"const": {"a": [null]}}),
            json!({}),
            json!(true),
        ] {
            fits(&schema);
        }
    }

    #[test]
    fn references_choices_and_parts_are_followed() {
        for schema in [
            json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer", "minimum": 3}}}),
            json!({"anyOf": [{"type": "null"}, {"type": "object", "required": ["x"]}]}),
            json!({"oneOf": [{"type": "integer"}, {"type": "string"}]}),
            json!({"allOf": [
                {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"const": 2}}, "required": ["b"]},
            ]}),
        ] {
            fits(&schema);
        }
    }

    #[test]
    fn a_schema_that_recurs_ends() {
        let tree = json!({
            "$ref": "#/$defs/node",
            "$defs": {"node": {
                "type": "object",
                "required": ["name", "next", "children"],
                "properties": {
                    "name": {"type": "string"},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                },
            }},
        });
        let value = fits(&tree);
        assert_eq!(value["children"][2]["name"], "3 hello there");
        let endless = json!({"$ref": "#"});
        assert_eq!(sample(&endless, "x"), Value::Null);
    }
}
