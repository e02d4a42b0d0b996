//! Turning a request into the bytes of its answer and the pauses between them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::ledger::{Entry, Open};
use super::prompt::{Prompt, Protocol, words};
use super::script::Script;
use super::{Shared, anthropic, openai, responses, steps};

/// Bytes that are valid in no protocol.
const GARBAGE: &[u8] = b"\x00\x9f\x92\x96data? {\"choices\": [oops]}\r\rnot json\n";

/// The content of the model's answer.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) model: String,
    /// Used in IDs; the same for equal requests.
    pub(super) mark: String,
    pub(super) reasoning: Option<String>,
    pub(super) text: String,
    pub(super) tools: Vec<(String, Value)>,
    pub(super) length: bool,
    pub(super) refuse: bool,
    /// Words read and written; `None` to report no usage.
    pub(super) usage: Option<(usize, usize)>,
}

/// Answers one request.
pub(super) async fn answer(
    shared: &Shared,
    protocol: Protocol,
    headers: &HeaderMap,
    body: Bytes,
) -> Response {
    let read = Prompt::read(&body).map_err(|error| error.to_string());
    let (prompt, script) = match read.and_then(|prompt| {
        let script = script(shared, &prompt)?;
        Ok((prompt, script))
    }) {
        Ok(read) => read,
        Err(words) => return refusal(protocol, 400, "invalid_request_error", &words, None),
    };
    let hash = format!("{:x}", Sha256::digest(&body));
    let (mut open, attempt) = enter(shared, protocol, &prompt, &script, &hash, &body);
    drop(body);
    if !shared.knows(headers) {
        open.answers("unknown key", 401);
        open.sent();
        return refusal(
            protocol,
            401,
            "authentication_error",
            "this key is not known",
            None,
        );
    }
    if let Some(failure) =
        inject_failure(shared, protocol, &prompt, &script, attempt, &mut open).await
    {
        return failure;
    }
    let said = said(&prompt, &script, &hash);
    open.bills(said.usage);
    open.answers(
        if said.tools.is_empty() {
            "reply"
        } else {
            "tool_calls"
        },
        200,
    );
    let clock = Arc::clone(&shared.clock);
    if prompt.stream {
        let steps = steps::steps(protocol, &prompt, &script, &said, attempt, &open);
        steps::stream_of("text/event-stream", steps, open, clock)
    } else {
        let whole = match protocol {
            Protocol::OpenAi => openai::whole(&said),
            Protocol::Responses => responses::whole(&said),
            Protocol::Anthropic => anthropic::whole(&said),
        };
        steps::whole_of(&whole.to_string(), &script, attempt, open, clock)
    }
}

fn enter(
    shared: &Shared,
    protocol: Protocol,
    prompt: &Prompt,
    script: &Script,
    hash: &str,
    body: &Bytes,
) -> (Open, u32) {
    let fill = |n, attempt| Entry {
        n,
        at: shared.ledger.now(),
        protocol,
        stream: prompt.stream,
        model: prompt.model.clone(),
        session: script.session.clone(),
        send: script.send.clone(),
        text: String::new(),
        round: prompt.round,
        attempt,
        messages: prompt.messages,
        body_sha256: hash.to_owned(),
        body: shared
            .ledger
            .keeps_bodies()
            .then(|| String::from_utf8_lossy(body).into_owned()),
        answer: String::new(),
        billed: None,
        status: 0,
        ended_at: None,
        end: None,
    };
    shared
        .ledger
        .enter(script.session.as_deref(), &prompt.text, prompt.round, fill)
}

/// Delays or fails the request before it is answered, as the script says.
async fn inject_failure(
    shared: &Shared,
    protocol: Protocol,
    prompt: &Prompt,
    script: &Script,
    attempt: u32,
    open: &mut Open,
) -> Option<Response> {
    if let Some(wait) = script.delay {
        shared.clock.sleep(wait).await;
    }
    if let Some(wait) = script.hang.as_ref().and_then(|hang| hang.at(attempt)) {
        open.answers("hang", 0);
        shared.clock.sleep(*wait).await;
    }
    if let Some(fail) = script.fail.as_ref().and_then(|fail| fail.at(attempt)) {
        open.answers("fail", fail.status);
        open.sent();
        return Some(refusal(
            protocol,
            fail.status,
            "as_asked",
            "as asked",
            fail.retry_after,
        ));
    }
    script.garbage.as_ref()?.at(attempt)?;
    open.answers("garbage", 200);
    open.sent();
    let kind = if prompt.stream {
        "text/event-stream"
    } else {
        "application/json"
    };
    Some(([(header::CONTENT_TYPE, kind)], GARBAGE).into_response())
}

fn script(shared: &Shared, prompt: &Prompt) -> Result<Script, String> {
    let own: Script = prompt.text.parse().map_err(|error| format!("{error}"))?;
    let mut script = own.over(shared.script());
    if script.session.is_none() {
        // Other directives are ignored in a system prompt, where brackets may mean anything.
        let mark = prompt
            .system
            .split_once("[[session ")
            .and_then(|(_, rest)| rest.split_once("]]"));
        script.session = mark.map(|(mark, _)| mark.trim().to_owned());
    }
    Ok(script)
}

fn said(prompt: &Prompt, script: &Script, hash: &str) -> Said {
    let calls = prompt.round < script.rounds.unwrap_or(1);
    let tools = if calls {
        script.tools.clone()
    } else {
        Vec::new()
    };
    let text = match &script.say {
        Some(text) => text.clone(),
        None if !tools.is_empty() => String::new(),
        None if prompt.results.is_empty() => format!("echo: {}", prompt.text),
        None => format!("results: {}", prompt.results.join("; ")),
    };
    let most = prompt.tokens_max.filter(|_| script.bounded);
    let is_cut = most.is_some_and(|most| words(&text) > most);
    let text = match most {
        Some(most) if is_cut => {
            let kept: Vec<&str> = text.split_whitespace().take(most).collect();
            kept.join(" ")
        }
        Some(_) | None => text,
    };
    let called: usize = tools
        .iter()
        .map(|(_, arguments)| 1 + words(&arguments.to_string()))
        .sum();
    let written = words(&text) + called + script.reason.as_deref().map_or(0, words);
    Said {
        model: prompt.model.clone(),
        mark: hash[..12].to_owned(),
        reasoning: script.reason.clone(),
        text,
        tools,
        length: script.length || is_cut,
        refuse: script.refuse,
        usage: (!script.nousage).then_some((prompt.words, written)),
    }
}

fn refusal(
    protocol: Protocol,
    status: u16,
    kind: &str,
    message: &str,
    retry_after: Option<Duration>,
) -> Response {
    let error = json!({"type": kind, "message": message});
    let body = match protocol {
        Protocol::OpenAi | Protocol::Responses => json!({"error": error}),
        Protocol::Anthropic => json!({"type": "error", "error": error}),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, axum::Json(body)).into_response();
    if let Some(wait) = retry_after {
        // `retry-after` takes only whole seconds; `retry-after-ms` is exact.
        let seconds = wait.as_millis().div_ceil(1_000);
        let pairs = [
            ("retry-after", seconds),
            ("retry-after-ms", wait.as_millis()),
        ];
        for (name, value) in pairs {
            if let Ok(value) = value.to_string().parse() {
                response
                    .headers_mut()
                    .insert(HeaderName::from_static(name), value);
            }
        }
    }
    response
}
