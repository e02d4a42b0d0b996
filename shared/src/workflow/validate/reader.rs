//! Reading members of objects, every fault kept.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::limits::at;
use super::{PROBLEMS_MAX, Problem};
use crate::agent::Delegation;
use crate::time::Span;
use crate::words::nearest;
use crate::workflow::spec::{Node, NodeIx, Spec};
use crate::workflow::template::free_names;

/// An object and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Members<'a> {
    pub(super) map: &'a Map<String, Value>,
    pub(super) at: &'a str,
}

impl Members<'_> {
    pub(super) fn pointer(&self, key: &str) -> String {
        at(self.at, key)
    }

    /// A member; null counts as absent.
    pub(super) fn given(&self, key: &str) -> Option<&Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }
}

/// A name that something reads, to be looked up when the whole tree is known.
pub(super) struct Use {
    pub(super) node: NodeIx,
    pub(super) name: String,
    pub(super) pointer: String,
    pub(super) kind: UseKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum UseKind {
    /// In a template.
    Template,
    /// `items_from`, `on` or `when`.
    Ref,
    /// The condition that ends a loop.
    Until,
    /// `inputs_from`.
    Context,
}

/// Ids and the places that have them, by the nested workflow that they are in.
pub(super) type Ids = BTreeMap<(Option<NodeIx>, String), Vec<(NodeIx, String)>>;

pub(super) struct Reader<'a> {
    /// What leaves may have; anything where nobody says.
    pub(super) granted: Option<&'a Delegation>,
    /// The version of the language that the spec is read in.
    pub(super) version: i32,
    pub(super) problems: Vec<Problem>,
    pub(super) nodes: Vec<Node>,
    pub(super) ids: Ids,
    /// Ids of nodes that could not be read: references to them are no further problem.
    pub(super) lost: BTreeSet<String>,
    pub(super) uses: Vec<Use>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(granted: Option<&'a Delegation>, version: i32) -> Self {
        Self {
            granted,
            version,
            problems: Vec::new(),
            nodes: Vec::new(),
            ids: BTreeMap::new(),
            lost: BTreeSet::new(),
            uses: Vec::new(),
        }
    }

    pub(super) fn finish(mut self, spec: Option<Spec>) -> Result<Spec, Vec<Problem>> {
        match spec {
            Some(spec) if self.problems.is_empty() => Ok(spec),
            _ => {
                self.problems
                    .sort_by(|a, b| a.pointer.cmp(&b.pointer).then(a.rule.cmp(b.rule)));
                self.problems.dedup();
                self.problems.truncate(PROBLEMS_MAX);
                Err(self.problems)
            }
        }
    }

    pub(super) fn problem(
        &mut self,
        pointer: impl Into<String>,
        rule: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        // Enough that the best of them can be told.
        if self.problems.len() < 10 * PROBLEMS_MAX {
            self.problems.push(Problem {
                pointer: pointer.into(),
                rule,
                message: message.into(),
                hint: hint.into(),
            });
        }
    }

    /// Reports every member that has no meaning here.
    pub(super) fn only(&mut self, members: Members<'_>, known: &[&str]) {
        let unknown = members
            .map
            .keys()
            .filter(|key| !known.contains(&key.as_str()));
        for key in unknown.take(PROBLEMS_MAX) {
            let hint = match nearest(key, known.iter().copied()) {
                Some(near) => format!("write `{near}`, or leave it out"),
                None => format!("known here are: {}", known.join(", ")),
            };
            let shown: String = key.chars().take(80).collect();
            let message = format!("{shown:?} is not known here");
            self.problem(members.pointer(key), "unknown_key", message, hint);
        }
    }

    /// A text that is not blank.
    pub(super) fn label(&mut self, members: Members<'_>, key: &str, hint: &str) -> Option<String> {
        match members.map.get(key) {
            Some(Value::String(text)) if !text.trim().is_empty() => Some(text.clone()),
            Some(Value::String(_)) => {
                self.problem(
                    members.pointer(key),
                    "blank",
                    format!("`{key}` is blank"),
                    hint,
                );
                None
            }
            Some(_) => {
                let message = format!("`{key}` is not a text");
                self.problem(members.pointer(key), "not_text", message, hint);
                None
            }
            None => {
                let message = format!("`{key}` is missing");
                self.problem(members.at, "missing", message, hint);
                None
            }
        }
    }

    /// A text, or nothing; an explicit null is a fault.
    pub(super) fn text(&mut self, members: Members<'_>, key: &str) -> Option<String> {
        if let Value::String(text) = members.map.get(key)? {
            return Some(text.clone());
        }
        let message = format!("`{key}` is not a text");
        let hint = "write a text, or leave the member out";
        self.problem(members.pointer(key), "not_text", message, hint);
        None
    }

