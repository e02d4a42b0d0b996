//! The tools that ship, and the presets that name several of them.

pub mod builtin;
mod catalogue;
pub mod http;
pub mod mcp;
pub mod state;
pub mod workflow;

use std::sync::LazyLock;

use mainspring_shared::send::WaitingOn;
use mainspring_shared::tool::ASK_PERSON;
use mainspring_shared::tool::schema::Schema;
use serde_json::json;

use crate::tool::{Offer, ToolSpec};

pub use catalogue::{BUILT_IN, BuiltIn, PRESETS};

/// Names of tools that are done outside, which no other tool may have.
pub(crate) const RESERVED: &[&str] = &[ASK_PERSON, SPAWN_AGENT, CREATE_WORKFLOW];

/// Hands a task to another agent.
pub(crate) const SPAWN_AGENT: &str = "spawn_agent";

/// Starts a run of a workflow.
pub(crate) const CREATE_WORKFLOW: &str = "create_workflow";

/// Whether calls of this tool are other agents' work, which a budget has to pay for.
pub(crate) fn is_agents_work(name: &str) -> bool {
    [SPAWN_AGENT, CREATE_WORKFLOW].contains(&name)
}

/// A built-in tool that is done outside.
pub(crate) fn outside(name: &str) -> Option<Offer> {
    static OFFERS: LazyLock<[Offer; 3]> =
        LazyLock::new(|| [ask_person(), spawn_agent(), create_workflow()]);
    // Most names are none of these, and need not make the offers to know.
    let here = RESERVED.contains(&name);
    here.then(|| OFFERS.iter().find(|offer| offer.spec.name == name))?
        .cloned()
}

fn outside_offer(spec: ToolSpec, on: WaitingOn) -> Offer {
    let schema = Schema::compile(&spec.parameters).expect("the schema of a built-in tool is one");
    crate::tool::outside(spec, schema, on, None, false)
}

fn spawn_agent() -> Offer {
    let spec = ToolSpec {
        name: SPAWN_AGENT.into(),
        description: "Hands a task to another agent that works with the tools you name (all of yours \
                      unless you name some) and answers with its result. Say all it has to know: it \
                      sees nothing of this conversation. With `background` you get a receipt at once \
                      and are told the result later; with `session_id` an agent that you made before \
                      goes on with a further task."
            .into(),
        parameters: json!({
            "type": "object",
            "required": ["task"],
            "additionalProperties": false,
            "properties": {
                "task": {"type": "string", "minLength": 1},
                "name": {"type": "string", "minLength": 1, "maxLength": 64},
                "system_prompt": {"type": "string", "minLength": 1},
                "tools": {"type": "array", "items": {"type": "string"}},
                "max_rounds": {"type": "integer", "minimum": 1, "maximum": 50},
                "model": {"type": "string", "minLength": 1},
                "max_tokens": {"type": "integer", "minimum": 1, "maximum": 10_000_000},
                "temperature": {"type": "number", "minimum": 0, "maximum": 2},
                "output_schema": {"type": "object",
                    "description": "A JSON Schema: the agent answers with a value that fits."},
                "metadata": {"type": "object"},
                "lifecycle": {
                    "enum": ["linked", "ephemeral", "detached"],
                    "description": "How long the agent is kept: `linked` (unless you say so) as long as \
                                    you, `ephemeral` until it has answered, `detached` for itself: it \
                                    is not yours, so it cannot be given a further task.",
                },
                "background": {"type": "boolean"},
                "session_id": {"type": "string"},
            },
        }),
    };
    outside_offer(spec, WaitingOn::Agent)
}

fn create_workflow() -> Offer {
    let spec = ToolSpec {
        name: CREATE_WORKFLOW.into(),
        description: "Runs a workflow: a tree of agents in sequence, in parallel, over lists, with \
                      branches and loops, as JSON. Waits for its result; with `detached` you get a \
                      receipt at once and are told the result later. A spec with problems is not run: \
                      you are told all of them at once."
            .into(),
        parameters: json!({
            "type": "object",
            "required": ["spec"],
            "additionalProperties": false,
            "properties": {
                "spec": {"type": ["object", "string"]},
                "input": {"type": "string"},
                "detached": {"type": "boolean"},
            },
        }),
    };
    outside_offer(spec, WaitingOn::Run)
}

fn ask_person() -> Offer {
    let spec = ToolSpec {
        name: ASK_PERSON.into(),
        description:
            "Asks the person you work for and waits for the answer, however long it takes. \
                      Ask only what you cannot find out yourself."
                .into(),
        parameters: json!({
            "type": "object",
            "required": ["question"],
            "additionalProperties": false,
            "properties": {
                "question": {"type": "string", "minLength": 1},
                "kind": {
                    "type": "string",
                    "enum": ["text", "choice", "confirm"],
                    "description": "`choice` takes one of `options`, `confirm` yes or no.",
                },
                "options": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Answers to choose from.",
                },
                "expires_seconds": {
                    "type": "integer", "minimum": 1, "maximum": 31_536_000,
                    "description": "How long to wait for an answer.",
                },
                "default": {
                    "type": "string",
                    "description": "The answer that holds when nobody answers in time.",
                },
            },
        }),
    };
    outside_offer(spec, WaitingOn::Human)
}
