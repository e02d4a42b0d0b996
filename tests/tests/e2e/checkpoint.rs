//! A long answer whose process dies: the next one continues from what was streamed.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::Program;
use mainspring_tests::faults::{RetryingClient, beside, binary, blocking, monotonic, pause};
use serde_json::json;

use crate::tools::start;

/// Eighteen seconds of an answer.
const LONG: &str = "!stream 36x500ms the history of tea, told as slowly as it deserves to be";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_answer_goes_on_behind_a_kill() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment: vec![
            ("MAINSPRING_LLM_PROVIDER".into(), "demo".into()),
            ("MAINSPRING_LEASE_TTL".into(), "2s".into()),
            ("MAINSPRING_DATA_DIR".into(), data.display().to_string()),
        ],
    };
    let dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let send = caller
        .post("/v1/sends", &json!({ "input": LONG }), "long")
        .await?
        .json()?;
    let id = send["id"].as_str().context("an id")?.to_owned();
    // Past the first checkpoint, and far from the end.
    pause(Duration::from_secs(9)).await;
    let shown = caller.get(&format!("/v1/sends/{id}")).await?;
    ensure!(shown["status"] == "running", "{shown}");
    // Kills it with signal 9.
    drop(dev);
    let dev = start(&program, "dev-again", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let began = monotonic();
    let ended = caller.get(&format!("/v1/sends/{id}?wait=60s")).await?;
    let took = monotonic().saturating_sub(began);
    ensure!(ended["status"] == "completed", "{ended}");
    ensure!(ended["output_text"] == LONG, "{ended}");
    ensure!(ended["rounds"] == 1, "{ended}");
    // Part of the usage is an estimate: that of the process that died.
    ensure!(ended["usage"]["estimated"] == true, "{ended}");
    // What the checkpoint after five seconds contains is not generated again.
    ensure!(took < Duration::from_secs(17), "it took {took:?} more");
    drop(dev);
    let (code, out, err) = blocking(|| program.run(&["audit"]))?;
    ensure!(code == 0, "{out}{err}");
    Ok(())
}
