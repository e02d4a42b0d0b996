//! Adds what derived schemas cannot express: patterns of texts, bounds of numbers, variants with
//! names of their own. With a less precise document, clients send requests that are refused, and
//! generators produce types that do not fit.

use mainspring_shared::message::Role;
use serde_json::{Map, Value, json};

use crate::choice::REFERENCE;
use crate::validate::TOKENS_MAX;

/// The pattern of a duration.
pub(super) const DURATION: &str =
    "^([0-9]{1,12}ms|[0-9]{1,9}s|[0-9]{1,7}m|[0-9]{1,6}h|[0-9]{1,4}d)$";

/// The pattern of a duration longer than zero.
const SOME_TIME: &str =
    "^([1-9][0-9]{0,11}ms|[1-9][0-9]{0,8}s|[1-9][0-9]{0,6}m|[1-9][0-9]{0,5}h|[1-9][0-9]{0,3}d)$";

/// The pattern of a duration of at least a second.
const A_SECOND: &str =
    "^([1-9][0-9]{3,11}ms|[1-9][0-9]{0,8}s|[1-9][0-9]{0,6}m|[1-9][0-9]{0,5}h|[1-9][0-9]{0,3}d)$";

/// The pattern of base64 with padding, at least one byte.
const BASE64: &str = "^([a-zA-Z0-9+/]{4})*([a-zA-Z0-9+/]{4}|[a-zA-Z0-9+/]{3}=|[a-zA-Z0-9+/]{2}==)$";

/// The pattern of an idempotency key.
pub(super) const KEY: &str = "^[!-~]{1,255}$";

/// The pattern of a tool's name.
const TOOL: &str = "^[a-zA-Z0-9_-]{1,64}$";

/// The pattern of a board's name.
const BOARD: &str = "^(?!ses_)[a-zA-Z0-9._-]{1,64}$";

/// The pattern of a blob's SHA-256.
pub(super) const SHA256: &str = "^[0-9a-f]{64}$";

/// The pattern of a pool's name.
pub(super) const POOL: &str = "^[a-z0-9-]{1,40}$";

/// The pattern of a published agent's name.
pub(super) const AGENT_NAME: &str = "^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$";

/// The pattern of an agent's alias.
pub(super) const ALIAS: &str = "^[a-zA-Z][a-zA-Z0-9._-]{0,63}$";

/// The pattern of an id with this prefix.
pub(super) fn id(prefix: &str) -> String {
    format!("^{prefix}_[0-9a-f]{{32}}$")
}

/// Unions whose variants get names: the union, and for each variant its tag and its name.
const VARIANTS: &[(&str, &[(&str, &str)])] = &[
    (
        "ContentPart",
        &[
            ("text", "TextPart"),
            ("reasoning", "ReasoningPart"),
            ("image", "ImagePart"),
            ("file", "FilePart"),
        ],
    ),
    (
        "ImageSource",
        &[
            ("base64", "ImageBytes"),
            ("blob", "ImageBlob"),
            ("url", "ImageAddress"),
        ],
    ),
    (
        "FileSource",
        &[
            ("text", "FileText"),
            ("base64", "FileBytes"),
            ("blob", "FileBlob"),
        ],
    ),
    (
        "DeclaredTool",
        &[
            ("http", "HttpTool"),
            ("external", "ExternalTool"),
            ("mcp", "McpTools"),
            ("worker", "WorkerTool"),
        ],
    ),
];

/// Members that contain ids in every schema, with the prefixes of the ids.
const IDS: &[(&str, &str)] = &[
    ("session_id", "ses"),
    ("parent_id", "ses"),
    ("send_id", "snd"),
    ("last_send_id", "snd"),
    ("run_id", "run"),
    ("last_run_id", "run"),
];

