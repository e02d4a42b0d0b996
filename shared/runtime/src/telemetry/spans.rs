//! The spans of a process. Callers pass what a span describes; the attribute names are kept in one
//! place.
//!
//! Without an exporter no span is enabled: the level filter of their target is off, so nothing is
//! formatted or allocated.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use mainspring_shared::error::Code;
use mainspring_shared::id::{RunKey, SendId, SessionKey};
use mainspring_shared::usage::Usage;
use opentelemetry::trace::{Status, TraceContextExt as _};
use opentelemetry::{Array, Context, StringValue, Value};
use serde_json::Value as Json;
use tracing::{Span, field, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{Propagation, context, genai, redact};

/// The target of all exported spans, and of nothing else.
pub(super) const TARGET: &str = "mainspring::span";

/// Whether claims and groups of statements have spans: they are numerous and say little about a
/// single send.
static DETAIL: AtomicBool = AtomicBool::new(false);

pub(super) fn set_detail(wanted: bool) {
    DETAIL.store(wanted, Ordering::Relaxed);
}

/// Makes a span only if details are wanted.
fn detailed(make: impl FnOnce() -> Span) -> Span {
    if DETAIL.load(Ordering::Relaxed) {
        make()
    } else {
        Span::none()
    }
}

/// Sets an attribute of an enabled span.
fn set(span: &Span, name: &'static str, value: impl Into<Value>) {
    span.set_attribute(name, value);
}

fn set_shown(span: &Span, name: &'static str, value: &dyn Display) {
    set(span, name, value.to_string());
}

fn set_count(span: &Span, name: &'static str, count: u64) {
    set(span, name, i64::try_from(count).unwrap_or(i64::MAX));
}

/// Sets the operation and its session.
fn set_operation(span: &Span, operation: &'static str, session: SessionKey) {
    set(span, genai::OPERATION, operation);
    set_shown(span, genai::CONVERSATION_ID, &session.session);
}

fn set_send(span: &Span, session: SessionKey, send: SendId) {
    set_shown(span, genai::CONVERSATION_ID, &session.session);
    set_shown(span, genai::TENANT, &session.tenant);
    set_shown(span, genai::SEND_ID, &send);
}

fn set_run(span: &Span, run: RunKey) {
    set_shown(span, genai::RUN_ID, &run.run);
    set_shown(span, genai::TENANT, &run.tenant);
}

/// Marks a span as failed with this code.
pub fn failed(span: &Span, code: Code) {
    if !span.is_disabled() {
        let code = code.as_str();
        set(span, genai::ERROR_TYPE, code);
        span.set_status(Status::error(code));
    }
}

/// Records content on a span, redacted and bounded. To be called only if content was asked for.
pub fn content(span: &Span, of: Content, value: Json) {
    if !span.is_disabled() {
        set(span, of.name(), redact::redacted_json(value));
    }
}

/// Attributes of a span that may hold words of people and models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The system instructions of a model call.
    System,
    /// The messages sent to the model.
    Input,
    /// The model's response.
    Output,
    /// The arguments of a tool call.
    Arguments,
    /// The result of a tool call.
    Result,
}

impl Content {
    const fn name(self) -> &'static str {
        match self {
            Self::System => genai::SYSTEM_INSTRUCTIONS,
            Self::Input => genai::INPUT_MESSAGES,
            Self::Output => genai::OUTPUT_MESSAGES,
            Self::Arguments => genai::TOOL_ARGUMENTS,
            Self::Result => genai::TOOL_RESULT,
        }
    }
}

/// Makes a span a child of the one in this header, or links it to that. Without a valid header it
/// stays as it is.
fn joined(span: Span, origin: Option<&str>, propagation: Propagation) -> Span {
    if let Some(origin) = origin.and_then(context::parse) {
        match propagation {
            Propagation::Link => span.add_link(origin),
            Propagation::Parent => {
                // Fails only if the span was entered before.
                let _ = span.set_parent(Context::new().with_remote_span_context(origin));
            }
        }
    }
    span
}

/// The span of a request that is being served; the child of the caller's span, if the request names
/// one.
pub fn request(method: &str, route: &str, id: &str, caller: Option<&str>) -> Span {
    let span = info_span!(
        target: TARGET,
        parent: None,
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server"
    );
    if span.is_disabled() {
        return span;
    }
    set(&span, genai::HTTP_METHOD, method.to_owned());
    set(&span, genai::HTTP_ROUTE, route.to_owned());
    set(&span, genai::REQUEST_ID, id.to_owned());
    joined(span, caller, Propagation::Parent)
}

/// Records the status of a response, and its code if it is an error.
pub fn responded(span: &Span, status: u16, code: Option<Code>) {
    if span.is_disabled() {
        return;
    }
    set(span, genai::HTTP_STATUS, i64::from(status));
    // The client's errors are not failures of the server.
    if status >= 500 {
        failed(span, code.unwrap_or(Code::Internal));
    }
}

