//! Workflows with the real program: in one process, and across workers, one of which dies.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::{Process, Program};
use mainspring_tests::faults::{Cluster, Recipe, RetryingClient, beside, binary, blocking, pause};
use serde_json::{Value, json};

const MOMENT: Duration = Duration::from_millis(20);

fn program(dir: &Path) -> Result<Program> {
    Ok(Program {
        binary: binary()?,
        logs: dir.join("logs"),
        environment: vec![
            ("MAINSPRING_LLM_PROVIDER".into(), "demo".into()),
            (
                "MAINSPRING_DATA_DIR".into(),
                dir.join("data").display().to_string(),
            ),
        ],
    })
}

fn dev(program: &Program, dir: &Path) -> Result<Process> {
    let dev = blocking(|| program.dev("dev", &dir.join("data")))?;
    blocking(|| dev.wait_until_ready())?;
    Ok(dev)
}

fn text(value: &Value, member: &str) -> Result<String> {
    let text = value[member].as_str();
    Ok(text
        .with_context(|| format!("{member} of {value}"))?
        .to_owned())
}

/// Polls until a condition holds.
async fn until(
    caller: &mut RetryingClient,
    path: &str,
    mut so: impl FnMut(&Value) -> bool,
) -> Result<Value> {
    for _ in 0..2_000 {
        let value = caller.get(path).await?;
        if so(&value) {
            return Ok(value);
        }
        pause(MOMENT).await;
    }
    anyhow::bail!("{path} never shows it")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worked_example_runs_to_its_end_in_one_process() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let program = program(dir.path())?;
    let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/workflows/research.json");
    let spec = spec.display().to_string();
    let arguments = ["run", &spec, "--input", "tea", "-o", "json"];
    let (code, out, err) = blocking(|| program.run(&arguments))?;
    ensure!(code == 0, "{code}: {out}{err}");
    let run: Value = serde_json::from_str(&out)?;
    ensure!(run["status"] == "completed", "{run}");
    ensure!(run["input"] == "tea" && run["error"].is_null(), "{run}");
    let result = text(&run["result"], "text")?;
    ensure!(result.contains("tea"), "{result}");
    // A plan, three subtopics, one page.
    ensure!(run["counts"]["completed"] == 5, "{run}");
    let (code, out, err) = blocking(|| program.run(&["audit"]))?;
    ensure!(code == 0, "{out}{err}");
    // The exit code shows that a run failed.
    let failing = dir.path().join("failing.json");
    let root = json!({ "type": "agent", "id": "only", "spec": { "name": "a", "system_prompt": "Do it.", "tools": [] }, "input": "!fail refused" });
    std::fs::write(&failing, json!({ "name": "f", "root": root }).to_string())?;
    let failing = failing.display().to_string();
    let (code, out, _) = blocking(|| program.run(&["run", &failing, "-o", "json"]))?;
    ensure!(code == 7, "{code}: {out}");
    // A run whose tool call fails, rather than its model, ends with that call's error code.
    let tool = dir.path().join("tool.json");
    let root = json!({ "type": "tool", "id": "read", "tool": "read_file", "arguments": { "path": "nowhere.txt" } });
    std::fs::write(&tool, json!({ "name": "t", "root": root }).to_string())?;
    let tool = tool.display().to_string();
    let (code, out, err) = blocking(|| program.run(&["run", &tool, "-o", "json"]))?;
    ensure!(code == 7, "{code}: {out}{err}");
    let run: Value = serde_json::from_str(&out)?;
    let failed = text(&run["error"], "code")?;
    ensure!(failed.starts_with("tool."), "{run}");
    Ok(())
}

