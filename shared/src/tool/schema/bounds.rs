//! Limits of schemas, checked by a walk that visits every subschema once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::SchemaFault;

/// Maximum bytes of a schema: more than a model will read.
const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// Maximum number of patterns in a schema.
const PATTERNS_MAX: usize = 64;

/// Maximum bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 1_000;

/// Maximum number of subschemas that apply to one value at once; one repeated by references counts
/// each time.
const APPLIED_MAX: u64 = 1_000;

/// Maximum length of a chain of subschemas that apply to one value, each because of the previous one.
const APPLIED_DEPTH_MAX: usize = 64;

/// Maximum depth of a subschema below the root, following references.
const DEPTH_MAX: usize = 200;

/// Keywords whose value is a subschema for the value itself.
pub(super) const APPLIES: [&str; 4] = ["not", "if", "then", "else"];

/// Keywords whose value is a list of subschemas for the value itself.
pub(super) const APPLIES_EACH: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Keywords whose value is a map of subschemas for the value itself.
pub(super) const APPLIES_NAMED: [&str; 2] = ["dependentSchemas", "dependencies"];

/// Keywords that point to a subschema for the value itself.
pub(super) const POINTS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords with subschemas for parts of the value, or for nothing.
const BELOW: [&str; 13] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "contentSchema",
    "$defs",
    "definitions",
];

/// Resolved references of a schema: by their text, pointers into the schema.
pub(super) type Targets = BTreeMap<String, String>;

/// The subschema that a reference refers to.
pub(super) fn target<'a>(
    root: &'a Value,
    targets: &Targets,
    reference: &Value,
) -> Option<&'a Value> {
    root.pointer(targets.get(reference.as_str()?)?)
}

/// Rejects a schema that could take more time or memory than one request should.
pub(super) fn check(schema: &Value) -> Result<Targets, SchemaFault> {
    if schema.to_string().len() > SCHEMA_BYTES_MAX {
        return Err(fault(
            "",
            format!("a schema has at most {SCHEMA_BYTES_MAX} bytes"),
        ));
    }
    if patterns(schema) > PATTERNS_MAX {
        let detail = format!("a schema has at most {PATTERNS_MAX} patterns");
        return Err(fault("", detail));
    }
    let mut anchors = BTreeMap::new();
    find_anchors(schema, &mut String::new(), &mut anchors);
    let mut walk = Walk {
        root: schema,
        anchors,
        targets: Targets::new(),
        seen: BTreeMap::new(),
    };
    walk.visit(schema, &mut String::new(), 0)?;
    let mut weigher = Weigher {
        root: schema,
        targets: &walk.targets,
        weights: BTreeMap::new(),
    };
    let places: BTreeSet<&String> = walk.seen.values().collect();
    for at in places {
        if let Some(place) = schema.pointer(at) {
            weigher.weigh(place, at, 0)?;
        }
    }
    Ok(walk.targets)
}