/// Constraints on single members.
#[expect(clippy::too_many_lines, reason = "a table")]
fn members() -> Vec<(&'static str, &'static str, Value)> {
    let any = || json!({});
    let object = || json!({ "type": "object", "additionalProperties": true });
    let maybe_object = || json!({ "type": ["object", "null"], "additionalProperties": true });
    let spec = || json!({ "oneOf": [object(), { "type": "string" }] });
    let time = || json!({ "pattern": DURATION });
    let some_time = || json!({ "pattern": SOME_TIME });
    let from_1 = |max: i64| json!({ "minimum": 1, "maximum": max });
    let at_least_1 = || json!({ "minimum": 1 });
    let label = || json!({ "minLength": 1, "maxLength": 200 });
    let words = |words: &[&str]| json!({ "enum": words });
    let maybe_words = |words: &[&str]| {
        let words = words.iter().map(|word| json!(word));
        let words: Vec<Value> = words.chain([Value::Null]).collect();
        json!({ "enum": words })
    };
    let text = || json!({ "type": "string" });
    let some = |max: i64| json!({ "minItems": 1, "maxItems": max });
    let up_to = |max: i64| json!({ "maxItems": max });
    vec![
        // Any JSON, and objects with arbitrary members.
        ("SendView", "output", any()),
        ("RunView", "input", any()),
        ("RunView", "result", any()),
        ("NodeView", "output", any()),
        ("TimerRun", "input", any()),
        ("ResultBody", "output", any()),
        ("AmendBody", "output", json!({ "not": { "type": "null" } })),
        ("NewRunBody", "input", any()),
        ("RunBody", "input", any()),
        ("WaitingCall", "arguments", any()),
        ("TimerRun", "spec", object()),
        ("NewRunBody", "spec", spec()),
        ("RunBody", "spec", spec()),
        ("ValidateBody", "spec", spec()),
        ("AgentSpec", "output_schema", maybe_object()),
        ("SendOptions", "output_schema", maybe_object()),
        // Durations.
        ("SendOptions", "deadline", some_time()),
        ("SendOptions", "delay", time()),
        ("Budget", "wall", some_time()),
        ("ExternalTool", "deadline", some_time()),
        ("HttpTool", "timeout", some_time()),
        ("TimerBody", "after", time()),
        ("TimerBody", "every", json!({ "pattern": A_SECOND })),
        ("TimerBody", "jitter", time()),
        ("TimerBody", "cron", json!({ "minLength": 1 })),
        ("TimerChangeBody", "after", time()),
        ("TimerChangeBody", "every", json!({ "pattern": A_SECOND })),
        ("TimerChangeBody", "jitter", time()),
        ("TimerChangeBody", "cron", json!({ "minLength": 1 })),
        ("NewTokenBody", "ttl", some_time()),
        ("TimerView", "after", time()),
        ("TimerView", "every", some_time()),
        ("TimerView", "jitter", time()),
        // Bounds.
        ("AgentSpec", "max_rounds", from_1(10_000)),
        ("AgentSpec", "max_tokens", from_1(10_000_000)),
        (
            "AgentSpec",
            "temperature",
            json!({ "minimum": 0, "maximum": 2 }),
        ),
        ("AgentSpec", "top_p", json!({ "minimum": 0, "maximum": 1 })),
        ("AgentSpec", "model_options", maybe_object()),
        ("SendOptions", "max_tokens", from_1(10_000_000)),
        (
            "SendOptions",
            "temperature",
            json!({ "minimum": 0, "maximum": 2 }),
        ),
        (
            "SendOptions",
            "top_p",
            json!({ "minimum": 0, "maximum": 1 }),
        ),
        ("SendOptions", "model_options", maybe_object()),
        ("AgentSpec", "stop", json!({ "maxItems": 4 })),
        ("AgentSpec", "fallback", json!({ "maxItems": 4 })),
        ("ThinkingSpec", "budget_tokens", json!({ "minimum": 1024 })),
        ("RunOptions", "max_tokens", at_least_1()),
        ("RunOptions", "raised_tokens", at_least_1()),
        ("RunOptions", "max_concurrency", at_least_1()),
        ("RetryRunBody", "max_tokens", at_least_1()),
        (
            "ImagesSpec",
            "keep",
            json!({ "minimum": 0, "maximum": i32::MAX }),
        ),
        (
            "ImagesSpec",
            "max_edge",
            json!({ "minimum": 64, "maximum": 8192 }),
        ),
        ("ContextSpec", "last_messages", from_1(i64::from(i32::MAX))),
        ("NotesSpec", "max", from_1(50)),
        ("SendOptions", "max_rounds", from_1(10_000)),
        ("Budget", "tokens", from_1(TOKENS_MAX as i64)),
        ("Budget", "rounds", from_1(i64::from(i32::MAX))),
        (
            "Budget",
            "usd",
            json!({ "exclusiveMinimum": 0, "maximum": 1_000_000_000 }),
        ),
        ("PruneBody", "before_seq", from_1(i64::MAX)),
        ("PruneBody", "keep_last", from_1(i64::from(i32::MAX))),
        ("TimerBody", "max_occurrences", from_1(i64::from(i32::MAX))),
        (
            "TimerChangeBody",
            "max_occurrences",
            from_1(i64::from(i32::MAX)),
        ),
        ("ForkBody", "seq", json!({ "minimum": 0 })),
        ("ResultsBody", "results", some(1_000)),
        ("BatchBody", "sends", up_to(1_000)),
        ("TimerBatchBody", "timers", up_to(1_000)),
        (
            "ResultBody",
            "content",
            json!({ "description": "A text, or parts of text, pictures and files, which the model is shown.", "oneOf": [
            { "type": "string" },
            { "type": "array", "items": { "$ref": "#/components/schemas/InputPart" } },
        ] }),
        ),
        // Names and texts.
        ("AgentSpec", "name", label()),
        ("AgentSpec", "model", label()),
        (
            "AgentSpec",
            "allow_agents",
            json!({ "items": { "type": "string", "pattern": REFERENCE }, "maxItems": 100 }),
        ),
        ("NewAgentBody", "name", json!({ "pattern": AGENT_NAME })),
        ("AliasBody", "version", from_1(i64::from(i32::MAX))),
        ("PromptSpec", "sections", json!({ "maxItems": 50 })),
        ("PromptVariable", "default", any()),
        ("AgentChange", "before", any()),
        ("AgentChange", "after", any()),
        ("AgentSpec", "board", json!({ "pattern": BOARD })),
        ("AgentSpec", "pool", json!({ "pattern": POOL })),
        ("SendOptions", "model", label()),
        (
            "SendOptions",
            "tools",
            json!({ "items": { "type": "string", "minLength": 1, "maxLength": 200 } }),
        ),
        ("HttpTool", "name", json!({ "pattern": TOOL })),
        ("HttpTool", "url", json!({ "format": "uri" })),
        ("ExternalTool", "name", json!({ "pattern": TOOL })),
        ("WorkerTool", "name", json!({ "pattern": TOOL })),
        ("McpTools", "server", json!({ "pattern": TOOL })),
        (
            "McpTools",
            "prefix",
            json!({ "pattern": "^[a-zA-Z0-9_-]{0,64}$" }),
        ),
        (
            "ImageAddress",
            "url",
            json!({ "pattern": "^https://[!-.0-~][!-~]*$", "maxLength": 2_048 }),
        ),
        (
            "ImageBytes",
            "media_type",
            json!({ "pattern": "^image/(gif|jpeg|png|webp)$" }),
        ),
        ("ImageBytes", "data", json!({ "pattern": BASE64 })),
        ("ImageBlob", "sha256", json!({ "pattern": SHA256 })),
        ("FileBlob", "sha256", json!({ "pattern": SHA256 })),
        ("BlobRef", "sha256", json!({ "pattern": SHA256 })),
        (
            "FileBytes",
            "media_type",
            json!({ "pattern": "^[a-zA-Z0-9.+-]+/[a-zA-Z0-9.+-]+$", "maxLength": 100 }),
        ),
        ("FileBytes", "data", json!({ "pattern": BASE64 })),
        (
            "FilePart",
            "name",
            json!({ "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]{1,200}$" }),
        ),
        ("HttpTool", "pool", json!({ "pattern": POOL })),
        ("ExternalTool", "pool", json!({ "pattern": POOL })),
        ("McpTools", "pool", json!({ "pattern": POOL })),
        ("WorkerTool", "pool", json!({ "pattern": POOL })),
        (
            "SendAnywhereBody",
            "idempotency_key",
            json!({ "pattern": KEY }),
        ),
        ("TimerBody", "idempotency_key", json!({ "pattern": KEY })),
        ("SteerBody", "text", json!({ "pattern": "\\S" })),
        ("WaitingCall", "wants", words(&["answer", "permission"])),
        (
            "SendOptions",
            "on_busy",
            maybe_words(&["enqueue", "coalesce", "steer", "interrupt", "reject"]),
        ),
        (
            "SendOptions",
            "priority",
            json!({ "oneOf": [
            { "type": "string", "enum": ["high", "low"] },
            { "type": "integer", "minimum": -100, "maximum": 100 },
            { "type": "null" },
        ] }),
        ),
        (
            "TimerView",
            "next",
            json!({ "items": { "type": "string", "format": "date-time" } }),
        ),
        (
            "TimerView",
            "input",
            json!({ "items": { "$ref": "#/components/schemas/ContentPart" } }),
        ),
        ("SessionView", "id", json!({ "pattern": id("ses") })),
        ("SendView", "id", json!({ "pattern": id("snd") })),
        ("TimerView", "id", json!({ "pattern": id("tmr") })),
        ("MemoryEntry", "id", json!({ "pattern": id("mem") })),
        ("MemoryEntry", "metadata", object()),
        ("MemorySpec", "budget_tokens", from_1(100_000)),
        (
            "NewMemoryBody",
            "text",
            json!({ "minLength": 1, "maxLength": 4_000 }),
        ),
        (
            "MemoryChangeBody",
            "text",
            json!({ "minLength": 1, "maxLength": 4_000 }),
        ),
        ("RunView", "id", json!({ "pattern": id("run") })),
        // If null means the same as absent, only absence is documented.
        ("ResultBody", "error", text()),
        ("AmendBody", "text", text()),
        ("Problem", "errors", json!({ "type": "array" })),
    ]
}

