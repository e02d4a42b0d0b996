//! Answers in the Messages format.

use serde_json::{Value, json};

use super::answer::Said;
use super::steps::Events;

/// The signature of every thinking block.
const SIGNATURE: &str = "ZmFrZQ==";

/// Index of the text block; the one before it is the thinking block, which may be missing.
const TEXT_INDEX: usize = 1;

/// The non-streamed answer.
pub(super) fn whole(said: &Said) -> Value {
    let mut content = Vec::new();
    if let Some(reasoning) = &said.reasoning {
        content.push(json!({"type": "thinking", "thinking": reasoning, "signature": SIGNATURE}));
    }
    if !said.text.is_empty() {
        content.push(json!({"type": "text", "text": said.text}));
    }
    for (at, (_, arguments)) in said.tools.iter().enumerate() {
        content.push(call(said, at, arguments));
    }
    let (read, written) = said.usage.unzip();
    let mut body = head(said);
    body["content"] = Value::Array(content);
    body["stop_reason"] = json!(reason(said));
    body["usage"] = json!({"input_tokens": read, "output_tokens": written});
    body
}

/// The answer as events, with its text split into these pieces.
pub(super) fn events(said: &Said, pieces: &[String]) -> Events {
    let mut message = head(said);
    message["usage"] = json!({"input_tokens": said.usage.map(|(read, _)| read)});
    let mut before = vec![event("message_start", json!({"message": message}))];
    if let Some(reasoning) = &said.reasoning {
        before.push(start(
            0,
            &json!({"type": "thinking", "thinking": "", "signature": ""}),
        ));
        before.push(delta(
            0,
            &json!({"type": "thinking_delta", "thinking": reasoning}),
        ));
        before.push(delta(
            0,
            &json!({"type": "signature_delta", "signature": SIGNATURE}),
        ));
        before.push(event("content_block_stop", json!({"index": 0})));
    }
    let mut after = Vec::new();
    if !pieces.is_empty() {
        before.push(start(TEXT_INDEX, &json!({"type": "text", "text": ""})));
        before.push(event("ping", json!({})));
        after.push(event("content_block_stop", json!({"index": TEXT_INDEX})));
    }
    for (at, (_, arguments)) in said.tools.iter().enumerate() {
        let place = TEXT_INDEX + 1 + at;
        after.push(start(place, &call(said, at, &json!({}))));
        let piece = arguments.to_string();
        after.push(delta(
            place,
            &json!({"type": "input_json_delta", "partial_json": piece}),
        ));
        after.push(event("content_block_stop", json!({"index": place})));
    }
    let usage = json!({"output_tokens": said.usage.map(|(_, written)| written)});
    let ending = json!({"stop_reason": reason(said), "stop_sequence": null});
    after.push(event(
        "message_delta",
        json!({"delta": ending, "usage": usage}),
    ));
    after.push(event("message_stop", json!({})));
    let text = pieces.iter().map(|piece| text_event(piece)).collect();
    Events {
        before,
        text,
        after,
    }
}

/// The event of one piece of text.
pub(super) fn text_event(piece: &str) -> String {
    delta(TEXT_INDEX, &json!({"type": "text_delta", "text": piece}))
}

/// The event of an error inside a stream.
pub(super) fn error_event(kind: &str) -> String {
    event(
        "error",
        json!({"error": {"type": kind, "message": "as asked"}}),
    )
}

fn head(said: &Said) -> Value {
    json!({
        "id": format!("msg_{}", said.mark),
        "type": "message",
        "role": "assistant",
        "model": said.model,
        "content": [],
        "stop_reason": null,
    })
}

fn call(said: &Said, at: usize, input: &Value) -> Value {
    let id = format!("toolu_{}_{at}", said.mark);
    json!({"type": "tool_use", "id": id, "name": said.tools[at].0, "input": input})
}

fn reason(said: &Said) -> &'static str {
    if said.refuse {
        "refusal"
    } else if said.length {
        "max_tokens"
    } else if said.tools.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    }
}

fn start(index: usize, block: &Value) -> String {
    event(
        "content_block_start",
        json!({"index": index, "content_block": block}),
    )
}

fn delta(index: usize, delta: &Value) -> String {
    event(
        "content_block_delta",
        json!({"index": index, "delta": delta}),
    )
}

fn event(kind: &str, mut value: Value) -> String {
    value["type"] = json!(kind);
    format!("event: {kind}\ndata: {value}\n\n")
}
