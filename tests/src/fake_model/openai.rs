//! Answers in the chat completions format.

use serde_json::{Value, json};

use super::answer::Said;
use super::steps::Events;

/// The non-streamed answer.
pub(super) fn whole(said: &Said) -> Value {
    let mut message = json!({"role": "assistant", "content": said.text});
    if let Some(reasoning) = &said.reasoning {
        message["reasoning_content"] = json!(reasoning);
    }
    if said.refuse {
        message["content"] = Value::Null;
        message["refusal"] = json!(said.text);
    }
    if !said.tools.is_empty() {
        message["content"] = Value::Null;
        message["tool_calls"] = (0..said.tools.len()).map(|at| call(said, at)).collect();
    }
    let mut body = json!({
        "id": format!("chatcmpl-{}", said.mark),
        "object": "chat.completion",
        "model": said.model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason(said)}],
    });
    if let Some(usage) = usage(said) {
        body["usage"] = usage;
    }
    body
}

/// The answer as events, with its text split into these pieces.
pub(super) fn events(said: &Said, pieces: &[String], include_usage: bool) -> Events {
    let mut before = vec![delta(&json!({"role": "assistant", "content": ""}))];
    if let Some(reasoning) = &said.reasoning {
        before.push(delta(&json!({"reasoning_content": reasoning})));
    }
    let text = if said.refuse {
        pieces
            .iter()
            .map(|piece| delta(&json!({"refusal": piece})))
            .collect()
    } else {
        pieces.iter().map(|piece| text_event(piece)).collect()
    };
    let mut after = Vec::new();
    for at in 0..said.tools.len() {
        let mut head = call(said, at);
        let arguments = head["function"]["arguments"].take();
        head["index"] = json!(at);
        head["function"]["arguments"] = json!("");
        after.push(delta(&json!({"tool_calls": [head]})));
        let rest = json!({"index": at, "function": {"arguments": arguments}});
        after.push(delta(&json!({"tool_calls": [rest]})));
    }
    let last = json!({"index": 0, "delta": {}, "finish_reason": reason(said)});
    after.push(event(&json!({"model": said.model, "choices": [last]})));
    if include_usage && let Some(usage) = usage(said) {
        after.push(event(
            &json!({"model": said.model, "choices": [], "usage": usage}),
        ));
    }
    after.push("data: [DONE]\n\n".to_owned());
    Events {
        before,
        text,
        after,
    }
}

/// The event of one piece of text.
pub(super) fn text_event(piece: &str) -> String {
    delta(&json!({"content": piece}))
}

/// The event of an error inside a stream.
pub(super) fn error_event(kind: &str) -> String {
    event(&json!({"error": {"type": kind, "message": "as asked"}}))
}

fn call(said: &Said, at: usize) -> Value {
    let (name, arguments) = &said.tools[at];
    json!({
        "id": format!("call_{}_{at}", said.mark),
        "type": "function",
        "function": {"name": name, "arguments": arguments.to_string()},
    })
}

fn reason(said: &Said) -> &'static str {
    if said.length {
        "length"
    } else if said.tools.is_empty() {
        "stop"
    } else {
        "tool_calls"
    }
}

fn usage(said: &Said) -> Option<Value> {
    let (read, written) = said.usage?;
    Some(
        json!({"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}),
    )
}

fn delta(delta: &Value) -> String {
    event(&json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}
