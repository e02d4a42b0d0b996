//! A real agent on a real project: it finds out why a test fails, asks a person before it writes,
//! delegates a part to a child, and survives the deaths of its workers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::{Process, Program};
use mainspring_benches::servers::free_port;
use mainspring_tests::faults::{
    Cluster, Recipe, RetryingClient, beside, binary, blocking, monotonic, pause,
};
use serde_json::{Value, json};

/// Folder of the example: the project, the agent's task, and the model's script.
fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fix_a_test")
}

fn script() -> Result<Value> {
    Ok(serde_json::from_str(&std::fs::read_to_string(
        example().join("script.json"),
    )?)?)
}

/// Makes a copy of the project.
fn project(dir: &Path) -> Result<PathBuf> {
    let copy = dir.join("project");
    let copied = Command::new("cp")
        .arg("-R")
        .arg(example().join("project"))
        .arg(&copy)
        .status()?;
    ensure!(copied.success(), "{copied}");
    Ok(copy)
}

/// Runs the project's own tests; returns whether they pass, and their output.
fn tests(project: &Path) -> Result<(bool, String)> {
    let output = Command::new("sh")
        .arg("run-tests.sh")
        .current_dir(project)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((output.status.success(), said))
}

fn text(value: &Value, member: &str) -> Result<String> {
    let text = value[member].as_str();
    Ok(text
        .with_context(|| format!("{member} of {value}"))?
        .to_owned())
}

/// Polls until the send satisfies a condition.
async fn until(
    caller: &mut RetryingClient,
    id: &str,
    what: &str,
    so: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let end = monotonic() + Duration::from_mins(1);
    loop {
        let send = caller.get(&format!("/v1/sends/{id}")).await?;
        if so(&send) {
            return Ok(send);
        }
        ensure!(monotonic() < end, "it is never {what}: {send}");
        pause(Duration::from_millis(20)).await;
    }
}