/// Items of batches: like the single request, but with the idempotency key as a member.
const ITEMS: &[(&str, &str, &str, &str)] = &[
    ("BatchBody", "sends", "SendAnywhereBody", "BatchSend"),
    ("TimerBatchBody", "timers", "TimerBody", "BatchTimer"),
];

/// Constraints on whole objects.
fn objects() -> Vec<(&'static str, Value)> {
    let given = |name: &str| {
        let is_there = json!({ name: { "not": { "type": "null" } } });
        json!({ "required": [name], "properties": is_there })
    };
    let all = |names: &[&str]| {
        let names: Vec<Value> = names.iter().map(|name| given(name)).collect();
        json!({ "allOf": names })
    };
    // Expressed by what is forbidden, because generators would turn the positive form into unions.
    let none_of = |lists: &[&[&str]]| {
        let lists: Vec<Value> = lists.iter().map(|names| all(names)).collect();
        json!({ "not": { "anyOf": lists } })
    };
    let both = |one: &str, other: &str| all(&[one, other]);
    let only_with =
        |one: &str, other: &str| json!({ "allOf": [given(one), { "not": given(other) }] });
    let option =
        |option: Value| json!({ "required": ["options"], "properties": { "options": option } });
    vec![
        ("Budget", json!({ "minProperties": 1 })),
        (
            "TimerBody",
            json!({ "not": { "anyOf": [
                none_of(&[&["at"], &["after"], &["every"], &["cron"]]),
                none_of(&[&["run"], &["session_id", "input"]]),
                both("at", "after"),
                both("cron", "at"),
                both("cron", "after"),
                both("cron", "every"),
                only_with("timezone", "cron"),
                both("run", "session_id"),
                both("run", "input"),
                both("run", "options"),
                option(given("delay")),
            ] } }),
        ),
        (
            "TimerChangeBody",
            json!({ "not": { "anyOf": [
                both("at", "after"),
                both("cron", "at"),
                both("cron", "after"),
                both("cron", "every"),
                only_with("timezone", "cron"),
            ] } }),
        ),
        (
            "SendAnywhereBody",
            json!({ "not": both("session", "session_id") }),
        ),
        // Besides the call, exactly one of output, content and error, and what else there is to say.
        (
            "ResultBody",
            json!({ "minProperties": 2, "maxProperties": 4 }),
        ),
        ("AmendBody", json!({ "minProperties": 1 })),
        // The rest is looked up.
        ("ImageBlob", json!({ "required": ["type", "sha256"] })),
        ("FileBlob", json!({ "required": ["type", "sha256"] })),
        (
            "PruneBody",
            json!({ "not": { "anyOf": [
                both("before_seq", "keep_last"),
                none_of(&[&["before_seq"], &["keep_last"]]),
            ] } }),
        ),
    ]
}

