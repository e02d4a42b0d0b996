//! The envelope of a workflow: everything except its tree.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::TIME_MAX;
use crate::time::Span;
use crate::workflow::schema::{Object, maybe, object, text, whole};
use crate::workflow::validate::reader::{Members, Reader};

/// The members of a workflow.
pub(in crate::workflow) static ENVELOPE: LazyLock<Object> = LazyLock::new(|| {
    object(
        "A tree of nodes whose leaves are agents.",
        &["name", "root"],
    )
    .label("name", "For people and lists.", "give the workflow a name")
    .child("root")
    .with("input", text("The default of `input`."))
    .with(
        "budget",
        json!({"anyOf": [{"type": "null"}, BUDGET.to_value()]}),
    )
    .with(
        "metadata",
        json!({"type": "object", "description": "Carried along."}),
    )
    .with("timeout", maybe("duration"))
});

static BUDGET: LazyLock<Object> = LazyLock::new(|| {
    let percent = json!({"type": "number", "minimum": 0, "maximum": 100, "default": 0});
    object("The limits of all leaves together.", &["max_tokens"])
        .hinted(
            "max_tokens",
            whole(1, i64::MAX as u64, Value::Null),
            "write {\"max_tokens\": …}",
        )
        .with("stop_at_remaining_pct", percent)
});

/// The members of a workflow other than its tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// A name for people and lists.
    pub name: String,
    /// The default value of `input`.
    pub input: String,
    /// The budget of the leaves together.
    pub budget: Option<Budget>,
    /// Metadata for the leaves' sessions.
    pub metadata: Map<String, Value>,
    /// The time limit of the whole workflow.
    pub timeout: Option<Span>,
}

/// The budget of all leaves of a tree together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// Maximum number of tokens, input and output.
    pub max_tokens: u64,
    /// The part that is never allotted to a leaf, in percent.
    pub stop_at_remaining_pct: f64,
}

impl Envelope {
    pub(in crate::workflow) fn read(reader: &mut Reader<'_>, members: Members<'_>) -> Self {
        reader.only(members);
        let name = reader.label(members, "name");
        let input = reader.text(members, "input");
        let budget = Budget::read(reader, members);
        let metadata = reader.object(members, "metadata").cloned();
        let timeout = reader.span(members, "timeout", TIME_MAX);
        Self {
            name: name.unwrap_or_default(),
            input: input.unwrap_or_default(),
            budget,
            metadata: metadata.unwrap_or_default(),
            timeout,
        }
    }

    pub(in crate::workflow) fn write(&self, root: Value) -> Value {
        let mut out = Map::new();
        out.insert("name".into(), json!(self.name));
        if !self.input.is_empty() {
            out.insert("input".into(), json!(self.input));
        }
        if let Some(budget) = self.budget {
            let pct = budget.stop_at_remaining_pct;
            let budget = json!({"max_tokens": budget.max_tokens, "stop_at_remaining_pct": pct});
            out.insert("budget".into(), budget);
        }
        if !self.metadata.is_empty() {
            out.insert("metadata".into(), json!(self.metadata));
        }
        if let Some(timeout) = self.timeout {
            out.insert("timeout".into(), json!(timeout));
        }
        out.insert("root".into(), root);
        Value::Object(out)
    }
}

impl Budget {
    fn read(reader: &mut Reader<'_>, members: Members<'_>) -> Option<Self> {
        let pointer = members.pointer("budget");
        let members = reader.inner(members, "budget", &pointer, &BUDGET)?;
        reader.required(members, "max_tokens");
        let max_tokens = reader.whole(members, "max_tokens", (1, i64::MAX as u64));
        let pct = reader.number(members, "stop_at_remaining_pct", (0.0, 100.0));
        Some(Self {
            max_tokens: max_tokens?,
            stop_at_remaining_pct: pct.unwrap_or_default(),
        })
    }
}
