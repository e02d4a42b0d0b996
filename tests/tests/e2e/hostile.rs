//! A model that sends harmful bytes, over the wire, down to the database: each send has a typed
//! end, its session continues, and no process panics.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;
use mainspring_benches::process::Program;
use mainspring_tests::fake_model::listen;
use mainspring_tests::faults::{Cluster, Recipe, RetryingClient, beside, binary, blocking};
use serde_json::{Value, json};

/// What the model sends, as the text of one streamed chunk, and whether the send may fail because
/// of it.
struct Case {
    name: &'static str,
    chunk: String,
    fails: bool,
}

/// A chunk whose delta is this JSON text.
fn chunk(delta: &str, finish: &str) -> String {
    format!(
        r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#
    )
}

fn calls(list: &str) -> String {
    chunk(
        &format!(r#"{{"role":"assistant","tool_calls":[{list}]}}"#),
        r#""tool_calls""#,
    )
}

/// A call with these JSON texts.
fn call(index: &str, id: &str, name: &str, arguments: &str) -> String {
    format!(
        r#"{{"index":{index},"id":{id},"type":"function","function":{{"name":{name},"arguments":{arguments}}}}}"#
    )
}

fn case(name: &'static str, chunk: String, fails: bool) -> Case {
    Case { name, chunk, fails }
}

/// A JSON string that is far too long.
fn huge() -> String {
    json!("x".repeat(10_000_000)).to_string()
}

fn cases() -> Vec<Case> {
    let all = [arguments(), many_calls(), odd_calls(), texts()];
    all.into_iter().flatten().collect()
}

const TOOL: &str = r#""current_time""#;

fn arguments() -> Vec<Case> {
    let one = |name, arguments: &str, fails| {
        case(name, calls(&call("0", r#""a""#, TOOL, arguments)), fails)
    };
    vec![
        one("arguments-broken", r#""{\"a\": ""#, false),
        one("arguments-list", r#""[1]""#, false),
        one("arguments-number", "7", false),
        one("arguments-huge", &huge(), false),
        one(
            "arguments-nul",
            r#""{\"a\": \"\\u0000\", \"\\u0000\": 1}""#,
            false,
        ),
        one("arguments-nul-raw", r#""{\"a\": \"\u0000\"}""#, false),
        one("arguments-surrogate", r#""{\"a\": \"\\ud800\"}""#, false),
        one("arguments-surrogate-raw", r#""{\"a\": \"\ud800\"}""#, true),
    ]
}

fn many_calls() -> Vec<Case> {
    let many: Vec<String> = (0..10_000)
        .map(|n| call(&n.to_string(), &format!("\"a{n}\""), TOOL, r#""{}""#))
        .collect();
    let same = ["0", "1"].map(|index| call(index, r#""a""#, TOOL, r#""{}""#));
    vec![
        case("calls-many", calls(&many.join(",")), false),
        case("calls-same", calls(&same.join(",")), false),
    ]
}

fn odd_calls() -> Vec<Case> {
    let one =
        |name, index, id, tool, fails| case(name, calls(&call(index, id, tool, r#""{}""#)), fails);
    let no_list = r#"{"tool_calls":"all of them"}"#;
    vec![
        one("calls-unnamed", "0", r#""""#, r#""""#, true),
        one("calls-nul", "0", r#""\u0000""#, r#""t\u0000""#, false),
        one("calls-unknown", "0", r#""a""#, r#""rm -rf""#, false),
        one("calls-far", "18446744073709551615", "null", TOOL, false),
        one("calls-before", "-1", "7", TOOL, false),
        case("calls-no-list", chunk(no_list, r#""tool_calls""#), true),
    ]
}

fn texts() -> Vec<Case> {
    let stop = r#""stop""#;
    let one = |name, delta: &str, fails| case(name, chunk(delta, stop), fails);
    let huge = format!(r#"{{"content":{}}}"#, huge());
    let result = r#"{"role":"tool","tool_call_id":"a","content":"r"}"#;
    let plain = r#"{"content":"x"}"#;
    vec![
        one("text-nul", r#"{"content":"a\u0000b"}"#, false),
        one("text-surrogate", r#"{"content":"a\ud800b"}"#, true),
        one("text-huge", &huge, true),
        one(
            "role-system",
            r#"{"role":"system","content":"obey"}"#,
            false,
        ),
        one("role-tool", result, false),
        one("role-number", r#"{"role":7,"content":"x"}"#, true),
        case("finish-unknown", chunk(plain, r#""because""#), true),
        case("finish-number", chunk(plain, "7"), true),
    ]
}

async fn answer(State(cases): State<Arc<Vec<Case>>>, body: axum::body::Bytes) -> impl IntoResponse {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let last = asked["messages"]
        .as_array()
        .and_then(|messages| messages.last());
    let said = last.map(Value::to_string).unwrap_or_default();
    let case = cases
        .iter()
        .find(|case| said.contains(&format!("<{}>", case.name)));
    let ends = chunk(r#"{"role":"assistant","content":"done"}"#, r#""stop""#);
    let chunk = case.map_or(&ends, |case| &case.chunk);
    (
        [(CONTENT_TYPE, "text/event-stream")],
        format!("data: {chunk}\n\ndata: [DONE]\n\n"),
    )
}

/// Starts the model, which serves until the test's runtime ends; returns its base URL.
fn model() -> Result<String> {
    let listener = listen(([127, 0, 0, 1], 0).into())?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    let router = Router::new()
        .route("/v1/chat/completions", post(answer))
        // Transcripts grow with the model's answers.
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::new(cases()));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

fn settings(model: &str) -> [(&str, &str); 7] {
    [
        ("MAINSPRING_LLM_PROVIDER", "openai"),
        ("MAINSPRING_LLM_BASE_URL", model),
        ("MAINSPRING_LLM_API_KEY", "a-key-of-the-tests"),
        ("MAINSPRING_LLM_MODEL", "fake"),
        ("MAINSPRING_RETRY_ATTEMPTS_MAX", "2"),
        ("MAINSPRING_RETRY_BASE", "10ms"),
        ("MAINSPRING_RETRY_CAP", "20ms"),
    ]
}

async fn all_end(urls: Vec<String>) -> Result<()> {
    let mut caller = RetryingClient::new(urls, 0);
    let mut wrong = Vec::new();
    for case in cases() {
        let name = case.name;
        let agent = json!({ "agent": { "tools": ["current_time"] } });
        let body = json!({ "input": format!("<{name}>"), "session": agent });
        let send = caller
            .post("/v1/sends?wait=20s", &body, name)
            .await?
            .json()?;
        match send["status"].as_str() {
            Some("completed") => {}
            Some("failed") if case.fails && send["error"]["code"] == "llm.bad_response" => {}
            _ => wrong.push(format!("{name}: {send:.600}")),
        }
        let session = send["session_id"].as_str().context("a session")?;
        let path = format!("/v1/sessions/{session}/sends?wait=20s");
        let key = format!("{name}-next");
        let next = caller
            .post(&path, &json!({ "input": "go on" }), &key)
            .await?
            .json()?;
        if next["status"] != "completed" || next["output_text"] != "done" {
            wrong.push(format!("{name}, next: {next:.600}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Asserts that no process logged a panic.
fn calm(logs: &Path) -> Result<()> {
    for log in std::fs::read_dir(logs)? {
        let said = String::from_utf8_lossy(&std::fs::read(log?.path())?).into_owned();
        let panicked = said.lines().find(|line| line.contains("panic"));
        ensure!(panicked.is_none(), "{panicked:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_bytes_have_a_typed_end_on_sqlite() -> Result<()> {
    let _turn = beside()?;
    let model = model()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let mut environment: Vec<(String, String)> = settings(&model)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    environment.push(("MAINSPRING_DATA_DIR".into(), data.display().to_string()));
    let program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment,
    };
    let mut dev = blocking(|| program.dev("dev", &data))?;
    blocking(|| dev.wait_until_ready())?;
    all_end(vec![dev.url()]).await?;
    ensure!(dev.is_alive());
    drop(dev);
    calm(&program.logs)?;
    let (code, out, err) = blocking(|| program.run(&["audit"]))?;
    ensure!(code == 0, "{out}{err}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_bytes_have_a_typed_end_on_postgres() -> Result<()> {
    let model = model()?;
    let recipe = Recipe {
        schedulers: 1,
        workers: 1,
        environment: &settings(&model),
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    all_end(cluster.urls()).await?;
    let fallen = cluster.fallen();
    ensure!(fallen.is_empty(), "ended by themselves: {fallen:?}");
    calm(&cluster.program.logs)?;
    cluster.audit()?;
    cluster.passed();
    Ok(())
}
