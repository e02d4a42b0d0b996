//! Brings one node into the form that a dialect demands, once its children have it.

use serde_json::{Value, json};

use super::combine::{ALTERNATIVES, both, has_object};
use super::dialect::Beside;
use super::node::{ANNOTATIONS, Fitter};
use super::{Object, words};

/// The name of the member that an object gets which must have one.
const FILLER: &str = "_";

/// The keywords that belong to each type.
const OF_TYPES: &[(&str, &[&str])] = &[
    (
        "array",
        &[
            "items",
            "prefixItems",
            "minItems",
            "maxItems",
            "uniqueItems",
        ],
    ),
    (
        "object",
        &[
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
            "dependentRequired",
        ],
    ),
    (
        "string",
        &[
            "pattern",
            "minLength",
            "maxLength",
            "format",
            "contentEncoding",
            "contentMediaType",
        ],
    ),
    (
        "number",
        &[
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ],
    ),
];

impl Fitter<'_> {
    /// Brings a node into the form of the dialect. A node that has it stays as it is.
    pub(super) fn settle(&self, node: &mut Object) {
        if node.contains_key("$ref") {
            one_of(node);
            return;
        }
        self.texts(node);
        self.alternatives(node);
        if !self.form.type_lists {
            self.kinds(node);
        }
        if self.form.typed {
            self.infer(node);
        }
        self.keywords(node);
        self.beside(node);
        self.contents(node);
    }

    /// Values that are enumerated.
    fn texts(&self, node: &mut Object) {
        if let Some(Value::Array(values)) = node.get_mut("enum") {
            let mut distinct: Vec<Value> = Vec::with_capacity(values.len());
            for value in values.drain(..) {
                if !distinct.contains(&value) {
                    distinct.push(value);
                }
            }
            *values = distinct;
        }
        let takes_const = self
            .form
            .keywords
            .is_none_or(|known| known.contains(&"const"));
        if !takes_const && let Some(value) = node.remove("const") {
            node.entry("enum").or_insert_with(|| json!([value]));
        }
        if !self.form.text_enums {
            return;
        }
        let Some(Value::Array(mut values)) = node.remove("enum") else {
            return;
        };
        let all = Value::from(values.clone());
        let count = values.len();
        values.retain(|value| !value.is_null());
        if values.len() < count {
            node.insert("nullable".to_owned(), json!(true));
        }
        let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        if !values.is_empty() && values.iter().all(text) {
            node.insert("type".to_owned(), json!("string"));
            node.insert("enum".to_owned(), values.into());
            return;
        }
        if !node.contains_key("type")
            && let Some(kind) = kind_of(&values)
        {
            node.insert("type".to_owned(), kind);
        }
        let keyword = if count == 1 { "const" } else { "enum" };
        let said = if count == 1 { &all[0] } else { &all };
        if let Some(words) = words::of_keyword(keyword, said) {
            words::add(node, &words);
        }
    }

    /// Alternatives: one list of them, each in its form.
    fn alternatives(&self, node: &mut Object) {
        one_of(node);
        let Some(Value::Array(branches)) = node.remove("anyOf") else {
            return;
        };
        let mut fitted: Vec<Object> = Vec::with_capacity(branches.len());
        let mut is_null = false;
        for branch in branches {
            let Value::Object(mut branch) = branch else {
                continue;
            };
            if self.form.nullable && branch.get("type") == Some(&json!("null")) {
                is_null = true;
                continue;
            }
            // Only requirements are said: they belong to the object around them.
            if !(self.form.typed && !branch.contains_key("type") && is_object(node)) {
                self.settle(&mut branch);
            }
            // Alternatives that are nothing but alternatives themselves are some more of them.
            let inner = match branch.get("anyOf") {
                Some(Value::Array(inner)) if branch.len() == 1 => Some(inner.clone()),
                _ => None,
            };
            let inner = inner.into_iter().flatten().filter_map(|inner| match inner {
                Value::Object(inner) => Some(inner),
                _ => None,
            });
            let mut inner: Vec<Object> = inner.collect();
            if inner.is_empty() {
                inner.push(branch);
            }
            for branch in inner {
                if !fitted.contains(&branch) {
                    fitted.push(branch);
                }
            }
        }
        if is_null {
            node.insert("nullable".to_owned(), json!(true));
        }
        if fitted.len() == 1 {
            both(node, fitted.remove(0));
            one_of(node);
        } else if !fitted.is_empty() {
            let fitted: Vec<Value> = fitted.into_iter().map(Value::from).collect();
            node.insert("anyOf".to_owned(), fitted.into());
        }
    }

    /// Types: a single one, or alternatives.
    fn kinds(&self, node: &mut Object) {
        let kinds: Vec<String> = match node.get("type") {
            Some(Value::Array(kinds)) => kinds
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            Some(Value::String(kind)) if kind == "null" && self.form.nullable => vec![kind.clone()],
            _ => return,
        };
        node.remove("type");
        let is_null = kinds.iter().any(|kind| kind == "null");
        let mut kinds = kinds;
        if is_null && self.form.nullable {
            kinds.retain(|kind| kind != "null");
            node.insert("nullable".to_owned(), json!(true));
        }
        match kinds.as_slice() {
            [] => {
                node.insert("type".to_owned(), json!("string"));
            }
            [only] => {
                node.insert("type".to_owned(), json!(only));
            }
            kinds => {
                // Alternatives say more than types.
                if !node.contains_key("anyOf") {
                    let branches = kinds
                        .iter()
                        .map(|kind| Value::from(self.of_kind(node, kind)));
                    let branches: Vec<Value> = branches.collect();
                    for (_, keywords) in OF_TYPES {
                        node.retain(|keyword, _| !keywords.contains(&keyword.as_str()));
                    }
                    node.remove("enum");
                    node.insert("anyOf".to_owned(), branches.into());
                }
            }
        }
    }

    /// What a node says of values of one type.
    fn of_kind(&self, node: &Object, kind: &str) -> Object {
        let mut branch = Object::new();
        branch.insert("type".to_owned(), json!(kind));
        let class = if kind == "integer" { "number" } else { kind };
        let keywords = OF_TYPES.iter().find(|(of, _)| *of == class);
        for keyword in keywords.map_or(&[][..], |(_, keywords)| keywords) {
            if let Some(value) = node.get(*keyword) {
                branch.insert((*keyword).to_owned(), value.clone());
            }
        }
        if let Some(Value::Array(values)) = node.get("enum") {
            let values: Vec<&Value> = values.iter().filter(|it| is_of_kind(it, kind)).collect();
            if !values.is_empty() {
                branch.insert("enum".to_owned(), json!(values));
            }
        }
        self.settle(&mut branch);
        branch
    }

    /// Adds a type where there is neither a type nor an alternative.
    fn infer(&self, node: &mut Object) {
        if node.contains_key("type") || node.contains_key("anyOf") {
            return;
        }
        let known = OF_TYPES
            .iter()
            .find(|(_, keywords)| keywords.iter().any(|keyword| node.contains_key(*keyword)));
        let listed = || kind_of(node.get("enum")?.as_array()?);
        let kind = known.map(|(kind, _)| json!(kind)).or_else(listed);
        if let Some(kind) = kind {
            node.insert("type".to_owned(), kind);
            return;
        }
        for (keyword, value) in self.anything() {
            node.insert(keyword, value);
        }
    }

    /// What every value fits.
    pub(super) fn anything(&self) -> Object {
        if !self.form.typed {
            return Object::new();
        }
        let mut kinds = vec!["string", "number", "boolean", "object", "array"];
        if !self.form.nullable {
            kinds.push("null");
        }
        let branch = |kind: &&str| {
            let mut branch = Object::new();
            branch.insert("type".to_owned(), json!(kind));
            if *kind == "array" && self.form.items {
                branch.insert("items".to_owned(), self.items());
            } else {
                self.contents(&mut branch);
            }
            if *kind == "string" && self.form.nullable {
                branch.insert("nullable".to_owned(), json!(true));
            }
            Value::from(branch)
        };
        let branches: Vec<Value> = kinds.iter().map(branch).collect();
        let mut node = Object::new();
        node.insert("anyOf".to_owned(), branches.into());
        node
    }

    /// The items of an array of anything: anything but an array of something else than texts.
    fn items(&self) -> Value {
        let mut object = Object::new();
        object.insert("type".to_owned(), json!("object"));
        self.fill(&mut object);
        json!({ "anyOf": [
            { "type": "string", "nullable": true },
            { "type": "number" },
            { "type": "boolean" },
            object,
            { "type": "array", "items": { "type": "string" } },
        ] })
    }

    /// Leaves out the keywords that the dialect lacks, and says in words what they said.
    fn keywords(&self, node: &mut Object) {
        let Some(known) = self.form.keywords else {
            return;
        };
        let unknown: Vec<String> = node
            .keys()
            .filter(|keyword| !known.contains(&keyword.as_str()))
            .cloned()
            .collect();
        for keyword in unknown {
            let value = node.remove(&keyword);
            if let Some(words) = value.and_then(|value| words::of_keyword(&keyword, &value)) {
                words::add(node, &words);
            }
        }
    }

    /// What may not stand beside alternatives goes into them, or is left out.
    fn beside(&self, node: &mut Object) {
        if self.form.beside == Beside::Anything || !node.contains_key("anyOf") {
            return;
        }
        if is_object(node) {
            let mut notes = Vec::new();
            self.fold(node, &mut notes);
            node.insert("type".to_owned(), json!("object"));
            for note in notes {
                words::add(node, &note);
            }
            return;
        }
        let kind = node.remove("type");
        let (description, nullable) = (node.get("description").cloned(), node.remove("nullable"));
        let is_note = |keyword: &str| match self.form.beside {
            Beside::Anything | Beside::Annotations => ANNOTATIONS.contains(&keyword),
            Beside::Nothing => false,
        };
        node.retain(|keyword, _| keyword == "anyOf" || is_note(keyword));
        let Some(Value::Array(branches)) = node.get_mut("anyOf") else {
            return;
        };
        for branch in branches.iter_mut().filter_map(Value::as_object_mut) {
            if let Some(kind) = &kind
                && !branch.contains_key("type")
                && !branch.contains_key("anyOf")
            {
                branch.insert("type".to_owned(), kind.clone());
            }
        }
        let Some(Value::Object(first)) = branches.first_mut() else {
            return;
        };
        if self.form.beside != Beside::Nothing {
            return;
        }
        if let Some(nullable) = nullable {
            first.insert("nullable".to_owned(), nullable);
        }
        if let Some(Value::String(description)) = description {
            let own = first.get("description").and_then(Value::as_str);
            let both =
                own.map_or_else(|| description.clone(), |own| format!("{description} {own}"));
            first.insert("description".to_owned(), both.into());
        }
    }

    /// What objects and arrays must say.
    fn contents(&self, node: &mut Object) {
        let Some(kind) = node.get("type").cloned() else {
            return;
        };
        if has_object(&kind) {
            if !node.get("properties").is_some_and(Value::is_object) {
                node.insert("properties".to_owned(), json!({}));
            }
            self.fill(node);
            if self.form.declared {
                declare(node);
            }
        }
        let has_array = match &kind {
            Value::Array(kinds) => kinds.iter().any(|kind| kind.as_str() == Some("array")),
            kind => kind.as_str() == Some("array"),
        };
        if has_array && self.form.items && !node.contains_key("items") {
            node.insert("items".to_owned(), self.anything().into());
        }
    }

    /// Gives an object without members the one that the dialect demands.
    fn fill(&self, node: &mut Object) {
        let is_empty = node
            .get("properties")
            .and_then(Value::as_object)
            .is_none_or(Object::is_empty);
        if self.form.filled && is_empty {
            node.insert("properties".to_owned(), json!({ FILLER: filler() }));
        }
    }

    /// Whether an object only has the member that the dialect demands.
    pub(super) fn is_filler(&self, node: &Object) -> bool {
        let properties = node.get("properties").and_then(Value::as_object);
        self.form.filled
            && properties.is_some_and(|it| it.len() == 1 && it.get(FILLER) == Some(&filler()))
    }
}