/// The span of sends that are accepted together.
pub fn accept(first: SessionKey, send: SendId, sends: usize) -> Span {
    let span = info_span!(target: TARGET, "accept", otel.kind = "producer");
    if span.is_disabled() {
        return span;
    }
    if sends == 1 {
        set_send(&span, first, send);
    } else {
        set_shown(&span, genai::TENANT, &first.tenant);
        set_count(&span, genai::SENDS, sends as u64);
    }
    span
}

/// A send that a worker runs under a claim.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'a> {
    /// Its session.
    pub session: SessionKey,
    /// The send.
    pub send: SendId,
    /// The published agent and its version, if it has one.
    pub agent: Option<(&'a str, i32)>,
    /// The number of the claim.
    pub epoch: i64,
    /// Model calls begun so far in its current round.
    pub attempt: i32,
    /// Number of its stored rounds.
    pub rounds: i32,
    /// The worker's label.
    pub worker: &'a str,
    /// Its pool.
    pub pool: &'a str,
    /// The `traceparent` of the span that accepted it.
    pub origin: Option<&'a str>,
}

/// The span of a worker's work on a send: a root linked to the span that accepted the send, or that
/// span's child.
pub fn invoke_agent(invocation: &Invocation<'_>, propagation: Propagation) -> Span {
    let span = info_span!(
        target: TARGET,
        parent: None,
        "invoke_agent",
        otel.name = field::Empty,
        otel.kind = "internal"
    );
    if span.is_disabled() {
        return span;
    }
    set(&span, genai::OPERATION, genai::INVOKE_AGENT);
    set_send(&span, invocation.session, invocation.send);
    if let Some((name, version)) = invocation.agent {
        let title = format!("{} {name}", genai::INVOKE_AGENT);
        span.record("otel.name", title.as_str());
        set(&span, genai::AGENT_NAME, name.to_owned());
        set_shown(&span, genai::AGENT_VERSION, &version);
    }
    set(&span, genai::EPOCH, invocation.epoch);
    set(&span, genai::ATTEMPT, i64::from(invocation.attempt));
    set(&span, genai::ROUNDS, i64::from(invocation.rounds));
    set(&span, genai::WORKER, invocation.worker.to_owned());
    set(&span, genai::POOL, invocation.pool.to_owned());
    joined(span, invocation.origin, propagation)
}

/// Records on the active span how its send ended.
pub fn ended(status: &'static str, reason: &'static str, code: Option<Code>) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    set(&span, genai::STATUS, status);
    set(&span, genai::STOP_REASON, reason);
    if let Some(code) = code {
        failed(&span, code);
    }
}

/// The span of one round of a send: its model call, with all attempts, and the tool calls of the
/// answer.
pub fn round(session: SessionKey, round: i32) -> Span {
    let span = info_span!(target: TARGET, "round", otel.kind = "internal");
    if !span.is_disabled() {
        set_shown(&span, genai::CONVERSATION_ID, &session.session);
        set(&span, genai::ROUND, i64::from(round));
    }
    span
}

/// The span of a model call.
pub fn chat(session: SessionKey, provider: &str, model: &str, max_tokens: u32) -> Span {
    let span = info_span!(
        target: TARGET,
        "chat",
        otel.name = format!("{} {model}", genai::CHAT),
        otel.kind = "client"
    );
    if span.is_disabled() {
        return span;
    }
    set_operation(&span, genai::CHAT, session);
    set(&span, genai::PROVIDER_NAME, provider.to_owned());
    set(&span, genai::REQUEST_MODEL, model.to_owned());
    set(&span, genai::REQUEST_MAX_TOKENS, i64::from(max_tokens));
    span
}

/// Records a model's response and its usage.
pub fn answered(span: &Span, model: &str, finish: &str, usage: &Usage) {
    if span.is_disabled() {
        return;
    }
    set(span, genai::RESPONSE_MODEL, model.to_owned());
    let reasons = vec![StringValue::from(finish.to_owned())];
    set(
        span,
        genai::FINISH_REASONS,
        Value::Array(Array::String(reasons)),
    );
    set_count(span, genai::INPUT_TOKENS, usage.input_tokens);
    set_count(span, genai::OUTPUT_TOKENS, usage.output_tokens);
    set_count(span, genai::CACHE_READ_TOKENS, usage.cache_read_tokens);
    set_count(span, genai::CACHE_WRITE_TOKENS, usage.cache_write_tokens);
}

/// The span of a tool call.
pub fn execute_tool(session: SessionKey, name: &str, call_id: &str, attempt: i32) -> Span {
    let span = info_span!(
        target: TARGET,
        "execute_tool",
        otel.name = format!("{} {name}", genai::EXECUTE_TOOL),
        otel.kind = "internal"
    );
    if span.is_disabled() {
        return span;
    }
    set_operation(&span, genai::EXECUTE_TOOL, session);
    set(&span, genai::TOOL_NAME, name.to_owned());
    set(&span, genai::TOOL_CALL_ID, call_id.to_owned());
    set(&span, genai::ATTEMPT, i64::from(attempt));
    span
}

