//! Members of requests, their values, and the schema of the answer.

use super::*;

/// The same with the name and the value of the token limit.
type SaysLimit = Box<dyn Fn(&str, u64) -> (u16, String) + Send + Sync>;

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

pub(super) fn members(body: &Value) -> Vec<Case> {
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

pub(super) fn limit_of(body: &Value) -> (String, u64) {
    let found = LIMITS
        .iter()
        .find_map(|name| Some(((*name).to_owned(), body[*name].as_u64()?)));
    found.expect("a limit")
}

pub(super) fn limits(own: &str) -> Vec<Case> {
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

pub(super) fn efforts() -> Vec<Case> {
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

pub(super) fn schemas() -> Vec<Case> {
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
