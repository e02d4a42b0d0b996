//! What a trace collector and an external endpoint see of a send.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use mainspring_benches::process::{Process, Program};
use mainspring_tests::faults::{beside, binary, blocking, monotonic, pause};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use serde_json::{Value, json};

/// The trace and span of the sending client.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// Content that only people, models and tools may see.
const WORDS: &str = "plum pudding";

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Looks like an API key.
const KEY: &str = "sk-proj-0123456789abcdef";

/// A collector over OTLP/HTTP, and a tool's endpoint next to it.
#[derive(Debug, Clone, Default)]
struct Outside(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    spans: Vec<Span>,
    /// The trace headers that the tool got.
    headers: Vec<String>,
}

impl Outside {
    /// Serves on a port of its own; returns the base URL.
    async fn serve(&self) -> Result<String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let base = format!("http://{}", listener.local_addr()?);
        let traces = |State(outside): State<Outside>, body: Bytes| async move {
            collect(&outside, body);
        };
        let tool = |State(outside): State<Outside>, headers: HeaderMap| async move {
            tell(&outside, &headers)
        };
        let routes = Router::new()
            .route("/v1/traces", post(traces))
            .route("/tell", post(tool))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(base)
    }

    fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until there is a span of each name; returns all spans.
    async fn spans(&self, names: &[&str]) -> Result<Vec<Span>> {
        let until = monotonic() + Duration::from_secs(20);
        loop {
            let spans = self.with(|seen| seen.spans.clone());
            let has = |name: &&str| spans.iter().any(|span| span.name == **name);
            if names.iter().all(has) {
                return Ok(spans);
            }
            let there: Vec<&String> = spans.iter().map(|span| &span.name).collect();
            ensure!(monotonic() < until, "of {names:?} there are {there:?}");
            pause(Duration::from_millis(20)).await;
        }
    }
}

fn collect(outside: &Outside, body: Bytes) {
    let request = ExportTraceServiceRequest::decode(body).expect("the protocol");
    let scopes = request.resource_spans.into_iter();
    let spans = scopes.flat_map(|resource| resource.scope_spans);
    let spans = spans.flat_map(|scope| scope.spans);
    outside.with(|seen| seen.spans.extend(spans));
}

fn tell(outside: &Outside, headers: &HeaderMap) -> &'static str {
    let header = headers.get("traceparent");
    let header = header.and_then(|header| header.to_str().ok());
    let header = header.unwrap_or_default().to_owned();
    outside.with(|seen| seen.headers.push(header));
    "told"
}

fn named<'s>(spans: &'s [Span], name: &str) -> Result<&'s Span> {
    let found = spans.iter().find(|span| span.name == name);
    found.with_context(|| format!("no {name}"))
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|it| it.key == name)?;
    Some(format!("{:?}", found.value))
}

fn start(dir: &Path, more: &[(&str, &str)]) -> Result<Process> {
    let mut environment = vec![
        ("MAINSPRING_LLM_PROVIDER", "demo"),
        ("MAINSPRING_TOOLS_ALLOW_PRIVATE", "127.0.0.1"),
        ("OTEL_BSP_SCHEDULE_DELAY", "100"),
    ];
    environment.extend(more);
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let program = Program {
        binary: binary()?,
        logs: dir.join("logs"),
        environment: environment.into_iter().map(own).collect(),
    };
    let dev = blocking(|| program.dev("dev", &dir.join("data")))?;
    blocking(|| dev.wait_until_ready())?;
    Ok(dev)
}

/// Makes a send that calls a tool, as a client with a trace, and waits for the answer.
async fn send(url: &str, base: &str) -> Result<Value> {
    let tool = json!({
        "type": "http", "name": "tell", "description": "Tells it.", "url": format!("{base}/tell"),
        "parameters": { "type": "object" }, "repeat": "safe",
    });
    let arguments = json!({ "what": format!("{WORDS} {KEY}") });
    let memory = json!({ "namespace": "traced", "extract": "after_send" });
    let body = json!({
        "input": format!("!tool tell {arguments}"),
        "session": { "agent": { "tools": [tool], "memory": memory } },
    });
    // Only the first test of the process installs it; the client requires it even without TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build()?;
    let answer = client
        .post(format!("{url}/v1/sends?wait=30s"))
        .header("idempotency-key", "one")
        .header("traceparent", format!("00-{TRACE}-{CALLER}-01"))
        .json(&body)
        .send()
        .await?;
    let send: Value = answer.json().await?;
    ensure!(send["status"] == "completed", "{send}");
    Ok(send)
}