    /// A whole number within bounds.
    pub(super) fn whole(
        &mut self,
        members: Members<'_>,
        key: &str,
        (low, high): (u64, u64),
    ) -> Option<u64> {
        let value = members.map.get(key)?;
        let whole = value
            .as_u64()
            .filter(|number| (low..=high).contains(number));
        if whole.is_none() {
            let message = format!("`{key}` is not a whole number from {low} to {high}");
            let hint = "write a plain number without quotes";
            self.problem(members.pointer(key), "not_in_range", message, hint);
        }
        whole
    }

    /// A number within bounds.
    pub(super) fn number(
        &mut self,
        members: Members<'_>,
        key: &str,
        (low, high): (f64, f64),
    ) -> Option<f64> {
        let value = members.map.get(key)?;
        let number = value
            .as_f64()
            .filter(|number| (low..=high).contains(number));
        if number.is_none() {
            let message = format!("`{key}` is not a number from {low} to {high}");
            let hint = "write a plain number without quotes";
            self.problem(members.pointer(key), "not_in_range", message, hint);
        }
        number
    }

    pub(super) fn flag(&mut self, members: Members<'_>, key: &str) -> Option<bool> {
        if let Value::Bool(flag) = members.map.get(key)? {
            return Some(*flag);
        }
        let message = format!("`{key}` is neither true nor false");
        let hint = "write true or false without quotes";
        self.problem(members.pointer(key), "not_boolean", message, hint);
        None
    }

    /// One of several words, by its place among them.
    pub(super) fn word(
        &mut self,
        members: Members<'_>,
        key: &str,
        words: &[&str],
    ) -> Option<usize> {
        let value = members.map.get(key)?;
        let place = value
            .as_str()
            .and_then(|text| words.iter().position(|word| *word == text));
        if place.is_none() {
            let message = format!("`{key}` is none of {}", words.join(", "));
            let hint = format!("write {:?}", words[0]);
            self.problem(members.pointer(key), "not_a_word", message, hint);
        }
        place
    }

    /// A length of time: seconds as a number, or a text like `30s`.
    pub(super) fn span(&mut self, members: Members<'_>, key: &str, max: Span) -> Option<Span> {
        let value = members.given(key)?;
        let span = match value {
            Value::Number(number) => number
                .as_f64()
                .filter(|seconds| (0.0..=1e10).contains(seconds))
                .map(|seconds| Span(std::time::Duration::from_millis((seconds * 1e3) as u64))),
            Value::String(text) => text.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let span = span.filter(|span| !span.0.is_zero() && *span <= max);
        if span.is_none() {
            let message = format!("`{key}` is not a length of time up to {max}");
            let hint = "write seconds as a number, or a text like \"30s\", \"5m\", \"2h\"";
            self.problem(members.pointer(key), "not_a_duration", message, hint);
        }
        span
    }

    pub(super) fn object<'v>(
        &mut self,
        members: Members<'v>,
        key: &str,
    ) -> Option<&'v Map<String, Value>> {
        if let Value::Object(map) = members.map.get(key)? {
            return Some(map);
        }
        let message = format!("`{key}` is not an object");
        let hint = "write an object in braces, or leave the member out";
        self.problem(members.pointer(key), "not_object", message, hint);
        None
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, members: Members<'_>, key: &str) -> Option<Vec<String>> {
        let value = members.map.get(key)?;
        let texts = value.as_array().and_then(|list| {
            list.iter()
                .map(|one| one.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        });
        if texts.is_none() {
            let message = format!("`{key}` is not a list of texts");
            let hint = "write a list like [\"a\", \"b\"]";
            self.problem(members.pointer(key), "not_texts", message, hint);
        }
        texts
    }

    /// Notes every name that a template reads.
    pub(super) fn template(&mut self, node: NodeIx, source: &str, pointer: &str) {
        match free_names(source) {
            Ok(names) => {
                for name in names {
                    self.uses.push(Use {
                        node,
                        name,
                        pointer: pointer.to_owned(),
                        kind: UseKind::Template,
                    });
                }
            }
            Err(detail) => {
                let hint = "use {{name}} or {{name.key}}; write a literal brace as {{ '{{' }}";
                let message = format!("the template cannot be used: {detail}");
                self.problem(pointer, "template", message, hint);
            }
        }
    }

    /// Notes the name that a reference reads.
    pub(super) fn reads(&mut self, node: NodeIx, name: &str, pointer: String, kind: UseKind) {
        self.uses.push(Use {
            node,
            name: name.to_owned(),
            pointer,
            kind,
        });
    }
}
