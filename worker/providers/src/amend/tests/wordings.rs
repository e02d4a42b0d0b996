//! Each part of a request, refused in each vendor's words.

use std::collections::BTreeSet;

use super::*;

type Says = Box<dyn Fn(&Value) -> (u16, String) + Send + Sync>;

/// The same with the place of the part.
type SaysAt<P> = Box<dyn Fn(P) -> (u16, String) + Send + Sync>;

/// The same with the name and the value of the token limit.
type SaysLimit = Box<dyn Fn(&str, u64) -> (u16, String) + Send + Sync>;

type Has = fn(&Value) -> bool;

/// A part that a server refuses, and how it says so.
struct Case {
    name: String,
    has: Box<dyn Fn(&Value) -> bool + Send + Sync>,
    says: Says,
    /// Top-level members that may be gone afterwards; any if it cannot be known what is refused.
    gone: Option<BTreeSet<String>>,
}

fn error(message: &str, param: Option<&str>, code: Option<&str>) -> String {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}})
        .to_string()
}

fn anthropic(message: &str) -> String {
    json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}})
        .to_string()
}

fn fastapi(place: &Value, kind: &str, why: &str) -> String {
    json!({"detail": [{"type": kind, "loc": place, "msg": why, "input": 1}]}).to_string()
}

