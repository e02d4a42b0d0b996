//! Sends of isolated agents: their calls are made in a cell or not at all, and a cell's death
//! counts as a death of the worker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use mainspring_shared::agent::{AgentSpec, Isolation};
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::message::Role::Tool as ToolRole;
use mainspring_shared::message::plain_text;
use mainspring_shared::send::{SendRecord, SendStatus, StopReason};
use mainspring_shared::step::StepKind;
use mainspring_shared::tool::schema::any_object;
use mainspring_shared::tool::{DeclaredTool, Repeat, ToolEntry};
use mainspring_tests::world::World;
use mainspring_worker::tool::{
    Away, Cell, CellOwner, Invocation, Isolator, NoCell, Output, Tool, ToolError, ToolSpec, Traits,
};
use serde_json::{Value, json};

/// Records what happened in cells, and scripts what is to happen.
#[derive(Debug, Default)]
struct Cells {
    /// Owners for which a cell was requested.
    entered: Mutex<Vec<CellOwner>>,
    /// Calls that were started: the tool, and the call's id.
    made: Mutex<Vec<(String, String)>>,
    /// Number of calls left, by tool, during which the cell dies.
    deaths: Mutex<BTreeMap<&'static str, u32>>,
    /// Number of times left that starting a cell fails.
    refused: Mutex<u32>,
    /// Number of times left that all cells are in use.
    busy: Mutex<u32>,
}

impl Cells {
    fn made(&self, tool: &str) -> Vec<String> {
        let made = self.made.lock().expect("nobody panics under it");
        let made = made.iter().filter(|(name, _)| name == tool);
        made.map(|(_, call)| call.clone()).collect()
    }
}

/// A worker's access to the fake cells.
#[derive(Debug)]
struct Fake(Arc<Cells>);

#[async_trait]
impl Isolator for Fake {
    async fn cell(&self, owner: CellOwner, agent: &AgentSpec) -> Result<Arc<dyn Cell>, NoCell> {
        assert_eq!(agent.isolation, Isolation::Process);
        let mut refused = self.0.refused.lock().expect("nobody panics under it");
        if *refused > 0 {
            *refused -= 1;
            return Err(NoCell::Start {
                detail: "scripted".to_owned(),
            });
        }
        let mut busy = self.0.busy.lock().expect("nobody panics under it");
        if *busy > 0 {
            *busy -= 1;
            return Err(NoCell::Busy);
        }
        let mut entered = self.0.entered.lock().expect("nobody panics under it");
        entered.push(owner);
        Ok(Arc::new(FakeCell(self.0.clone())))
    }
}

#[derive(Debug)]
struct FakeCell(Arc<Cells>);

#[async_trait]
impl Cell for FakeCell {
    fn named(&self, name: &str) -> Option<Arc<dyn Tool>> {
        let (name, repeat) = match name {
            "look" => ("look", Repeat::Safe),
            "put" => ("put", Repeat::Keyed),
            "act" => ("act", Repeat::Once),
            _ => return None,
        };
        let cells = self.0.clone();
        Some(Arc::new(InCell {
            name,
            repeat,
            cells,
        }))
    }

    async fn declared(&self, _: &DeclaredTool) -> Option<Result<Vec<Arc<dyn Tool>>, Away>> {
        None
    }
}

#[derive(Debug)]
struct InCell {
    name: &'static str,
    repeat: Repeat,
    cells: Arc<Cells>,
}

#[async_trait]
impl Tool for InCell {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.to_owned(),
            description: String::new(),
            parameters: any_object(),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(self.repeat)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let mut made = self.cells.made.lock().expect("nobody panics under it");
        made.push((self.name.to_owned(), invocation.call_id));
        let mut deaths = self.cells.deaths.lock().expect("nobody panics under it");
        if let Some(left) = deaths.get_mut(self.name).filter(|left| **left > 0) {
            *left -= 1;
            return Err(ToolError::Lost {
                message: "scripted".to_owned(),
            });
        }
        Ok(Output::text(format!("{} in a cell", self.name)))
    }
}

