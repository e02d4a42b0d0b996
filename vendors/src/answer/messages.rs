//! Anthropic's Messages.

use serde_json::{Value, json};

use super::{Content, Formed, event, signature, split};

pub(super) fn form(content: &Content) -> Formed {
    let mut blocks = Vec::new();
    let mut signatures = Vec::new();
    let mut think = |blocks: &mut Vec<Value>, text: &str, place: usize| {
        let signed = signature(&content.seed, &format!("{place} {text}"));
        blocks.push(json!({"type": "thinking", "thinking": text, "signature": signed}));
        signatures.push((signed, text.to_owned()));
    };
    if let Some(text) = &content.think {
        think(&mut blocks, text, 0);
    }
    if let Some(text) = &content.say {
        blocks.push(json!({"type": "text", "text": text}));
    }
    for (place, call) in content.calls.iter().enumerate() {
        // Models that think by themselves do so between calls, too.
        if let (Some(text), true) = (&content.think, place > 0) {
            think(&mut blocks, text, place);
        }
        blocks.push(
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}),
        );
    }
    let reason = if content.cut {
        "max_tokens"
    } else if content.calls.is_empty() {
        "end_turn"
    } else {
        "tool_use"
    };
    let tokens = content.tokens;
    let usage = json!({"input_tokens": tokens.prompt - tokens.cached - tokens.written,
        "cache_read_input_tokens": tokens.cached, "cache_creation_input_tokens": tokens.written,
        "output_tokens": tokens.output});
    let body = json!({"id": format!("msg_{}", &content.seed[..12]), "type": "message", "role": "assistant",
        "model": content.model, "content": blocks, "stop_reason": reason, "stop_sequence": null, "usage": usage});
    Formed {
        frames: frames(&body, reason),
        message: json!({"role": "assistant", "content": blocks}),
        body,
        signatures,
    }
}

fn frames(body: &Value, reason: &str) -> Vec<String> {
    let mut start = body.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = json!(1);
    let mut frames = vec![event(
        "message_start",
        &json!({"type": "message_start", "message": start}),
    )];
    for (index, block) in body["content"].as_array().into_iter().flatten().enumerate() {
        frames.extend(block_frames(index, block));
    }
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": body["usage"]});
    frames.push(event("message_delta", &delta));
    frames.push(event("message_stop", &json!({"type": "message_stop"})));
    frames
}

fn block_frames(index: usize, block: &Value) -> Vec<String> {
    let mut start = block.clone();
    let text = |name: &str| block[name].as_str().unwrap_or_default();
    let mut deltas: Vec<Value> = Vec::new();
    match block["type"].as_str() {
        Some("thinking") => {
            start = json!({"type": "thinking", "thinking": "", "signature": ""});
            deltas.extend(
                split(text("thinking"))
                    .into_iter()
                    .map(|text| json!({"type": "thinking_delta", "thinking": text})),
            );
            deltas.push(json!({"type": "signature_delta", "signature": text("signature")}));
        }
        Some("tool_use") => {
            start["input"] = json!({});
            deltas.extend(
                split(&block["input"].to_string())
                    .into_iter()
                    .map(|text| json!({"type": "input_json_delta", "partial_json": text})),
            );
        }
        _ => {
            start["text"] = json!("");
            deltas.extend(
                split(text("text"))
                    .into_iter()
                    .map(|text| json!({"type": "text_delta", "text": text})),
            );
        }
    }
    let mut frames = vec![event(
        "content_block_start",
        &json!({"type": "content_block_start", "index": index, "content_block": start}),
    )];
    frames.extend(deltas.iter().map(|delta| {
        event(
            "content_block_delta",
            &json!({"type": "content_block_delta", "index": index, "delta": delta}),
        )
    }));
    frames.push(event(
        "content_block_stop",
        &json!({"type": "content_block_stop", "index": index}),
    ));
    frames
}
