//! Published agents as tools.

use std::collections::BTreeMap;

use mainspring_scheduler::services::agents::admit_agent;
use mainspring_shared::agent::{AgentName, AgentQuery, AgentSpec, Pick};
use mainspring_shared::store::ListAgents;
use serde_json::{Map, Value, json};

use super::Request;
use crate::faces::rpc::{self, Fault};

/// Tools per page.
const PAGE: u32 = 100;

/// The agents that this key may use.
pub(super) async fn list(request: &Request<'_>) -> Result<Value, Fault> {
    let (app, caller) = (request.app, request.caller);
    let after: Option<AgentName> = match &request.params["cursor"] {
        Value::Null => None,
        cursor => {
            let after = cursor.as_str().and_then(|text| text.parse().ok());
            Some(after.ok_or_else(|| Fault::new(rpc::INVALID_PARAMS, "no such cursor"))?)
        }
    };
    let wanted = ListAgents {
        tenant: caller.tenant,
        archived: false,
        after,
        limit: PAGE,
    };
    let page = app.store.list_agents(wanted).await?;
    let next = page.data.last().filter(|_| page.more);
    let next = next.map(|agent| agent.key.name.to_string());
    let names = page.data.into_iter().map(|agent| agent.key.name);
    let names = names.filter(|name| admit_agent(caller.binding(), name).is_ok());
    let queries = names.map(|name| AgentQuery {
        name,
        pick: Pick::Newest,
    });
    let found = app
        .store
        .find_agents(caller.tenant, queries.collect())
        .await?;
    let tools = found.into_iter().flatten();
    let tools = tools.map(|agent| tool(request, agent.key.name.as_str(), &agent.spec));
    let mut shown = json!({ "tools": tools.collect::<Vec<_>>() });
    if let Some(next) = next {
        shown["nextCursor"] = json!(next);
    }
    Ok(request.peer.listed(shown))
}

fn tool(request: &Request<'_>, name: &str, spec: &AgentSpec) -> Value {
    let mut shown = json!({
        "name": name,
        "title": spec.name.as_deref().unwrap_or(name),
        "description": format!("Sends a message to the agent {name} and waits for its answer."),
        "inputSchema": input(spec),
        "annotations": { "openWorldHint": true },
    });
    if let Some(schema) = output(spec, request.peer.is_modern) {
        shown["outputSchema"] = schema;
    }
    if !request.peer.is_modern {
        shown["execution"] = json!({ "taskSupport": "optional" });
    }
    shown
}

/// What a call takes: a message, where it is said, and the variables that the agent's prompt declares.
fn input(spec: &AgentSpec) -> Value {
    let mut properties = json!({
        "message": { "type": "string", "description": "What to say to the agent." },
        "session_id": {
            "type": "string",
            "description": "Continues this conversation. An earlier answer names it.",
        },
        "send_id": {
            "type": "string",
            "description": "Waits on for the answer with this id, which was not ready, instead of sending the message.",
        },
    });
    let mut required = vec!["message"];
    let declared = spec.prompt.as_ref().map(|prompt| &prompt.variables);
    if let Some(declared) = declared.filter(|declared| !declared.is_empty()) {
        let values = declared.iter().map(|(name, variable)| {
            let mut value = Map::new();
            if let Some(description) = &variable.description {
                value.insert("description".to_owned(), json!(description));
            }
            if let Some(default) = &variable.default {
                value.insert("default".to_owned(), default.clone());
            }
            (name.clone(), Value::Object(value))
        });
        let needed = declared.iter().filter(|(_, variable)| variable.required);
        let needed: Vec<&String> = needed.map(|(name, _)| name).collect();
        if !needed.is_empty() {
            required.push("variables");
        }
        properties["variables"] = json!({
            "type": "object",
            "description": "Values for a new conversation.",
            "properties": values.collect::<BTreeMap<_, _>>(),
            "required": needed,
            "additionalProperties": false,
        });
    }
    json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    })
}

/// The schema of the value that an agent's answer has. Before 2026-07-28 only objects had one.
pub(super) fn output(spec: &AgentSpec, any: bool) -> Option<Value> {
    let schema = spec.output_schema.as_ref()?;
    if schema["type"] == "json_object" {
        return Some(json!({ "type": "object" }));
    }
    let schema = match (&schema["name"], &schema["schema"]) {
        (Value::String(_), inner @ Value::Object(_)) => inner,
        _ => schema,
    };
    (any || schema["type"] == "object").then(|| schema.clone())
}
