//! References to values, and conditions on them.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::workflow::schema::{Object, label, object};
use crate::workflow::validate::reader::{Reader, UseKind};
use crate::workflow::validate::tree::NodeAt;

pub(in crate::workflow) const CONDITION_HINT: &str =
    "write {\"ref\": \"node.key\", \"op\": \"eq\", \"value\": …}";

/// The members of a condition.
pub(in crate::workflow) static CONDITION: LazyLock<Object> = LazyLock::new(|| {
    let ops = Op::ALL.map(Op::as_str);
    let description = "A condition. A missing value makes it false.";
    object(description, &["ref"])
        .hinted(
            "ref",
            label("`node`, `node.key`, or a variable."),
            CONDITION_HINT,
        )
        .with("op", json!({"enum": ops, "default": "truthy"}))
        .with(
            "value",
            json!({"description": "For eq and ne a value, for in a list."}),
        )
});

/// A value of another node or of a variable: `name`, or `name.key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ref {
    /// A node's id or a variable.
    pub name: String,
    /// A member of its value; further dots belong to the key.
    pub key: Option<String>,
}

impl Ref {
    /// Parses a reference: the name ends at the first dot.
    pub fn parse(text: &str) -> Self {
        match text.split_once('.') {
            Some((name, key)) => Self {
                name: name.to_owned(),
                key: Some(key.to_owned()),
            },
            None => Self {
                name: text.to_owned(),
                key: None,
            },
        }
    }
}

impl std::fmt::Display for Ref {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{}.{key}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A test of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The value to test.
    pub on: Ref,
    /// The comparison.
    pub op: Op,
    /// The value to compare with.
    pub value: Value,
}

/// How a condition compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// One of a list.
    In,
    /// Neither empty, false nor zero.
    Truthy,
    /// Empty, false or zero.
    Falsy,
}

impl Op {
    /// Every operator.
    pub const ALL: [Self; 5] = [Self::Eq, Self::Ne, Self::In, Self::Truthy, Self::Falsy];

    /// The name in a spec.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::In => "in",
            Self::Truthy => "truthy",
            Self::Falsy => "falsy",
        }
    }
}

impl Condition {
    /// Reads the condition in member `key` of a node.
    pub(in crate::workflow) fn read(
        reader: &mut Reader<'_>,
        node: NodeAt<'_>,
        key: &'static str,
        kind: UseKind,
    ) -> Option<Self> {
        let pointer = node.members.pointer(key);
        let members = reader.inner(node.members, key, &pointer, &CONDITION)?;
        let on = reader.reference(node.ix, members, "ref", kind);
        let op = match reader.word(members, "op", &Op::ALL.map(Op::as_str)) {
            Some(place) => Op::ALL[place],
            None if members.map.contains_key("op") => return None,
            None => Op::Truthy,
        };
        let value = members.map.get("value");
        let fault = match op {
            Op::Eq | Op::Ne if value.is_none() => Some("`value` is missing"),
            Op::In if !value.is_some_and(Value::is_array) => Some("`value` is not a list"),
            Op::Truthy | Op::Falsy if value.is_some() => {
                Some("`value` has no meaning with this `op`")
            }
            Op::Eq | Op::Ne | Op::In | Op::Truthy | Op::Falsy => None,
        };
        if let Some(fault) = fault {
            reader.problem(members.at, "condition", fault, CONDITION_HINT);
        }
        Some(Self {
            on: on?,
            op,
            value: value.cloned().unwrap_or_default(),
        })
    }

    pub(in crate::workflow) fn write(&self) -> Value {
        let mut out = json!({"ref": self.on.to_string(), "op": self.op.as_str()});
        if matches!(self.op, Op::Eq | Op::Ne | Op::In) {
            out["value"] = self.value.clone();
        }
        out
    }
}

impl Condition {
    /// Whether it holds; false for a value that does not exist.
    pub fn holds(&self, value: Option<&Value>) -> bool {
        let Some(value) = value.map(plain) else {
            return false;
        };
        match self.op {
            Op::Eq => same(&value, &plain(&self.value)),
            Op::Ne => !same(&value, &plain(&self.value)),
            Op::In => {
                let list = self.value.as_array();
                list.is_some_and(|list| list.iter().any(|one| same(&value, &plain(one))))
            }
            Op::Truthy => truthy(&value),
            Op::Falsy => !truthy(&value),
        }
    }
}

/// Converts texts such as `True` and `false ` to booleans.
fn plain(value: &Value) -> Value {
    let text = value.as_str().map(|text| text.trim().to_ascii_lowercase());
    match text.as_deref() {
        Some("true") => Value::Bool(true),
        Some("false") => Value::Bool(false),
        _ => value.clone(),
    }
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (a, b) => a == b,
    }
}

fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// A value as text: a text unchanged, everything else as JSON.
pub fn text_of(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}
