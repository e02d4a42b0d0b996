//! Every external service that is given a secret: models, tools, policies, collectors, an identity
//! provider, a bucket, a proxy. All of them record what they receive, and most of them refuse it
//! and quote it in their answers.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use mainspring_tests::fake_model::listen;
use mainspring_tests::faults::pause;
use serde_json::{Value, json};

/// Longer than any caller waits.
const SILENCE: Duration = Duration::from_mins(10);

/// All services, on one port: the first segment of a path selects one.
#[derive(Debug)]
pub(super) struct Outside {
    /// The base URL of all of them.
    pub(super) base: String,
}

#[derive(Debug)]
struct Told {
    folder: PathBuf,
    base: String,
    /// The identity provider's public keys.
    keys: Value,
}

impl Outside {
    /// Serves until the test's runtime ends. What each service receives is written to a file below
    /// `folder`.
    pub(super) fn start(folder: &Path, keys: Value) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let listener = listen(([127, 0, 0, 1], 0).into())?;
        let base = format!("http://{}", listener.local_addr()?);
        let told = Arc::new(Told {
            folder: folder.to_owned(),
            base: base.clone(),
            keys,
        });
        let router = Router::new()
            .fallback(answer)
            .layer(DefaultBodyLimit::disable())
            .with_state(told);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { base })
    }

    /// The host and the port alone.
    pub(super) fn authority(&self) -> &str {
        self.base.trim_start_matches("http://")
    }
}

/// The parts of a request that may be a secret, for services that quote it.
fn quoted(uri: &Uri, headers: &HeaderMap) -> String {
    let mut text = uri.query().unwrap_or_default().to_owned();
    for (name, value) in headers {
        let name = name.as_str();
        let is_secret = name.contains("auth") || name.starts_with("x-");
        if let (true, Ok(value)) = (is_secret, value.to_str()) {
            // Writing to a string cannot fail.
            let _ = write!(text, " {name}: {value}");
        }
    }
    text
}

async fn answer(State(told): State<Arc<Told>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await;
    let body = body.unwrap_or_default();
    let (uri, headers) = (&parts.uri, &parts.headers);
    let role = match uri.authority() {
        // Only a proxy gets requests for other hosts.
        Some(_) => "proxy",
        None => uri.path().split('/').nth(1).unwrap_or_default(),
    };
    let head = format!("{} {uri} {headers:?}\n", parts.method);
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(told.folder.join(role));
    let mut file = file.expect("the folder is there");
    let written = file.write_all(&[head.as_bytes(), &body, b"\n"].concat());
    written.expect("there is room");
    let quoted = quoted(uri, headers);
    let refused = |status: StatusCode| {
        let message = format!("not with {quoted}");
        let body = json!({ "error": { "message": message, "type": "authentication_error" } });
        (status, axum::Json(body)).into_response()
    };
    match role {
        "llm" => model(&body, &quoted),
        "slow" => {
            pause(SILENCE).await;
            StatusCode::NO_CONTENT.into_response()
        }
        "tool" => axum::Json(json!({ "said": "done" })).into_response(),
        "otlp" | "hook" => StatusCode::OK.into_response(),
        "policy" => policy(&body, refused(StatusCode::UNAUTHORIZED)),
        "memory" => axum::Json(json!({ "entries": [] })).into_response(),
        "oidc" => identity(uri.path(), &told),
        "mcp" => mcp(&body, &quoted),
        "bucket" => {
            let body = format!("<Error><Code>InvalidAccessKeyId</Code><Key>{quoted}</Key></Error>");
            (
                StatusCode::FORBIDDEN,
                [(CONTENT_TYPE, "application/xml")],
                body,
            )
                .into_response()
        }
        "proxy" => refused(StatusCode::PROXY_AUTHENTICATION_REQUIRED),
        "failing" => refused(StatusCode::INTERNAL_SERVER_ERROR),
        _ => refused(StatusCode::UNAUTHORIZED),
    }
}

/// A policy that refuses to decide on requests that ask for it.
fn policy(body: &[u8], refused: Response) -> Response {
    if String::from_utf8_lossy(body).contains("no policy") {
        refused
    } else {
        axum::Json(json!({ "action": "allow" })).into_response()
    }
}

fn identity(path: &str, told: &Told) -> Response {
    let issuer = format!("{}/oidc", told.base);
    let body = if path.ends_with("/keys") {
        told.keys.clone()
    } else {
        json!({ "issuer": issuer, "jwks_uri": format!("{issuer}/keys") })
    };
    axum::Json(body).into_response()
}

/// An MCP server with a tool that fails with a message of its own.
fn mcp(body: &[u8], quoted: &str) -> Response {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let result = match asked["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "quoting", "version": "1" },
        }),
        Some("tools/list") => json!({ "tools": [{
            "name": "quote", "description": "Quotes.", "inputSchema": { "type": "object" },
        }] }),
        Some("tools/call") => {
            let error = json!({ "code": -32_000, "message": format!("not with {quoted}") });
            let body = json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error });
            return axum::Json(body).into_response();
        }
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let body = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result });
    axum::Json(body).into_response()
}

/// A model that follows the last message: `!call TOOL ARGUMENTS`, or `!fail HOW`, or else echoes
/// it.
fn model(body: &Bytes, quoted: &str) -> Response {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let messages = asked["messages"].as_array().cloned().unwrap_or_default();
    let is_user = |message: &&Value| message["role"] == "user";
    let said = messages.iter().rfind(is_user).map(words);
    let said = said.unwrap_or_default();
    let has_result = messages.iter().any(|message| message["role"] == "tool");
    let message = format!("Incorrect API key provided: {quoted}");
    let error = json!({ "error": { "message": message, "code": "invalid_api_key" } });
    let order = said.lines().next().unwrap_or_default();
    if let Some(how) = order.strip_prefix("!fail ") {
        return match how {
            "inside" => stream(&error),
            "text" => (StatusCode::BAD_GATEWAY, message).into_response(),
            "garbage" => (StatusCode::OK, message).into_response(),
            status => {
                let status = status.parse().unwrap_or(500);
                let status = StatusCode::from_u16(status).unwrap_or_default();
                (status, axum::Json(error)).into_response()
            }
        };
    }
    let call = order.strip_prefix("!call ").filter(|_| !has_result);
    let delta = match call.and_then(|call| call.split_once(' ')) {
        Some((name, arguments)) => json!({ "tool_calls": [{
            "index": 0, "id": "call-1", "type": "function",
            "function": { "name": name, "arguments": arguments },
        }] }),
        None => json!({ "role": "assistant", "content": said }),
    };
    let finish = if call.is_some() { "tool_calls" } else { "stop" };
    stream(&json!({
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
    }))
}

/// The text of a message.
fn words(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        parts => parts[0]["text"].as_str().unwrap_or_default().to_owned(),
    }
}

fn stream(chunk: &Value) -> Response {
    let body = format!("data: {chunk}\n\ndata: [DONE]\n\n");
    ([(CONTENT_TYPE, "text/event-stream")], body).into_response()
}
