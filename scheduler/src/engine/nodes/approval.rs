//! A person's decision, requested through a tool call.

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::{Code, Failure};
use mainspring_shared::tool::{ASK_PERSON, ToolEntry};
use mainspring_shared::workflow::nodes::Approval;
use mainspring_shared::workflow::run::{LeafEnd, NodeState};
use mainspring_shared::workflow::spec::NodeIx;
use serde_json::{Value, json};

use super::Leaf;
use crate::engine::Run;
use crate::engine::leaf::{Outcome, direct_input};
use crate::engine::tree::SlotIx;

impl Leaf for Approval {
    fn agent(&self, run: &Run, slot: SlotIx) -> Result<AgentSpec, Failure> {
        let agent = run.direct_agent(slot, ASK_PERSON);
        Ok(AgentSpec {
            // The workflow itself asks the question, so its starter need not have the tool.
            tools: vec![ToolEntry::Named(ASK_PERSON.to_owned())],
            allow: Some(vec![ASK_PERSON.to_owned()]),
            ..agent
        })
    }

    fn input(&self, run: &Run, slot: SlotIx) -> Result<String, Failure> {
        let question = run.render(slot, &self.message)?;
        let arguments = json!({"question": question, "options": ["approve", "deny"]});
        Ok(direct_input(ASK_PERSON, &arguments))
    }

    fn judge(&self, run: &mut Run, slot: SlotIx, end: LeafEnd) -> Outcome {
        let text = end.text.unwrap_or_default();
        let value = end.value.or_else(|| serde_json::from_str(&text).ok());
        let (approved, note) = decision(value.as_ref(), &text);
        let decides = approved || run.spec.decides(run.slots[slot].ix, "approved");
        let record = &mut run.slots[slot].record;
        record.payload = Some(json!({ "approved": approved, "note": note }));
        record.text = Some(note.clone());
        if decides {
            return Outcome::Succeeded;
        }
        let detail = match note.trim() {
            "" => "a person did not approve".to_owned(),
            note => format!("a person did not approve: {note}"),
        };
        Outcome::Final(NodeState::Failed, Failure::new(Code::ToolDenied, detail))
    }

    fn fallback(&self) -> Option<NodeIx> {
        self.policy.fallback
    }
}

/// Interprets a person's answer. Anything but a clear yes is a no.
fn decision(value: Option<&Value>, text: &str) -> (bool, String) {
    if let Some(Value::Object(map)) = value
        && let Some(approved) = map.get("approved").and_then(Value::as_bool)
    {
        let note = map.get("note").and_then(Value::as_str).unwrap_or_default();
        return (approved, note.to_owned());
    }
    let plain = match value {
        Some(Value::Bool(approved)) => return (*approved, String::new()),
        Some(Value::String(text)) => text.clone(),
        _ => text.to_owned(),
    };
    let trimmed = plain.trim();
    let (first, rest) = trimmed
        .split_once([' ', ',', '.', ':', ';', '\n'])
        .unwrap_or((trimmed, ""));
    let rest = rest.trim().to_owned();
    match first.to_ascii_lowercase().as_str() {
        "yes" | "y" | "ok" | "approve" | "approved" | "true" => (true, rest),
        "no" | "n" | "deny" | "denied" | "reject" | "rejected" | "false" => (false, rest),
        _ => (false, trimmed.to_owned()),
    }
}
