//! Reads members of objects and collects every fault.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::limits::at;
use super::{PROBLEMS_MAX, Problem};
use crate::agent::Delegation;
use crate::time::Span;
use crate::words::nearest;
use crate::workflow::schema::Object;
use crate::workflow::spec::{Node, NodeIx, Ref, Spec};
use crate::workflow::template::free_names;

/// Names that have another meaning in templates.
const RESERVED: [&str; 15] = [
    "loop", "previous", "true", "false", "none", "True", "False", "None", "and", "or", "not", "in",
    "is", "if", "else",
];

/// An object of a spec, its pointer and its declared members.
#[derive(Clone, Copy)]
pub(crate) struct Members<'a> {
    pub(crate) map: &'a Map<String, Value>,
    pub(crate) at: &'a str,
    object: &'static Object,
}

impl<'a> Members<'a> {
    pub(crate) fn new(map: &'a Map<String, Value>, at: &'a str, object: &'static Object) -> Self {
        Self { map, at, object }
    }

    /// Whether the member is required.
    pub(crate) fn requires(&self, key: &str) -> bool {
        self.object.requires(key)
    }

    pub(crate) fn pointer(&self, key: &str) -> String {
        at(self.at, key)
    }

    /// A member; null counts as absent.
    pub(crate) fn given(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }
}

/// A name that a node reads, resolved once the whole tree is known.
pub(crate) struct Use {
    pub(crate) node: NodeIx,
    pub(crate) name: String,
    pub(crate) pointer: String,
    pub(crate) kind: UseKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UseKind {
    /// In a template.
    Template,
    /// `items_from`, `on` or `when`.
    Ref,
    /// In the condition that ends a loop.
    Until,
    /// `inputs_from`.
    Context,
}

/// Ids by the nested workflow that contains them, each with its nodes and their pointers.
pub(crate) type Ids = BTreeMap<(Option<NodeIx>, String), Vec<(NodeIx, String)>>;

pub(crate) struct Reader<'a> {
    /// The tools that leaves may have; any when absent.
    pub(crate) granted: Option<&'a Delegation>,
    /// The version of the language that the spec is read in.
    pub(crate) version: i32,
    pub(crate) problems: Vec<Problem>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ids: Ids,
    /// Ids of nodes that could not be read: references to them are not reported as well.
    pub(crate) lost: BTreeSet<String>,
    pub(crate) uses: Vec<Use>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(granted: Option<&'a Delegation>, version: i32) -> Self {
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

    pub(crate) fn finish(mut self, spec: Option<Spec>) -> Result<Spec, Vec<Problem>> {
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

    pub(crate) fn problem(
        &mut self,
        pointer: impl Into<String>,
        rule: &'static str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        // Collect more than are reported, since they are sorted before the first ones are chosen.
        if self.problems.len() < 10 * PROBLEMS_MAX {
            self.problems.push(Problem {
                pointer: pointer.into(),
                rule,
                message: message.into(),
                hint: hint.into(),
            });
        }
    }

    /// Reports a malformed member, with its declared hint.
    pub(crate) fn member_problem(
        &mut self,
        members: Members<'_>,
        key: &str,
        rule: &'static str,
        message: impl Into<String>,
    ) {
        self.problem(
            members.pointer(key),
            rule,
            message,
            members.object.hint(key),
        );
    }

    /// Reports that a member is missing.
    pub(crate) fn missing(&mut self, members: Members<'_>, key: &str) {
        let message = format!("`{key}` is missing");
        self.problem(members.at, "missing", message, members.object.hint(key));
    }

    /// Reports the member if it is missing.
    pub(crate) fn required(&mut self, members: Members<'_>, key: &str) {
        if !members.map.contains_key(key) {
            self.missing(members, key);
        }
    }

    /// Reports every member that is not declared.
    pub(crate) fn only(&mut self, members: Members<'_>) {
        let known = members.object.names();
        let unknown = members
            .map
            .keys()
            .filter(|key| known.clone().all(|known| known != *key));
        for key in unknown.take(PROBLEMS_MAX) {
            let hint = match nearest(key, known.clone()) {
                Some(near) => format!("write `{near}`, or leave it out"),
                None => format!(
                    "known here are: {}",
                    known.clone().collect::<Vec<_>>().join(", ")
                ),
            };
            let shown: String = key.chars().take(80).collect();
            let message = format!("{shown:?} is not known here");
            self.problem(members.pointer(key), "unknown_key", message, hint);
        }
    }

    /// The members of a nested object; null counts as absent.
    pub(crate) fn inner<'v>(
        &mut self,
        members: Members<'v>,
        key: &str,
        pointer: &'v str,
        object: &'static Object,
    ) -> Option<Members<'v>> {
        members.given(key)?;
        let map = self.object(members, key)?;
        let inner = Members::new(map, pointer, object);
        self.only(inner);
        Some(inner)
    }

