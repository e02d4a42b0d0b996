//! Reads a schema node by node, whatever its draft, and without what is no schema.

use serde_json::{Map, Value, json};

use super::combine::both;
use super::dialect::{Form, Keys};
use super::names::Names;
use super::{Fitted, Object, words};

/// Maximum number of nodes that are written, references followed.
const NODES_MAX: usize = 4_000;

/// Keywords that are about the schema itself, or that can't be loosened: a looser schema inside of `not` or `if`
/// makes the whole stricter.
const LEFT_OUT: &[&str] = &[
    "$anchor",
    "$comment",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveAnchor",
    "$recursiveRef",
    "$schema",
    "$vocabulary",
    "additionalItems",
    "contains",
    "contentSchema",
    "dependencies",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords that this module reads by itself.
const READ: &[&str] = &[
    "$defs",
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "definitions",
    "items",
    "oneOf",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "type",
];

/// Keywords with a number that isn't negative and whole.
const COUNTS: &[&str] = &[
    "maxItems",
    "maxLength",
    "maxProperties",
    "minItems",
    "minLength",
    "minProperties",
];

/// Keywords that only tell something.
pub(super) const ANNOTATIONS: &[&str] = &["default", "description", "examples", "title"];

/// The way to a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trail<'t> {
    depth: usize,
    /// The reference that was followed here.
    reference: Option<&'t str>,
    above: Option<&'t Trail<'t>>,
}

impl<'t> Trail<'t> {
    const ROOT: Trail<'static> = Trail {
        depth: 0,
        reference: None,
        above: None,
    };

    fn below(&'t self) -> Trail<'t> {
        Trail {
            depth: self.depth + 1,
            reference: None,
            above: Some(self),
        }
    }

    fn follow(&'t self, reference: &'t str) -> Trail<'t> {
        Trail {
            reference: Some(reference),
            ..self.below()
        }
    }

    /// Whether the reference was followed before, or one with which it would go round in circles.
    fn has(&self, reference: &str) -> bool {
        let mut trail = Some(self);
        while let Some(at) = trail {
            if at.reference == Some(reference) {
                return true;
            }
            trail = at.above;
        }
        false
    }
}

/// Whether references are written as they are, where the dialect has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refs {
    Kept,
    Followed,
}

/// Fits one schema.
pub(super) struct Fitter<'a> {
    source: &'a Value,
    pub(super) form: Form,
    /// Whether the schema is of a draft in which nothing counts beside a reference.
    refs_alone: bool,
    nodes_left: usize,
    depth_max: usize,
}

impl<'a> Fitter<'a> {
    pub(super) fn new(source: &'a Value, form: Form, depth_max: usize) -> Self {
        let draft = source.get("$schema").and_then(Value::as_str);
        let refs_alone = draft.is_some_and(|draft| {
            ["draft-03", "draft-04", "draft-06", "draft-07"]
                .iter()
                .any(|old| draft.contains(old))
        });
        let refs = form.refs && !has_odd_key(source, form.keys);
        Self {
            source,
            form: Form { refs, ..form },
            refs_alone,
            nodes_left: NODES_MAX,
            depth_max,
        }
    }

    /// The whole schema.
    pub(super) fn root(mut self, source: &'a Object) -> Fitted {
        let mut notes = Vec::new();
        let mut root = self.raw(self.source, &Trail::ROOT, Refs::Followed);
        self.fold(&mut root, &mut notes);
        for keyword in ["enum", "const", "not"] {
            if let Some(value) = root
                .remove(keyword)
                .as_ref()
                .or_else(|| source.get(keyword))
            {
                notes.extend(words::of_keyword(keyword, value));
            }
        }
        root.insert("type".to_owned(), json!("object"));
        root.remove("nullable");
        self.settle(&mut root);
        self.definitions(source, &mut root);
        let properties = root.entry("properties").or_insert_with(|| json!({}));
        let is_empty = properties.as_object().is_none_or(Map::is_empty) || self.is_filler(&root);
        let mut root = Value::Object(root);
        let names = Names::of(&root, self.form.keys);
        names.rename(&mut root);
        for note in &mut notes {
            *note = names.told(note);
        }
        Fitted {
            schema: (!(self.form.filled && is_empty)).then_some(root),
            names,
            notes,
        }
    }

    /// Adds the definitions that are referred to.
    fn definitions(&mut self, source: &'a Object, root: &mut Object) {
        if !self.form.refs {
            return;
        }
        let mut wanted: Vec<String> = Vec::new();
        references(root, &mut wanted);
        let mut at = 0;
        while let Some(reference) = wanted.get(at) {
            at += 1;
            let Some((holder, name)) = definition(reference) else {
                continue;
            };
            let Some(target) = source.get(holder).and_then(|held| held.get(&name)) else {
                continue;
            };
            let node = self.node(target, &Trail::ROOT, Refs::Kept);
            references(&node, &mut wanted);
            let held = root.entry(holder).or_insert_with(|| json!({}));
            if let Value::Object(held) = held {
                held.insert(name, node.into());
            }
        }
    }

