//! Items of what was said, as lists show them.

use mainspring_shared::id::SendId;
use mainspring_shared::message::{ContentPart, FileSource, ImageSource, Message, Role};
use serde_json::{Value, json};

use super::encode::{function_call, output_text};
use super::ids;
use super::listen::{Called, words};

/// What the user said.
pub(super) fn user(send: SendId, seq: Option<i64>, parts: &[ContentPart]) -> Value {
    json!({
        "type": "message", "id": ids::input(send, seq.unwrap_or(0)), "status": "completed", "role": "user",
        "content": parts.iter().filter_map(part).collect::<Vec<_>>(),
    })
}

/// The result of a call.
pub(super) fn output(call: &str, parts: &[ContentPart]) -> Value {
    let is_text = parts
        .iter()
        .all(|part| !matches!(part, ContentPart::Image { .. } | ContentPart::File { .. }));
    let output = if is_text {
        json!(words(parts).1)
    } else {
        parts.iter().filter_map(part).collect()
    };
    json!({
        "type": "function_call_output", "id": ids::output(call), "call_id": call, "output": output,
        "status": "completed",
    })
}

/// The items of a message of a transcript. `is_function` tells the calls that clients see.
pub(super) fn of_message(message: &Message, is_function: impl Fn(&str) -> bool) -> Vec<Value> {
    match message.role {
        Role::User => vec![user(message.send_id, Some(message.seq), &message.content)],
        Role::Tool => {
            let call = message.tool_call_id.as_deref().unwrap_or_default();
            let is_shown = message.name.as_deref().is_some_and(is_function);
            is_shown
                .then(|| output(call, &message.content))
                .into_iter()
                .collect()
        }
        Role::Assistant => {
            let text = words(&message.content).1;
            let said = (!text.is_empty()).then(|| {
                json!({
                    "type": "message", "id": ids::message(message.send_id, message.round, None),
                    "status": "completed", "role": "assistant", "content": [output_text(&text)],
                })
            });
            let calls = message
                .tool_calls
                .iter()
                .filter(|call| is_function(&call.name));
            let calls = calls.map(|call| {
                let arguments = call.arguments.text().into_owned();
                let called = Called {
                    id: call.id.clone(),
                    name: call.name.clone(),
                    arguments,
                };
                function_call(&called, "completed", &called.arguments)
            });
            said.into_iter().chain(calls).collect()
        }
    }
}

fn part(part: &ContentPart) -> Option<Value> {
    Some(match part {
        ContentPart::Text { text } => json!({ "type": "input_text", "text": text }),
        ContentPart::Image { source } => {
            let url = match source {
                ImageSource::Base64 { media_type, data } => {
                    format!("data:{media_type};base64,{data}")
                }
                ImageSource::Url { url } => url.clone(),
                ImageSource::Blob { sha256, .. } => format!("/v1/blobs/{sha256}"),
            };
            json!({ "type": "input_image", "image_url": url, "detail": "auto" })
        }
        ContentPart::File { name, source } => match source {
            FileSource::Base64 { media_type, data } => json!({
                "type": "input_file", "filename": name, "file_data": format!("data:{media_type};base64,{data}"),
            }),
            FileSource::Blob { sha256, .. } => json!({
                "type": "input_file", "filename": name, "file_url": format!("/v1/blobs/{sha256}"),
            }),
            FileSource::Text { text } => json!({ "type": "input_text", "text": text }),
        },
        ContentPart::Reasoning { .. } | ContentPart::Digest { .. } | ContentPart::Attached(_) => {
            return None;
        }
    })
}
