//! A tool call without a model.

use serde_json::{Map, Value, json};

use super::Node;
use crate::tool::ToolEntry;
use crate::workflow::schema::{Object, object};
use crate::workflow::spec::{NodeIx, Policy, Spec, names_in};
use crate::workflow::validate::limits;
use crate::workflow::validate::reader::Reader;
use crate::workflow::validate::tree::NodeAt;

/// A tool call without a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The tool's name.
    pub tool: String,
    /// The arguments of the call; texts in them are templates.
    pub arguments: Map<String, Value>,
    /// Its leaf policy.
    pub policy: Policy,
}

impl Node for Tool {
    fn object() -> Object {
        let arguments = json!({"type": "object", "default": {},
            "description": "The call's arguments; texts are templates, and a plain `{{x}}` keeps \
             its type."});
        object("A tool call without a model.", &["id", "tool"])
            .label(
                "tool",
                "The tool's name.",
                "name a tool that the workers have",
            )
            .with("arguments", arguments)
            .leaf()
    }

    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let members = at.members;
        let tool = reader.label(members, "tool");
        if let Some(tool) = &tool {
            let entry = ToolEntry::Named(tool.clone());
            reader.granted(&entry, &members.pointer("tool"));
        }
        let arguments = reader.object(members, "arguments").cloned();
        let arguments = arguments.unwrap_or_default();
        let pointer = members.pointer("arguments");
        for (key, value) in &arguments {
            templates(reader, at.ix, value, &limits::at(&pointer, key));
        }
        let policy = Policy::read(reader, at);
        Some(Self {
            tool: tool?,
            arguments,
            policy,
        })
    }

    fn write(&self, _spec: &Spec, out: &mut Map<String, Value>) {
        out.insert("tool".into(), json!(self.tool));
        out.insert("arguments".into(), json!(self.arguments));
    }

    fn policy(&self) -> Option<&Policy> {
        Some(&self.policy)
    }

    fn names_read(&self) -> Vec<String> {
        let mut names = Vec::new();
        for value in self.arguments.values() {
            names_below(value, &mut names);
        }
        names
    }
}

/// Checks the templates in a value.
pub(super) fn templates(reader: &mut Reader<'_>, ix: NodeIx, value: &Value, pointer: &str) {
    match value {
        Value::String(text) => reader.template(ix, text, pointer),
        Value::Array(list) => {
            for (index, one) in list.iter().enumerate() {
                templates(reader, ix, one, &format!("{pointer}/{index}"));
            }
        }
        Value::Object(map) => {
            for (key, one) in map {
                templates(reader, ix, one, &limits::at(pointer, key));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The names that the templates in a value read.
pub(super) fn names_below(value: &Value, names: &mut Vec<String>) {
    match value {
        Value::String(text) => names.extend(names_in(text)),
        Value::Array(list) => list.iter().for_each(|one| names_below(one, names)),
        Value::Object(map) => map.values().for_each(|one| names_below(one, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
