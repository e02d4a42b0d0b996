//! Runs children concurrently.

use serde_json::{Map, Value, json};

use super::Node;
use crate::workflow::schema::{Object, nodes, object, whole};
use crate::workflow::spec::{CONCURRENCY_DEFAULT, CONCURRENCY_MAX, NodeIx, Spec};
use crate::workflow::validate::reader::{Members, Reader};
use crate::workflow::validate::tree::NodeAt;

/// A node that runs its children concurrently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parallel {
    /// The children, at least one.
    pub branches: Vec<NodeIx>,
    /// How many run at once, and what a failure means.
    pub fan: Fan,
}

/// How children run concurrently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fan {
    /// Maximum number of children in flight.
    pub max_concurrency: u32,
    /// Whether a failed child stops the others.
    pub halt: bool,
}

impl Node for Parallel {
    fn object() -> Object {
        Fan::declare(
            object("Its branches at once.", &["branches"]).with("branches", nodes("At least one.")),
        )
    }

    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let fan = Fan::read(reader, at.members);
        let branches = reader.nodes_of(at, "branches")?;
        Some(Self { branches, fan })
    }

    fn write(&self, spec: &Spec, out: &mut Map<String, Value>) {
        out.insert("branches".into(), spec.write_all(&self.branches));
        self.fan.write(out);
    }

    fn children(&self) -> Vec<NodeIx> {
        self.branches.clone()
    }

    fn has_result(&self) -> bool {
        false
    }

    fn hides_children(&self) -> bool {
        false
    }
}

impl Fan {
    pub(super) fn declare(object: Object) -> Object {
        let most = whole(1, CONCURRENCY_MAX.into(), json!(CONCURRENCY_DEFAULT));
        object.with("max_concurrency", most).with(
            "on_error",
            json!({"enum": ["halt", "continue"], "default": "halt",
                "description": "Whether a failed child stops the others."}),
        )
    }

    pub(super) fn read(reader: &mut Reader<'_>, members: Members<'_>) -> Self {
        let most = reader.whole(members, "max_concurrency", (1, CONCURRENCY_MAX.into()));
        let on_error = reader.word(members, "on_error", &["halt", "continue"]);
        Self {
            max_concurrency: most.map_or(CONCURRENCY_DEFAULT, |most| most as u32),
            halt: on_error != Some(1),
        }
    }

    pub(super) fn write(self, out: &mut Map<String, Value>) {
        out.insert("max_concurrency".into(), json!(self.max_concurrency));
        let word = if self.halt { "halt" } else { "continue" };
        out.insert("on_error".into(), json!(word));
    }
}
