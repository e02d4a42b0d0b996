//! What stands in the conversation: pictures, files, reasoning, ids, order and contents.

use super::*;

/// The place of what contains a text: the message and the part.
fn place_of(body: &Value, text: &str) -> (usize, usize) {
    let list = body.get("messages").unwrap_or(&body["input"]);
    let list = list.as_array().expect("a list");
    let message = list
        .iter()
        .position(|message| message.to_string().contains(text));
    let message = message.expect("it is refused");
    let parts = list[message]["content"].as_array();
    let part = parts.and_then(|all| all.iter().position(|part| part.to_string().contains(text)));
    (message, part.unwrap_or(0))
}

fn texts(text: &'static str, wordings: Vec<SaysAt<(usize, usize)>>) -> Vec<Case> {
    let mut wordings = wordings;
    for (status, said) in bare() {
        wordings.push(Box::new(move |_| (status, said.clone())));
    }
    let case = |(place, says): (usize, SaysAt<(usize, usize)>)| Case {
        name: format!("{text} {place}"),
        has: Box::new(move |body| body.to_string().contains(text)),
        says: Box::new(move |body| says(place_of(body, text))),
        gone: None,
    };
    wordings.into_iter().enumerate().map(case).collect()
}

pub(super) fn pictures() -> Vec<Case> {
    let mut cases = texts(
        PICTURE,
        vec![
            Box::new(|(m, p)| {
                (
                    400,
                    anthropic(&format!(
                        "messages.{m}.content.{p}.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes"
                    )),
                )
            }),
            Box::new(|(m, p)| {
                (
                    400,
                    anthropic(&format!(
                        "messages.{m}.content.{p}.image.source.base64.data: At least one of the image dimensions exceed max allowed size: 8000 pixels"
                    )),
                )
            }),
            Box::new(|_| (400, anthropic("Could not process image"))),
            Box::new(|(m, p)| {
                (
                    400,
                    error(
                        "Invalid image.",
                        Some(&format!("messages[{m}].content[{p}].image_url")),
                        Some("invalid_image"),
                    ),
                )
            }),
            Box::new(|(m, p)| {
                (
                    400,
                    error(
                        "You uploaded an unsupported image. Please make sure your image is valid.",
                        Some(&format!("input[{m}].content[{p}].image_url")),
                        Some("image_parse_error"),
                    ),
                )
            }),
            Box::new(|_| {
                (
                    400,
                    error(
                        "The image data you provided does not represent a valid image. Please check your input and try again.",
                        None,
                        None,
                    ),
                )
            }),
            Box::new(|_| {
                (400, json!([{"error": {"code": 400, "message": "Unable to process input image. Please retry or report.", "status": "INVALID_ARGUMENT"}}]).to_string())
            }),
            Box::new(|(m, p)| {
                (
                    422,
                    fastapi(
                        &json!(["body", "messages", m, "user", "content", p, "image_url"]),
                        "value_error",
                        "invalid",
                    ),
                )
            }),
            Box::new(|_| {
                (
                    400,
                    error(
                        "Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, expected `text` at line 1",
                        None,
                        None,
                    ),
                )
            }),
            Box::new(|_| {
                (404, json!({"error": {"message": "No endpoints found that support image input", "code": 404}}).to_string())
            }),
            Box::new(|_| {
                (400, json!({"object": "error", "message": "x is not a multimodal model", "type": "BadRequestError"}).to_string())
            }),
        ],
    );
    cases.extend(texts(FILE, vec![
        Box::new(|_| (400, anthropic("The PDF specified was not valid."))),
        Box::new(|(m, p)| (400, anthropic(&format!("messages.{m}.content.{p}.document.source.base64.data: The PDF specified is password protected.")))),
        Box::new(|(m, p)| (400, error("Invalid file data.", Some(&format!("messages[{m}].content[{p}].file.file_data")), Some("invalid_value")))),
        Box::new(|(m, p)| (422, fastapi(&json!(["body", "messages", m, "user", "content", p, "file"]), "extra_forbidden", "Extra inputs are not permitted"))),
        Box::new(|(m, p)| (400, error("bad", Some(&format!("input[{m}].content[{p}].file_data")), None))),
    ]));
    cases
}

