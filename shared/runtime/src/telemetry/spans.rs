//! The spans of a process. Whoever makes one says what it is about; the names are in one place.
//!
//! Without an exporter none of them is enabled: the level filter of their target is off, nothing of them is
//! formatted and nothing is allocated.

use std::fmt::Display;

use mainspring_shared::error::Code;
use mainspring_shared::id::{RunKey, SendId, SessionKey};
use mainspring_shared::usage::Usage;
use opentelemetry::trace::{Status, TraceContextExt as _};
use opentelemetry::{Array, Context, StringValue, Value};
use serde_json::Value as Json;
use tracing::{Span, field, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{Propagation, context, genai, redact};

/// The target of all spans that are exported, and of nothing else.
pub(super) const TARGET: &str = "mainspring::span";

/// Sets an attribute of a span that is enabled.
fn set(span: &Span, name: &'static str, value: impl Into<Value>) {
    span.set_attribute(name, value);
}

fn set_shown(span: &Span, name: &'static str, value: &dyn Display) {
    set(span, name, value.to_string());
}

fn set_count(span: &Span, name: &'static str, count: u64) {
    set(span, name, i64::try_from(count).unwrap_or(i64::MAX));
}

/// What is done, and in which session.
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

/// Notes that what a span is about went wrong, by its code.
pub fn failed(span: &Span, code: Code) {
    if !span.is_disabled() {
        let code = code.as_str();
        set(span, genai::ERROR_TYPE, code);
        span.set_status(Status::error(code));
    }
}

/// Tells content, redacted and bounded. Only for whoever was asked to.
pub fn content(span: &Span, of: Content, value: Json) {
    if !span.is_disabled() {
        set(span, of.name(), redact::told(value));
    }
}

/// What of a span may hold words of people and models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// What the model is told before all messages.
    System,
    /// What it is asked.
    Input,
    /// What it answers.
    Output,
    /// What a tool is given.
    Arguments,
    /// What it gives.
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

/// A span that is linked to the one in this header, or is its child. One that is told nothing is a root.
fn joined(span: Span, origin: Option<&str>, propagation: Propagation) -> Span {
    if let Some(origin) = origin.and_then(context::parse) {
        match propagation {
            Propagation::Link => span.add_link(origin),
            Propagation::Parent => {
                // Only fails where the span was entered before.
                let _ = span.set_parent(Context::new().with_remote_span_context(origin));
            }
        }
    }
    span
}

/// A request that is served; the child of the caller's span, if it names one.
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

/// The status of a request's answer, and its code where it is an error.
pub fn responded(span: &Span, status: u16, code: Option<Code>) {
    if span.is_disabled() {
        return;
    }
    set(span, genai::HTTP_STATUS, i64::from(status));
    // What is the caller's fault is no fault of the server's.
    if status >= 500 {
        failed(span, code.unwrap_or(Code::Internal));
    }
}

/// Sends that are accepted together.
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

/// A send under a claim.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'a> {
    /// Its session.
    pub session: SessionKey,
    /// It.
    pub send: SendId,
    /// The published agent and its version, if it has one.
    pub agent: Option<(&'a str, i32)>,
    /// The number of the claim.
    pub epoch: i64,
    /// Model calls that were begun in its present round.
    pub attempt: i32,
    /// Rounds that are stored.
    pub rounds: i32,
    /// The worker's label.
    pub worker: &'a str,
    /// Its pool.
    pub pool: &'a str,
    /// The span that accepted it.
    pub origin: Option<&'a str>,
}

/// A send is worked on by whoever claimed its session: a root, or the child of what accepted it.
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

/// Notes on the active span how the send ended that it is about.
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

/// A model is asked.
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

/// What a model answered, and what that took.
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

/// A tool is called.
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

/// A part of a transcript is folded.
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

/// What is worth remembering of a send that has ended is extracted: below the work on it, or what accepted it.
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

/// A run is advanced: a root, linked to what created the run, or its child.
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

/// What an advance does: leaves whose ends it takes in, leaves that it starts, and where the run stands then.
pub fn advanced(span: &Span, ends: usize, starts: usize, status: &'static str) {
    if !span.is_disabled() {
        set_count(span, genai::RUN_ENDS, ends as u64);
        set_count(span, genai::RUN_STARTS, starts as u64);
        set(span, genai::STATUS, status);
    }
}

/// A timer's firing that was committed. What it took is the transaction's, with those of other timers.
pub fn fire_timer(session: SessionKey, send: SendId, late_ms: u64) -> Span {
    fired(late_ms, |span| set_send(span, session, send))
}

/// The same of a timer that starts a run.
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
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use mainspring_shared::id::{SessionId, TenantId};
    use opentelemetry::trace::SpanId;
    use opentelemetry_sdk::error::OTelSdkResult;
    use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
    use tracing_subscriber::layer::SubscriberExt as _;
    use uuid::Uuid;

    use super::super::{traceparent, traces};
    use super::*;

    const ORIGIN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[derive(Debug, Clone, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Kept {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(batch);
            Ok(())
        }
    }

    impl Kept {
        fn named(&self, name: &str) -> SpanData {
            let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = kept.iter().find(|span| span.name == name);
            found
                .unwrap_or_else(|| panic!("{name} in {kept:?}"))
                .clone()
        }
    }

    fn session() -> SessionKey {
        SessionKey {
            tenant: TenantId(1),
            session: SessionId(Uuid::from_u128(2)),
        }
    }

    fn invocation() -> Invocation<'static> {
        Invocation {
            session: session(),
            send: SendId(Uuid::from_u128(3)),
            agent: Some(("writer", 4)),
            epoch: 5,
            attempt: 1,
            rounds: 0,
            worker: "w",
            pool: "default",
            origin: Some(ORIGIN),
        }
    }

    /// What is exported of what this does.
    fn exported(work: impl FnOnce()) -> Kept {
        let kept = Kept::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(kept.clone())
            .build();
        let layers = vec![traces(&provider)];
        let subscriber = tracing_subscriber::registry().with(layers);
        tracing::subscriber::with_default(subscriber, work);
        kept
    }

    fn attribute(span: &SpanData, name: &str) -> Option<String> {
        let mut all = span.attributes.iter();
        let found = all.find(|attribute| attribute.key.as_str() == name)?;
        Some(found.value.to_string())
    }

    #[test]
    fn a_send_is_a_root_with_a_link_and_what_it_asks_for_is_below_it() {
        let kept = exported(|| {
            let send = invoke_agent(&invocation(), Propagation::Link);
            send.in_scope(|| {
                let chat = chat(session(), "main", "m-1", 100);
                let usage = Usage {
                    input_tokens: 7,
                    cache_read_tokens: 3,
                    ..Usage::default()
                };
                answered(&chat, "m-1-0", "stop", &usage);
                let tool = execute_tool(session(), "add", "call_1", 1);
                let outward = tool.in_scope(traceparent).expect("a span");
                assert!(outward.ends_with("-01") && outward != ORIGIN, "{outward}");
                failed(&tool, Code::ToolFailed);
                ended("completed", "end", None);
            });
        });
        let send = kept.named("invoke_agent writer");
        assert_eq!(send.parent_span_id, SpanId::INVALID);
        let link = &send.links.links[0].span_context;
        assert_eq!(link.span_id().to_string(), "00f067aa0ba902b7");
        assert_ne!(link.trace_id(), send.span_context.trace_id());
        assert_eq!(attribute(&send, genai::EPOCH).as_deref(), Some("5"));
        assert_eq!(
            attribute(&send, genai::STATUS).as_deref(),
            Some("completed")
        );
        assert!(send.events.events.is_empty());
        let chat = kept.named("chat m-1");
        assert_eq!(chat.parent_span_id, send.span_context.span_id());
        assert_eq!(attribute(&chat, genai::INPUT_TOKENS).as_deref(), Some("7"));
        assert_eq!(
            attribute(&chat, genai::CACHE_READ_TOKENS).as_deref(),
            Some("3")
        );
        let tool = kept.named("execute_tool add");
        assert_eq!(tool.parent_span_id, send.span_context.span_id());
        assert_eq!(tool.status, Status::error("tool.failed"));
        let scope = &chat.instrumentation_scope;
        assert_eq!(scope.schema_url(), Some(genai::SCHEMA_URL));
    }

    #[test]
    fn where_it_is_to_be_one_trace_it_is() {
        let kept = exported(|| {
            let request = request("POST", "/v1/sends", "r", Some(ORIGIN));
            responded(&request, 503, Some(Code::StoreUnavailable));
            let origin = request
                .in_scope(|| accept(session(), SendId(Uuid::nil()), 1).in_scope(traceparent));
            let invocation = Invocation {
                origin: origin.as_deref(),
                agent: None,
                ..invocation()
            };
            let agent = invoke_agent(&invocation, Propagation::Parent);
            let parent = agent.in_scope(traceparent);
            drop(agent);
            let (parent, send) = (parent.as_deref(), invocation.send);
            drop(extract(session(), send, 1, parent, Propagation::Parent));
        });
        let (request, accept) = (kept.named("POST /v1/sends"), kept.named("accept"));
        assert_eq!(request.parent_span_id.to_string(), "00f067aa0ba902b7");
        assert_eq!(
            attribute(&request, genai::ERROR_TYPE).as_deref(),
            Some("store.unavailable")
        );
        assert_eq!(accept.parent_span_id, request.span_context.span_id());
        let send = kept.named("invoke_agent");
        assert_eq!(send.parent_span_id, accept.span_context.span_id());
        assert!(send.links.links.is_empty());
        let extract = kept.named("extract");
        assert_eq!(extract.parent_span_id, send.span_context.span_id());
    }

    #[test]
    fn a_run_is_named_by_its_workflow() {
        let kept = exported(|| {
            let run = RunKey {
                tenant: TenantId(1),
                run: mainspring_shared::id::RunId(Uuid::from_u128(9)),
            };
            let span = invoke_workflow(run, "report", 2, Some(ORIGIN), Propagation::Link);
            advanced(&span, 1, 2, "running");
        });
        let run = kept.named("invoke_workflow report");
        assert_eq!(attribute(&run, genai::RUN_STARTS).as_deref(), Some("2"));
        assert_eq!(run.links.links.len(), 1);
    }
}
