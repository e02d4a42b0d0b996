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
    fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

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

/// The spans exported while `work` runs.
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
        let origin =
            request.in_scope(|| accept(session(), SendId(Uuid::nil()), 1).in_scope(traceparent));
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

#[test]
fn a_round_has_its_calls_below_it_and_a_server_is_called_below_its_tool() {
    let kept = exported(|| {
        invoke_agent(&invocation(), Propagation::Link).in_scope(|| {
            round(session(), 3).in_scope(|| {
                drop(chat(session(), "main", "m-1", 100));
                execute_tool(session(), "docs__find", "call_1", 1).in_scope(|| {
                    let called = call_mcp("find", "call_1");
                    failed(&called, Code::ToolFailed);
                });
            });
        });
    });
    let (agent, round) = (kept.named("invoke_agent writer"), kept.named("round"));
    assert_eq!(round.parent_span_id, agent.span_context.span_id());
    assert_eq!(attribute(&round, genai::ROUND).as_deref(), Some("3"));
    let (chat, tool) = (
        kept.named("chat m-1"),
        kept.named("execute_tool docs__find"),
    );
    for span in [&chat, &tool] {
        assert_eq!(span.parent_span_id, round.span_context.span_id());
    }
    let called = kept.named("tools/call find");
    assert_eq!(called.parent_span_id, tool.span_context.span_id());
    assert_eq!(
        attribute(&called, genai::MCP_METHOD).as_deref(),
        Some("tools/call")
    );
    assert_eq!(called.status, Status::error("tool.failed"));
}

#[test]
fn claims_and_groups_of_statements_are_details() {
    let kept = exported(|| {
        drop(claim(session()));
        drop(statements("accept_sends", 3));
        set_detail(true);
        let claim = claim(session());
        claimed(&claim, "claimed");
        claim.in_scope(|| drop(statements("claim_sessions", 7)));
        set_detail(false);
        drop(statements("append_rounds", 3));
    });
    assert_eq!(kept.count(), 2);
    let (claim, group) = (kept.named("claim"), kept.named("claim_sessions"));
    assert_eq!(claim.parent_span_id, SpanId::INVALID);
    assert_eq!(attribute(&claim, genai::STATUS).as_deref(), Some("claimed"));
    assert_eq!(group.parent_span_id, claim.span_context.span_id());
    assert_eq!(attribute(&group, genai::DB_BATCH).as_deref(), Some("7"));
}