fn agent(isolation: Isolation) -> AgentSpec {
    let tools = ["look", "put", "act", "slow", "todo", "spawn_agent"];
    AgentSpec {
        tools: tools.map(|name| ToolEntry::Named(name.into())).to_vec(),
        isolation,
        ..AgentSpec::default()
    }
}

async fn world(cells: &Arc<Cells>) -> World {
    World::with_tools(|tools, _, _| tools.isolate_with(Arc::new(Fake(cells.clone())))).await
}

fn plan(rounds: &Value) -> String {
    format!("plan {rounds}")
}

/// Runs a send that makes these calls to its end.
async fn ended(world: &World, key: SessionKey, calls: &Value) -> SendRecord {
    let id = world.send(key, &plan(calls)).await;
    world.settle(&[id]).await.remove(0)
}

async fn results(world: &World) -> Vec<String> {
    let session = world.dump().await.sessions.remove(0);
    let told = session.messages.iter().filter(|m| m.role == ToolRole);
    told.map(|m| plain_text(&m.content)).collect()
}

#[tokio::test(start_paused = true)]
async fn calls_of_an_isolated_agent_are_made_in_its_cell_or_not_at_all() {
    let cells = Arc::new(Cells::default());
    let world = world(&cells).await;
    let key = world.session(agent(Isolation::Process)).await;
    let open = world.session(agent(Isolation::None)).await;
    let _worker = world.worker("w", world.store.clone());
    let calls =
        json!([[["look", {}], ["put", {}], ["act", {}], ["slow", {}], ["todo", {"items": []}]]]);
    let record = ended(&world, key, &calls).await;
    assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
    let told = results(&world).await;
    assert_eq!(
        told[..3],
        ["look in a cell", "put in a cell", "act in a cell"]
    );
    assert!(told[3].contains("no tool named"), "{told:?}");
    assert!(!told[4].contains("error"), "{told:?}");
    assert_eq!(world.acts.all(), []);
    let owner = CellOwner {
        session: key,
        send: record.id,
    };
    assert_eq!(*cells.entered.lock().unwrap(), [owner]);

    // A session without isolation uses no cell.
    let id = world.send(open, &plan(&json!([[["look", {}]]]))).await;
    world.settle(&[id]).await;
    assert_eq!(world.acts.of("look").len(), 1);
    assert_eq!(cells.made("look").len(), 1);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn after_the_death_of_a_cell_nothing_is_done_twice_that_may_not_be() {
    let cells = Arc::new(Cells::default());
    *cells.deaths.lock().unwrap() = BTreeMap::from([("act", 1), ("look", 1)]);
    let world = world(&cells).await;
    let key = world.session(agent(Isolation::Process)).await;
    let _worker = world.worker("w", world.store.clone());
    let calls = json!([[["put", {}], ["act", {}]], [["look", {}]]]);
    let record = ended(&world, key, &calls).await;
    assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
    let told = results(&world).await;
    assert_eq!(told[0], "put in a cell");
    assert!(told[1].contains("not known"), "{told:?}");
    assert_eq!(told[2], "look in a cell");
    assert_eq!(cells.made("act").len(), 1);
    // The repeated call has the same id each time.
    let looked = cells.made("look");
    assert_eq!(looked.len(), 2);
    assert_eq!(looked[0], looked[1]);
    assert!((1..=2).contains(&cells.made("put").len()));
    // The last crash still counts: its call's result was stored only together with the answer.
    assert_eq!(record.crashes, 1);
    let steps = world.dump().await.sessions.remove(0).steps;
    let taken = steps.iter().filter(|step| step.kind == StepKind::Resumed);
    let why: Vec<_> = taken.filter_map(|step| step.refs.reason.clone()).collect();
    assert_eq!(why, ["takeover", "takeover"]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_under_which_every_cell_dies_ends_its_send() {
    let cells = Arc::new(Cells::default());
    *cells.deaths.lock().unwrap() = BTreeMap::from([("look", u32::MAX)]);
    let world = world(&cells).await;
    let key = world.session(agent(Isolation::Process)).await;
    let _worker = world.worker("w", world.store.clone());
    let record = ended(&world, key, &json!([[["look", {}]]])).await;
    assert_eq!(record.status, SendStatus::Failed);
    assert_eq!(record.stop_reason, Some(StopReason::WorkerCrashLimit));
    let code = record.error.map(|error| error.code);
    assert_eq!(code, Some(Code::SendWorkerCrashLimit));
    assert_eq!(cells.made("look").len(), 5);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_isolate_fails_the_send_and_asks_no_model() {
    let world = World::new().await;
    let key = world.session(agent(Isolation::Process)).await;
    let _worker = world.worker("w", world.store.clone());
    let record = ended(&world, key, &json!([[["look", {}]]])).await;
    let error = record.error.expect("it failed");
    assert_eq!(error.code, Code::IsolationUnavailable);
    assert!(
        error.message.contains("tools.isolation_launcher"),
        "{error:?}"
    );
    assert_eq!(record.stop_reason, Some(StopReason::ToolAbort));
    assert_eq!((world.script.asked(), world.acts.all()), (0, Vec::new()));

    // An agent whose tools need no cell is served.
    let spec = AgentSpec {
        tools: vec![ToolEntry::Named("todo".into())],
        isolation: Isolation::Process,
        ..AgentSpec::default()
    };
    let key = world.session(spec).await;
    let id = world.send(key, "hello").await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_cell_that_does_not_start_is_tried_again_and_not_for_ever() {
    let cells = Arc::new(Cells::default());
    *cells.refused.lock().unwrap() = 2;
    let world = world(&cells).await;
    let key = world.session(agent(Isolation::Process)).await;
    let _worker = world.worker("w", world.store.clone());
    let record = ended(&world, key, &json!([[["act", {}]]])).await;
    assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
    assert_eq!(results(&world).await, ["act in a cell"]);

    *cells.refused.lock().unwrap() = u32::MAX;
    let record = ended(&world, key, &json!([[["act", {}]]])).await;
    let code = record.error.map(|error| error.code);
    assert_eq!(code, Some(Code::IsolationUnavailable));
    assert_eq!(cells.made("act").len(), 1);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_send_waits_for_a_cell_as_a_row_however_long_all_are_in_use() {
    let cells = Arc::new(Cells::default());
    *cells.busy.lock().unwrap() = 30;
    let world = world(&cells).await;
    let key = world.session(agent(Isolation::Process)).await;
    let _worker = world.worker("w", world.store.clone());
    let record = ended(&world, key, &json!([[["act", {}]]])).await;
    assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
    assert_eq!(cells.made("act").len(), 1);
    assert_eq!(*cells.busy.lock().unwrap(), 0);
    let steps = world.dump().await.sessions.remove(0).steps;
    let waits = steps.iter().filter(|step| step.kind == StepKind::Waiting);
    assert_eq!(waits.count(), 30);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_is_isolated_like_its_parent() {
    let cells = Arc::new(Cells::default());
    let world = world(&cells).await;
    let key = world.session(agent(Isolation::Process)).await;
    let _worker = world.worker("w", world.store.clone());
    let task = format!("plan {}", json!([[["look", {}]]]));
    let calls = json!([[["spawn_agent", {"task": task}]]]);
    let record = ended(&world, key, &calls).await;
    assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
    assert_eq!(cells.made("look").len(), 1);
    assert_eq!(world.acts.all(), []);
    let dump = world.dump().await;
    assert_eq!(dump.sessions.len(), 2);
    for session in dump.sessions {
        let stored = world.store.get_session(session.key).await;
        let stored = stored.expect("answers").expect("is there");
        assert_eq!(stored.agent.isolation, Isolation::Process);
    }
    world.audit().await;
}