/// The number of patterns anywhere in it.
pub(super) fn patterns(schema: &Value) -> usize {
    match schema {
        Value::Object(members) => {
            let own = members.get("pattern").is_some_and(Value::is_string);
            let named = members
                .get("patternProperties")
                .and_then(|named| named.as_object().map(Map::len));
            let below: usize = members.values().map(patterns).sum();
            usize::from(own) + named.unwrap_or(0) + below
        }
        Value::Array(items) => items.iter().map(patterns).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn fault(pointer: &str, detail: impl Into<String>) -> SchemaFault {
    SchemaFault {
        pointer: pointer.to_owned(),
        detail: detail.into(),
    }
}

/// A value's address, as its identity: two places of a schema may have equal values.
fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Calls `then` with the pointer extended by a member.
fn below<T>(at: &mut String, member: &str, then: impl FnOnce(&mut String) -> T) -> T {
    let length = at.len();
    at.push('/');
    at.push_str(&member.replace('~', "~0").replace('/', "~1"));
    let done = then(at);
    at.truncate(length);
    done
}

/// Collects the names that references may use; `None` if two places have the same name.
fn find_anchors(value: &Value, at: &mut String, found: &mut BTreeMap<String, Option<String>>) {
    match value {
        Value::Object(members) => {
            for word in ["$anchor", "$dynamicAnchor"] {
                if let Some(Value::String(name)) = members.get(word) {
                    let place = Some(at.clone());
                    let known = found.entry(name.clone()).or_insert_with(|| place.clone());
                    if *known != place {
                        *known = None;
                    }
                }
            }
            for (name, member) in members {
                below(at, name, |at| find_anchors(member, at, found));
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                below(at, &place.to_string(), |at| find_anchors(item, at, found));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

struct Walk<'a> {
    root: &'a Value,
    anchors: BTreeMap<String, Option<String>>,
    targets: Targets,
    /// Visited subschemas, and where they are.
    seen: BTreeMap<usize, String>,
}

impl<'a> Walk<'a> {
    /// Visits a subschema and everything that it refers to.
    fn visit(
        &mut self,
        schema: &'a Value,
        at: &mut String,
        depth: usize,
    ) -> Result<(), SchemaFault> {
        let Value::Object(members) = schema else {
            return Ok(());
        };
        if self.seen.insert(address(schema), at.clone()).is_some() {
            return Ok(());
        }
        if depth > DEPTH_MAX {
            let detail = format!("a schema is at most {DEPTH_MAX} steps deep, references included");
            return Err(fault(at, detail));
        }
        if depth > 0 && members.get("$id").is_some_and(Value::is_string) {
            let detail = "only the whole schema has an `$id`";
            return below(at, "$id", |at| Err(fault(at, detail)));
        }
        if let Some(Value::String(pattern)) = members.get("pattern") {
            below(at, "pattern", |at| check_pattern(pattern, at))?;
        }
        for (word, value) in members {
            let word = word.as_str();
            below(at, word, |at| {
                if POINTS.contains(&word) {
                    self.follow(value, at, depth)
                } else if APPLIES.contains(&word) {
                    self.visit(value, at, depth + 1)
                } else if word == "patternProperties" {
                    self.visit_named(value, at, depth, true)
                } else if APPLIES_EACH.contains(&word)
                    || APPLIES_NAMED.contains(&word)
                    || BELOW.contains(&word)
                {
                    self.visit_any(word, value, at, depth)
                } else {
                    Ok(())
                }
            })?;
        }
        Ok(())
    }

    /// Visits a subschema, a list of them or a map of them, depending on the keyword.
    fn visit_any(
        &mut self,
        word: &str,
        value: &'a Value,
        at: &mut String,
        depth: usize,
    ) -> Result<(), SchemaFault> {
        let named = matches!(
            word,
            "properties" | "$defs" | "definitions" | "dependentSchemas" | "dependencies"
        );
        if let Value::Array(items) = value {
            for (place, item) in items.iter().enumerate() {
                below(at, &place.to_string(), |at| self.visit(item, at, depth + 1))?;
            }
            Ok(())
        } else if named {
            self.visit_named(value, at, depth, false)
        } else {
            self.visit(value, at, depth + 1)
        }
    }

    fn visit_named(
        &mut self,
        value: &'a Value,
        at: &mut String,
        depth: usize,
        patterns: bool,
    ) -> Result<(), SchemaFault> {
        for (name, member) in value.as_object().into_iter().flatten() {
            below(at, name, |at| {
                if patterns {
                    check_pattern(name, at)?;
                }
                self.visit(member, at, depth + 1)
            })?;
        }
        Ok(())
    }

    /// Resolves a reference and visits its target.
    fn follow(&mut self, value: &Value, at: &str, depth: usize) -> Result<(), SchemaFault> {
        let Value::String(reference) = value else {
            return Err(fault(at, "a reference is a string"));
        };
        let Some(fragment) = reference.strip_prefix('#') else {
            let detail = "a reference points inside the schema: it begins with `#`";
            return Err(fault(at, detail));
        };
        let unknown = || fault(at, format!("{reference:?} does not exist in the schema"));
        let fragment = decoded(fragment).ok_or_else(unknown)?;
        let pointer = if fragment.is_empty() || fragment.starts_with('/') {
            fragment
        } else {
            let place = self.anchors.get(&fragment).cloned().flatten();
            place.ok_or_else(unknown)?
        };
        let target = self.root.pointer(&pointer).ok_or_else(unknown)?;
        self.targets.insert(reference.clone(), pointer.clone());
        self.visit(target, &mut pointer.clone(), depth + 1)
    }
}

fn check_pattern(pattern: &str, at: &str) -> Result<(), SchemaFault> {
    if pattern.len() > PATTERN_BYTES_MAX {
        let detail = format!("a pattern has at most {PATTERN_BYTES_MAX} bytes");
        return Err(fault(at, detail));
    }
    Ok(())
}

/// A percent-decoded fragment.
fn decoded(fragment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// For each subschema, how many subschemas apply to one value because of it, including itself, and
/// how deep the chain is. `None` while this is being computed.
struct Weigher<'a> {
    root: &'a Value,
    targets: &'a Targets,
    weights: BTreeMap<usize, Option<(u64, usize)>>,
}

impl<'a> Weigher<'a> {
    fn weigh(
        &mut self,
        schema: &'a Value,
        at: &str,
        depth: usize,
    ) -> Result<(u64, usize), SchemaFault> {
        let Value::Object(members) = schema else {
            return Ok((1, 1));
        };
        match self.weights.get(&address(schema)) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => {
                let detail = "this subschema refers to itself for the same value";
                return Err(fault(at, detail));
            }
            None => {}
        }
        if depth > APPLIED_DEPTH_MAX {
            return Err(too_deep(at));
        }
        self.weights.insert(address(schema), None);
        let (mut sum, mut deepest) = (1_u64, 0);
        for (part, at) in self.applied(members, at) {
            let (weight, below) = self.weigh(part, &at, depth + 1)?;
            sum = sum.saturating_add(weight);
            deepest = deepest.max(below);
        }
        let deepest = deepest + 1;
        if deepest > APPLIED_DEPTH_MAX {
            return Err(too_deep(at));
        }
        if sum > APPLIED_MAX {
            let detail = format!(
                "more than {APPLIED_MAX} subschemas apply to one value here, counted as often as \
                 references repeat them"
            );
            return Err(fault(at, detail));
        }
        self.weights.insert(address(schema), Some((sum, deepest)));
        Ok((sum, deepest))
    }

    /// The subschemas that apply to a value directly because of this one, and where they are.
    fn applied(&self, members: &'a Map<String, Value>, at: &str) -> Vec<(&'a Value, String)> {
        let mut found = Vec::new();
        for (word, value) in members {
            let word = word.as_str();
            if POINTS.contains(&word) {
                let reference = value.as_str().unwrap_or_default();
                let place = self.targets.get(reference);
                found.extend(place.and_then(|at| Some((self.root.pointer(at)?, at.clone()))));
            } else if APPLIES.contains(&word) {
                found.push((value, format!("{at}/{word}")));
            } else if APPLIES_EACH.contains(&word) {
                for (place, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.push((item, format!("{at}/{word}/{place}")));
                }
            } else if APPLIES_NAMED.contains(&word) {
                for (name, item) in value.as_object().into_iter().flatten() {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    found.push((item, format!("{at}/{word}/{name}")));
                }
            }
        }
        found
    }
}

fn too_deep(at: &str) -> SchemaFault {
    let detail = format!(
        "more than {APPLIED_DEPTH_MAX} subschemas apply to one value, nested in each other"
    );
    fault(at, detail)
}
