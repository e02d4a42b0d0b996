//! Chat completions. Each request has all that was said so far: it continues the session in which that was said, or a
//! new one that gets it.

mod body;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::send::{SendStatus, SendView, StopReason};
use mainspring_shared::usage::Usage;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::body::ChatBody;
use super::answer::{CompletionPath, Form, answer};
use super::given::join;
use super::listen::{Called, Heard, Kind, Listener, Over};
use super::stream::Writer;
use super::view::{self, Source, Stored};
use crate::access::Caller;
use crate::codes::{SendNotFound, Starts};
use crate::extract::{Json, NoQuery, Query};
use crate::gate::Admission;
use crate::problem::Problem;
use crate::respond;
use crate::router::Api;

/// The routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(show))
}

/// Answers like OpenAI's Chat Completions API, with a send
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    operation_id = "createOpenAiChatCompletion",
    request_body = ChatBody,
    responses((status = 200, body = Value), Starts)
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    Extension(admission): Extension<Admission>,
    json: Json<ChatBody>,
) -> Result<Response, Problem> {
    Box::pin(answer(&app, &caller, (Form::Completion, json), admission)).await
}

/// A chat completion that has ended
#[utoipa::path(
    get,
    path = "/v1/chat/completions/{id}",
    operation_id = "getOpenAiChatCompletion",
    responses((status = 200, body = Value), SendNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    CompletionPath(source): CompletionPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let stored = source.heard(&app).await?;
    respond::json(StatusCode::OK, &completion(&source, &stored)?)
}

/// A response as a chat completion.
pub(super) fn completion(source: &Source, stored: &Stored) -> Result<Value, Error> {
    let over = stored
        .over
        .as_ref()
        .ok_or_else(|| Error::new(Code::SessionBusy, "the completion has not ended yet"))?;
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for item in &stored.output {
        match item["type"].as_str().unwrap_or_default() {
            "message" => join(
                &mut text,
                item["content"][0]["text"].as_str().unwrap_or_default(),
            ),
            "reasoning" => join(
                &mut reasoning,
                item["summary"][0]["text"].as_str().unwrap_or_default(),
            ),
            _ => calls.push(json!({
                "id": item["call_id"], "type": "function",
                "function": { "name": item["name"], "arguments": item["arguments"] },
            })),
        }
    }
    let content = if text.is_empty() && !calls.is_empty() {
        Value::Null
    } else {
        json!(text)
    };
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    if !reasoning.is_empty() {
        message["reasoning_content"] = json!(reasoning);
    }
    Ok(json!({
        "id": source.id.completion(),
        "object": "chat.completion",
        "created": source.send.created_at.0 / 1_000,
        "model": view::model(&source.agent),
        "choices": [{
            "index": 0, "message": message, "finish_reason": finish(over, &calls)?, "logprobs": null,
        }],
        "usage": usage(&stored.usage),
    }))
}

/// Why a completion ended. What failed is an error.
fn finish(over: &Over, calls: &[Value]) -> Result<&'static str, Error> {
    match over {
        Over::Calls => Ok("tool_calls"),
        Over::Send(view) => match (view.status, view.stop_reason) {
            (SendStatus::Failed | SendStatus::Cancelled, _) => Err(failed(view)),
            (_, Some(StopReason::Length)) => Ok("length"),
            _ if !calls.is_empty() => Ok("tool_calls"),
            _ => Ok("stop"),
        },
    }
}

/// The error of a send that has no answer.
fn failed(view: &SendView) -> Error {
    match &view.error {
        Some(failure) => Error::new(failure.code, failure.message.clone()),
        None => Error::new(Code::SendNotCancellable, "the send was cancelled"),
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
        "prompt_tokens_details": { "cached_tokens": usage.cache_read_tokens },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
    })
}

/// The chunks of a completion.
#[derive(Debug)]
pub(super) struct Chunks {
    head: Value,
    include_usage: bool,
    /// Whether the role was told.
    begun: bool,
    /// The round whose text was told last.
    round: Option<i32>,
    calls: usize,
    /// Whether text was told that is void: there is no way to take it back.
    superseded: bool,
}

impl Chunks {
    pub(super) fn new(source: &Source, include_usage: bool) -> Self {
        Self {
            head: json!({
                "id": source.id.completion(),
                "object": "chat.completion.chunk",
                "created": source.send.created_at.0 / 1_000,
                "model": view::model(&source.agent),
            }),
            include_usage,
            begun: false,
            round: None,
            calls: 0,
            superseded: false,
        }
    }

    fn chunk(&self, choices: &Value, usage: Value) -> String {
        let mut chunk = self.head.clone();
        chunk["choices"] = choices.clone();
        if self.include_usage {
            chunk["usage"] = usage;
        }
        format!("data: {chunk}\n\n")
    }

    fn delta(&mut self, mut delta: Value, finish: Option<&str>) -> String {
        if !self.begun {
            self.begun = true;
            delta["role"] = json!("assistant");
        }
        let choice =
            json!([{ "index": 0, "delta": delta, "finish_reason": finish, "logprobs": null }]);
        self.chunk(&choice, Value::Null)
    }

    fn call(&mut self, call: &Called) -> String {
        let place = self.calls;
        self.calls += 1;
        let call = json!({
            "index": place, "id": call.id, "type": "function",
            "function": { "name": call.name, "arguments": call.arguments },
        });
        self.delta(json!({ "tool_calls": [call] }), None)
    }
}

fn error(code: &str, message: &str) -> String {
    let error = json!({ "error": { "message": message, "type": "server_error", "param": null, "code": code } });
    format!("data: {error}\n\n")
}

impl Writer for Chunks {
    fn write(&mut self, heard: &Heard) -> String {
        if self.superseded {
            return String::new();
        }
        match heard {
            Heard::Piece(piece) if piece.kind == Kind::Reasoning => {
                self.delta(json!({ "reasoning_content": piece.text }), None)
            }
            Heard::Piece(piece) => {
                let is_next = self.round.is_some_and(|round| round != piece.round);
                self.round = Some(piece.round);
                let gap = if is_next { "\n\n" } else { "" };
                self.delta(json!({ "content": format!("{gap}{}", piece.text) }), None)
            }
            Heard::Void if self.round.is_some() => {
                self.superseded = true;
                error(
                    "stream.superseded",
                    "the answer was begun again: repeat the request to get it",
                )
            }
            Heard::Said { calls, .. } => calls.iter().map(|call| self.call(call)).collect(),
            Heard::Void | Heard::Over(_) => String::new(),
        }
    }

    fn end(&mut self, _: &Source, listener: &Listener, over: &Over) -> String {
        if self.superseded {
            return String::new();
        }
        let calls = vec![Value::Null; self.calls];
        let mut text = match finish(over, &calls) {
            Ok(finish) => self.delta(json!({}), Some(finish)),
            Err(failed) => return error(failed.code().as_str(), failed.detail()),
        };
        if self.include_usage {
            text.push_str(&self.chunk(&json!([]), usage(&listener.usage)));
        }
        text.push_str("data: [DONE]\n\n");
        text
    }
}