/// Waits until a round's call has ended. After that the model thinks for two seconds.
async fn settled(
    caller: &mut RetryingClient,
    (id, session): (&str, &str),
    round: i32,
) -> Result<()> {
    let call = format!("call_{}_{round}_0", id.trim_start_matches("snd_"));
    let output = format!("/v1/sessions/{session}/calls/{call}/output");
    let end = monotonic() + Duration::from_mins(1);
    while caller.status(&output).await? != 200 {
        ensure!(monotonic() < end, "{call} has no result");
        pause(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Posts the person's approval for the question of the second round.
async fn permit(caller: &mut RetryingClient, id: &str, session: &str) -> Result<()> {
    let question = format!("call_{}_1_0", id.trim_start_matches("snd_"));
    let answer = json!({ "results": [{ "call_id": question, "output": "yes" }] });
    let path = format!("/v1/sessions/{session}/tool-results");
    let posted = caller.post(&path, &answer, "answer").await?.json()?;
    ensure!(posted["results"][0]["status"] == "accepted", "{posted}");
    Ok(())
}

/// Asserts that the transcript is that of an undisturbed agent.
fn told(messages: &[Value]) -> Result<()> {
    let said = |message: &Value| {
        message["content"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let roles: Vec<&str> = messages.iter().filter_map(|m| m["role"].as_str()).collect();
    let expected = [
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ];
    ensure!(roles == expected, "{roles:?}");
    let failed = messages.iter().find(|m| m.get("failed").is_some());
    ensure!(failed.is_none(), "{failed:?}");
    let results: Vec<String> = messages
        .iter()
        .filter(|m| m["role"] == "tool")
        .map(said)
        .collect();
    ensure!(results[0].contains("run-tests.sh"), "{}", results[0]);
    ensure!(
        results[2].contains("FAILED: no-last-newline: 3, not 6"),
        "{}",
        results[2]
    );
    ensure!(results[3] == "yes", "{}", results[3]);
    ensure!(results[4].contains("CHANGES.md"), "{}", results[4]);
    ensure!(!results[7].contains("FAILED"), "{}", results[7]);
    ensure!(results[7].contains("ok: no-last-newline"), "{}", results[7]);
    Ok(())
}

/// Asserts that in the end the tests pass, and nothing else was changed.
fn fixed(project: &Path) -> Result<()> {
    let (passed, said) = tests(project)?;
    ensure!(passed, "{said}");
    let changes = std::fs::read_to_string(project.join("CHANGES.md"))?;
    ensure!(
        changes == "- `total.sh` counts a last line without a newline.\n",
        "{changes}"
    );
    let before = std::fs::read_to_string(example().join("project/total.sh"))?;
    let wanted = before.replace(
        "while read -r number; do",
        "while read -r number || [ -n \"$number\" ]; do",
    );
    let after = std::fs::read_to_string(project.join("total.sh"))?;
    ensure!(after == wanted && after != before, "{after}");
    Ok(())
}

/// Asserts that nothing was written before the person agreed.
fn untouched(project: &Path) -> Result<()> {
    for name in ["total.sh", "run-tests.sh"] {
        let now = std::fs::read_to_string(project.join(name))?;
        let then = std::fs::read_to_string(example().join("project").join(name))?;
        ensure!(now == then, "{name}: {now}");
    }
    ensure!(!project.join("CHANGES.md").exists());
    Ok(())
}

fn start(program: &Program, name: &str, data: &Path) -> Result<Process> {
    let dev = blocking(|| program.dev(name, data))?;
    blocking(|| dev.wait_until_ready())?;
    Ok(dev)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_fixes_a_test_over_three_deaths_of_its_process() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let project = project(dir.path())?;
    ensure!(!tests(&project)?.0, "there is nothing to fix");
    let data = dir.path().join("data");
    let program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment: [
            ("MAINSPRING_LLM_PROVIDER", "demo"),
            ("MAINSPRING_LEASE_TTL", "2s"),
            ("MAINSPRING_DATA_DIR", data.to_str().context("UTF-8")?),
            ("MAINSPRING_TOOLS_SHELL", "local"),
            (
                "MAINSPRING_TOOLS_WORKSPACE",
                project.to_str().context("UTF-8")?,
            ),
            ("MAINSPRING_TOOLS_WORKSPACE_SHARED", "true"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
    };
    let mut dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let send = caller.post("/v1/sends", &script()?, "fix").await?.json()?;
    let (id, session) = (text(&send, "id")?, text(&send, "session_id")?);
    until(&mut caller, &id, "asked", |send| {
        send["waiting_on"] == "human"
    })
    .await?;
    untouched(&project)?;

    // Kill the process while the person thinks.
    drop(dev);
    dev = start(&program, "dev-2", &data)?;
    caller = RetryingClient::new(vec![dev.url()], 0);
    permit(&mut caller, &id, &session).await?;
    // Kill it during a model call before the write, and during one after that.
    for rounds in [3, 5] {
        let there = |send: &Value| send["status"] == "running" && send["rounds"] == rounds;
        until(&mut caller, &id, "there", there).await?;
        settled(&mut caller, (&id, &session), rounds - 1).await?;
        drop(dev);
        dev = start(&program, &format!("dev-after-{rounds}"), &data)?;
        caller = RetryingClient::new(vec![dev.url()], 0);
    }
    let ended = caller.get(&format!("/v1/sends/{id}?wait=30s")).await?;
    ensure!(
        ended["status"] == "completed" && ended["rounds"] == 7,
        "{ended}"
    );
    told(
        &caller
            .all(&format!("/v1/sessions/{session}/messages"))
            .await?,
    )?;
    fixed(&project)?;
    drop(dev);
    let (code, out, err) = blocking(|| program.run(&["audit"]))?;
    ensure!(code == 0, "{out}{err}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_fixes_a_test_while_its_workers_die() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let project = project(dir.path())?;
    let environment = [
        ("MAINSPRING_LLM_PROVIDER", "demo"),
        ("MAINSPRING_TOOLS_SHELL", "local"),
        (
            "MAINSPRING_TOOLS_WORKSPACE",
            project.to_str().context("UTF-8")?,
        ),
        ("MAINSPRING_TOOLS_WORKSPACE_SHARED", "true"),
    ];
    let recipe = Recipe {
        schedulers: 1,
        workers: 2,
        environment: &environment,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let mut caller = RetryingClient::new(cluster.urls(), 0);
    let send = caller.post("/v1/sends", &script()?, "fix").await?.json()?;
    let (id, session) = (text(&send, "id")?, text(&send, "session_id")?);
    until(&mut caller, &id, "asked", |send| {
        send["waiting_on"] == "human"
    })
    .await?;
    untouched(&project)?;
    permit(&mut caller, &id, &session).await?;
    for rounds in [3, 5] {
        let there = |send: &Value| send["status"] == "running" && send["rounds"] == rounds;
        until(&mut caller, &id, "there", there).await?;
        settled(&mut caller, (&id, &session), rounds - 1).await?;
        let victim = cluster.busy_worker().await?;
        cluster.kill_worker(victim);
        cluster.replace_worker(victim)?;
        cluster.all_ready()?;
    }
    let ended = until(&mut caller, &id, "final", |send| {
        send["finished_at"].is_string()
    })
    .await?;
    ensure!(
        ended["status"] == "completed" && ended["rounds"] == 7,
        "{ended}"
    );
    told(
        &caller
            .all(&format!("/v1/sessions/{session}/messages"))
            .await?,
    )?;
    fixed(&project)?;
    cluster.audit()?;
    cluster.passed();
    Ok(())
}

#[test]
fn the_script_of_the_example_replays_it() -> Result<()> {
    let _turn = beside()?;
    let replay = Command::new("sh")
        .arg(example().join("replay.sh"))
        .env("MAINSPRING", binary()?)
        .env("PORT", free_port()?.to_string())
        .output()?;
    let (out, err) = (
        String::from_utf8_lossy(&replay.stdout),
        String::from_utf8_lossy(&replay.stderr),
    );
    ensure!(replay.status.success(), "{}\n{out}\n{err}", replay.status);
    let (before, after) = out.split_once("-- after").context("an end")?;
    ensure!(before.contains("FAILED: no-last-newline"), "{out}");
    ensure!(after.contains("ok: no-last-newline"), "{out}");
    Ok(())
}
