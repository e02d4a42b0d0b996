//! A person's decision.

use serde_json::{Map, Value, json};

use super::Node;
use crate::workflow::schema::{Object, object};
use crate::workflow::spec::{Policy, Spec, names_in};
use crate::workflow::validate::reader::Reader;
use crate::workflow::validate::tree::NodeAt;

/// A person's decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    /// The question, a template.
    pub message: String,
    /// Its leaf policy.
    pub policy: Policy,
}

impl Node for Approval {
    fn object() -> Object {
        object(
            "A person's decision; its value is {approved, note}.",
            &["id", "message"],
        )
        .label(
            "message",
            "The question, a template.",
            "describe what a person has to decide",
        )
        .leaf()
    }

    fn read(reader: &mut Reader<'_>, at: NodeAt<'_>) -> Option<Self> {
        let message = reader.label(at.members, "message");
        if let Some(message) = &message {
            reader.template(at.ix, message, &at.members.pointer("message"));
        }
        let policy = Policy::read(reader, at);
        Some(Self {
            message: message?,
            policy,
        })
    }

    fn write(&self, _spec: &Spec, out: &mut Map<String, Value>) {
        out.insert("message".into(), json!(self.message));
    }

    fn policy(&self) -> Option<&Policy> {
        Some(&self.policy)
    }

    fn names_read(&self) -> Vec<String> {
        names_in(&self.message)
    }
}
