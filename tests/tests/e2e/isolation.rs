//! Isolated agents and their processes: what a tool can find there, what is left of a call whose
//! process dies, and that no process outlives its worker.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::Program;
use mainspring_shared::time::Clock as _;
use mainspring_tests::faults::{RetryingClient, beside, binary, blocking};
use serde_json::{Value, json};

use super::tools::start;

/// Secrets that only the worker may know: in its environment, and in a file next to it.
const SECRETS: [&str; 5] = [
    "sk-of-the-worker",
    "sk-of-another",
    "pw-of-postgres",
    "pw-of-redis",
    "pw-in-a-file",
];

/// A minimal MCP server: its tool `look` reports who started it, and everything that it can find of
/// the worker.
const SERVER: &str = r#"answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) answer '{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"look","description":"looks","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*)
      said=$(tr '\0' ' ' < /proc/$PPID/cmdline; env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n')
      said=$(printf %s "$said" | tr '\n"\\' '  /')
      answer "{\"content\":[{\"type\":\"text\",\"text\":\"$said\"}]}" ;;
  esac
done"#;

/// A sandbox built from plain Linux tools: the host's processes and one directory are not visible
/// in it.
fn sandbox(hidden: &Path) -> Vec<String> {
    let hide = format!(
        "mount -t tmpfs none '{}' && exec \"$0\" \"$@\"",
        hidden.display()
    );
    let words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        &hide,
        "{child}",
    ];
    words.map(str::to_owned).to_vec()
}

/// Whether this machine lets unprivileged users create namespaces.
fn has_namespaces() -> bool {
    let made = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--pid", "--fork"])
        .args(["--mount-proc", "true"])
        .status();
    made.is_ok_and(|status| status.success())
}

