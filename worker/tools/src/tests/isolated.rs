//! Child processes, well-behaved and misbehaving.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_runtime::{Lifecycle, OsEntropy, SystemClock};
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, SendId};
use mainspring_shared::memory::Account;
use mainspring_shared::message::plain_text;
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_shared::tool::ToolEntry;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::bed::{files, session};
use super::shell_end::{runs, until};
use crate::builtin::{Launcher, Settings, Shell, register, run_child};
use mainspring_worker::tool::{Executor, Invocation, Offers, Output, ToolError, Tools};

/// Start of every child's shell script: it records its PID for the test and reads the token it was
/// given.
pub(super) const BEGINS: &str = r#"echo $$ >> pids; read -r begin
token=$(printf %s "$begin" | sed 's/.*"token":"\([0-9a-f]*\)".*/\1/')
greet() { echo "{\"kind\":\"ready\",\"token\":\"$token\"}"; }
answer() { echo "{\"kind\":\"done\",\"token\":\"$1\",\"id\":$2,\"content\":[{\"type\":\"text\",\"text\":\"$$\"}],\"value\":null}"; }
number() { printf %s "$1" | sed 's/.*"id":\([0-9]*\).*/\1/'; }
"#;

/// Answers every call with its PID.
pub(super) const HONEST: &str = r#"greet
while read -r call; do answer "$token" "$(number "$call")"; done
echo ended >> ends"#;

/// A clock that runs a hundred times as fast.
#[derive(Debug, Default)]
pub(super) struct Fast(SystemClock);

#[async_trait]
impl Clock for Fast {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic() * 100
    }

    async fn sleep(&self, duration: Duration) {
        self.0.sleep(duration / 100).await;
    }
}

/// A worker whose children run a script.
pub(super) struct Cell {
    dir: TempDir,
    tools: Tools,
    offers: Offers,
    lifecycle: Lifecycle,
}

pub(super) fn launched(argv: &[&str], lifecycle: &Lifecycle) -> Launcher {
    Launcher {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        program: "/nowhere/mainspring".into(),
        entropy: Arc::new(OsEntropy),
        lifecycle: lifecycle.clone(),
    }
}

fn settings(root: PathBuf, argv: &[&str], lifecycle: &Lifecycle) -> Settings {
    Settings {
        shell: Shell::Local,
        launcher: Some(launched(argv, lifecycle)),
        ..files(root)
    }
}

impl Cell {
    async fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let lifecycle = Lifecycle::new();
        let script = format!("{BEGINS}{script}");
        let argv = ["/bin/sh", "-c", &script, "{child}"];
        let mut tools = Tools::default();
        let settings = settings(dir.path().to_owned(), &argv, &lifecycle);
        register(settings, Arc::new(Fast::default()), &mut tools).expect("registers");
        let names: Vec<_> = tools.names().map(str::to_owned).collect();
        let agent = AgentSpec {
            tools: names.into_iter().map(ToolEntry::Named).collect(),
            ..AgentSpec::default()
        };
        Self {
            offers: tools.offers(&SystemClock::new(), &agent, None).await,
            dir,
            tools,
            lifecycle,
        }
    }

    pub(super) fn invocation(send: u128) -> Invocation {
        Invocation {
            call_id: format!("call_isolated_{}_{send}", std::process::id()),
            arguments: Map::from_iter([("path".to_owned(), json!("a"))]),
            said: None,
            session: session(1),
            send_id: SendId(Uuid::from_u128(send)),
            boot: BootId(Uuid::nil()),
            attempt: 1,
            stop: CancellationToken::new(),
            skills: mainspring_worker::tool::Skills::default(),
            account: Account::default(),
            progress: mainspring_worker::tool::Progress::default(),
            kept: mainspring_worker::tool::Kept::default(),
            inquiring: mainspring_worker::tool::Inquiring::default(),
        }
    }

    async fn make(&self, name: &str, invocation: Invocation) -> Result<Output, ToolError> {
        let Executor::Here(tool) = &self.offers.get(name).expect("is on offer").place else {
            panic!("{name} is outside");
        };
        tool.call(invocation).await
    }

    async fn call(&self, send: u128) -> Result<String, ToolError> {
        let output = self.make("write_file", Self::invocation(send)).await?;
        Ok(plain_text(&output.content))
    }

    /// What the children wrote to a file in the session's directory.
    fn noted(&self, file: &str) -> Vec<String> {
        let room = self.dir.path().join(session(1).session.to_string());
        let noted = std::fs::read_to_string(room.join(file)).unwrap_or_default();
        noted.lines().map(str::to_owned).collect()
    }

    async fn all_gone(&self, count: usize) {
        let pids = self.noted("pids");
        assert_eq!(pids.len(), count);
        let pids: Vec<u32> = pids
            .iter()
            .map(|pid| pid.parse().expect("is one"))
            .collect();
        until(|| pids.iter().all(|pid| !runs(*pid))).await;
    }
}

