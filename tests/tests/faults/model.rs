//! A model that is slow, silent, overloaded, cut off, or sends nonsense.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_tests::faults::{
    Cluster, Effect, Load, Recipe, RetryingClient, Shape, between, fault_duration, monotonic,
    pause, settle,
};
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);

/// Leases last 2 s, waits of more than 2 s do not occupy a worker, and an answer may be silent for
/// 5 s.
const SETTINGS: [(&str, &str); 6] = [
    ("MAINSPRING_LLM_FIRST_BYTE_TIMEOUT", "5s"),
    ("MAINSPRING_LLM_IDLE_TIMEOUT", "5s"),
    ("MAINSPRING_WORKER_HOLD_MAX", "2s"),
    ("MAINSPRING_RETRY_ATTEMPTS_MAX", "4"),
    ("MAINSPRING_RETRY_BASE", "100ms"),
    ("MAINSPRING_RETRY_CAP", "1s"),
];

/// What the model does, how the send ends, and after how many calls.
struct Case {
    name: &'static str,
    does: &'static str,
    code: Option<&'static str>,
    calls: usize,
    /// Minimum time between the first two calls.
    apart: Duration,
}

const fn case(name: &'static str, does: &'static str, calls: usize) -> Case {
    Case {
        name,
        does,
        code: None,
        calls,
        apart: Duration::ZERO,
    }
}

const fn fails(name: &'static str, does: &'static str, calls: usize, code: &'static str) -> Case {
    Case {
        code: Some(code),
        ..case(name, does, calls)
    }
}

const fn waits(name: &'static str, does: &'static str, seconds: u64) -> Case {
    Case {
        apart: Duration::from_secs(seconds),
        ..case(name, does, 2)
    }
}