/// Refusals that say nothing.
fn bare() -> Vec<(u16, String)> {
    vec![
        (400, String::new()),
        (400, error("Invalid request", None, None)),
        (400, r#"{"error":{"code":"1210","message":"API 调用参数有误，请检查文档"}}"#.to_owned()),
        (422, r#"{"detail":"Unprocessable Entity"}"#.to_owned()),
        (400, r#"{"error":{"code":400,"message":"Request contains an invalid argument.","status":"INVALID_ARGUMENT"}}"#.to_owned()),
    ]
}

/// All vendors' ways to refuse a member.
fn member_wordings(name: &str) -> Vec<(u16, String)> {
    let unsupported = format!("Unsupported parameter: '{name}' is not supported with this model.");
    let raw = error(&unsupported, Some(name), Some("unsupported_parameter"));
    let forbidden = "Extra inputs are not permitted";
    let detail = fastapi(&json!(["body", name]), "extra_forbidden", forbidden);
    let detail_value: Value = serde_json::from_str(&detail).expect("JSON");
    vec![
        (400, error(&format!("Unknown parameter: '{name}'."), Some(name), Some("unknown_parameter"))),
        (400, raw.clone()),
        (400, error(&format!("Unsupported value: '{name}' does not support this with this model. Only the default value is supported."), Some(name), Some("unsupported_value"))),
        (400, error(&format!("Unrecognized request argument supplied: {name}"), None, None).replace(name, &format!("'{name}'"))),
        (400, anthropic(&format!("{name}: {forbidden}"))),
        (400, anthropic(&format!("`{name}` is deprecated for this model."))),
        (400, error(&format!("property '{name}' is unsupported"), None, None)),
        (400, json!({"message": format!("body.{name}: property 'body.{name}' is unsupported"), "type": "invalid_request_error", "param": name, "code": "wrong_api_format"}).to_string()),
        (422, detail),
        (422, json!({"object": "error", "message": detail_value, "type": "invalid_request_error", "code": 3001}).to_string()),
        (400, json!([{"error": {"code": 400, "message": format!("Invalid JSON payload received. Unknown name \"{name}\": Cannot find field."), "status": "INVALID_ARGUMENT"}}]).to_string()),
        (400, error(&format!("Failed to deserialize the JSON body into the target type: unknown field `{name}` at line 1 column 9"), None, None)),
        (400, json!({"error": format!("json: unknown field \"{name}\"")}).to_string()),
        (400, json!({"object": "error", "message": format!("[{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), 'msg': '{forbidden}', 'input': 1}}]"), "type": "BadRequestError", "code": 400}).to_string()),
        (400, json!({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw, "provider_name": "X"}}}).to_string()),
        (400, json!({"code": "invalid-argument", "error": format!("Argument not supported on this model: '{name}'")}).to_string()),
        (200, error(&format!("Unknown parameter: '{name}'."), Some(name), Some("unknown_parameter"))),
    ]
}

fn members(body: &Value) -> Vec<Case> {
    let essential = [
        "model",
        "messages",
        "input",
        "tools",
        "system",
        "instructions",
        "stream",
    ];
    let names = keys(body);
    let names = names.iter().filter(|name| {
        !essential.contains(&name.as_str()) && !LIMITS.contains(&name.as_str()) && *name != "store"
    });
    let mut cases = Vec::new();
    for name in names {
        let wordings = member_wordings(name);
        let named = wordings.len();
        for (place, (status, text)) in wordings.into_iter().chain(bare()).enumerate() {
            let own = name.clone();
            cases.push(Case {
                name: format!("{name} {text}"),
                has: Box::new(move |body| body.get(&own).is_some()),
                says: Box::new(move |_| (status, text.clone())),
                gone: (place < named).then(|| [name.clone()].into()),
            });
        }
    }
    cases
}

fn function(tool: &Value) -> &Value {
    tool.get("function").unwrap_or(tool)
}

fn parameters(tool: &Value) -> &Value {
    let function = function(tool);
    function
        .get("parameters")
        .unwrap_or(&function["input_schema"])
}

fn odd(body: &Value) -> Option<(usize, &Value)> {
    let tools = body["tools"].as_array()?;
    let mut tools = tools.iter().enumerate();
    tools.find(|(_, tool)| function(tool)["name"] == "odd")
}

/// Ways to refuse the schema of the tool `odd`, at a place of the list.
fn schema_wordings() -> Vec<SaysAt<usize>> {
    let mut wordings: Vec<SaysAt<usize>> = vec![
        Box::new(|at| {
            (
                400,
                error(
                    "Invalid schema for function 'odd': schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
                    Some(&format!("tools[{at}].function.parameters")),
                    Some("invalid_function_parameters"),
                ),
            )
        }),
        Box::new(|at| {
            (
                400,
                error(
                    "Invalid schema for function 'odd': In context=(), object schema missing properties.",
                    Some(&format!("tools[{at}].parameters")),
                    Some("invalid_function_parameters"),
                ),
            )
        }),
        Box::new(|_| (400, error("Invalid schema for function 'odd'", None, None))),
        Box::new(|at| {
            (
                400,
                anthropic(&format!(
                    "tools.{at}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
                )),
            )
        }),
        Box::new(|at| {
            (
                400,
                anthropic(&format!(
                    "tools.{at}.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12"
                )),
            )
        }),
        Box::new(|at| {
            (
                400,
                anthropic(&format!(
                    "tools.{at}.custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'"
                )),
            )
        }),
        Box::new(|at| {
            (400, json!([{"error": {"code": 400, "message": format!("Invalid JSON payload received. Unknown name \"anyOf\" at 'tools[0].function_declarations[{at}].parameters': Cannot find field."), "status": "INVALID_ARGUMENT"}}]).to_string())
        }),
        Box::new(|at| {
            (400, json!({"error": {"code": 400, "message": format!("* GenerateContentRequest.tools[0].function_declarations[{at}].parameters.properties: should be non-empty for OBJECT type"), "status": "INVALID_ARGUMENT"}}).to_string())
        }),
        Box::new(|_| {
            (
                400,
                error(
                    "Invalid request: tools.function.parameters is not a valid moonshot flavored json schema, details: <At path 'properties.url': type is not defined>",
                    None,
                    None,
                ),
            )
        }),
        Box::new(|at| {
            (
                422,
                fastapi(
                    &json!(["body", "tools", at, "function", "parameters"]),
                    "value_error",
                    "Invalid schema",
                ),
            )
        }),
        Box::new(|at| {
            (400, json!({"message": format!("body.tools.{at}.function.parameters: unsupported keyword"), "code": "wrong_api_format"}).to_string())
        }),
    ];
    for (status, text) in bare() {
        wordings.push(Box::new(move |_| (status, text.clone())));
    }
    wordings
}

fn tools() -> Vec<Case> {
    // What the vendor takes of the tool: a plain schema, any object only, or nothing.
    let kinds: [(&str, Has); 3] = [
        ("pattern", |schema| schema.to_string().contains("pattern")),
        ("properties", |schema| {
            schema["properties"]
                .as_object()
                .is_some_and(|all| !all.is_empty())
        }),
        ("the tool", |_| true),
    ];
    let mut cases = Vec::new();
    for (name, refused) in kinds {
        for (place, says) in schema_wordings().into_iter().enumerate() {
            if name == "properties" && place >= 11 {
                continue; // Nothing says that a schema is refused at all.
            }
            cases.push(Case {
                name: format!("{name} {place}"),
                has: Box::new(move |body| {
                    odd(body).is_some_and(|(_, tool)| refused(parameters(tool)))
                }),
                says: Box::new(move |body| says(odd(body).expect("it is refused").0)),
                gone: None,
            });
        }
    }
    cases
}

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

fn pictures() -> Vec<Case> {
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
fn reasoning(mark: &'static str) -> Vec<Case> {
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
fn message_member(name: &'static str) -> Vec<Case> {
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

fn ids() -> Vec<Case> {
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

fn order() -> Vec<Case> {
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

fn has_empty(body: &Value) -> bool {
    let list = body.get("messages").unwrap_or(&body["input"]);
    let list = list.as_array().expect("a list");
    list.iter()
        .any(|message| message["content"] == "" || message["output"] == "")
}

fn empties() -> Vec<Case> {
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

fn limit_of(body: &Value) -> (String, u64) {
    let found = LIMITS
        .iter()
        .find_map(|name| Some(((*name).to_owned(), body[*name].as_u64()?)));
    found.expect("a limit")
}

fn limits(own: &str) -> Vec<Case> {
    let most = |says: SaysLimit| Case {
        name: "the size of the token limit".to_owned(),
        has: Box::new(|body| limit_of(body).1 > 8_192),
        says: Box::new(move |body| {
            let (name, own) = limit_of(body);
            says(&name, own)
        }),
        gone: Some(BTreeSet::new()),
    };
    let mut cases = vec![
        most(Box::new(|name, own| {
            (
                400,
                anthropic(&format!(
                    "{name}: {own} > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku-20241022"
                )),
            )
        })),
        most(Box::new(|name, _| {
            (400, error(&format!("`{name}` must be less than or equal to `8192`, the maximum value for `{name}` is less than the `context_window` for this model"), Some(name), None)).1.replace("context_window", "window").pipe(400)
        })),
        most(Box::new(|name, _| {
            (
                400,
                error(
                    &format!("Invalid {name} value, the valid range of {name} is [1, 8192]"),
                    None,
                    None,
                ),
            )
        })),
        most(Box::new(|name, own| {
            (
                400,
                error(
                    &format!(
                        "{name} is too large: {own}. This model supports at most 8192 completion tokens, whereas you provided {own}."
                    ),
                    Some(name),
                    Some("invalid_value"),
                ),
            )
        })),
        most(Box::new(|name, _| {
            (
                422,
                fastapi(
                    &json!(["body", name]),
                    "less_than_equal",
                    "Input should be less than or equal to 8192",
                ),
            )
        })),
    ];
    if own == "max_tokens" {
        for text in [
            error(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                Some("max_tokens"),
                Some("unsupported_parameter"),
            ),
            error("'max_tokens' is not supported with this model", None, None),
            fastapi(
                &json!(["body", "max_tokens"]),
                "extra_forbidden",
                "Extra inputs are not permitted",
            ),
        ] {
            cases.push(Case {
                name: format!("the name of the token limit {text}"),
                has: Box::new(|body| body.get("max_completion_tokens").is_none()),
                says: Box::new(move |_| (400, text.clone())),
                gone: Some(["max_tokens".to_owned()].into()),
            });
        }
    }
    cases
}

trait Pipe {
    fn pipe(self, status: u16) -> (u16, String);
}

impl Pipe for String {
    fn pipe(self, status: u16) -> (u16, String) {
        (status, self)
    }
}

fn effort_of(body: &Value) -> Option<&str> {
    let inner = body.get("reasoning").or(body.get("output_config"));
    body.get("reasoning_effort")
        .or_else(|| inner?.get("effort"))?
        .as_str()
}

fn efforts() -> Vec<Case> {
    let wordings = [
        error(
            "Unsupported value: 'xhigh' is not supported with this model. Supported values are: 'low', 'medium', and 'high'.",
            Some("reasoning_effort"),
            Some("unsupported_value"),
        ),
        error(
            "Unsupported value: 'reasoning.effort' does not support 'xhigh' with this model. Supported values are: 'low', 'medium', and 'high'.",
            Some("reasoning.effort"),
            Some("unsupported_value"),
        ),
        anthropic("output_config.effort: Input should be 'low', 'medium' or 'high'"),
        error(
            "`reasoning_effort` must be one of `none`, `default`, `high`",
            None,
            None,
        ),
    ];
    let case = |text: String| Case {
        name: format!("effort {text}"),
        has: Box::new(|body| effort_of(body).is_some_and(|own| own == "xhigh")),
        says: Box::new(move |_| (400, text.clone())),
        gone: Some(BTreeSet::new()),
    };
    wordings.into_iter().map(case).collect()
}

fn has_schema(body: &Value) -> bool {
    body.get("response_format").is_some()
        || body["text"].get("format").is_some()
        || body["output_config"].get("format").is_some()
}

fn schemas() -> Vec<Case> {
    let wordings = [
        (400, r#"[{"error":{"code":400,"message":"Function calling with a response mime type: 'application/json' is unsupported","status":"INVALID_ARGUMENT"}}]"#.to_owned()),
        (400, error("json mode cannot be combined with tool/function calling", None, None)),
        (400, error("This response_format type is unavailable now", None, None)),
        (400, error("Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.", Some("response_format"), None)),
        (400, error("bad", Some("text.format"), None)),
        (400, anthropic("output_config.format: Extra inputs are not permitted")),
    ];
    let case = |(status, text): (u16, String)| Case {
        name: format!("schema {text}"),
        has: Box::new(has_schema),
        says: Box::new(move |_| (status, text.clone())),
        gone: None,
    };
    wordings.into_iter().chain(bare()).map(case).collect()
}

fn owed() -> Vec<Case> {
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

fn cases(protocol: Protocol, body: &Value) -> Vec<Case> {
    let mut cases = members(body);
    cases.extend(tools());
    cases.extend(pictures());
    cases.extend(ids());
    cases.extend(efforts());
    cases.extend(schemas());
    let (own, _) = limit_of(body);
    cases.extend(limits(&own));
    match protocol {
        Protocol::Chat => {
            cases.extend(order());
            cases.extend(owed());
            for name in ["reasoning_content", "reasoning"] {
                if body.to_string().contains(&format!("\"{name}\":\"")) {
                    cases.extend(message_member(name));
                }
            }
        }
        Protocol::Messages => cases.extend(reasoning("c2lnbmF0dXJl")),
        Protocol::Responses => cases.extend(reasoning("gAAAencrypted")),
    }
    if has_empty(body) {
        cases.extend(empties());
    }
    cases
}

/// What one case does wrong; nothing if all is well.
async fn tried(server: &Server, model: &dyn Model, number: usize, case: Case) -> Option<String> {
    let mut request = rich_for(server.protocol, &format!("m{number}"));
    request.adaptive = case.name.starts_with("effort");
    let body = plain_body(model, &request);
    if !(case.has)(&body) {
        return Some("the part is not sent at all".to_owned());
    }
    let Case {
        has, says, gone, ..
    } = case;
    server.rule(Box::new(move |body| has(body).then(|| says(body))));
    let parts = match repaired(model, &request).await {
        Ok(parts) => parts,
        Err(error) => return Some(format!("first: {error}")),
    };
    if parts.is_empty() {
        return Some("nothing is told".to_owned());
    }
    match repaired(model, &later(&request)).await {
        Ok(parts) if parts.is_empty() => {}
        other => return Some(format!("second: {other:?}, after {parts:?}")),
    }
    let taken = server.taken.lock().expect("nobody panics");
    let kept: BTreeSet<String> = keys(&taken[0]).into_iter().collect();
    let lost: BTreeSet<String> = keys(&body)
        .into_iter()
        .filter(|name| !kept.contains(name))
        .collect();
    match gone {
        Some(gone) if !lost.is_subset(&gone) => Some(format!("lost {lost:?} by {parts:?}")),
        Some(_) | None => None,
    }
}

#[tokio::test]
async fn each_part_refused_in_each_vendors_words_is_refused_once() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for protocol in [Protocol::Chat, Protocol::Messages, Protocol::Responses] {
        let server = Server::new(protocol).await;
        let model = server.model(|_| {});
        let body = plain_body(&*model, &rich(protocol));
        let cases = cases(protocol, &body);
        server
            .during(async {
                for case in cases {
                    let name = format!("{protocol:?} {}", case.name);
                    count += 1;
                    if let Some(what) = tried(&server, &*model, count, case).await {
                        wrong.push(format!("{name}\n    {what}"));
                    }
                }
            })
            .await;
    }
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(count >= 500, "{count}");
}
