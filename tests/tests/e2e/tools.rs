//! An agent with real files, questions to a person, and a process that is killed in between, on one
//! machine and across workers.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::{Process, Program};
use mainspring_shared::time::Clock as _;
use mainspring_tests::faults::{RetryingClient, beside, binary, blocking};
use serde_json::{Value, json};

/// Writes a file, asks whether to go on, delegates a part to a child, and then reads the file back.
const WORK: &str = concat!(
    r#"!tool write_file {"path": "plan.txt", "content": "one\n"} "#,
    r#"!then !tool ask_person {"question": "go on?"} "#,
    r#"!then !tool spawn_agent {"task": "count to two"} "#,
    r#"!tool current_time {} "#,
    r#"!then !tool read_file {"path": "plan.txt"}"#,
);

pub(crate) fn start(program: &Program, name: &str, data: &Path) -> Result<Process> {
    let dev = blocking(|| program.dev(name, data))?;
    blocking(|| dev.wait_until_ready())?;
    Ok(dev)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_writes_asks_delegates_and_reads_over_a_kill() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment: vec![
            ("MAINSPRING_LLM_PROVIDER".into(), "demo".into()),
            ("MAINSPRING_DATA_DIR".into(), data.display().to_string()),
        ],
    };
    let dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let tools = json!(["core", "current_time", "spawn_agent"]);
    let body = json!({ "input": WORK, "session": { "agent": { "tools": tools } } });
    let send = caller
        .post("/v1/sends?wait=30s", &body, "work")
        .await?
        .json()?;
    ensure!(send["waiting_on"] == "human", "{send}");
    let (id, session) = (text(&send, "id")?, text(&send, "session_id")?);

    // The process is killed while a person thinks; the question is still open in the next one.
    drop(dev);
    let dev = start(&program, "dev-again", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let shown = caller.get(&format!("/v1/sends/{id}")).await?;
    ensure!(shown["waiting_on"] == "human", "{shown}");
    let question = format!("call_{}_1_0", id.trim_start_matches("snd_"));
    let answer = json!({ "results": [{ "call_id": question, "output": "yes" }] });
    let path = format!("/v1/sessions/{session}/tool-results");
    let posted = caller.post(&path, &answer, "answer").await?.json()?;
    ensure!(posted["results"][0]["status"] == "accepted", "{posted}");
    let ended = caller.get(&format!("/v1/sends/{id}?wait=30s")).await?;
    ensure!(ended["status"] == "completed", "{ended}");
    ensure!(ended["rounds"] == 5, "{ended}");

    let written = data.join("workspaces").join(&session).join("plan.txt");
    ensure!(std::fs::read_to_string(written)? == "one\n");
    let messages = caller
        .all(&format!("/v1/sessions/{session}/messages"))
        .await?;
    paired(&messages)?;
    let results: Vec<&Value> = messages.iter().filter(|m| m["role"] == "tool").collect();
    ensure!(results.len() == 5, "{results:#?}");
    ensure!(
        results.iter().all(|m| m.get("failed").is_none()),
        "{results:#?}"
    );
    ensure!(results[1]["content"][0]["text"] == "yes");
    ensure!(results[2]["content"][0]["text"] == "count to two");
    let read = text(&results[4]["content"][0], "text")?;
    ensure!(read.contains("one"), "{read}");
    drop(dev);
    let (code, out, err) = blocking(|| program.run(&["audit"]))?;
    ensure!(code == 0, "{out}{err}");
    Ok(())
}

pub(crate) fn text(value: &Value, member: &str) -> Result<String> {
    let text = value[member].as_str();
    Ok(text
        .with_context(|| format!("{member} of {value}"))?
        .to_owned())
}

