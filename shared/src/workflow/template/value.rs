//! Values as seen by templates, and the filters.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value as Shown};
use serde_json::Value;

/// Maximum bytes of a filter's output.
const FILTER_BYTES_MAX: usize = 2 << 20;

/// What a name refers to.
#[derive(Debug, Clone)]
pub enum Named {
    /// A value.
    Value(Value),
    /// The result of a node.
    Node(Arc<NodeText>),
}

/// The result of a node: its text, and its value's members.
#[derive(Debug, Default)]
pub struct NodeText {
    /// Its text.
    pub text: String,
    /// Its value.
    pub payload: Option<Value>,
    /// For a node without a result: the text in place of all its members.
    pub notice: Option<String>,
    shown: OnceLock<Shown>,
}

impl NodeText {
    /// A node's result.
    pub fn new(text: String, payload: Option<Value>) -> Self {
        Self {
            text,
            payload,
            notice: None,
            shown: OnceLock::new(),
        }
    }

    /// Stands in for a node without a result.
    pub fn notice(notice: String) -> Self {
        Self {
            text: notice.clone(),
            payload: None,
            notice: Some(notice),
            shown: OnceLock::new(),
        }
    }
}

impl Object for NodeText {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Shown) -> Option<Shown> {
        if let Some(notice) = &self.notice {
            return Some(Shown::from(notice.as_str()));
        }
        let payload = self.payload.as_ref()?;
        let shown = self.shown.get_or_init(|| shown(payload));
        shown
            .get_item(key)
            .ok()
            .filter(|value| !value.is_undefined())
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.notice.is_none() && (!self.text.trim().is_empty() || self.payload.is_some())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Named {
    pub(super) fn into_shown(self) -> Shown {
        match self {
            Self::Value(value) => shown(&value),
            Self::Node(node) => Shown::from_dyn_object(node),
        }
    }
}

fn shown(value: &Value) -> Shown {
    match value {
        Value::Null => Shown::from(()),
        Value::Bool(yes) => Shown::from(*yes),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Shown::from(whole),
            (None, Some(whole)) => Shown::from(whole),
            (None, None) => Shown::from(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Shown::from(text.as_str()),
        Value::Array(list) => list.iter().map(shown).collect(),
        Value::Object(map) => {
            Shown::from_pairs(map.iter().map(|(key, one)| (key.as_str(), shown(one))))
        }
    }
}

/// The values of names in one rendering.
#[derive(Debug)]
pub(super) struct Context(pub(super) BTreeMap<String, Shown>);

impl Object for Context {
    fn get_value(self: &Arc<Self>, key: &Shown) -> Option<Shown> {
        self.0.get(key.as_str()?).cloned()
    }
}

/// A value as text: texts unchanged, nodes by their text, everything else as JSON.
fn text_of(value: &Shown) -> Result<String, Error> {
    if let Some(node) = value.downcast_object_ref::<NodeText>() {
        return Ok(node.text.clone());
    }
    match (value.kind(), value.as_str()) {
        (ValueKind::Undefined, _) => Err(ErrorKind::UndefinedError.into()),
        (_, Some(text)) => Ok(text.to_owned()),
        (_, None) => json_text(value),
    }
}

fn json_text(value: &Shown) -> Result<String, Error> {
    let text = serde_json::to_string(value);
    text.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

/// A value as JSON.
pub(super) fn to_json(value: &Shown) -> Result<Value, String> {
    if let Some(node) = value.downcast_object_ref::<NodeText>() {
        return Ok(node
            .payload
            .clone()
            .unwrap_or_else(|| node.text.clone().into()));
    }
    serde_json::to_value(value).map_err(|error| error.to_string())
}

pub(super) fn format(out: &mut Output, _: &mut State, value: &Shown) -> Result<(), Error> {
    out.write_str(&text_of(value)?).map_err(Error::from)
}

fn bounded(text: String) -> Result<String, Error> {
    if text.len() > FILTER_BYTES_MAX {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "a text becomes too long",
        ));
    }
    Ok(text)
}

/// The available filters.
pub(super) const FILTERS: &[&str] = &[
    "default", "first", "join", "last", "length", "lower", "tojson", "trim", "truncate", "upper",
];

/// The available tests.
pub(super) const TESTS: &[&str] = &["defined", "none", "undefined"];

pub(super) fn add_filters(environment: &mut Environment<'static>) {
    environment.add_filter("default", |value: Shown, other: Shown| {
        if value.is_undefined() || value.is_none() {
            other
        } else {
            value
        }
    });
    environment.add_filter("tojson", |value: Shown| bounded(json_text(&value)?));
    environment.add_filter("upper", |value: Shown| {
        bounded(text_of(&value)?.to_uppercase())
    });
    environment.add_filter("lower", |value: Shown| {
        bounded(text_of(&value)?.to_lowercase())
    });
    environment.add_filter("trim", |value: Shown| {
        Ok::<_, Error>(text_of(&value)?.trim().to_owned())
    });
    environment.add_filter("truncate", |value: Shown, chars: usize| {
        Ok::<_, Error>(text_of(&value)?.chars().take(chars).collect::<String>())
    });
    environment.add_filter("length", |value: Shown| match value.len() {
        Some(length) => Ok(length),
        None => Ok::<_, Error>(text_of(&value)?.chars().count()),
    });
    environment.add_filter("first", |value: Shown| {
        Ok::<_, Error>(value.try_iter()?.next().unwrap_or_default())
    });
    environment.add_filter("last", |value: Shown| {
        Ok::<_, Error>(value.try_iter()?.last().unwrap_or_default())
    });
    environment.add_filter("join", |value: Shown, between: Option<String>| {
        let between = between.unwrap_or_default();
        let mut out = String::new();
        for (index, one) in value.try_iter()?.enumerate() {
            if index > 0 {
                out.push_str(&between);
            }
            out.push_str(&text_of(&one)?);
            out = bounded(out)?;
        }
        Ok::<_, Error>(out)
    });
    environment.add_test("defined", |value: Shown| !value.is_undefined());
    environment.add_test("undefined", |value: Shown| value.is_undefined());
    environment.add_test("none", |value: Shown| value.is_none());
}