const CASES: [Case; 14] = [
    case("late", "[[hang 3s]]", 1),
    case("silent", "[[silent 3s]]", 1),
    waits("tooLate", "[[hang 8s 1]]", 5),
    waits("tooSilent", "[[silent 8s 1]]", 5),
    waits("limited", "[[fail 429 1 1s]]", 1),
    waits("limitedForLong", "[[fail 429 1 4s]]", 4),
    case("failing", "[[fail 500 2]]", 3),
    fails("failed", "[[fail 500]]", 4, "llm.unavailable"),
    fails("unknown", "[[fail 401]]", 1, "llm.auth"),
    case("cut", "[[cut 2 1]]", 2),
    fails("alwaysCut", "[[cut 1]]", 4, "llm.unavailable"),
    case("mad", "[[garbage 2]]", 3),
    case("overloaded", "[[error overloaded_error 1]]", 2),
    case("bytewise", "[[split]]", 1),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_openai_model_may_do_what_it_likes() -> Result<()> {
    misbehaves("openai").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_anthropic_model_may_do_what_it_likes() -> Result<()> {
    misbehaves("anthropic").await
}

async fn misbehaves(protocol: &str) -> Result<()> {
    let mut environment = SETTINGS.to_vec();
    environment.push(("MAINSPRING_LLM_PROVIDER", protocol));
    let recipe = Recipe {
        schedulers: 1,
        workers: 2,
        script: "",
        environment: &environment,
        ..Recipe::default()
    };
    let Some(cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let mut sends = Vec::new();
    for case in &CASES {
        let body = json!({ "input": words(case) });
        let send = caller.post("/v1/sends", &body, case.name).await?.json()?;
        let session = send["session_id"].as_str().context("a session")?;
        // A send queued behind it proceeds however the first one ends.
        let path = format!("/v1/sessions/{session}/sends");
        let name = format!("{}After", case.name);
        let body = json!({ "input": format!("[[send {name}]] go on") });
        let after = caller.post(&path, &body, &name).await?.json()?;
        sends.push((case, send, after));
    }
    let parked = &sends
        .iter()
        .find(|(case, ..)| case.name == "limitedForLong");
    let (_, parked, _) = parked.as_ref().context("a case that parks")?;
    parks(&mut caller, parked).await?;
    for (case, send, after) in &sends {
        let ended = end(&mut caller, send).await?;
        judge(case, &ended, &cluster).with_context(|| format!("{}: {ended}", case.name))?;
        let after = end(&mut caller, after).await?;
        ensure!(after["status"] == "completed", "{}: {after}", case.name);
        let session = ended["session_id"].as_str().context("a session")?;
        let path = format!("/v1/sessions/{session}/messages");
        let messages = caller.all(&path).await?;
        transcript(case, &messages).with_context(|| format!("{}: {messages:?}", case.name))?;
    }
    cluster.audit()?;
    cluster.passed();
    Ok(())
}

fn words(case: &Case) -> String {
    format!("[[send {}]] {} say something", case.name, case.does)
}

/// Asserts that a send with a long wait is shown as waiting, and that its session is not leased
/// meanwhile.
async fn parks(caller: &mut RetryingClient, send: &Value) -> Result<()> {
    let path = format!("/v1/sends/{}", send["id"].as_str().context("an id")?);
    let limit = monotonic() + 3_000 * MS;
    loop {
        let now = caller.get(&path).await?;
        if now["status"] == "waiting" {
            ensure!(now["waiting_on"] == "retry", "{now}");
            return Ok(());
        }
        ensure!(monotonic() < limit, "it does not wait: {now}");
        pause(20 * MS).await;
    }
}

async fn end(caller: &mut RetryingClient, send: &Value) -> Result<Value> {
    let id = send["id"].as_str().context("an id")?;
    caller.get(&format!("/v1/sends/{id}?wait=30s")).await
}

fn judge(case: &Case, ended: &Value, cluster: &Cluster) -> Result<()> {
    match case.code {
        None => {
            ensure!(ended["status"] == "completed", "it did not complete");
            let echo = format!("echo: {}", words(case));
            ensure!(ended["output_text"] == echo.as_str(), "another answer");
        }
        Some(code) => {
            ensure!(ended["status"] == "failed", "it did not fail");
            ensure!(ended["stop_reason"] == "provider_error", "another reason");
            ensure!(ended["error"]["code"] == code, "another code");
        }
    }
    let calls = cluster.model.ledger().of_send(case.name);
    ensure!(calls.len() == case.calls, "{} calls", calls.len());
    if let [first, second, ..] = &calls[..] {
        let apart = second.at.since(first.at);
        ensure!(apart + 50 * MS >= case.apart, "asked again after {apart:?}");
    }
    Ok(())
}

/// Asserts that nothing of an aborted answer is in the transcript.
fn transcript(case: &Case, messages: &[Value]) -> Result<()> {
    let mut wanted = vec![("user", words(case))];
    if case.code.is_none() {
        wanted.push(("assistant", format!("echo: {}", words(case))));
    }
    let after = format!("[[send {}After]] go on", case.name);
    wanted.push(("user", after.clone()));
    wanted.push(("assistant", format!("echo: {after}")));
    let said = messages.iter().map(|message| {
        let text = message["content"][0]["text"].as_str().unwrap_or_default();
        (message["role"].as_str().unwrap_or_default(), text)
    });
    let wanted = wanted.iter().map(|(role, text)| (*role, text.as_str()));
    ensure!(said.eq(wanted), "another transcript");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_fails_for_a_while_under_load_costs_no_send() -> Result<()> {
    let environment = [
        // The model may be away for longer than a worker would wait for it.
        ("MAINSPRING_RETRY_ATTEMPTS_MAX", "100"),
        ("MAINSPRING_RETRY_BASE", "100ms"),
        ("MAINSPRING_RETRY_CAP", "1s"),
        ("MAINSPRING_WORKER_HOLD_MAX", "400ms"),
    ];
    let recipe = Recipe {
        environment: &environment,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let load = Load::start(cluster.urls(), Shape::default()).await?;
    let end = monotonic() + fault_duration();
    while monotonic() < end {
        for outage in [
            "[[fail 500]]",
            "[[fail 429 1s]]",
            "[[cut 1]]",
            "[[garbage]]",
        ] {
            pause(between(200 * MS, 500 * MS)).await;
            let place = cluster.fault_log.begin("the model fails", Effect::None);
            cluster.model.set_script(outage.parse()?);
            pause(between(200 * MS, 1_000 * MS)).await;
            cluster.model.set_script("[[stream 4x40ms]]".parse()?);
            cluster.fault_log.end(place);
        }
    }
    let report = settle("a failing model", &mut cluster, load).await?;
    ensure!(report.repeated > 0, "no call failed: {report:?}");
    cluster.passed();
    Ok(())
}
