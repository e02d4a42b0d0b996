//! Cells of isolated agents: child processes that make all calls, or die while making one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mainspring_runtime::{Lifecycle, SystemClock};
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::SendId;
use mainspring_shared::message::plain_text;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use super::bed::{files, session};
use super::isolated::{BEGINS, Cell, Fast, HONEST, launched, talk_confined};
use crate::builtin::{IsolationSettings, Limits, Outside, Settings, Shell, register};
use mainspring_worker::tool::{
    CellOwner, Executor, Invocation, NoCell, Offers, Output, Tool, ToolError, Tools,
};

/// A worker whose cells run a script.
struct Bed {
    dir: TempDir,
    tools: Tools,
    lifecycle: Lifecycle,
}

fn settings(root: Option<PathBuf>, argv: &[&str], lifecycle: &Lifecycle) -> Settings {
    let base = match root {
        Some(root) => Settings {
            shell: Shell::Local,
            ..files(root)
        },
        None => Settings::default(),
    };
    Settings {
        isolation: Some(IsolationSettings {
            launcher: launched(argv, lifecycle),
            memory: 1 << 30,
            processes_max: 1,
            outside: Outside::default(),
        }),
        ..base
    }
}

fn owner(send: u128) -> CellOwner {
    CellOwner {
        session: session(1),
        send: SendId(Uuid::from_u128(send)),
    }
}

impl Bed {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let lifecycle = Lifecycle::new();
        let script = format!("{BEGINS}{script}");
        let argv = ["/bin/sh", "-c", &script, "{child}"];
        let mut tools = Tools::default();
        let settings = settings(Some(dir.path().to_owned()), &argv, &lifecycle);
        register(settings, Arc::new(Fast::default()), &mut tools).expect("registers");
        Self {
            dir,
            tools,
            lifecycle,
        }
    }

    async fn offers(&self, send: u128, agent: Value) -> Result<Offers, NoCell> {
        let agent: AgentSpec = serde_json::from_value(agent).expect("an agent");
        let of = (owner(send), &agent);
        self.tools.offers_of(&SystemClock::new(), of, None).await
    }

    fn children(&self) -> usize {
        let room = self.dir.path().join(session(1).session.to_string());
        let pids = std::fs::read_to_string(room.join("pids")).unwrap_or_default();
        pids.lines().count()
    }
}

fn isolated(tools: &Value) -> Value {
    json!({ "isolation": "process", "tools": tools })
}

fn tool(offers: &Offers, name: &str) -> Arc<dyn Tool> {
    match &offers.get(name).expect("is on offer").place {
        Executor::Here(tool) => tool.clone(),
        Executor::Outside { .. } => panic!("{name} is outside"),
    }
}

async fn call(offers: &Offers, name: &str, send: u128) -> Result<Output, ToolError> {
    tool(offers, name).call(Cell::invocation(send)).await
}

#[tokio::test]
async fn an_isolated_agent_has_its_tools_in_a_cell_and_others_have_them_here() {
    let bed = Bed::new(HONEST);
    let http = json!({"type": "http", "name": "ping", "url": "https://a.example/"});
    let named = json!(["core", "current_time", http]);
    let offers = bed.offers(1, isolated(&named)).await.expect("a cell");
    assert_eq!(bed.children(), 1);
    let pid = |output: Output| plain_text(&output.content);
    let first = pid(call(&offers, "write_file", 1).await.expect("answers"));
    for name in ["shell", "ping"] {
        let answered = call(&offers, name, 1).await.expect("answers");
        assert_eq!(pid(answered), first);
    }
    let here = tool(&offers, "current_time");
    let answered = here.call(Invocation {
        arguments: Map::new(),
        ..Cell::invocation(1)
    });
    assert_ne!(pid(answered.await.expect("answers")), first);
    // Agents that are not isolated use no cell, and neither do those whose tools need none.
    let open = bed.offers(2, json!({"tools": ["read_file"]})).await;
    assert!(open.expect("is served").get("read_file").is_some());
    let none = bed.offers(2, isolated(&json!(["current_time"]))).await;
    assert!(none.expect("is served").get("current_time").is_some());
    assert_eq!(bed.children(), 1);
    bed.lifecycle.abort();
}

#[tokio::test]
async fn a_call_under_which_the_cell_dies_is_lost() {
    let bed = Bed::new("greet; read -r call; exit 3");
    for (send, name) in [(1, "write_file"), (2, "read_file")] {
        let offers = bed.offers(send, isolated(&json!(["core"]))).await;
        let died = call(&offers.expect("a cell"), name, send).await;
        assert!(matches!(died, Err(ToolError::Lost { .. })), "{died:?}");
        bed.tools.left(owner(send).session, owner(send).send);
    }
}

