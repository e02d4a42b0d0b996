//! OpenAI's Responses.

use serde_json::{Value, json};

use super::{Content, Formed, event, signature, split};

pub(super) fn form(content: &Content) -> Formed {
    let mut items = Vec::new();
    let mut signatures = Vec::new();
    let seed = &content.seed;
    let mut think = |items: &mut Vec<Value>, text: &str, place: usize| {
        let signed = signature(seed, &format!("{place} {text}"));
        items.push(
            json!({"type": "reasoning", "id": format!("rs_{}{place}", &seed[..16]),
            "summary": [{"type": "summary_text", "text": text}], "encrypted_content": signed}),
        );
        signatures.push((signed, text.to_owned()));
    };
    if let Some(text) = &content.think {
        think(&mut items, text, 0);
    }
    if let Some(text) = &content.say {
        items.push(json!({"type": "message", "id": format!("msg_{}", &seed[..16]), "status": "completed",
            "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]}));
    }
    for (place, call) in content.calls.iter().enumerate() {
        if let (Some(text), true) = (&content.think, place > 0) {
            think(&mut items, text, place);
        }
        items.push(json!({"type": "function_call", "id": format!("fc_{}{place}", &seed[..16]), "status": "completed",
            "call_id": call.id, "name": call.name, "arguments": call.arguments.to_string()}));
    }
    let tokens = content.tokens;
    let (status, details) = if content.cut {
        ("incomplete", json!({"reason": "max_output_tokens"}))
    } else {
        ("completed", Value::Null)
    };
    let usage = json!({"input_tokens": tokens.prompt, "output_tokens": tokens.output,
        "total_tokens": tokens.prompt + tokens.output,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
        "output_tokens_details": {"reasoning_tokens": tokens.thinking}});
    let body = json!({"id": format!("resp_{}", &seed[..16]), "object": "response", "status": status,
        "model": content.model, "output": items, "incomplete_details": details, "error": null, "usage": usage});
    Formed {
        frames: frames(&body),
        message: json!({"items": sent_back(&items)}),
        body,
        signatures,
    }
}

/// Items as a client sends them back: as they came, without what is only told.
fn sent_back(items: &[Value]) -> Vec<Value> {
    let mut items = items.to_vec();
    for item in &mut items {
        if item["type"] == "function_call"
            && let Some(item) = item.as_object_mut()
        {
            item.remove("status");
        }
    }
    items
}

fn frames(body: &Value) -> Vec<String> {
    let mut begun = body.clone();
    begun["status"] = json!("in_progress");
    begun["output"] = json!([]);
    begun["usage"] = Value::Null;
    begun["incomplete_details"] = Value::Null;
    let mut events = vec![
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.in_progress", "response": begun}),
    ];
    for (index, item) in body["output"].as_array().into_iter().flatten().enumerate() {
        events.extend(item_events(index, item));
    }
    let last = format!("response.{}", body["status"].as_str().unwrap_or_default());
    events.push(json!({"type": last, "response": body}));
    events
        .into_iter()
        .enumerate()
        .map(|(number, mut value)| {
            value["sequence_number"] = json!(number);
            let name = value["type"].as_str().unwrap_or_default().to_owned();
            event(&name, &value)
        })
        .collect()
}

fn item_events(index: usize, item: &Value) -> Vec<Value> {
    let id = &item["id"];
    let mut added = item.clone();
    let mut events = Vec::new();
    let told = |kind: &str, more: Value| {
        let mut value = json!({"type": kind, "output_index": index, "item_id": id});
        if let (Some(value), Some(more)) = (value.as_object_mut(), more.as_object()) {
            value.extend(more.clone());
        }
        value
    };
    match item["type"].as_str() {
        Some("function_call") => {
            added["arguments"] = json!("");
            added["status"] = json!("in_progress");
            let arguments = item["arguments"].as_str().unwrap_or_default();
            for text in split(arguments) {
                events.push(told(
                    "response.function_call_arguments.delta",
                    json!({"delta": text}),
                ));
            }
            events.push(told(
                "response.function_call_arguments.done",
                json!({"arguments": arguments}),
            ));
        }
        Some("message") => {
            added["content"] = json!([]);
            added["status"] = json!("in_progress");
            let text = item["content"][0]["text"].as_str().unwrap_or_default();
            let empty = json!({"type": "output_text", "text": "", "annotations": []});
            events.push(told(
                "response.content_part.added",
                json!({"content_index": 0, "part": empty}),
            ));
            for text in split(text) {
                events.push(told(
                    "response.output_text.delta",
                    json!({"content_index": 0, "delta": text}),
                ));
            }
            events.push(told(
                "response.output_text.done",
                json!({"content_index": 0, "text": text}),
            ));
            events.push(told(
                "response.content_part.done",
                json!({"content_index": 0, "part": item["content"][0]}),
            ));
        }
        _ => {
            added["summary"] = json!([]);
            let text = item["summary"][0]["text"].as_str().unwrap_or_default();
            let empty = json!({"type": "summary_text", "text": ""});
            events.push(told(
                "response.reasoning_summary_part.added",
                json!({"summary_index": 0, "part": empty}),
            ));
            for text in split(text) {
                events.push(told(
                    "response.reasoning_summary_text.delta",
                    json!({"summary_index": 0, "delta": text}),
                ));
            }
            events.push(told(
                "response.reasoning_summary_text.done",
                json!({"summary_index": 0, "text": text}),
            ));
        }
    }
    events.insert(
        0,
        json!({"type": "response.output_item.added", "output_index": index, "item": added}),
    );
    events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    events
}