    /// A text that is not blank.
    pub(crate) fn label(&mut self, members: Members<'_>, key: &str) -> Option<String> {
        match members.map.get(key) {
            Some(Value::String(text)) if !text.trim().is_empty() => return Some(text.clone()),
            Some(Value::String(_)) => {
                self.member_problem(members, key, "blank", format!("`{key}` is blank"));
            }
            Some(_) => {
                self.member_problem(members, key, "not_text", format!("`{key}` is not a text"));
            }
            None => self.missing(members, key),
        }
        None
    }

    /// A reference to a value; its name is resolved once the whole tree is known.
    pub(crate) fn reference(
        &mut self,
        node: NodeIx,
        members: Members<'_>,
        key: &str,
        kind: UseKind,
    ) -> Option<Ref> {
        let on = Ref::parse(&self.label(members, key)?);
        self.reads(node, &on.name, members.pointer(key), kind);
        Some(on)
    }

    /// Checks that templates can use a variable with this name.
    pub(crate) fn variable(&mut self, members: Members<'_>, name: &str) {
        let mut chars = name.chars();
        let first = chars
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        if !first
            || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
            || RESERVED.contains(&name)
        {
            let message = format!("`as` is {name:?}, which templates cannot use as a name");
            let hint = "write letters, digits and _, beginning with a letter, like `item`";
            self.problem(members.pointer("as"), "not_a_name", message, hint);
        }
    }

    /// Reports that a session would have to continue after it was deleted.
    pub(crate) fn ephemeral_continues(&mut self, pointer: &str) {
        let message = "an `ephemeral` session is deleted once its leaf succeeded, and cannot be \
                       continued";
        let hint = "write `lifecycle`: \"linked\", or leave it out";
        self.problem(pointer, "lifecycle", message, hint);
    }

    /// An optional text; an explicit null is a fault.
    pub(crate) fn text(&mut self, members: Members<'_>, key: &str) -> Option<String> {
        if let Value::String(text) = members.map.get(key)? {
            return Some(text.clone());
        }
        let message = format!("`{key}` is not a text");
        let hint = if key == "input" {
            "write a text, or leave the member out; other values are the `input` of the run, beside `spec`"
        } else {
            "write a text, or leave the member out"
        };
        self.problem(members.pointer(key), "not_text", message, hint);
        None
    }

    /// A whole number within bounds.
    pub(crate) fn whole(
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
    pub(crate) fn number(
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

    pub(crate) fn flag(&mut self, members: Members<'_>, key: &str) -> Option<bool> {
        if let Value::Bool(flag) = members.map.get(key)? {
            return Some(*flag);
        }
        let message = format!("`{key}` is neither true nor false");
        let hint = "write true or false without quotes";
        self.problem(members.pointer(key), "not_boolean", message, hint);
        None
    }

    /// One of several words, as its index.
    pub(crate) fn word(
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

    /// A duration: seconds as a number, or a text like `30s`.
    pub(crate) fn span(&mut self, members: Members<'_>, key: &str, max: Span) -> Option<Span> {
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

    pub(crate) fn object<'v>(
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
    pub(crate) fn texts(&mut self, members: Members<'_>, key: &str) -> Option<Vec<String>> {
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

    /// Records every name that a template reads.
    pub(crate) fn template(&mut self, node: NodeIx, source: &str, pointer: &str) {
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

    /// Records the name that a reference reads.
    pub(crate) fn reads(&mut self, node: NodeIx, name: &str, pointer: String, kind: UseKind) {
        self.uses.push(Use {
            node,
            name: name.to_owned(),
            pointer,
            kind,
        });
    }
}
