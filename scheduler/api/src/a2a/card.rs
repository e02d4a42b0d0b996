//! The card of an agent.

use mainspring_shared::agent::AgentVersion;
use serde_json::{Value, json};

use super::{Door, VERSION};

/// What an agent reads.
const INPUTS: [&str; 7] = [
    "text/plain",
    "application/json",
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "application/pdf",
];

/// The card.
pub(super) fn of(door: &Door, agent: &AgentVersion) -> Value {
    let name = agent.key.name.to_string();
    let url = format!("{}/a2a/{}", door.base, door.agent);
    let interfaces = ["JSONRPC", "HTTP+JSON"].map(
        |binding| json!({ "url": url, "protocolBinding": binding, "protocolVersion": VERSION }),
    );
    let outputs: &[&str] = match agent.spec.output_schema {
        Some(_) => &["application/json", "text/plain"],
        None => &["text/plain"],
    };
    let says = format!("The agent {name}.");
    let mut card = json!({
        "name": name,
        "description": says,
        "version": agent.n.to_string(),
        "supportedInterfaces": interfaces,
        "capabilities": { "streaming": true, "pushNotifications": false, "extendedAgentCard": false },
        "defaultInputModes": INPUTS,
        "defaultOutputModes": outputs,
        "skills": [{ "id": name, "name": name, "description": says, "tags": ["agent"] }],
    });
    if !door.app.gatekeeper.is_open() {
        card["securitySchemes"] =
            json!({ "key": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
        card["securityRequirements"] = json!([{ "schemes": { "key": { "list": [] } } }]);
    }
    card
}
