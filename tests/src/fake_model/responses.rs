//! Answers in the Responses format.

use serde_json::{Value, json};

use super::answer::Said;
use super::steps::Events;

/// The encrypted content of every reasoning item.
const ENCRYPTED: &str = "ZmFrZQ==";

/// Index of the text item; the one before it is the reasoning item, which may be missing.
const TEXT_INDEX: usize = 1;

/// The non-streamed answer.
pub(super) fn whole(said: &Said) -> Value {
    let mut output = Vec::new();
    if let Some(reasoning) = &said.reasoning {
        output.push(thought(said, reasoning));
    }
    if !said.text.is_empty() {
        output.push(message(said, &said.text));
    }
    for at in 0..said.tools.len() {
        output.push(call(said, at, &said.tools[at].1.to_string()));
    }
    response(said, &output)
}

/// The answer as events, with its text split into these pieces.
pub(super) fn events(said: &Said, pieces: &[String]) -> Events {
    let mut begun = response(said, &[]);
    begun["status"] = json!("in_progress");
    begun["usage"] = Value::Null;
    begun["incomplete_details"] = Value::Null;
    let mut before = vec![
        event("response.created", json!({"response": begun})),
        event("response.in_progress", json!({"response": begun})),
    ];
    if let Some(reasoning) = &said.reasoning {
        let empty = json!({"type": "reasoning", "id": id("rs", said), "summary": []});
        before.push(item("added", 0, &empty));
        before.push(event(
            "response.reasoning_summary_text.delta",
            json!({"output_index": 0, "summary_index": 0, "delta": reasoning}),
        ));
        before.push(item("done", 0, &thought(said, reasoning)));
    }
    let mut after = Vec::new();
    if !pieces.is_empty() {
        let mut empty = message(said, "");
        empty["content"] = json!([]);
        before.push(item("added", TEXT_INDEX, &empty));
        after.push(item("done", TEXT_INDEX, &message(said, &said.text)));
    }
    for (at, (_, arguments)) in said.tools.iter().enumerate() {
        let place = TEXT_INDEX + 1 + at;
        let arguments = arguments.to_string();
        after.push(item("added", place, &call(said, at, "")));
        after.push(event(
            "response.function_call_arguments.delta",
            json!({"output_index": place, "delta": arguments}),
        ));
        after.push(item("done", place, &call(said, at, &arguments)));
    }
    let kind = if said.length {
        "incomplete"
    } else {
        "completed"
    };
    let last = json!({"response": response(said, &[])});
    after.push(event(&format!("response.{kind}"), last));
    let text = pieces.iter().map(|piece| delta(said.refuse, piece));
    Events {
        before,
        text: text.collect(),
        after,
    }
}

/// The event of one piece of text.
pub(super) fn text_event(piece: &str) -> String {
    delta(false, piece)
}

/// The event of an error inside a stream.
pub(super) fn error_event(kind: &str) -> String {
    event(
        "error",
        json!({"code": kind, "message": "as asked", "param": null}),
    )
}

fn delta(refused: bool, piece: &str) -> String {
    let kind = if refused {
        "response.refusal.delta"
    } else {
        "response.output_text.delta"
    };
    event(
        kind,
        json!({"output_index": TEXT_INDEX, "content_index": 0, "delta": piece}),
    )
}

fn response(said: &Said, output: &[Value]) -> Value {
    let usage = said.usage.map(|(read, written)| {
        json!({
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        })
    });
    let cut = said.length.then(|| json!({"reason": "max_output_tokens"}));
    json!({
        "id": id("resp", said),
        "object": "response",
        "model": said.model,
        "status": if said.length { "incomplete" } else { "completed" },
        "error": null,
        "incomplete_details": cut,
        "output": output,
        "usage": usage,
    })
}

fn message(said: &Said, text: &str) -> Value {
    let part = if said.refuse {
        json!({"type": "refusal", "refusal": text})
    } else {
        json!({"type": "output_text", "text": text, "annotations": []})
    };
    json!({"type": "message", "id": id("msg", said), "role": "assistant", "content": [part]})
}

fn thought(said: &Said, text: &str) -> Value {
    json!({
        "type": "reasoning",
        "id": id("rs", said),
        "summary": [{"type": "summary_text", "text": text}],
        "encrypted_content": ENCRYPTED,
    })
}

fn call(said: &Said, at: usize, arguments: &str) -> Value {
    json!({
        "type": "function_call",
        "id": format!("fc_{}_{at}", said.mark),
        "call_id": format!("call_{}_{at}", said.mark),
        "name": said.tools[at].0,
        "arguments": arguments,
    })
}

fn id(kind: &str, said: &Said) -> String {
    format!("{kind}_{}", said.mark)
}

fn item(what: &str, place: usize, item: &Value) -> String {
    event(
        &format!("response.output_item.{what}"),
        json!({"output_index": place, "item": item}),
    )
}

fn event(kind: &str, mut value: Value) -> String {
    value["type"] = json!(kind);
    format!("event: {kind}\ndata: {value}\n\n")
}