/// Asserts that every call has exactly one result, directly after the message that made it, in the
/// order of the calls, as both protocols demand.
fn paired(messages: &[Value]) -> Result<()> {
    let mut open: Vec<&Value> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            ensure!(!open.is_empty(), "nobody asked: {message}");
            ensure!(
                *open.remove(0) == message["tool_call_id"],
                "out of order: {message}"
            );
            continue;
        }
        ensure!(open.is_empty(), "{open:?} have no result before {message}");
        let calls = message["tool_calls"].as_array();
        open = calls
            .into_iter()
            .flatten()
            .map(|call| &call["id"])
            .collect();
    }
    ensure!(open.is_empty(), "{open:?} have no result");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_sessions_take_words_and_long_outputs_can_be_fetched() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment: vec![
            ("MAINSPRING_LLM_PROVIDER".into(), "demo".into()),
            ("MAINSPRING_TOOLS_SHELL".into(), "local".into()),
        ],
    };
    let dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let agent = json!({ "tools": ["full"] });
    let slow = json!({ "input": "!stream 3000x10ms", "session": { "agent": agent } });
    let send = caller.post("/v1/sends", &slow, "slow").await?.json()?;
    let (id, session) = (text(&send, "id")?, text(&send, "session_id")?);
    while caller.get(&format!("/v1/sends/{id}")).await?["status"] != "running" {
        pause(Duration::from_millis(10)).await;
    }
    // The stream would take half a minute, but the interruption is answered at once.
    let words = r#"!tool shell {"command": "seq 1 30000; echo done"}"#;
    let body = json!({ "input": words, "options": { "on_busy": "interrupt" } });
    let path = format!("/v1/sessions/{session}/sends?wait=20s");
    let ended = caller.post(&path, &body, "words").await?.json()?;
    ensure!(
        ended["id"] == id.as_str() && ended["status"] == "completed",
        "{ended}"
    );
    let call = format!("call_{}_0_0", id.trim_start_matches("snd_"));
    let messages = caller
        .all(&format!("/v1/sessions/{session}/messages"))
        .await?;
    paired(&messages)?;
    let shown = messages
        .iter()
        .find(|m| m["role"] == "tool")
        .context("a result")?;
    let shown = text(&shown["content"][0], "text")?;
    ensure!(
        shown.contains("left out") && shown.trim_end().ends_with("done"),
        "{shown:.200}"
    );
    let output = plain(
        &dev.url(),
        &format!("/v1/sessions/{session}/calls/{call}/output"),
    )
    .await?;
    ensure!(output.contains("\n15000\n"), "the middle is missing");
    drop(dev);
    Ok(())
}

/// Reads plain text over HTTP.
async fn plain(base: &str, path: &str) -> Result<String> {
    let mut client = mainspring_benches::client::Client::connect(base).await?;
    let answer = client.request("GET", path, bytes::Bytes::new()).await?;
    ensure!(answer.status == 200, "{}", answer.status);
    Ok(String::from_utf8(answer.body.to_vec())?)
}

