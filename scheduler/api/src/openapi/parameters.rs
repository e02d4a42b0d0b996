//! Path parameters.

use serde_json::{Value, json};

use super::form::TENANT;
use super::refine::{AGENT_NAME, ALIAS, POOL, SHA256, id};

/// The prefix of the ids in a path.
fn prefix(path: &str) -> Option<&'static str> {
    match path.split('/').nth(2)? {
        "sessions" => Some("ses"),
        "sends" => Some("snd"),
        "timers" => Some("tmr"),
        "runs" => Some("run"),
        "memories" => Some("mem"),
        "keys" => Some("key"),
        "webhooks" => Some("whk"),
        _ => None,
    }
}

/// The description of a path parameter.
pub(super) fn in_path(path: &str, name: &str) -> Value {
    let schema = match (name, prefix(path)) {
        ("id", Some(prefix)) => json!({ "type": "string", "pattern": id(prefix) }),
        ("id", _) if path.starts_with("/v1/tenants/") => {
            json!({ "type": "string", "pattern": TENANT })
        }
        ("sha256", _) => json!({ "type": "string", "pattern": SHA256 }),
        ("delivery_id", _) => json!({ "type": "string", "pattern": id("evt") }),
        ("pool", _) => json!({ "type": "string", "pattern": POOL }),
        ("n", _) => json!({ "type": "integer", "minimum": 1, "maximum": i32::MAX }),
        ("name", _) if path.starts_with("/v1/agents/") => {
            json!({ "type": "string", "pattern": AGENT_NAME })
        }
        ("name", _) if path.starts_with("/v1/pools/") => {
            json!({ "type": "string", "pattern": POOL })
        }
        ("alias", _) => json!({ "type": "string", "pattern": ALIAS }),
        _ => json!({ "type": "string", "minLength": 1 }),
    };
    json!({ "name": name, "in": "path", "required": true, "schema": schema })
}
