//! Chat completions, with what vendors add to them.

use serde_json::{Map, Value, json};

use super::{Content, Formed, Made, data, signature, split};
use crate::count::Tokens;
use crate::rules::Rules;

pub(super) fn form(rules: &Rules, content: &Content) -> Formed {
    let style = &rules.answer;
    let mut signatures = Vec::new();
    let calls: Vec<Value> = content
        .calls
        .iter()
        .enumerate()
        .map(|(place, call)| {
            let mut value = call_value(call);
            if style.signature.as_deref() == Some("google") && place == 0 {
                let signed = signature(&content.seed, &call.name);
                value["extra_content"] = json!({"google": {"thought_signature": signed}});
                signatures.push((signed, call.name.clone()));
            }
            value
        })
        .collect();
    let say = content
        .say
        .clone()
        .or_else(|| style.empty_content.then(String::new));
    let mut message = json!({"role": "assistant", "content": say});
    let reasoning = content
        .think
        .as_ref()
        .map(|text| reasoning(&style.reasoning, text, &content.seed));
    if let Some(Some((name, value))) = &reasoning {
        if let (Some(signed), Some(text)) = (value[0]["signature"].as_str(), &content.think) {
            signatures.push((signed.to_owned(), text.clone()));
        }
        match style.reasoning.as_str() {
            "parts" => message["content"] = with_parts(value, content.say.as_deref()),
            "tag" => message["content"] = json!(tagged(content)),
            _ => message[name.as_str()] = value.clone(),
        }
        if style.reasoning == "thinking_blocks" {
            message["reasoning_content"] = json!(content.think);
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let finish = if content.cut {
        "length"
    } else if calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    let usage = usage(rules, content.tokens);
    let id = format!("chatcmpl-{}", &content.seed[..12]);
    let body = json!({"id": id, "object": "chat.completion", "created": 1, "model": content.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": usage});
    let frames = frames(rules, content, &message, finish, &usage, &id);
    if !style.give_back
        && let Some(Some((name, _))) = &reasoning
    {
        if name == "content" {
            message["content"] = json!(content.say);
        } else {
            message
                .as_object_mut()
                .expect("it was made as one")
                .remove(name);
        }
    }
    Formed {
        body,
        frames,
        message,
        signatures,
    }
}

fn call_value(call: &Made) -> Value {
    json!({"id": call.id, "type": "function",
        "function": {"name": call.name, "arguments": call.arguments.to_string()}})
}

/// Thinking and text as one text.
fn tagged(content: &Content) -> String {
    let think = content
        .think
        .as_deref()
        .map(|text| format!("<think>\n{text}\n</think>\n\n"));
    think.unwrap_or_default() + content.say.as_deref().unwrap_or_default()
}

/// The member that thinking is in, and its value.
fn reasoning(style: &str, text: &str, seed: &str) -> Option<(String, Value)> {
    match style {
        "none" => None,
        "parts" => Some((
            "content".to_owned(),
            json!([{"type": "thinking", "thinking": [{"type": "text", "text": text}], "closed": true}]),
        )),
        "reasoning_details" => Some((
            style.to_owned(),
            json!([{"type": "reasoning.text", "text": text, "signature": signature(seed, text),
                "format": "anthropic-claude-v1", "index": 0}]),
        )),
        "thinking_blocks" => Some((
            style.to_owned(),
            json!([{"type": "thinking", "thinking": text, "signature": signature(seed, text)}]),
        )),
        "tag" => Some(("content".to_owned(), Value::Null)),
        member => Some((member.to_owned(), json!(text))),
    }
}

fn with_parts(thinking: &Value, say: Option<&str>) -> Value {
    let mut parts = thinking.as_array().cloned().unwrap_or_default();
    if let Some(text) = say {
        parts.push(json!({"type": "text", "text": text}));
    }
    Value::Array(parts)
}

/// The tokens where a vendor tells them.
fn usage(rules: &Rules, tokens: Tokens) -> Value {
    let told = &rules.usage;
    let completion = if told.thinking_apart {
        tokens.output - tokens.thinking
    } else {
        tokens.output
    };
    let mut usage = json!({"prompt_tokens": tokens.prompt, "completion_tokens": completion,
        "total_tokens": tokens.prompt + tokens.output});
    let numbers = [
        (&told.cached, tokens.cached),
        (&told.written, tokens.written),
        (&told.thinking, tokens.thinking),
    ];
    for (path, number) in numbers {
        if let Some(path) = path {
            path.set(&mut usage, Some(json!(number)));
        }
    }
    usage
}

/// The deltas of a message in order, then the reason, the tokens and the end.
fn frames(
    rules: &Rules,
    content: &Content,
    message: &Value,
    finish: &str,
    usage: &Value,
    id: &str,
) -> Vec<String> {
    let style = &rules.answer;
    let piece = |delta: &Value, finish: Option<&str>| {
        let mut chunk = json!({"id": id, "object": "chat.completion.chunk", "created": 1,
            "model": content.model, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        if rules.usage.every_piece {
            chunk["usage"] = usage.clone();
        }
        data(&chunk)
    };
    let mut frames = vec![piece(&json!({"role": "assistant", "content": ""}), None)];
    let parts = style.reasoning == "parts";
    let whole = match style.reasoning.as_str() {
        "tag" => Some(tagged(content)),
        _ => content.say.clone(),
    };
    if style.reasoning == "thinking_blocks"
        && let Some(text) = &content.think
    {
        frames.extend(
            split(text)
                .iter()
                .map(|text| piece(&json!({"reasoning_content": text}), None)),
        );
        frames.push(piece(
            &json!({"thinking_blocks": message["thinking_blocks"]}),
            None,
        ));
    } else if let Some(text) = &content.think
        && style.reasoning != "tag"
    {
        for text in split(text) {
            if let Some((name, value)) = reasoning(&style.reasoning, &text, &content.seed) {
                frames.push(piece(&json!({name: value}), None));
            }
        }
        if style.reasoning == "reasoning_details" {
            correct_details(&mut frames, message, &piece);
        }
    }
    for text in whole.as_deref().map(split).unwrap_or_default() {
        let value = if parts && content.think.is_some() {
            json!([{"type": "text", "text": text}])
        } else {
            json!(text)
        };
        frames.push(piece(&json!({"content": value}), None));
    }
    for (place, call) in message["tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        for delta in deltas(rules, place, call) {
            frames.push(piece(&json!({"tool_calls": [delta]}), None));
        }
    }
    let finish = if finish == "tool_calls" {
        style.finish_with_calls.as_str()
    } else {
        finish
    };
    frames.push(piece(&json!({}), Some(finish)));
    frames.push(data(
        &json!({"id": id, "object": "chat.completion.chunk", "created": 1,
        "model": content.model, "choices": [], "usage": usage}),
    ));
    if style.done {
        frames.push("data: [DONE]\n\n".to_owned());
    }
    frames
}

/// Details come in pieces of one index; the signature comes last and is the one of the whole.
fn correct_details(
    frames: &mut Vec<String>,
    message: &Value,
    piece: &dyn Fn(&Value, Option<&str>) -> String,
) {
    let whole = &message["reasoning_details"][0];
    let text = whole["text"].as_str().unwrap_or_default();
    let first = frames.len() - split(text).len();
    frames.truncate(first);
    for text in split(text) {
        let detail =
            json!({"type": whole["type"], "text": text, "format": whole["format"], "index": 0});
        frames.push(piece(
            &json!({"reasoning": text, "reasoning_details": [detail]}),
            None,
        ));
    }
    let detail = json!({"type": whole["type"], "signature": whole["signature"], "format": whole["format"], "index": 0});
    frames.push(piece(&json!({"reasoning_details": [detail]}), None));
}

/// One call in pieces: first all but its arguments, then these.
fn deltas(rules: &Rules, place: usize, call: &Value) -> Vec<Value> {
    let style = &rules.answer;
    let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
    let mut first = call.as_object().cloned().unwrap_or_else(Map::new);
    if style.index {
        first.insert("index".to_owned(), json!(place));
    }
    if style.whole_arguments {
        return vec![Value::Object(first)];
    }
    first["function"] = json!({"name": call["function"]["name"], "arguments": ""});
    let mut deltas = vec![Value::Object(first)];
    for text in split(arguments) {
        let mut delta = json!({"function": {"arguments": text}});
        if style.index {
            delta["index"] = json!(place);
        } else {
            delta["id"] = call["id"].clone();
        }
        deltas.push(delta);
    }
    deltas
}