/// Schemas that refuse unknown members, as their parsers do.
const CLOSED: &[&str] = &[
    "TextPart",
    "ReasoningPart",
    "ImagePart",
    "FilePart",
    "ImageBytes",
    "ImageBlob",
    "ImageAddress",
    "FileText",
    "FileBytes",
    "FileBlob",
    "BatchBody",
    "TimerBatchBody",
];

/// Applies the refinements to the schemas.
pub(super) fn refine(schemas: &mut Map<String, Value>) {
    for (union, variants) in VARIANTS {
        name_variants(schemas, union, variants);
    }
    schemas["Entry"]["discriminator"] = entries();
    for name in CLOSED {
        schemas[*name]["additionalProperties"] = json!(false);
    }
    schemas.insert("InputPart".to_owned(), input_part());
    for (schema, member, says) in members() {
        let member = &mut schemas[schema]["properties"][member];
        let description = member.get("description").cloned();
        // A constraint with another type replaces the derived schema.
        let is_other = ["oneOf", "not"]
            .iter()
            .any(|word| says.get(*word).is_some());
        if is_other || says.as_object().is_some_and(Map::is_empty) {
            *member = says;
            if let Some(description) = description {
                member["description"] = description;
            }
        } else {
            merge(member, says);
        }
    }
    for (schema, says) in objects() {
        merge(&mut schemas[schema], says);
    }
    schemas["ToolEntry"]["oneOf"][0]["pattern"] = json!(TOOL);
    for (batch, member, alone, item) in ITEMS {
        let schema = schemas[*alone].clone();
        schemas.insert((*item).to_owned(), schema);
        if let Some(members) = schemas[*alone]["properties"].as_object_mut() {
            members.remove("idempotency_key");
        }
        schemas[*batch]["properties"][*member]["items"] = super::named(item);
    }
    for schema in schemas.values_mut() {
        walk(schema);
    }
}

