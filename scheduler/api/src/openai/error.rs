//! Errors in the form that OpenAI's clients read.

use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Value, json};

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A problem document is never longer.
const BYTES_MAX: usize = 1 << 20;

/// What the parts of an OpenAI API are called that this one does not have.
const UNSUPPORTED: [&str; 20] = [
    "assistants",
    "audio",
    "batches",
    "chatkit",
    "completions",
    "containers",
    "evals",
    "files",
    "fine_tuning",
    "images",
    "moderations",
    "organization",
    "realtime",
    "threads",
    "uploads",
    "vector_stores",
    "videos",
    "edits",
    "engines",
    "answers",
];

/// Whether a path belongs to this API, whose clients read no problem documents.
pub(crate) fn is_ours(path: &str) -> bool {
    let Some(path) = path.strip_prefix("/v1/") else {
        return false;
    };
    let first = path.split('/').next().unwrap_or_default();
    ["responses", "conversations", "chat", "models", "embeddings"].contains(&first)
        || UNSUPPORTED.contains(&first)
}

/// A response of this API: what is a problem document becomes an error in OpenAI's form.
pub(crate) async fn reshaped(path: &str, response: Response) -> Response {
    let is_problem = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind == "application/problem+json");
    if !is_problem {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let bytes = to_bytes(body, BYTES_MAX).await.unwrap_or_default();
    let problem: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let first = path
        .trim_start_matches("/v1/")
        .split('/')
        .next()
        .unwrap_or_default();
    let body = if problem["code"] == "request.not_found"
        && (UNSUPPORTED.contains(&first) || is_ours(path))
    {
        json!({ "error": {
            "message": format!("this server has no {path}"),
            "type": "invalid_request_error", "param": null, "code": "unsupported_endpoint",
        }})
    } else {
        error(path, head.status, &problem)
    };
    // There, what is wrong with a request is always a bad request, and clients have a type for just that.
    if head.status == StatusCode::UNPROCESSABLE_ENTITY {
        head.status = StatusCode::BAD_REQUEST;
    }
    // A client repeats what ended in some ways by itself, even if the same will happen again.
    let again = problem["retryable"] == true;
    head.headers.insert(
        SHOULD_RETRY,
        HeaderValue::from_static(if again { "true" } else { "false" }),
    );
    head.headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(head, Body::from(body.to_string()))
}

fn error(path: &str, status: StatusCode, problem: &Value) -> Value {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        429 | 402 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "server_error",
    };
    let first = &problem["errors"][0];
    let param = first["pointer"].as_str().and_then(param);
    // Chats have other names for some members.
    let param = param.map(|param| match param.as_str() {
        "input" | "instructions" if path.starts_with("/v1/chat/") => "messages".to_owned(),
        "text.format" if path.starts_with("/v1/chat/") => "response_format".to_owned(),
        "max_output_tokens" if path.starts_with("/v1/chat/") => "max_completion_tokens".to_owned(),
        _ => param,
    });
    let message = match (problem["errors"].as_array().map(Vec::len), &param) {
        (Some(1), Some(param)) => {
            format!("{param}: {}", first["detail"].as_str().unwrap_or_default())
        }
        _ => problem["detail"].as_str().unwrap_or_default().to_owned(),
    };
    let code = match problem["code"].as_str().unwrap_or_default() {
        "session.busy" => "conversation_locked",
        "agent.not_found" => "model_not_found",
        other => other,
    };
    json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
}

/// The member that a pointer leads to, as these clients write it: `input[3].type`.
fn param(pointer: &str) -> Option<String> {
    let pointer = pointer.strip_prefix('/')?;
    let own = [
        ("options/system_prompt", "instructions"),
        ("options/output_schema", "text.format"),
        ("options/max_tokens", "max_output_tokens"),
        ("options/agent", "model"),
        ("options/reasoning_effort", "reasoning.effort"),
        ("agent/system_prompt", "instructions"),
        ("agent/model", "model"),
    ];
    for (ours, theirs) in own {
        if pointer == ours || pointer.starts_with(&format!("{ours}/")) {
            return Some(theirs.to_owned());
        }
    }
    let pointer = pointer
        .strip_prefix("options/")
        .or(pointer.strip_prefix("agent/"))
        .unwrap_or(pointer);
    let mut param = String::new();
    for part in pointer.split('/') {
        if !param.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            param.extend(["[", part, "]"]);
        } else {
            if !param.is_empty() {
                param.push('.');
            }
            param.push_str(&part.replace("~1", "/").replace("~0", "~"));
        }
    }
    Some(param)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_becomes_a_parameter() {
        for (pointer, said) in [
            ("/input/3/type", Some("input[3].type")),
            ("/tools/0/function/name", Some("tools[0].function.name")),
            ("/options/max_tokens", Some("max_output_tokens")),
            ("/options/temperature", Some("temperature")),
            ("/options/output_schema/schema", Some("text.format")),
            ("/agent/model", Some("model")),
            ("?limit", None),
        ] {
            assert_eq!(param(pointer).as_deref(), said, "{pointer}");
        }
    }

    #[tokio::test]
    async fn only_a_problem_is_reshaped() {
        let answer = |kind: &'static str, body: Value| {
            let mut response = Response::new(Body::from(body.to_string()));
            *response.status_mut() = StatusCode::CONFLICT;
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            response
        };
        let read = async |response: Response| {
            let bytes = to_bytes(response.into_body(), BYTES_MAX)
                .await
                .expect("a body");
            serde_json::from_slice::<Value>(&bytes).expect("JSON")
        };
        let busy = json!({ "code": "session.busy", "detail": "is busy", "retryable": false });
        let same = reshaped("/v1/responses", answer("application/json", busy.clone())).await;
        assert_eq!(read(same).await, busy);
        let shaped = reshaped("/v1/responses", answer("application/problem+json", busy)).await;
        assert_eq!(shaped.headers()["x-should-retry"], "false");
        assert_eq!(
            read(shaped).await,
            json!({ "error": {
                "message": "is busy", "type": "invalid_request_error", "param": null, "code": "conversation_locked",
            }})
        );
    }
}