const NAMES: [&str; 7] = [
    "POST /v1/sends",
    "accept",
    "invoke_agent",
    "round",
    "chat demo",
    "execute_tool tell",
    "extract",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_has_its_own_trace_with_a_link_and_none_of_its_words() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let outside = Outside::default();
    let base = outside.serve().await?;
    let dev = start(dir.path(), &[(ENDPOINT, &base)])?;
    let send = send(&dev.url(), &base).await?;
    let spans = outside.spans(&NAMES).await?;
    let request = named(&spans, "POST /v1/sends")?;
    ensure!(hex(&request.trace_id) == TRACE && hex(&request.parent_span_id) == CALLER);
    let accept = named(&spans, "accept")?;
    ensure!(accept.parent_span_id == request.span_id, "{accept:?}");
    let agent = named(&spans, "invoke_agent")?;
    ensure!(agent.parent_span_id.is_empty(), "{agent:?}");
    ensure!(agent.trace_id != accept.trace_id, "{agent:?}");
    let links: Vec<_> = agent.links.iter().map(|link| &link.span_id).collect();
    ensure!(links == [&accept.span_id], "{agent:?}");
    for (name, of) in [
        ("gen_ai.conversation.id", &send["session_id"]),
        ("mainspring.send.id", &send["id"]),
        ("mainspring.status", &send["status"]),
    ] {
        let said = attribute(agent, name).unwrap_or_default();
        let expected = of.as_str().context("a text")?;
        ensure!(said.contains(expected), "{name}: {said}, not {expected}");
    }
    let chats = spans.iter().filter(|span| span.name == "chat demo");
    let chats: Vec<&Span> = chats.collect();
    // The last model call extracts memories.
    let extract = named(&spans, "extract")?;
    ensure!(extract.parent_span_id == agent.span_id, "{extract:?}");
    let parents: Vec<_> = chats.iter().map(|chat| &chat.parent_span_id).collect();
    let rounds = spans.iter().filter(|span| span.name == "round");
    let rounds: Vec<&Span> = rounds.collect();
    ensure!(rounds.len() == 2, "{rounds:?}");
    for round in &rounds {
        ensure!(round.parent_span_id == agent.span_id, "{round:?}");
    }
    let (first, last) = (&rounds[0].span_id, &rounds[1].span_id);
    ensure!(parents == [first, last, &extract.span_id], "{chats:?}");
    for chat in chats {
        for name in [
            "gen_ai.provider.name",
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
            "gen_ai.response.finish_reasons",
        ] {
            ensure!(attribute(chat, name).is_some(), "{name}: {chat:?}");
        }
    }
    let tool = named(&spans, "execute_tool tell")?;
    ensure!(&tool.parent_span_id == first, "{tool:?}");
    let told = outside.with(|seen| seen.headers.clone());
    let expected = format!("00-{}-{}-01", hex(&tool.trace_id), hex(&tool.span_id));
    ensure!(told == [expected], "{told:?}");
    let all = format!("{spans:?}");
    ensure!(!all.contains(WORDS) && !all.contains(KEY));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_it_gets_one_trace_with_content_but_no_keys() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let outside = Outside::default();
    let base = outside.serve().await?;
    let asked = [
        (ENDPOINT, base.as_str()),
        ("MAINSPRING_TELEMETRY_QUEUE_PROPAGATION", "parent"),
        ("MAINSPRING_TELEMETRY_CONTENT", "true"),
    ];
    let dev = start(dir.path(), &asked)?;
    send(&dev.url(), &base).await?;
    let spans = outside.spans(&NAMES).await?;
    let (accept, agent) = (named(&spans, "accept")?, named(&spans, "invoke_agent")?);
    ensure!(agent.parent_span_id == accept.span_id, "{agent:?}");
    ensure!(agent.links.is_empty() && hex(&agent.trace_id) == TRACE);
    let tool = named(&spans, "execute_tool tell")?;
    let chat = named(&spans, "chat demo")?;
    for (span, name) in [
        (tool, "gen_ai.tool.call.arguments"),
        (chat, "gen_ai.input.messages"),
        (chat, "gen_ai.output.messages"),
    ] {
        let said = attribute(span, name).unwrap_or_default();
        ensure!(said.contains(WORDS), "{name}: {said}");
    }
    let result = attribute(tool, "gen_ai.tool.call.result");
    ensure!(result.is_some_and(|said| said.contains("told")), "{tool:?}");
    ensure!(!format!("{spans:?}").contains(KEY));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_passes_through_where_none_is_exported() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let outside = Outside::default();
    let base = outside.serve().await?;
    let dev = start(dir.path(), &[])?;
    send(&dev.url(), &base).await?;
    let told = outside.with(|seen| seen.headers.clone());
    ensure!(told == [format!("00-{TRACE}-{CALLER}-01")], "{told:?}");
    ensure!(outside.with(|seen| seen.spans.is_empty()));
    Ok(())
}