#[tokio::test]
async fn a_cell_that_does_not_begin_is_none() {
    for script in ["exit 1", "echo hello", "sleep 1000"] {
        let bed = Bed::new(script);
        let none = bed.offers(1, isolated(&json!(["core"]))).await;
        let none = none.expect_err("does not begin");
        assert!(matches!(none, NoCell::Start { .. }), "{script}: {none}");
        assert!(!none.is_permanent());
        bed.lifecycle.abort();
    }
}

#[tokio::test]
async fn without_a_launcher_there_are_no_cells() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut tools = Tools::default();
    let files = files(dir.path().to_owned());
    register(files, Arc::new(SystemClock::new()), &mut tools).expect("registers");
    let agent: AgentSpec = serde_json::from_value(isolated(&json!(["core"]))).expect("an agent");
    let of = (owner(1), &agent);
    let none = tools.offers_of(&SystemClock::new(), of, None).await;
    assert_eq!(none.expect_err("has none"), NoCell::Unconfigured);
}

#[tokio::test]
async fn an_idle_cell_makes_room_for_another_send() {
    let bed = Bed::new(HONEST);
    let core = isolated(&json!(["core"]));
    let first = bed.offers(1, core.clone()).await.expect("a cell");
    let second = bed.offers(2, core).await.expect("a cell");
    assert_eq!(bed.children(), 2);
    call(&second, "write_file", 2).await.expect("answers");
    // The first send gets a new cell when it makes its next call.
    call(&first, "write_file", 1).await.expect("answers");
    assert_eq!(bed.children(), 3);
    bed.lifecycle.abort();
}

#[test]
fn a_launcher_may_only_name_a_workspace_that_there_is() {
    let lifecycle = Lifecycle::new();
    let argv = ["env", "A={workspace}", "{child}"];
    let mut tools = Tools::default();
    let settings = settings(None, &argv, &lifecycle);
    let refused = register(settings, Arc::new(SystemClock::new()), &mut tools);
    let refused = refused.expect_err("has none").to_string();
    assert!(refused.contains("tools.workspace is not set"), "{refused}");
}

#[tokio::test]
async fn a_child_calls_what_its_agent_declares_by_the_rules_of_its_worker() {
    let limits = serde_json::to_value(Limits::default()).expect("is JSON");
    let http = json!({
        "keys": {}, "allow_private": [],
        "timeout": {"secs": 5, "nanos": 0}, "answer_bytes_max": 1000,
    });
    let begin = |http: &Value| {
        json!({
            "token": "t", "root": null, "shell": "off", "environment": {}, "limits": limits,
            "cell": {"memory": 77, "http": http, "servers": {}},
        })
    };
    let ping = json!({"type": "http", "name": "ping", "url": "http://127.0.0.1:1/"});
    let call = json!({
        "kind": "call", "token": "t", "id": 5, "tool": "ping", "call_id": "call_1", "declared": ping,
        "arguments": {}, "attempt": 1, "send_id": owner(1).send,
        "session": serde_json::to_value(session(1)).expect("is JSON"),
    });
    let list = json!({
        "kind": "list", "token": "t", "id": 6, "declared": {"type": "mcp", "server": "none"},
    });
    let memory = AtomicU64::new(0);
    let confine = |bytes| {
        memory.store(bytes, Ordering::Relaxed);
        Ok(())
    };
    let (heard, ended) = talk_confined(&[begin(&http), call.clone()], confine).await;
    ended.expect("ends with its input");
    let refused = heard[1]["message"].as_str().expect("says why");
    assert!(refused.contains("tools.allow_private"), "{heard:?}");
    assert_eq!(memory.load(Ordering::Relaxed), 77);

    let (heard, ended) = talk_confined(&[begin(&json!(null)), call], |_| Ok(())).await;
    ended.expect("ends with its input");
    assert_eq!(heard[1]["kind"], "failed", "{heard:?}");

    let (heard, ended) = talk_confined(&[begin(&http), list], |_| Ok(())).await;
    ended.expect("ends with its input");
    assert_eq!(heard[1]["kind"], "away", "{heard:?}");

    let failing = |_| Err(std::io::Error::other("no limits here"));
    let (heard, ended) = talk_confined(&[begin(&http)], failing).await;
    assert!(heard.is_empty(), "{heard:?}");
    ended.expect_err("does not begin unbounded");
}
