//! Parameters of paths, queries and heads.

use serde_json::{Value, json};

use super::events::EVENT_ID;
use super::named;
use super::operation::Operation;
use super::refine::{AGENT_NAME, ALIAS, DURATION, KEY, POOL, SHA256, id};

/// The id of a tenant.
const TENANT: &str = "^ten_[1-9][0-9]{0,9}$";

/// What a path's ids are called.
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

/// A parameter in a path.
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

/// A parameter of published agents: its place, what it says and its schema.
fn of_agents(name: &str) -> (&'static str, &'static str, Value) {
    if name == "archived" {
        let schema = json!({ "type": "boolean", "default": false });
        return ("query", "Whether archived agents are listed too.", schema);
    }
    let schema = json!({ "type": "string", "minLength": 1 });
    ("query", "The number of a version, or an alias.", schema)
}

/// A parameter of a query or a head.
#[expect(clippy::too_many_lines, reason = "a table of parameters")]
pub(super) fn parameter(operation: &Operation, name: &str) -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    let path = operation.path.as_str();
    let is_list_of_ids = path.matches('/').count() == 2;
    let status = || match prefix(path) {
        Some("ses") => named("SessionStatus"),
        Some("tmr") => named("TimerStatus"),
        Some("run") => named("RunStatus"),
        Some("whk") => named("DeliveryStatus"),
        _ => named("SendStatus"),
    };
    let (place, says, schema) = match name {
        "limit" => (
            "query",
            "Maximum number of items on the page.",
            json!({ "type": "integer", "minimum": 1, "maximum": 200, "default": 50 }),
        ),
        "cursor" if path == "/v1/skills" => (
            "query",
            "The `next_cursor` of the page before.",
            json!({ "type": "string" }),
        ),
        "versions" => (
            "query",
            "Whether to delete its versions and their files too, even for sessions that have them.",
            json!({ "type": "boolean", "default": false }),
        ),
        "cursor" => (
            "query",
            "The `next_cursor` of the page before.",
            match prefix(path).filter(|_| is_list_of_ids) {
                Some(prefix) => text(&id(prefix)),
                None if path == "/v1/agents" => text(AGENT_NAME),
                None if path == "/v1/tenants" => text(TENANT),
                None if path.ends_with("/deliveries") => text(&id("evt")),
                None if path.ends_with("/messages") => text(r"^[0-9]{1,18}(\.[0-9]{1,9})?$"),
                None => text("^[0-9]{1,18}$"),
            },
        ),
        "wait" => (
            "query",
            "How long to wait for the end, such as `30s`.",
            text(DURATION),
        ),
        "status" => ("query", "Only those with this status.", status()),
        "archived" | "from" | "to" => of_agents(name),
        "fate" => (
            "query",
            "`pending`: only undelivered items.",
            json!({ "type": "string", "enum": ["pending"] }),
        ),
        "agent" => (
            "query",
            "Only sessions whose agent has this name.",
            json!({ "type": "string" }),
        ),
        "metadata" => (
            "query",
            "`metadata[NAME]=TEXT`, or `metadata.NAME=TEXT`: only sessions with this metadata.",
            json!({
                "type": "object", "propertyNames": { "minLength": 1 },
                "additionalProperties": { "type": "string" },
            }),
        ),
        "session_id" => (
            "query",
            "Only those of this session.",
            match prefix(path) {
                Some("tmr") => text(&id("ses")),
                _ => json!({ "type": "string" }),
            },
        ),
        "after" if path.ends_with("/messages") => (
            "query",
            "Only messages after this `seq`.",
            json!({ "type": "integer", "minimum": 0, "maximum": i64::MAX }),
        ),
        "folded" => (
            "query",
            "Whether to include folds, each after the messages that it covers.",
            json!({ "type": "boolean", "default": false }),
        ),
        "request" => (
            "query",
            "Adds the request as its provider would get it.",
            json!({ "type": "boolean", "default": false }),
        ),
        "blobs" => (
            "query",
            "Whether it has the content of pictures, files and long outputs.",
            json!({ "type": "boolean", "default": true }),
        ),
        "after" => (
            "query",
            "Only events after the one with this id.",
            text(EVENT_ID),
        ),
        "namespace" => (
            "query",
            "This namespace and all below it: a path like `user/42`. Needed to search and to erase.",
            json!({ "type": "string", "minLength": 1, "maxLength": 400 }),
        ),
        "q" => (
            "query",
            "A query in plain words: the best matching entries, best first.",
            json!({ "type": "string" }),
        ),
        "prefix" => (
            "query",
            "Only nodes whose paths start with this.",
            json!({ "type": "string" }),
        ),
        "Last-Event-ID" => (
            "header",
            "The last event that the reader has; wins over `after`, unless it is empty.",
            text(&format!("^$|{EVENT_ID}")),
        ),
        _ => (
            "header",
            "1 to 255 visible ASCII characters. A repeated request with the same key has no further effect.",
            text(KEY),
        ),
    };
    let mut parameter = json!({
        "name": name, "in": place, "required": false, "description": says, "schema": schema,
    });
    if name == "metadata" {
        parameter["style"] = json!("deepObject");
        parameter["explode"] = json!(true);
    }
    parameter
}