fn code(error: &ToolError) -> Code {
    match error {
        ToolError::Reply { code, .. } => *code,
        ToolError::Asks(_) | ToolError::Abort { .. } | ToolError::Lost { .. } => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_send_has_one_child_which_ends_with_it() {
    let cell = Cell::new(HONEST).await;
    let (first, second, other) = tokio::join!(cell.call(1), cell.call(1), cell.call(2));
    let first = first.expect("answers");
    assert_eq!(first, second.expect("answers"));
    assert_ne!(first, other.expect("answers"));
    cell.tools.left(session(1), SendId(Uuid::from_u128(1)));
    until(|| cell.noted("ends").len() == 1).await;
    assert!(runs(first.parse().unwrap()) || cell.noted("pids").len() == 2);
    // A later send with the same ID has a new grant, so it gets a new child.
    assert_ne!(cell.call(1).await.expect("answers"), first);
    cell.tools.left(session(1), SendId(Uuid::from_u128(1)));
    cell.tools.left(session(1), SendId(Uuid::from_u128(2)));
    cell.all_gone(3).await;
    assert!(cell.lifecycle.shut_down(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn a_child_that_has_nothing_to_do_ends() {
    let cell = Cell::new(HONEST).await;
    cell.call(1).await.expect("answers");
    cell.all_gone(1).await;
    assert_eq!(cell.noted("ends"), ["ended"]);
    cell.call(1).await.expect("a new child answers");
}

#[tokio::test]
async fn a_hard_stop_ends_children_under_way() {
    let cell = Cell::new("greet; read -r call; echo asked > asked; sleep 1000").await;
    let stopped = async {
        until(|| !cell.noted("asked").is_empty()).await;
        cell.lifecycle.abort();
    };
    let (said, ()) = tokio::join!(cell.call(1), stopped);
    assert_eq!(code(&said.expect_err("fails")), Code::ToolUnknownOutcome);
    cell.all_gone(1).await;
}

#[tokio::test]
async fn a_child_that_never_greets_makes_no_call() {
    for script in [
        "exit 0",
        "sleep 1000",
        "echo hello",
        "echo '{\"kind\":\"ready\",\"token\":\"00\"}'; sleep 1000",
        "answer \"$token\" 0; sleep 1000",
        "greet | tr -d '\\n'; yes | tr -d '\\n'",
    ] {
        let cell = Cell::new(script).await;
        let error = cell.call(1).await.expect_err("fails");
        assert!(
            error.to_string().contains("was not made"),
            "{script}: {error}"
        );
        assert_eq!(code(&error), Code::ToolFailed);
        cell.all_gone(1).await;
    }
}

#[tokio::test]
async fn a_child_that_answers_nonsense_is_ended_with_all_that_it_started() {
    for script in [
        "exit 0",
        "echo garbage; sleep 1000",
        "answer 00 0; sleep 1000",
        "answer \"$token\" 7; sleep 1000",
        "greet; sleep 1000",
        "yes | tr -d '\\n'",
    ] {
        let family = "sh -c 'echo $$ >> pids; exec sleep 1000' & while [ $(wc -l < pids) -lt 2 ]; do sleep 0.01; done;";
        let cell = Cell::new(&format!("greet; read -r call; {family} {script}")).await;
        let error = cell.call(1).await.expect_err("fails");
        assert_eq!(code(&error), Code::ToolUnknownOutcome, "{script}: {error}");
        cell.all_gone(2).await;
        // The outcome of a tool that only reads cannot be in doubt.
        let read = cell.make("read_file", Cell::invocation(2)).await;
        assert_eq!(
            code(&read.expect_err("fails")),
            Code::ToolFailed,
            "{script}"
        );
    }
}

#[tokio::test]
async fn a_child_that_does_not_stop_is_ended() {
    let cell = Cell::new("greet; read -r call; echo asked > asked; sleep 1000").await;
    let clock = SystemClock::new();
    let invocation = Cell::invocation(1);
    let stop = invocation.stop.clone();
    {
        let call = cell.make("write_file", invocation);
        tokio::pin!(call);
        tokio::select! {
            said = &mut call => panic!("{said:?}"),
            () = until(|| !cell.noted("asked").is_empty()) => stop.cancel(),
        }
        tokio::select! {
            said = &mut call => panic!("{said:?}"),
            () = clock.sleep(Duration::from_millis(50)) => {}
        }
        assert_eq!(cell.noted("pids").len(), 1);
        // Dropping the call here is what the kernel does after its grace period.
    }
    cell.all_gone(1).await;
}

#[tokio::test]
async fn large_calls_and_large_answers_pass_each_other() {
    // More than a pipe holds, in both directions at once.
    let script = r#"greet; sleep 0.3; many=$(head -c 300000 /dev/zero | tr '\0' x)
for n in 0 1 2 3; do echo "{\"kind\":\"done\",\"token\":\"$token\",\"id\":$n,\"content\":[{\"type\":\"text\",\"text\":\"$many\"}],\"value\":null}"; done
cat > /dev/null"#;
    // It answers before it reads, so only a worker that reads while it writes makes progress.
    let cell = Cell::new(script).await;
    let calls = (0..4).map(|_| {
        let mut invocation = Cell::invocation(1);
        let text = Value::String("y".repeat(300_000));
        invocation.arguments.insert("content".to_owned(), text);
        cell.make("write_file", invocation)
    });
    for said in futures::future::join_all(calls).await {
        assert_eq!(plain_text(&said.expect("answers").content).len(), 300_000);
    }
}

#[test]
fn what_a_launcher_names_must_be_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let lifecycle = Lifecycle::new();
    let refused = |argv: &[&str]| {
        let settings = settings(dir.path().to_owned(), argv, &lifecycle);
        let mut tools = Tools::default();
        let refused = register(settings, Arc::new(SystemClock::new()), &mut tools);
        refused.err().map(|error| error.to_string())
    };
    assert_eq!(refused(&["{child}"]), None);
    assert_eq!(
        refused(&["env", "A={workspace}/{session}-{send}", "{}", "{child}"]),
        None
    );
    for (argv, why) in [
        (&[][..], "has to have the argument {child} once"),
        (&["/bin/sh"], "has to have the argument {child} once"),
        (&["/bin/sh", "{child}", "{child}"], "once"),
        (
            &["/bin/sh", "a{child}", "{child}"],
            "has {child}, which is unknown",
        ),
        (
            &["/bin/sh", "{command}", "{child}"],
            "has {command}, which is unknown",
        ),
        (&["/nowhere/sandbox", "{child}"], "no program here"),
        (&["no-such-sandbox", "{child}"], "no program here"),
    ] {
        let said = refused(argv).unwrap_or_default();
        assert!(said.contains(why), "{argv:?}: {said}");
    }
}

/// Runs the child's side in this process, sending it one line at a time.
async fn talk(lines: &[Value]) -> (Vec<Value>, std::io::Result<()>) {
    talk_confined(lines, |_| Ok(())).await
}

/// The same, with a substitute for its confinement.
pub(super) async fn talk_confined(
    lines: &[Value],
    confine: impl FnOnce(u64) -> std::io::Result<()>,
) -> (Vec<Value>, std::io::Result<()>) {
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    let (input, output) = tokio::io::split(theirs);
    let clock = Arc::new(SystemClock::new());
    let speak = async {
        for line in lines {
            let line = format!("{line}\n");
            ours.write_all(line.as_bytes()).await.expect("writes");
        }
        // Long enough for the answers; the child ends when its input ends.
        let mut heard = Vec::new();
        let (reading, mut writing) = tokio::io::split(ours);
        let mut reading = BufReader::new(reading).lines();
        while heard.len() < lines.len() {
            match reading.next_line().await {
                Ok(Some(line)) => heard.push(serde_json::from_str(&line).expect("is JSON")),
                _ => break,
            }
        }
        let _ = writing.shutdown().await;
        heard
    };
    tokio::join!(speak, run_child(input, output, clock, confine))
}

#[tokio::test]
async fn a_child_makes_calls_in_its_directory_and_obeys_its_worker_only() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("a"), "one\n").expect("writes");
    let limits = serde_json::to_value(crate::builtin::Limits::default()).expect("is JSON");
    let begin = json!({
        "token": "t", "root": dir.path(), "shell": "off", "environment": {}, "limits": limits,
    });
    let call = |token: &str, tool: &str| {
        json!({
            "kind": "call", "token": token, "id": 5, "tool": tool, "call_id": "call_1",
            "arguments": {"path": "a"}, "attempt": 1,
            "session": serde_json::to_value(session(1)).expect("is JSON"),
            "send_id": SendId(Uuid::from_u128(1)),
        })
    };
    let (heard, ended) = talk(&[begin.clone(), call("t", "read_file")]).await;
    assert_eq!(heard[0], json!({"kind": "ready", "token": "t"}));
    assert_eq!(heard[1]["kind"], "done", "{heard:?}");
    assert_eq!(heard[1]["id"], 5);
    assert!(
        heard[1]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("one")
    );
    ended.expect("ends with its input");

    let (heard, ended) = talk(&[begin.clone(), call("t", "shell")]).await;
    assert_eq!(heard[1]["kind"], "failed", "{heard:?}");
    ended.expect("ends with its input");

    let (heard, ended) = talk(&[begin.clone(), call("other", "read_file")]).await;
    assert_eq!(heard.len(), 1);
    assert!(ended.expect_err("is refused").to_string().contains("token"));

    let (_, ended) = talk(&[begin, json!({"kind": "dance"})]).await;
    ended.expect_err("is refused");
}