/// The span of a call to a tool of an MCP server, under the tool's name on that server.
pub fn call_mcp(name: &str, call_id: &str) -> Span {
    let span = info_span!(
        target: TARGET,
        "tools/call",
        otel.name = format!("{} {name}", genai::TOOLS_CALL),
        otel.kind = "client"
    );
    if span.is_disabled() {
        return span;
    }
    set(&span, genai::OPERATION, genai::EXECUTE_TOOL);
    set(&span, genai::MCP_METHOD, genai::TOOLS_CALL);
    set(&span, genai::TOOL_NAME, name.to_owned());
    set(&span, genai::TOOL_CALL_ID, call_id.to_owned());
    span
}

/// The span of a claim. A detail.
pub fn claim(session: SessionKey) -> Span {
    detailed(|| {
        let span = info_span!(target: TARGET, parent: None, "claim", otel.kind = "consumer");
        if !span.is_disabled() {
            set_shown(&span, genai::CONVERSATION_ID, &session.session);
            set_shown(&span, genai::TENANT, &session.tenant);
        }
        span
    })
}

/// Records the outcome of a claim.
pub fn claimed(span: &Span, outcome: &'static str) {
    if !span.is_disabled() {
        set(span, genai::STATUS, outcome);
    }
}

/// The span of a transaction that several sends share. A detail.
pub fn statements(operation: &'static str, items: usize) -> Span {
    detailed(|| {
        let span = info_span!(
            target: TARGET,
            "statements",
            otel.name = operation,
            otel.kind = "client"
        );
        if !span.is_disabled() {
            set(&span, genai::DB_OPERATION, operation);
            set_count(&span, genai::DB_BATCH, items as u64);
        }
        span
    })
}

/// The span of folding a part of a transcript.
pub fn fold(session: SessionKey, strategy: &'static str, messages: usize, tokens: u64) -> Span {
    let span = info_span!(target: TARGET, "fold", otel.kind = "internal");
    if span.is_disabled() {
        return span;
    }
    set_shown(&span, genai::CONVERSATION_ID, &session.session);
    set(&span, genai::FOLD_STRATEGY, strategy);
    set_count(&span, genai::FOLD_MESSAGES, messages as u64);
    set_count(&span, genai::FOLD_TOKENS, tokens);
    span
}

/// The span of extracting memories from a send that has ended: joined to the work on the send, or
/// to what accepted it.
pub fn extract(
    session: SessionKey,
    send: SendId,
    attempt: u32,
    origin: Option<&str>,
    propagation: Propagation,
) -> Span {
    let span = info_span!(target: TARGET, parent: None, "extract", otel.kind = "internal");
    if span.is_disabled() {
        return span;
    }
    set_send(&span, session, send);
    set(&span, genai::ATTEMPT, i64::from(attempt));
    joined(span, origin, propagation)
}

/// The span of an advance of a run: a root linked to the span that created the run, or that span's
/// child.
pub fn invoke_workflow(
    run: RunKey,
    name: &str,
    step: i64,
    origin: Option<&str>,
    propagation: Propagation,
) -> Span {
    let span = info_span!(
        target: TARGET,
        parent: None,
        "invoke_workflow",
        otel.name = format!("{} {name}", genai::INVOKE_WORKFLOW),
        otel.kind = "internal"
    );
    if span.is_disabled() {
        return span;
    }
    set(&span, genai::OPERATION, genai::INVOKE_WORKFLOW);
    set(&span, genai::WORKFLOW_NAME, name.to_owned());
    set_run(&span, run);
    set(&span, genai::RUN_STEP, step);
    joined(span, origin, propagation)
}

/// Records the result of an advance: the number of ended leaves it processed and of leaves it
/// started, and the run's status.
pub fn advanced(span: &Span, ends: usize, starts: usize, status: &'static str) {
    if !span.is_disabled() {
        set_count(span, genai::RUN_ENDS, ends as u64);
        set_count(span, genai::RUN_STARTS, starts as u64);
        set(span, genai::STATUS, status);
    }
}

/// The span of a committed firing of a timer that creates a send. It has no duration of its own:
/// timers fire together in one transaction.
pub fn fire_timer(session: SessionKey, send: SendId, late_ms: u64) -> Span {
    fired(late_ms, |span| set_send(span, session, send))
}

/// The span of a committed firing of a timer that starts a run.
pub fn fire_run_timer(run: RunKey, late_ms: u64) -> Span {
    fired(late_ms, |span| set_run(span, run))
}

fn fired(late_ms: u64, name: impl FnOnce(&Span)) -> Span {
    let span = info_span!(target: TARGET, parent: None, "fire_timer", otel.kind = "producer");
    if !span.is_disabled() {
        name(&span);
        set_count(&span, genai::TIMER_LATE_MS, late_ms);
    }
    span
}

#[cfg(test)]
mod tests;
