//! The tools that ship, and the presets that name several of them.

pub mod builtin;
pub mod http;
pub mod mcp;

use mainspring_shared::send::WaitingOn;
use serde_json::json;

use crate::tool::{Offer, ToolSpec, outside as outside_offer};

/// Names of tools that are done outside, which no other tool may have.
pub(crate) const RESERVED: &[&str] = &[ASK_PERSON];

/// Asks whoever works with the agent.
const ASK_PERSON: &str = "ask_person";

/// The tools of a preset.
pub(crate) fn preset(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "core" => Some(builtin::CORE),
        "explore" => Some(builtin::EXPLORE),
        "full" => Some(builtin::FULL),
        _ => None,
    }
}

/// A built-in tool that is done outside.
pub(crate) fn outside(name: &str) -> Option<Option<Offer>> {
    (name == ASK_PERSON).then(ask_person)
}

fn ask_person() -> Option<Offer> {
    let spec = ToolSpec {
        name: ASK_PERSON.into(),
        description: "Asks the person you work for and waits for the answer, however long it takes. \
                      Ask only what you cannot find out yourself."
            .into(),
        parameters: json!({
            "type": "object",
            "required": ["question"],
            "additionalProperties": false,
            "properties": {
                "question": {"type": "string", "minLength": 1},
                "options": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Answers to choose from.",
                },
            },
        }),
    };
    outside_offer(spec, WaitingOn::Human, None, false)
}