/// A workflow with one leaf per number, each of which takes a while.
fn wide(leaves: usize) -> Value {
    json!({ "name": "wide", "root": {
        "type": "foreach", "id": "all", "as": "n", "items": (0..leaves).collect::<Vec<_>>(), "max_concurrency": 8,
        "body": {
            "type": "agent", "id": "leaf", "spec": { "name": "a", "system_prompt": "Do it.", "tools": [] },
            "input": "!stream 10x30ms leaf {{n}}",
        },
    } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_across_workers_survives_the_death_of_one() -> Result<()> {
    let recipe = Recipe {
        workers: 2,
        environment: &[
            ("MAINSPRING_LLM_PROVIDER", "demo"),
            ("MAINSPRING_LLM_MODEL", "demo"),
        ],
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let body = json!({ "spec": wide(40) });
    let run = caller.post("/v1/runs", &body, "wide").await?.json()?;
    let path = format!("/v1/runs/{}", text(&run, "id")?);
    until(&mut caller, &path, |run| {
        run["counts"]["completed"].as_u64().is_some_and(|n| n >= 4)
    })
    .await?;
    let victim = cluster.busy_worker().await?;
    cluster.kill_worker(victim);
    let before = caller.get(&path).await?;
    ensure!(
        before["finished_at"].is_null(),
        "it was over before: {before}"
    );
    let ended = until(&mut caller, &path, |run| run["finished_at"].is_string()).await?;
    ensure!(ended["status"] == "completed", "{ended}");
    let results = ended["result"]["payload"]["items"].as_array();
    let results = results.with_context(|| format!("a list: {ended}"))?;
    ensure!(results.len() == 40, "{ended}");
    for (n, result) in results.iter().enumerate() {
        let said = result.as_str().context("words")?;
        ensure!(said.ends_with(&format!(" leaf {n}")), "{n}: {said}");
    }
    let nodes = caller.all(&format!("{path}/nodes")).await?;
    ensure!(nodes.len() == 41, "{}", nodes.len());
    // A takeover continues in the same session: no leaf was started a second time.
    ensure!(nodes.iter().all(|node| node["attempt"] == 1), "{nodes:?}");
    cluster.replace_worker(victim)?;
    cluster.all_ready()?;
    cluster.audit()?;
    cluster.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timers_send_and_start_runs_and_agents_wake_themselves() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let program = program(dir.path())?;
    let dev = dev(&program, dir.path())?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let agent = json!({ "agent": { "tools": ["schedule_wakeup"] } });
    let session = caller.post("/v1/sessions", &agent, "s").await?.json()?;
    let session = text(&session, "id")?;

    let body = json!({ "session_id": session, "input": "good morning", "after": "50ms" });
    let timer = caller.post("/v1/timers", &body, "send").await?.json()?;
    let path = format!("/v1/timers/{}", text(&timer, "id")?);
    let done = until(&mut caller, &path, |timer| timer["status"] == "done").await?;
    let send = format!("/v1/sends/{}?wait=30s", text(&done, "last_send_id")?);
    let send = caller.get(&send).await?;
    ensure!(send["status"] == "completed", "{send}");
    ensure!(send["output_text"] == "good morning", "{send}");

    let body = json!({ "run": { "spec": wide(3) }, "after": "50ms" });
    let timer = caller.post("/v1/timers", &body, "run").await?.json()?;
    let path = format!("/v1/timers/{}", text(&timer, "id")?);
    let done = until(&mut caller, &path, |timer| timer["status"] == "done").await?;
    let run = format!("/v1/runs/{}?wait=30s", text(&done, "last_run_id")?);
    let run = caller.get(&run).await?;
    ensure!(run["status"] == "completed", "{run}");

    let words = r#"!tool schedule_wakeup {"delay_seconds": 5, "note": "look again"}"#;
    let path = format!("/v1/sessions/{session}/sends?wait=30s");
    let asked = caller
        .post(&path, &json!({ "input": words }), "wake")
        .await?;
    let asked = asked.json()?;
    ensure!(asked["status"] == "completed", "{asked}");
    let armed = format!("/v1/timers?session_id={session}&status=armed");
    let armed = caller.get(&armed).await?;
    let path = format!("/v1/timers/{}", text(&armed["data"][0], "id")?);
    let done = until(&mut caller, &path, |timer| timer["status"] == "done").await?;
    let woken = format!("/v1/sends/{}?wait=30s", text(&done, "last_send_id")?);
    let woken = caller.get(&woken).await?;
    ensure!(woken["status"] == "completed", "{woken}");
    ensure!(woken["session_id"] == session.as_str(), "{woken}");
    ensure!(
        text(&woken, "output_text")?.contains("look again"),
        "{woken}"
    );
    drop(dev);
    let (code, out, err) = blocking(|| program.run(&["audit"]))?;
    ensure!(code == 0, "{out}{err}");
    Ok(())
}