/// The parts that a caller may write: not reasoning, which only the model writes.
fn input_part() -> Value {
    let mut union = union_of(&[
        ("text", "TextPart"),
        ("image", "ImagePart"),
        ("file", "FilePart"),
    ]);
    union["description"] = json!("A part of a message's content.");
    union
}

fn union_of(variants: &[(&str, &str)]) -> Value {
    let leads = |name: &str| format!("#/components/schemas/{name}");
    let mapping = variants
        .iter()
        .map(|(tag, name)| ((*tag).to_owned(), json!(leads(name))));
    let mapping: Map<String, Value> = mapping.collect();
    let refs = variants
        .iter()
        .map(|(_, name)| json!({ "$ref": leads(name) }));
    json!({
        "oneOf": refs.collect::<Vec<_>>(),
        "discriminator": { "propertyName": "type", "mapping": mapping },
    })
}

/// The discriminator of a transcript's entries: a fold has a role that no message has.
fn entries() -> Value {
    let leads = |name: &str| json!(format!("#/components/schemas/{name}"));
    let roles = [Role::User, Role::Assistant, Role::Tool];
    let mut mapping: Map<String, Value> = roles
        .iter()
        .map(|role| (role.as_str().to_owned(), leads("Message")))
        .collect();
    mapping.insert("fold".to_owned(), leads("FoldEntry"));
    json!({ "propertyName": "role", "mapping": mapping })
}

/// Gives the variants of a union schemas of their own, distinguished by `type`.
fn name_variants(schemas: &mut Map<String, Value>, union: &str, variants: &[(&str, &str)]) {
    let old = schemas[union].take();
    let parts = old["oneOf"].as_array().cloned().unwrap_or_default();
    for ((tag, name), part) in variants.iter().zip(parts) {
        // A variant that is a type of its own already has a schema.
        let schema = schemas.entry(*name).or_insert(part);
        schema["properties"]["type"] = json!({ "type": "string", "const": tag });
        let mut required = schema["required"].as_array().cloned().unwrap_or_default();
        required.retain(|member| member != "type");
        required.insert(0, json!("type"));
        schema["required"] = Value::Array(required);
    }
    let mut new = union_of(variants);
    new["description"] = old["description"].clone();
    schemas[union] = new;
}

fn merge(into: &mut Value, says: Value) {
    if let (Some(into), Value::Object(says)) = (into.as_object_mut(), says) {
        into.extend(says);
    }
}

/// Gives ids their patterns everywhere, and allows arbitrary members in objects that name none.
fn walk(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else {
        if let Some(items) = schema.as_array_mut() {
            items.iter_mut().for_each(walk);
        }
        return;
    };
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, prefix) in IDS {
            if let Some(member) = properties.get_mut(*name) {
                member["pattern"] = json!(id(prefix));
            }
        }
    }
    let is_object = match members.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => false,
    };
    let says_more = ["properties", "additionalProperties"];
    if is_object && !says_more.iter().any(|word| members.contains_key(*word)) {
        members.insert("additionalProperties".to_owned(), json!(true));
    }
    members.values_mut().for_each(walk);
}

#[cfg(test)]
mod tests;