/// A server with this isolation, with secrets in its environment and in `secrets` next to it.
fn program(dir: &Path, launcher: &[String]) -> Result<(Program, PathBuf)> {
    let secrets = dir.join("secrets");
    std::fs::create_dir_all(&secrets)?;
    std::fs::write(secrets.join("database"), "postgres://u:pw-in-a-file@db/m\n")?;
    let server = dir.join("server.sh");
    std::fs::write(&server, SERVER)?;
    let config = dir.join("config.toml");
    let lines = [
        "[tools]".to_owned(),
        "shell = \"local\"".to_owned(),
        format!("workspace = {}", json!(dir.join("data/workspaces"))),
        format!("isolation_launcher = {}", json!(launcher)),
        "[worker]".to_owned(),
        "isolation_memory = 67108864".to_owned(),
        "[mcp.mine]".to_owned(),
        "command = \"sh\"".to_owned(),
        format!("args = {}", json!([server])),
        "env = { OWN = \"for-the-server\" }".to_owned(),
        "[mcp.other]".to_owned(),
        "command = \"sh\"".to_owned(),
        "env = { OWN = \"for-another\" }".to_owned(),
    ];
    std::fs::write(&config, lines.join("\n"))?;
    let environment = [
        ("MAINSPRING_LLM_PROVIDER", "demo"),
        ("MAINSPRING_LLM_API_KEY", "sk-of-the-worker"),
        ("OPENAI_API_KEY", "sk-of-another"),
        ("DATABASE_URL", "postgres://u:pw-of-postgres@db/m"),
        ("REDIS_URL", "redis://u:pw-of-redis@queue/0"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = ("MAINSPRING_CONFIG".to_owned(), config.display().to_string());
    let program = Program {
        binary: binary()?,
        logs: dir.join("logs"),
        environment: environment.into_iter().chain([config]).collect(),
    };
    Ok((program, secrets))
}

async fn session(caller: &mut RetryingClient, tools: Value) -> Result<String> {
    let agent = json!({ "agent": { "tools": tools, "isolation": "process" } });
    let made = caller.post("/v1/sessions", &agent, "session").await?;
    let made = made.json()?;
    let id = made["id"].as_str().with_context(|| made.to_string())?;
    Ok(id.to_owned())
}

/// Runs a send; returns its final state, and the results of its calls.
async fn sent(
    caller: &mut RetryingClient,
    session: &str,
    input: &str,
) -> Result<(Value, Vec<String>)> {
    let path = format!("/v1/sessions/{session}/sends?wait=60s");
    let body = json!({ "input": input });
    let ended = caller.post(&path, &body, "sent").await?.json()?;
    let path = format!("/v1/sessions/{session}/messages");
    let messages = caller.all(&path).await?;
    let text = |m: &Value| m["content"][0]["text"].as_str().map(str::to_owned);
    let told = messages
        .iter()
        .filter(|m| m["role"] == "tool" && m["send_id"] == ended["id"])
        .map(|m| text(m).unwrap_or_default());
    let told = told.collect();
    Ok((ended, told))
}

async fn until(what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let clock = mainspring_runtime::SystemClock::new();
    let end = clock.monotonic() + Duration::from_secs(20);
    while !done() {
        ensure!(clock.monotonic() < end, "{what} never comes");
        clock.sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn shell(command: &str) -> String {
    format!("!tool shell {}", json!({ "command": command }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_agent_finds_no_credentials() -> Result<()> {
    if !has_namespaces() {
        // As with databases: skip, unless nothing may be skipped.
        let required = std::env::var_os("REQUIRE_STORES").is_some();
        ensure!(!required, "this machine lets nobody make namespaces");
        return Ok(());
    }
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let hidden = dir.path().join("secrets");
    let (program, secrets) = program(dir.path(), &sandbox(&hidden))?;
    let dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let http = json!({"type": "http", "name": "ping", "url": "http://127.0.0.1:1/"});
    let mcp = json!({"type": "mcp", "server": "mine", "prefix": "m_"});
    let session = session(&mut caller, json!(["core", "command_start", http, mcp])).await?;
    let look = [
        "cat /proc/self/environ /proc/$PPID/environ /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'",
        "tr '\\0' ' ' < /proc/$PPID/cmdline",
        &format!("cat {}/* 2>&1", secrets.display()),
        "ulimit -d",
        "ls /proc | grep -c '^[0-9]'",
    ];
    let work = format!(
        "{} !then !tool m_look {{}} !then !tool ping {{}} !then !tool command_start {{\"command\": \"true\"}}",
        shell(&look.join("; "))
    );
    let (ended, said) = sent(&mut caller, &session, &work).await?;
    ensure!(ended["status"] == "completed", "{ended}");
    ensure!(said.len() == 4, "{said:?}");
    for secret in SECRETS {
        ensure!(
            !said.iter().any(|said| said.contains(secret)),
            "{secret}: {said:?}"
        );
    }
    // The shell and the server are children of the tools process, which has a memory limit and the
    // environment it needs.
    ensure!(
        said[0].contains("run-tools") && said[0].contains("PATH="),
        "{said:?}"
    );
    ensure!(said[0].contains("MIMALLOC_ARENA_EAGER_COMMIT"), "{said:?}");
    ensure!(!said[0].contains("unlimited"), "{said:?}");
    ensure!(said[1].contains("run-tools"), "{said:?}");
    ensure!(said[1].contains("OWN=for-the-server"), "{said:?}");
    ensure!(!said[1].contains("for-another"), "{said:?}");
    // Address rules apply there, too; tools that cannot run there are not offered.
    ensure!(said[2].contains("tools.allow_private"), "{said:?}");
    ensure!(said[3].contains("no tool named"), "{said:?}");

    // Without the sandbox the same command would find something: the test can detect a leak.
    let seen = std::fs::read_to_string(secrets.join("database"))?;
    ensure!(seen.contains("pw-in-a-file"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_in_the_middle_does_nothing_twice() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let (mut program, _) = program(dir.path(), &["{child}".to_owned()])?;
    let dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let session = session(&mut caller, json!(["core"])).await?;
    let room = data.join("workspaces").join(&session);
    let work = format!(
        "{} !then {} !then !tool read_file {{\"path\": \"done\"}}",
        shell("echo one >> done; kill -KILL $PPID; sleep 30"),
        shell("echo two >> done"),
    );
    let (ended, said) = sent(&mut caller, &session, &work).await?;
    ensure!(ended["status"] == "completed", "{ended}");
    ensure!(said[0].contains("not known"), "{said:?}");
    ensure!(said[2].contains("two"), "{said:?}");
    ensure!(std::fs::read_to_string(room.join("done"))? == "one\ntwo\n");
    drop(dev);
    // Audit what it wrote, not the decoy databases named in its environment.
    program
        .environment
        .retain(|(name, _)| !name.ends_with("_URL"));
    let arguments = ["audit", "--data-dir", data.to_str().context("UTF-8")?];
    let (code, out, err) = blocking(|| program.run(&arguments))?;
    ensure!(code == 0, "{out}{err}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_takes_its_processes_along() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let (program, _) = program(dir.path(), &["{child}".to_owned()])?;
    let dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let mcp = json!({"type": "mcp", "server": "mine"});
    let session = session(&mut caller, json!(["core", mcp])).await?;
    let room = data.join("workspaces").join(&session);
    let command = "echo $PPID > child; echo $$ > own; exec sleep 600";
    let begin = json!({ "input": shell(command) });
    let path = format!("/v1/sessions/{session}/sends");
    caller.post(&path, &begin, "long").await?;
    let pid = |file: &str| {
        let text = std::fs::read_to_string(room.join(file)).unwrap_or_default();
        text.ends_with('\n').then(|| text.trim().to_owned())
    };
    until("the call", || pid("own").is_some()).await?;
    let child = pid("child").context("the child")?;
    let below = std::fs::read_to_string(format!("/proc/{child}/task/{child}/children"))?;
    let mut all: Vec<String> = below.split_whitespace().map(str::to_owned).collect();
    ensure!(all.len() >= 2, "the command and the server: {below}");
    all.extend([child, pid("own").context("the command")?]);
    // Dropping kills it.
    drop(dev);
    for pid in all {
        let gone = || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z")
        };
        until(&format!("the end of {pid}"), gone).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_sandbox_does_not_start_the_send_fails_with_its_code() -> Result<()> {
    let _turn = beside()?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let broken = ["false", "{child}"].map(str::to_owned);
    let (mut program, _) = program(dir.path(), &broken)?;
    let quickly = ("MAINSPRING_RETRY_ATTEMPTS_MAX".to_owned(), "2".to_owned());
    program.environment.push(quickly);
    let dev = start(&program, "dev", &data)?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let session = session(&mut caller, json!(["core"])).await?;
    let (ended, said) = sent(&mut caller, &session, &shell("echo one > a")).await?;
    ensure!(ended["status"] == "failed", "{ended}");
    ensure!(ended["error"]["code"] == "isolation.unavailable", "{ended}");
    ensure!(said.is_empty() && ended["rounds"] == 0, "{ended} {said:?}");
    ensure!(!data.join("workspaces").join(&session).join("a").exists());
    Ok(())
}