/// Only declared members are required.
fn declare(node: &mut Object) {
    let Some(Value::Array(mut required)) = node.remove("required") else {
        return;
    };
    let properties = node.get("properties").and_then(Value::as_object);
    required.retain(|name| {
        let name = name.as_str().unwrap_or_default();
        properties.is_some_and(|it| it.contains_key(name))
    });
    if !required.is_empty() {
        node.insert("required".to_owned(), required.into());
    }
}

fn filler() -> Value {
    json!({ "type": "string", "description": "Not used: give members with names of your own." })
}

/// Exactly one of several alternatives can't be demanded of looser ones, of which more than one may hold. Of two
/// lists only one can be said.
fn one_of(node: &mut Object) {
    let [any, one] = ALTERNATIVES;
    if let Some(branches) = node.remove(one) {
        node.entry(any).or_insert(branches);
    }
}

/// Whether a node is for objects alone.
fn is_object(node: &Object) -> bool {
    match node.get("type") {
        Some(kind) => kind.as_str() == Some("object"),
        None => node.contains_key("properties"),
    }
}

fn is_of_kind(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => kind == "number" || (kind == "integer" && !number.is_f64()),
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

/// The type that all values have.
fn kind_of(values: &[Value]) -> Option<Value> {
    let kinds = ["string", "integer", "number", "boolean", "object", "array"];
    let of_all = |kind: &&str| values.iter().all(|value| is_of_kind(value, kind));
    let kind = kinds
        .into_iter()
        .find(of_all)
        .filter(|_| !values.is_empty());
    kind.map(Value::from)
}
