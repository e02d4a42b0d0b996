//! Tools that the kernel handles: a call waits for another agent, a workflow or a person as a row
//! in the store, without occupying a worker.

pub(crate) mod wakeups;
pub mod workflow;

use crate::catalogue::{BuiltIn, NOTHING};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::tool::{ASK_PERSON, CREATE_WORKFLOW, SPAWN_AGENT};
use mainspring_worker::tool::{Effect, ToolSpec, Tools, ToolsError};
use serde_json::json;

/// Registers the tools.
pub fn register(tools: &mut Tools) -> Result<(), ToolsError> {
    let mut all = TOOLS.iter();
    all.try_for_each(|waits| tools.insert_outside((waits.spec)(), waits.on, waits.effect))
}

/// A tool whose calls wait for someone else without occupying a worker.
pub(crate) struct Waits {
    pub(crate) about: BuiltIn,
    spec: fn() -> ToolSpec,
    on: WaitingOn,
    effect: Effect,
}

pub(crate) const TOOLS: [Waits; 3] = [
    Waits {
        about: BuiltIn {
            name: ASK_PERSON,
            needs: NOTHING,
            does: "asks the user and waits for the answer",
        },
        spec: ask_person,
        on: WaitingOn::Human,
        effect: Effect::AskPerson,
    },
    Waits {
        about: BuiltIn {
            name: SPAWN_AGENT,
            needs: NOTHING,
            does: "delegates a task to another agent",
        },
        spec: spawn_agent,
        on: WaitingOn::Agent,
        effect: Effect::Delegate,
    },
    Waits {
        about: BuiltIn {
            name: CREATE_WORKFLOW,
            needs: NOTHING,
            does: "runs a workflow",
        },
        spec: create_workflow,
        on: WaitingOn::Run,
        effect: Effect::StartRun,
    },
];

fn spawn_agent() -> ToolSpec {
    ToolSpec {
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
                "agent": {"type": "string", "minLength": 1,
                    "description": "Name of a published agent to start instead of a new one."},
                "variables": {"type": "object", "description": "Values of that agent's variables."},
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
    }
}

fn create_workflow() -> ToolSpec {
    ToolSpec {
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
    }
}

fn ask_person() -> ToolSpec {
    ToolSpec {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_for_a_call_is_declared_by_its_tool() {
        let mut tools = Tools::default();
        register(&mut tools).expect("new names");
        for (name, effect) in [
            (SPAWN_AGENT, Effect::Delegate),
            (CREATE_WORKFLOW, Effect::StartRun),
            (ASK_PERSON, Effect::AskPerson),
            ("unknown", Effect::None),
        ] {
            assert_eq!(tools.effect(name), effect, "{name}");
        }
    }
}