    /// A node as it goes out.
    pub(super) fn node(&mut self, schema: &'a Value, at: &Trail<'_>, refs: Refs) -> Object {
        let mut node = self.raw(schema, at, refs);
        self.settle(&mut node);
        node
    }

    /// A node whose children are as they go out, but which is not itself.
    pub(super) fn raw(&mut self, schema: &'a Value, at: &Trail<'_>, refs: Refs) -> Object {
        let Value::Object(source) = schema else {
            return Object::new();
        };
        if at.depth > self.depth_max || self.nodes_left == 0 {
            return cut(source);
        }
        self.nodes_left -= 1;
        let Some(reference) = source.get("$ref").and_then(Value::as_str) else {
            return self.members(source, at, refs);
        };
        let mut beside = if self.refs_alone {
            let is_note = |(name, _): &(&String, &Value)| ANNOTATIONS.contains(&name.as_str());
            let notes = source.iter().filter(is_note);
            notes
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect()
        } else {
            self.members(source, at, refs)
        };
        let Some(target) = self.target(reference) else {
            return beside;
        };
        if refs == Refs::Kept && self.form.refs && definition(reference).is_some() {
            beside.insert("$ref".to_owned(), reference.into());
            return beside;
        }
        let target = if at.has(reference) || reference == "#" {
            target.as_object().map(cut).unwrap_or_default()
        } else {
            self.raw(target, &at.follow(reference), refs)
        };
        both(&mut beside, target);
        beside
    }

    /// What a reference inside of the schema refers to.
    fn target(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        self.source.pointer(&unescaped(pointer))
    }

    /// The members of a node without a reference.
    fn members(&mut self, source: &'a Object, at: &Trail<'_>, refs: Refs) -> Object {
        let mut node = Object::new();
        let below = at.below();
        for (keyword, value) in source {
            let keyword = keyword.as_str();
            if LEFT_OUT.contains(&keyword) || READ.contains(&keyword) || !is_sound(keyword, value) {
                continue;
            }
            node.insert(keyword.to_owned(), value.clone());
        }
        draft_four(source, &mut node);
        if let Some(kind) = source.get("type").and_then(kind) {
            node.insert("type".to_owned(), kind);
        }
        self.object(source, &mut node, &below);
        self.array(source, &mut node, &below);
        if let Some(not) = source.get("not").filter(|_| at.depth > 0)
            && let Some(words) = words::of_keyword("not", not)
        {
            words::add(&mut node, &words);
        }
        self.combinators(source, &mut node, (&below, refs));
        node
    }

    /// What a node says of the members of an object.
    fn object(&mut self, source: &'a Object, node: &mut Object, below: &Trail<'_>) {
        let mut never = Vec::new();
        if let Some(Value::Object(members)) = source.get("properties") {
            let mut properties = Object::new();
            for (name, schema) in members {
                if *schema == Value::Bool(false) {
                    never.push(name.as_str());
                    continue;
                }
                let member = self.node(schema, below, Refs::Kept);
                properties.insert(name.clone(), member.into());
            }
            node.insert("properties".to_owned(), properties.into());
        }
        let mut required: Vec<&str> = Vec::new();
        for name in words::names(source) {
            if !never.contains(&name) && !required.contains(&name) {
                required.push(name);
            }
        }
        if !required.is_empty() {
            node.insert("required".to_owned(), json!(required));
        }
        match source.get("additionalProperties") {
            Some(Value::Bool(may)) => {
                node.insert("additionalProperties".to_owned(), json!(may));
            }
            Some(schema @ Value::Object(_)) => {
                let schema = self.node(schema, below, Refs::Kept);
                node.insert("additionalProperties".to_owned(), schema.into());
            }
            _ => {}
        }
        if let Some(Value::Object(patterns)) = source.get("patternProperties") {
            let mut fitted = Object::new();
            for (pattern, schema) in patterns {
                let schema = self.node(schema, below, Refs::Kept);
                fitted.insert(pattern.clone(), schema.into());
            }
            node.insert("patternProperties".to_owned(), fitted.into());
        }
        if let Some(names @ Value::Object(_)) = source.get("propertyNames") {
            // All names are texts, so there is nothing to say of any type.
            let mut names = self.raw(names, below, Refs::Kept);
            names.remove("type");
            node.insert("propertyNames".to_owned(), names.into());
        }
    }

    /// What a node says of the items of an array.
    fn array(&mut self, source: &'a Object, node: &mut Object, below: &Trail<'_>) {
        let (tuple, rest) = match (source.get("prefixItems"), source.get("items")) {
            (Some(Value::Array(tuple)), rest) => (Some(tuple), rest),
            (_, Some(Value::Array(tuple))) => (Some(tuple), source.get("additionalItems")),
            (_, rest) => (None, rest),
        };
        let rest = rest.filter(|rest| rest.is_object() || rest.is_boolean());
        let Some(tuple) = tuple.filter(|tuple| !tuple.is_empty()) else {
            if let Some(rest) = rest {
                let items = self.node(rest, below, Refs::Kept);
                node.insert("items".to_owned(), items.into());
            }
            return;
        };
        let places = tuple
            .iter()
            .map(|schema| Value::from(self.node(schema, below, Refs::Kept)));
        let places: Vec<Value> = places.collect();
        let others = rest.filter(|rest| rest.is_object());
        let others = others.map(|rest| Value::from(self.node(rest, below, Refs::Kept)));
        if self.form.tuples {
            node.insert("prefixItems".to_owned(), places.into());
            if let Some(others) = others {
                node.insert("items".to_owned(), others);
            }
            return;
        }
        let is_closed = rest == Some(&Value::Bool(false));
        let others = others.or_else(|| (!is_closed).then(|| Value::from(Object::new())));
        let mut each: Vec<Object> = Vec::new();
        for schema in places.into_iter().chain(others) {
            match schema {
                Value::Object(schema) if !each.contains(&schema) => each.push(schema),
                _ => {}
            }
        }
        let items = self.any_of(each);
        node.insert("items".to_owned(), items.into());
    }
}