#[expect(clippy::disallowed_methods, reason = "the processes run in true time")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Makes a send to a session; returns the results of its calls, in order.
pub(crate) async fn results_of(
    caller: &mut RetryingClient,
    session: &str,
    input: &str,
) -> Result<Vec<String>> {
    static SENT: AtomicU64 = AtomicU64::new(0);
    let path = format!("/v1/sessions/{session}/sends?wait=30s");
    let body = json!({ "input": input });
    let key = format!("send-{}", SENT.fetch_add(1, Ordering::Relaxed));
    let send = caller.post(&path, &body, &key).await?.json()?;
    ensure!(send["status"] == "completed", "{send}");
    let path = format!("/v1/sessions/{session}/messages");
    let all = caller.all(&path).await?;
    let mine = all
        .iter()
        .filter(|m| m["send_id"] == send["id"] && m["role"] == "tool");
    mine.map(|m| text(&m["content"][0], "text")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_run_on_tell_of_their_end_and_are_lost_with_their_worker() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment: vec![
            ("MAINSPRING_LLM_PROVIDER".into(), "demo".into()),
            ("MAINSPRING_TOOLS_SHELL".into(), "local".into()),
            ("MAINSPRING_LEASE_TTL".into(), "3s".into()),
            ("MAINSPRING_DATA_DIR".into(), data.display().to_string()),
        ],
    };
    let dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let agent = json!({ "agent": { "tools": ["full"] } });
    let made = caller
        .post("/v1/sessions", &agent, "session")
        .await?
        .json()?;
    let session = text(&made, "id")?;

    // The command's end is reported while the send is still running.
    let quick = r#"!tool command_start {"command": "echo hi; sleep 0.2; echo bye"} !then !tool shell {"command": "sleep 1"}"#;
    let said = results_of(&mut caller, &session, quick).await?;
    ensure!(said[0].starts_with("Command 1 runs"), "{said:?}");
    let messages = caller
        .all(&format!("/v1/sessions/{session}/messages"))
        .await?;
    let told = "Command 1 has ended, exit_code=0: echo hi; sleep 0.2; echo bye\nhi\nbye";
    let is_told = |m: &&Value| {
        let text = m["content"][0]["text"].as_str().unwrap_or_default();
        m["role"] == "user" && text.starts_with(told)
    };
    ensure!(
        messages.iter().filter(is_told).count() == 1,
        "{messages:#?}"
    );

    let stop = r#"!tool command_start {"command": "sleep 600"} !then !tool command_output {} !then !tool command_stop {"command_id": 2}"#;
    let said = results_of(&mut caller, &session, stop).await?;
    ensure!(
        said[1].contains("Command 2, running: sleep 600"),
        "{said:?}"
    );
    ensure!(said[2].starts_with("Command 2, stopped"), "{said:?}");
    let unknown = r#"!tool command_output {"command_id": 9}"#;
    let said = results_of(&mut caller, &session, unknown).await?;
    ensure!(said[0].contains("no command 9"), "{said:?}");

    // If nothing is running, it is reported to the next send.
    let late = r#"!tool command_start {"command": "sleep 0.5; echo late"}"#;
    results_of(&mut caller, &session, late).await?;
    let clock = mainspring_runtime::SystemClock::new();
    let until = clock.monotonic() + Duration::from_secs(20);
    let path = format!("/v1/sessions/{session}/inbox");
    while !caller.get(&path).await?.to_string().contains("late\\nlate") {
        ensure!(clock.monotonic() < until, "the inbox never has it");
        clock.sleep(Duration::from_millis(20)).await;
    }
    results_of(&mut caller, &session, "well?").await?;
    let messages = caller
        .all(&format!("/v1/sessions/{session}/messages"))
        .await?;
    let told = "Command 3 has ended, exit_code=0: sleep 0.5; echo late\nlate";
    let is_told = |m: &&Value| {
        let text = m["content"][0]["text"].as_str().unwrap_or_default();
        text.starts_with(told)
    };
    ensure!(
        messages.iter().filter(is_told).count() == 1,
        "{messages:#?}"
    );

    // The process is killed, and its commands with it.
    let long = r#"!tool command_start {"command": "echo $$ > pid; exec sleep 600"}"#;
    results_of(&mut caller, &session, long).await?;
    let pid = data.join("workspaces").join(&session).join("pid");
    let end = Duration::from_secs(20);
    let clock = mainspring_runtime::SystemClock::new();
    let until = clock.monotonic() + end;
    let pid = loop {
        match std::fs::read_to_string(&pid) {
            Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
            _ => ensure!(clock.monotonic() < until, "it never began"),
        }
        clock.sleep(Duration::from_millis(10)).await;
    };
    drop(dev);
    let dev = start(&program, "dev-again", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let until = clock.monotonic() + end;
    loop {
        let look = r#"!tool command_output {"command_id": 4}"#;
        let said = results_of(&mut caller, &session, look).await?;
        if said[0].contains("Command 4 was lost") {
            break;
        }
        ensure!(said[0].contains("on another worker"), "{said:?}");
        ensure!(clock.monotonic() < until, "it is never lost");
        clock.sleep(Duration::from_millis(300)).await;
    }
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    ensure!(state.is_empty() || state.contains(") Z"), "{state}");
    Ok(())
}

/// A server whose file and shell tools run in a process of their own.
fn isolated(dir: &Path, launcher: &str) -> Result<Program> {
    let config = dir.join("config.toml");
    std::fs::write(
        &config,
        format!("[tools]\nshell = \"local\"\nlauncher = {launcher}\n"),
    )?;
    Ok(Program {
        binary: binary()?,
        logs: dir.join("logs"),
        environment: vec![
            ("MAINSPRING_LLM_PROVIDER".into(), "demo".into()),
            ("MAINSPRING_LLM_API_KEY".into(), "sk-of-the-worker".into()),
            ("OPENAI_API_KEY".into(), "sk-of-another".into()),
            ("MAINSPRING_CONFIG".into(), config.display().to_string()),
        ],
    })
}

async fn core_session(caller: &mut RetryingClient) -> Result<String> {
    let agent = json!({ "agent": { "tools": ["core"] } });
    let made = caller.post("/v1/sessions", &agent, "session").await?;
    text(&made.json()?, "id")
}

/// Waits until a process is gone.
async fn gone(pid: &str) -> Result<()> {
    let clock = mainspring_runtime::SystemClock::new();
    let until = clock.monotonic() + Duration::from_secs(20);
    loop {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if state.is_empty() || state.contains(") Z") {
            return Ok(());
        }
        ensure!(clock.monotonic() < until, "{pid} is still there: {state}");
        clock.sleep(Duration::from_millis(10)).await;
    }
}

/// Reads a file once it contains a whole line.
async fn line_of(file: &Path) -> Result<String> {
    let clock = mainspring_runtime::SystemClock::new();
    let until = clock.monotonic() + Duration::from_secs(20);
    loop {
        match std::fs::read_to_string(file) {
            Ok(text) if text.ends_with('\n') => return Ok(text.trim().to_owned()),
            _ => ensure!(clock.monotonic() < until, "{} never came", file.display()),
        }
        clock.sleep(Duration::from_millis(10)).await;
    }
}

/// What the shell of an isolated send sees of its parent, the tools process: its pid, its command
/// line, its environment and its open files.
const LOOK: &str = r#"!tool shell {"command": "echo $PPID > parent; for f in cmdline environ; do tr '\\0' '\\n' < /proc/$PPID/$f; done; readlink /proc/$PPID/fd/*; cat a.txt"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_run_in_a_child_that_knows_nothing_of_the_worker() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let program = isolated(dir.path(), r#"["env", "IN={session}", "{child}"]"#)?;
    let dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let session = core_session(&mut caller).await?;
    let room = data.join("workspaces").join(&session);
    // The state of a file when it was read is remembered from call to call.
    let work = format!(
        "{}{}{}{LOOK}",
        r#"!tool write_file {"path": "a.txt", "content": "one\n"} !then "#,
        r#"!tool read_file {"path": "a.txt"} !then "#,
        r#"!tool edit_file {"path": "a.txt", "old_text": "one", "new_text": "two"} !then "#,
    );
    let said = results_of(&mut caller, &session, &work).await?;
    let seen = &said[3];
    ensure!(seen.contains("\nrun-tools\n"), "{said:?}");
    ensure!(seen.contains(&format!("\nIN={session}\n")), "{said:?}");
    ensure!(seen.contains("\nPATH="), "{said:?}");
    ensure!(seen.trim_end().ends_with("two"), "{said:?}");
    for secret in ["sk-of", "API_KEY", "MAINSPRING_", "sqlite", ".db"] {
        ensure!(!seen.contains(secret), "{secret} is in {seen}");
    }
    // When the send ends, its process is gone.
    gone(&line_of(&room.join("parent")).await?).await?;

    // A process that dies during a call takes the call with it, but not the send.
    let kill = r#"!tool shell {"command": "kill -KILL $PPID; sleep 30"} !then !tool read_file {"path": "a.txt"}"#;
    let said = results_of(&mut caller, &session, kill).await?;
    ensure!(said[0].contains("how far it got is not known"), "{said:?}");
    ensure!(said[1].contains("two"), "{said:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_child_ends_with_its_send_and_with_its_worker() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let program = isolated(dir.path(), r#"["{child}"]"#)?;
    let dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let session = core_session(&mut caller).await?;
    let room = data.join("workspaces").join(&session);
    let long = |n: u32| {
        let command = format!("echo $PPID > parent{n}; echo $$ > shell{n}; exec sleep 600");
        format!("!tool shell {}", json!({ "command": command }))
    };
    let pids = async |n: u32| -> Result<[String; 2]> {
        let parent = line_of(&room.join(format!("parent{n}"))).await?;
        Ok([parent, line_of(&room.join(format!("shell{n}"))).await?])
    };
    let path = format!("/v1/sessions/{session}/sends");
    let begin = json!({ "input": long(1) });
    let send = caller.post(&path, &begin, "long-1").await?.json()?;
    let begun = pids(1).await?;
    let cancel = format!("/v1/sends/{}/cancel", text(&send, "id")?);
    caller.post(&cancel, &json!({}), "cancel").await?;
    for pid in &begun {
        gone(pid).await?;
    }
    // The worker is killed.
    let begin = json!({ "input": long(2) });
    caller.post(&path, &begin, "long-2").await?;
    let begun = pids(2).await?;
    drop(dev);
    for pid in &begun {
        gone(pid).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_sandbox_no_tool_runs() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let broken = [r#"["false", "{child}"]"#, r#"["echo", "{child}"]"#];
    for (n, launcher) in broken.into_iter().enumerate() {
        let dir = dir.path().join(n.to_string());
        std::fs::create_dir(&dir)?;
        let data = dir.join("data");
        let program = isolated(&dir, launcher)?;
        let dev = start(&program, "dev", &data)?;
        let mut caller = RetryingClient::new(vec![dev.url()], 0);
        let session = core_session(&mut caller).await?;
        let work = r#"!tool write_file {"path": "a.txt", "content": "one"} !then !tool shell {"command": "echo two > b.txt"}"#;
        let said = results_of(&mut caller, &session, work).await?;
        ensure!(
            said.iter().all(|said| said.contains("was not made")),
            "{launcher}: {said:?}"
        );
        let room = data.join("workspaces").join(&session);
        ensure!(!room.join("a.txt").exists() && !room.join("b.txt").exists());
    }
    // A launcher that does not exist is refused before anything else.
    let program = isolated(dir.path(), r#"["/nowhere/sandbox", "{child}"]"#)?;
    let data = dir.path().join("none").display().to_string();
    let (code, _, told) =
        blocking(|| program.run(&["dev", "--listen", "127.0.0.1:0", "--data-dir", &data]))?;
    ensure!(
        code == 2 && told.contains("/nowhere/sandbox"),
        "{code}: {told}"
    );
    Ok(())
}
