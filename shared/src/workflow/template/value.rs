//! Values as seen by templates, and the filters.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use minijinja::Value as Shown;
use minijinja::value::{Object, ObjectRepr};
use serde_json::Value;

use super::work::{Spent, Work};

/// What a name refers to.
#[derive(Debug, Clone)]
pub enum Named<'a> {
    /// A value.
    Value(Cow<'a, Value>),
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

impl Named<'_> {
    pub(super) fn into_shown(self, work: &Work<'_>) -> Result<Shown, Spent> {
        match self {
            Self::Value(value) => {
                work.all_of_json(&value)?;
                Ok(shown(&value))
            }
            Self::Node(node) => {
                // Its members are converted when the first of them is read, and then kept.
                if let (Some(payload), None) = (&node.payload, node.shown.get()) {
                    work.all_of_json(payload)?;
                }
                Ok(Shown::from_dyn_object(node))
            }
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
