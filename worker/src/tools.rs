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

use crate::tool::{Effect, Offer, ToolSpec};

pub use catalogue::{BUILT_IN, BuiltIn, PRESETS};

/// Names of tools that are done outside, which no other tool may have.
pub(crate) const RESERVED: &[&str] = &[ASK_PERSON, SPAWN_AGENT, CREATE_WORKFLOW];

/// Hands a task to another agent.
const SPAWN_AGENT: &str = "spawn_agent";

/// Starts a run of a workflow.
const CREATE_WORKFLOW: &str = "create_workflow";

/// A built-in tool that is done outside.
pub(crate) fn outside(name: &str) -> Option<&'static Offer> {
    static OFFERS: LazyLock<[Offer; 3]> =
        LazyLock::new(|| [ask_person(), spawn_agent(), create_workflow()]);
    // Most names are none of these, and need not make the offers to know.
    let here = RESERVED.contains(&name);
    here.then(|| OFFERS.iter().find(|offer| offer.spec.name == name))?
}

fn outside_offer(spec: ToolSpec, on: WaitingOn, effect: Effect) -> Offer {
    let schema = Schema::compile(&spec.parameters).expect("the schema of a built-in tool is one");
    let mut offer = crate::tool::outside(spec, schema, on, None, false);
    offer.traits.effect = effect;
    offer
}

fn spawn_agent() -> Offer {
    let spec = ToolSpec {
        name: SPAWN_AGENT.into(),
        description: "Delegates a task to a new agent and returns its result. The agent has \
                      the tools you list, or all of yours by default. It cannot see this \
                      conversation: include everything it needs to know. With `background` the \
                      call returns at once and the result is delivered to you later. With \
                      `session_id` an agent that you created earlier gets another task."
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
                    "description": "JSON Schema of the agent's result."},
                "metadata": {"type": "object"},
                "lifecycle": {
                    "enum": ["linked", "ephemeral", "detached"],
                    "description": "How long the agent is kept: `linked` (the default) as long as you are, \
                                    `ephemeral` until it has answered, `detached` independently of you; a \
                                    detached agent cannot be given another task.",
                },
                "background": {"type": "boolean"},
                "session_id": {"type": "string"},
            },
        }),
    };
    outside_offer(spec, WaitingOn::Agent, Effect::Delegate)
}

fn create_workflow() -> Offer {
    let spec = ToolSpec {
        name: CREATE_WORKFLOW.into(),
        description: "Runs a workflow, given as JSON: a tree of agents in sequence, in \
                      parallel or over lists, with branches and loops. Waits for the result; \
                      with `detached` the call returns at once and the result is delivered to \
                      you later. An invalid spec is not run: all its problems are returned \
                      together."
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
    outside_offer(spec, WaitingOn::Run, Effect::StartRun)
}

fn ask_person() -> Offer {
    let spec = ToolSpec {
        name: ASK_PERSON.into(),
        description: "Asks the user a question and waits for the answer, however long it \
                      takes. Ask only what you cannot find out yourself."
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
                    "description": "`choice` expects one of `options`, `confirm` expects yes or no.",
                },
                "options": {
                    "type": "array",
                    "items": {"type": "string"},
                    "description": "Options to choose from.",
                },
                "expires_seconds": {
                    "type": "integer", "minimum": 1, "maximum": 31_536_000,
                    "description": "How long to wait for an answer, in seconds.",
                },
                "default": {
                    "type": "string",
                    "description": "Answer to use if nobody answers in time.",
                },
            },
        }),
    };
    outside_offer(spec, WaitingOn::Human, Effect::None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Tools;

    #[test]
    fn what_the_kernel_does_for_a_call_is_declared_by_its_tool() {
        let tools = Tools::default();
        for (name, effect) in [
            (SPAWN_AGENT, Effect::Delegate),
            (CREATE_WORKFLOW, Effect::StartRun),
            (ASK_PERSON, Effect::None),
            ("unknown", Effect::None),
        ] {
            assert_eq!(tools.effect(name), effect, "{name}");
        }
        let paid = RESERVED
            .iter()
            .filter(|name| tools.effect(name).is_agents_work());
        assert_eq!(paid.count(), 2);
    }
}