/// The reasoning of an earlier answer, by what identifies it.
pub(super) fn reasoning(mark: &'static str) -> Vec<Case> {
    texts(
        mark,
        vec![
            Box::new(|(m, p)| {
                (
                    400,
                    anthropic(&format!(
                        "messages.{m}.content.{p}: Invalid `signature` in `thinking` block"
                    )),
                )
            }),
            Box::new(|(m, p)| {
                (
                    400,
                    anthropic(&format!(
                        "messages.{m}.content.{p}.thinking.signature: Field required"
                    )),
                )
            }),
            Box::new(|_| {
                (
                    400,
                    anthropic(
                        "Invalid `signature` in `thinking` block. The block is bound to a different conversation",
                    ),
                )
            }),
            Box::new(|(m, p)| {
                (
                    400,
                    anthropic(&format!(
                        "messages.{m}.content.{p}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified"
                    )),
                )
            }),
            Box::new(|_| {
                (
                    400,
                    error(
                        "The encrypted content gAAA... could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
                        None,
                        Some("invalid_encrypted_content"),
                    ),
                )
            }),
            Box::new(|_| {
                (
                    400,
                    error(
                        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
                        Some("input"),
                        None,
                    ),
                )
            }),
            Box::new(|(m, _)| {
                (
                    400,
                    error("bad", Some(&format!("input[{m}].encrypted_content")), None),
                )
            }),
        ],
    )
}

/// Members of messages, in the words of those who know none but their own.
pub(super) fn message_member(name: &'static str) -> Vec<Case> {
    let found = move |body: &Value| -> usize {
        let list = body["messages"].as_array().expect("a list");
        list.iter()
            .position(|message| message.get(name).is_some())
            .expect("it is refused")
    };
    let wordings: Vec<SaysAt<usize>> = vec![
        Box::new(move |at| {
            (
                400,
                error(
                    &format!(
                        "'messages.{at}' : for 'role:assistant' the following must be satisfied[('messages.{at}' : property '{name}' is unsupported)]"
                    ),
                    None,
                    None,
                ),
            )
        }),
        Box::new(move |at| {
            (400, json!({"message": format!("body.messages.{at}.assistant.{name}: property 'body.messages.{at}.assistant.{name}' is unsupported"), "code": "wrong_api_format"}).to_string())
        }),
        Box::new(move |at| {
            (
                422,
                fastapi(
                    &json!(["body", "messages", at, "assistant", name]),
                    "extra_forbidden",
                    "Extra inputs are not permitted",
                ),
            )
        }),
        Box::new(move |at| {
            (
                400,
                error(
                    &format!("Unknown parameter: 'messages[{at}].{name}'."),
                    Some(&format!("messages[{at}].{name}")),
                    Some("unknown_parameter"),
                ),
            )
        }),
        Box::new(move |at| {
            (
                400,
                error(
                    &format!(
                        "Additional properties are not allowed ('{name}' was unexpected) - 'messages.{at}'"
                    ),
                    None,
                    None,
                ),
            )
        }),
        Box::new(move |_| {
            (400, json!([{"error": {"code": 400, "message": format!("Invalid JSON payload received. Unknown name \"{name}\": Cannot find field."), "status": "INVALID_ARGUMENT"}}]).to_string())
        }),
    ];
    let mut cases = Vec::new();
    let quiet = bare()
        .into_iter()
        .map(|said| -> SaysAt<usize> { Box::new(move |_| said.clone()) });
    for (place, says) in wordings.into_iter().chain(quiet).enumerate() {
        cases.push(Case {
            name: format!("{name} of messages {place}"),
            has: Box::new(move |body| body.to_string().contains(&format!("\"{name}\":"))),
            says: Box::new(move |body| says(found(body))),
            gone: None,
        });
    }
    cases
}

/// Whether any id of a call has another form than nine letters and digits.
fn has_long_id(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(name, value)| {
            let is_id = matches!(name.as_str(), "tool_call_id" | "tool_use_id" | "call_id")
                || (name == "id" && members.contains_key("name"))
                || (name == "id" && members.contains_key("function"));
            (is_id && value.as_str().is_some_and(|id| id.len() != 9)) || has_long_id(value)
        }),
        Value::Array(items) => items.iter().any(has_long_id),
        _ => false,
    }
}

