//! The schemas of event streams.

use serde_json::{Map, Value, json};

use super::named;
use super::refine::id;

/// The pattern of an event's id.
pub(super) const EVENT_ID: &str = "^[0-9]{1,18}\\.[0-9]{1,9}$";

/// Events of sends, and the schemas of their data.
const OF_SENDS: &[(&str, &str)] = &[
    ("send.queued", "StepEvent"),
    ("send.started", "LiveEvent"),
    ("send.waiting", "StepEvent"),
    ("send.resumed", "StepEvent"),
    ("round.started", "RoundEvent"),
    ("round.completed", "RoundEvent"),
    ("message.delta", "DeltaEvent"),
    ("reasoning.delta", "DeltaEvent"),
    ("message.reset", "ResetEvent"),
    ("model.warning", "WarningEvent"),
    ("memory.recalled", "RecalledEvent"),
    ("message.completed", "Message"),
    ("tool_call.started", "CallEvent"),
    ("tool_call.progress", "ProgressEvent"),
    ("tool_call.completed", "CallEvent"),
    ("tool_call.failed", "CallEvent"),
    ("send.completed", "SendView"),
    ("send.failed", "SendView"),
    ("send.cancelled", "SendView"),
];

/// Adds the schemas of event streams.
pub(super) fn add(schemas: &mut Map<String, Value>) {
    let send = || json!({ "type": "string", "pattern": id("snd"), "description": "Its send." });
    let number = |says: &str| json!({ "type": "integer", "description": says });
    let text = |says: &str| json!({ "type": "string", "description": says });
    let data = |says: &str, required: &[&str], properties: Value| {
        let required: Vec<&str> = required.iter().copied().chain(["send_id"]).collect();
        json!({
            "type": "object", "description": says, "required": required,
            "properties": properties, "additionalProperties": true,
        })
    };
    let time = json!({ "type": "string", "format": "date-time", "description": "When." });
    let stored = || {
        json!({
            "type": "string", "format": "date-time",
            "description": "When its outcome was stored; only in events with an id.",
        })
    };
    let any = json!({ "description": "Any JSON." });
    let of = |name: &str, schema: Value| (name.to_owned(), schema);
    schemas.extend([
        of("LiveEvent", data("A worker has claimed the send.", &[], json!({ "send_id": send() }))),
        of("StepEvent", data("Where a send stands.", &["id", "status", "at"], json!({
            "send_id": send(), "id": send(), "status": named("SendStatus"), "at": time,
            "waiting_on": text("What it waits for; with `send.waiting`."),
            "reason": text("Why it continues; with `send.resumed`."),
        }))),
        of("RoundEvent", data("A model call.", &["round", "model"], json!({
            "send_id": send(), "round": number("Its number within the send, from 0."),
            "model": text("The model."), "usage": named("Usage"),
            "digest": text("Identifies the content of the model request: sha256: and 64 \
             hexadecimal digits."),
            "at": stored(),
        }))),
        of("DeltaEvent", data(
            "A part of an answer. Parts of an older attempt are void.",
            &["round", "attempt", "offset", "text"],
            json!({
                "send_id": send(), "round": number("The round."), "attempt": number("The attempt within it."),
                "offset": number("Number of characters of this attempt before this delta."), "text": text("The piece."),
            }),
        )),
        of("ResetEvent", data("A new attempt starts.", &["round", "attempt"], json!({
            "send_id": send(), "round": number("The round."), "attempt": number("The new attempt."),
            "reason": text("Why."),
        }))),
        of("WarningEvent", data("Something went wrong with the model and was put right.", &["round", "code"], json!({
            "send_id": send(), "round": number("The round."), "provider": text("The provider's configured name."),
            "model": text("The model."), "code": text("What went wrong."),
            "part": text("The part of the request that the provider refused."),
            "message": text("What happened, or the provider's words, shortened."),
        }))),
        of("RecalledEvent", data("What was recalled from the memory for a send.", &["count", "tokens"], json!({
            "send_id": send(), "count": number("Entries that the model is shown."),
            "tokens": number("Tokens of them, estimated."), "note": text("Why there are none, if something went wrong."),
        }))),
        of("ProgressEvent", data("How far a tool call is.", &["id", "progress"], json!({
            "send_id": send(), "id": text("The call."),
            "progress": { "type": "number", "description": "What is done, in a unit of the tool's own." },
            "total": { "type": "number", "description": "All that is to be done, if that is known." },
            "message": text("What the tool says of it."),
        }))),
        of("CallEvent", data("A tool call.", &["id", "name"], json!({
            "send_id": send(), "id": text("The call."), "name": text("The tool."),
            "arguments": any, "at": stored(),
            "result": { "type": "array", "items": named("ContentPart"), "description": "The part that the model sees." },
        }))),
    ]);
    let names: Vec<&str> = OF_SENDS.iter().map(|(name, _)| *name).collect();
    let mut kinds: Vec<&str> = OF_SENDS.iter().map(|(_, kind)| *kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kinds: Vec<Value> = kinds.into_iter().map(named).collect();
    let table = OF_SENDS
        .iter()
        .map(|(name, kind)| format!("`{name}` {kind}"));
    let says = format!(
        "An event of a stream. Those with an `id` are durable: a reader resumes at it. Data, as JSON: {}.",
        table.collect::<Vec<_>>().join(", ")
    );
    schemas.insert(
        "SendEvent".to_owned(),
        event(&says, &json!({ "enum": names }), &kinds),
    );
    let says = "An event of a run's stream. `node.STATE` holds a node, `run.STATUS` and `run.progress` \
        the run's status, counts and result. Every one is durable.";
    let form = json!({ "pattern": "^(node|run)\\.[a-z]+$" });
    let run = event(
        says,
        &form,
        &[json!({ "type": "object", "additionalProperties": true })],
    );
    schemas.insert("RunEvent".to_owned(), run);
}

fn event(says: &str, names: &Value, kinds: &[Value]) -> Value {
    let mut name = json!({ "type": "string", "description": "Its type." });
    if let (Some(name), Some(names)) = (name.as_object_mut(), names.as_object()) {
        name.extend(names.clone());
    }
    json!({
        "type": "object", "description": says, "required": ["event", "data"],
        "properties": {
            "id": { "type": "string", "pattern": EVENT_ID, "description": "Where a reader resumes." },
            "event": name,
            "data": {
                "type": "string", "description": "Its data.",
                "contentMediaType": "application/json", "contentSchema": { "anyOf": kinds },
            },
        },
    })
}