/// What remains of a node that is not followed further.
fn cut(source: &Object) -> Object {
    let mut node = Object::new();
    if let Some(description) = source.get("description").filter(|it| it.is_string()) {
        node.insert("description".to_owned(), description.clone());
    }
    if let Some(kind @ Value::String(_)) = source.get("type").and_then(kind) {
        node.insert("type".to_owned(), kind);
    }
    node
}

/// The name of a type as JSON Schema has it, for names that other languages have; `None` if it means anything.
pub(super) fn type_named(name: &str) -> Option<&'static str> {
    Some(match name.to_ascii_lowercase().as_str() {
        "array" | "list" | "tuple" | "set" => "array",
        "bool" | "boolean" => "boolean",
        "dict" | "dictionary" | "map" | "object" => "object",
        "int" | "int32" | "int64" | "integer" | "long" => "integer",
        "double" | "float" | "number" | "decimal" => "number",
        "none" | "null" => "null",
        "str" | "string" | "text" => "string",
        _ => return None,
    })
}

/// The value of `type`: a name, or at least two.
fn kind(said: &Value) -> Option<Value> {
    match said {
        Value::String(name) => type_named(name).map(Value::from),
        Value::Array(names) => {
            let mut kinds: Vec<&str> = Vec::new();
            for name in names {
                // A list with a name that means anything means anything.
                let kind = type_named(name.as_str()?)?;
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            match kinds.as_slice() {
                [] => None,
                [only] => Some(Value::from(*only)),
                kinds => Some(json!(kinds)),
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// Whether the value of a keyword is of the kind that every draft has for it. What isn't is left out, as otherwise
/// the whole schema is refused.
fn is_sound(keyword: &str, value: &Value) -> bool {
    match keyword {
        "description" | "title" | "pattern" | "format" => value.is_string(),
        "enum" => value.as_array().is_some_and(|values| !values.is_empty()),
        "uniqueItems" | "nullable" | "deprecated" | "readOnly" | "writeOnly" => value.is_boolean(),
        "multipleOf" => value.as_f64().is_some_and(|number| number > 0.0),
        "exclusiveMaximum" | "exclusiveMinimum" | "maximum" | "minimum" => value.is_number(),
        "examples" => value.is_array(),
        "dependentRequired" => value.is_object(),
        _ if COUNTS.contains(&keyword) => value.is_u64(),
        _ => true,
    }
}

/// In draft 4 a bound says beside it whether it belongs to the range.
fn draft_four(source: &Object, node: &mut Object) {
    for (bound, exclusive) in [
        ("maximum", "exclusiveMaximum"),
        ("minimum", "exclusiveMinimum"),
    ] {
        if source.get(exclusive) == Some(&Value::Bool(true))
            && let Some(number) = node.remove(bound)
        {
            node.insert(exclusive.to_owned(), number);
        }
    }
}

/// Whether a member is declared whose name isn't taken.
fn has_odd_key(schema: &Value, keys: Keys) -> bool {
    match schema {
        Value::Object(members) => {
            let named = members.get("properties").and_then(Value::as_object);
            named.is_some_and(|named| named.keys().any(|name| !keys.take(name)))
                || members.values().any(|member| has_odd_key(member, keys))
        }
        Value::Array(items) => items.iter().any(|item| has_odd_key(item, keys)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The definition that a reference names: what holds it, and its name there.
fn definition(reference: &str) -> Option<(&'static str, String)> {
    let pointer = reference.strip_prefix("#/")?;
    let (holder, name) = pointer.split_once('/')?;
    let holder = ["$defs", "definitions"]
        .into_iter()
        .find(|known| *known == holder)?;
    let name = unescaped(name);
    (!name.contains('/')).then(|| (holder, name.replace("~1", "/").replace("~0", "~")))
}

/// Undoes the escapes of an address.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let code = behind.get(..2).filter(|_| first == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Adds the references in a node that aren't known yet.
fn references(node: &Object, found: &mut Vec<String>) {
    for (keyword, value) in node {
        match value {
            Value::String(reference) if keyword == "$ref" => {
                if !found.contains(reference) {
                    found.push(reference.clone());
                }
            }
            Value::Object(below) => references(below, found),
            Value::Array(items) => {
                for below in items.iter().filter_map(Value::as_object) {
                    references(below, found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}