pub(super) fn ids() -> Vec<Case> {
    let wordings = [
        (400, r#"{"object":"error","message":"Tool call id was call_0 but must be a-z, A-Z, 0-9, with a length of 9.","type":"invalid_function_call","code":"3280"}"#.to_owned()),
        (400, error("Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 41 instead.", Some("messages[1].tool_calls[0].id"), Some("string_above_max_length"))),
        (400, error("Invalid 'input[3].call_id': string too long. Expected a string with maximum length 64.", Some("input[3].call_id"), Some("string_above_max_length"))),
        (400, anthropic("messages.1.content.1.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")),
        (422, fastapi(&json!(["body", "messages", 2, "tool", "tool_call_id"]), "string_too_long", "String should have at most 9 characters")),
    ];
    let case = |(status, text): (u16, String)| Case {
        name: format!("ids {text}"),
        has: Box::new(has_long_id),
        says: Box::new(move |_| (status, text.clone())),
        gone: None,
    };
    wordings.into_iter().chain(bare()).map(case).collect()
}

fn is_user_after_tool(body: &Value) -> bool {
    let list = body["messages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    list.windows(2)
        .any(|two| two[0]["role"] == "tool" && two[1]["role"] == "user")
}

pub(super) fn order() -> Vec<Case> {
    let after = [
        (400, r#"{"object":"error","message":"Unexpected role 'user' after role 'tool'","type":"invalid_request_message_order","code":"3230"}"#.to_owned()),
        (400, json!({"message": {"detail": [{"type": "value_error", "loc": ["body", "messages"], "msg": "Unexpected role 'user' after role 'tool'"}]}}).to_string()),
        (500, error("Conversation roles must alternate user/assistant/user/assistant/... (jinja)", None, None)),
        (400, error("After the optional system message, conversation roles must alternate user/assistant", None, None)),
    ];
    let system = [
        (400, error("System message must be at the beginning.", None, None)),
        (400, error("System role not supported", None, None)),
        (400, r#"{"error":{"message":"Developer instruction is not enabled for models/gemma-3","code":400}}"#.to_owned()),
        (400, r#"{"type":"error","error":{"type":"bad_request_error","message":"invalid params, invalid message role: system (2013)"}}"#.to_owned()),
        (400, error("Invalid value: 'system'. Supported values are: 'user' and 'assistant'.", Some("messages[0].role"), Some("invalid_value"))),
    ];
    let mut cases = Vec::new();
    for (status, text) in after.into_iter().chain(bare()) {
        cases.push(Case {
            name: format!("user after tool {text}"),
            has: Box::new(is_user_after_tool),
            says: Box::new(move |_| (status, text.clone())),
            gone: None,
        });
    }
    for (status, text) in system {
        cases.push(Case {
            name: format!("system {text}"),
            has: Box::new(|body| body.to_string().contains(r#""role":"system""#)),
            says: Box::new(move |_| (status, text.clone())),
            gone: None,
        });
    }
    cases
}

pub(super) fn has_empty(body: &Value) -> bool {
    let list = body.get("messages").unwrap_or(&body["input"]);
    let list = list.as_array().expect("a list");
    list.iter()
        .any(|message| message["content"] == "" || message["output"] == "")
}

pub(super) fn empties() -> Vec<Case> {
    let wordings = [
        (400, error("Invalid request: message at position 3 with role 'tool' must not be empty", None, None)),
        (400, anthropic("messages: text content blocks must be non-empty")),
        (400, error("text content is empty", None, None)),
        (400, json!({"code": "invalid-argument", "error": "Each message must have at least one content element."}).to_string()),
    ];
    let case = |(status, text): (u16, String)| Case {
        name: format!("empty {text}"),
        has: Box::new(has_empty),
        says: Box::new(move |_| (status, text.clone())),
        gone: None,
    };
    wordings.into_iter().chain(bare()).map(case).collect()
}

pub(super) fn owed() -> Vec<Case> {
    let no_reasoning = |body: &Value| {
        let list = body["messages"].as_array().expect("a list");
        list.iter()
            .any(|m| m["role"] == "assistant" && m.get("reasoning_content").is_none())
    };
    let no_signature = |body: &Value| {
        let calls = body["messages"].as_array().expect("a list").iter();
        let mut calls = calls
            .filter_map(|m| m.get("tool_calls")?.as_array())
            .flatten();
        calls.any(|call| {
            call.pointer("/extra_content/google/thought_signature")
                .is_none()
        })
    };
    let reasoning = [
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
    ];
    let signatures = [
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly.",
        "Unable to submit request because function call `search` in the 2. content block is missing a `thought_signature`.",
    ];
    let mut cases = Vec::new();
    for text in reasoning {
        cases.push(Case {
            name: text.to_owned(),
            has: Box::new(no_reasoning),
            says: Box::new(move |_| (400, error(text, None, None))),
            gone: Some(BTreeSet::new()),
        });
    }
    for text in signatures {
        cases.push(Case {
            name: text.to_owned(),
            has: Box::new(no_signature),
            says: Box::new(move |_| (400, error(text, None, None))),
            gone: Some(BTreeSet::new()),
        });
    }
    cases
}
