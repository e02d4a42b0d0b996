//! Sends of agents and tools that name a pool: they run on its workers or not at all.

use std::collections::BTreeMap;
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::send::SendStatus;
use mainspring_shared::step::StepKind;
use mainspring_shared::store::Role;
use mainspring_tests::world::World;
use mainspring_worker::WorkerConfig;
use serde_json::{Value, json};

/// The pool of the guarded workers.
const GUARDED: &str = "gvisor";

fn agent(spec: Value) -> AgentSpec {
    serde_json::from_value(spec).expect("an agent")
}

/// An agent with a tool that requires guarded workers.
fn guarded(tools: &[&str]) -> AgentSpec {
    let own = json!({"type": "worker", "name": "look", "pool": GUARDED});
    let named = tools.iter().map(|name| json!(name));
    agent(json!({ "tools": named.chain([own]).collect::<Vec<_>>() }))
}

fn worker(world: &World, pool: &str) -> mainspring_runtime::Lifecycle {
    let config = WorkerConfig {
        name: pool.into(),
        pool: pool.into(),
        ..WorkerConfig::default()
    };
    world.worker_with(config, world.store.clone())
}

/// The pools whose workers wrote steps in these sessions. `Resumed` steps don't count: a worker
/// that gets a session by mistake gives it back, which the next claim records.
async fn writers(world: &World, of: impl Fn(&SessionKey) -> bool) -> Vec<String> {
    let dump = world.dump().await;
    let workers = dump.boots.iter().filter(|boot| boot.role == Role::Worker);
    let pools: BTreeMap<BootId, String> =
        workers.map(|boot| (boot.id, boot.pool.clone())).collect();
    let sessions = dump.sessions.iter().filter(|session| of(&session.key));
    let steps = sessions.flat_map(|session| &session.steps);
    let steps = steps.filter(|step| step.kind != StepKind::Resumed);
    let mut pools: Vec<String> = steps
        .filter_map(|step| pools.get(&step.boot).cloned())
        .collect();
    pools.sort();
    pools.dedup();
    pools
}

#[tokio::test(start_paused = true)]
async fn sends_and_their_children_run_on_the_workers_that_their_tools_want() {
    let world = World::new().await;
    let _workers = [worker(&world, "default"), worker(&world, GUARDED)];
    let plain = world.session(AgentSpec::default()).await;
    let by_tool = world.session(guarded(&["spawn_agent"])).await;
    let by_name = world.session(agent(json!({"pool": GUARDED}))).await;
    let plan = json!([[["look", {}], ["spawn_agent", {"task": "tools 1"}]]]);
    let mut sends = Vec::new();
    for key in [plain, by_tool, by_name] {
        sends.push(world.send(key, "hello").await);
        sends.push(world.send(key, &format!("plan {plan}")).await);
    }
    let records = world.settle(&sends).await;
    assert!(
        records.iter().all(|r| r.status == SendStatus::Completed),
        "{records:#?}"
    );
    assert_eq!(world.acts.of("look").len(), 1);
    assert_eq!(writers(&world, |key| *key == plain).await, ["default"]);
    // The child has a session of its own.
    assert_eq!(world.dump().await.sessions.len(), 4);
    assert_eq!(writers(&world, |key| *key != plain).await, [GUARDED]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn without_its_workers_a_send_waits() {
    let world = World::new().await;
    let _worker = worker(&world, "default");
    let key = world.session(guarded(&[])).await;
    let id = world.send(key, "hello").await;
    // Jobs in the wrong pool change nothing.
    for _ in 0..20 {
        world.ring_in("default", key).await;
        world.pass(Duration::from_secs(10)).await;
    }
    assert!(!world.record(id).await.status.is_final());
    assert!(world.script.ledger().is_empty());
    let _guarded = worker(&world, GUARDED);
    let records = world.settle(&[id]).await;
    assert_eq!(records[0].status, SendStatus::Completed);
    assert_eq!(records[0].output_text.as_deref(), Some("echo: hello"));
    assert_eq!(writers(&world, |_| true).await, [GUARDED]);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_an_agent_starts_stays_among_its_workers() {
    let world = World::new().await;
    let _workers = [worker(&world, "default"), worker(&world, GUARDED)];
    let _scheduler = world.scheduler("s", world.store.clone()).await;
    let leaf = |spec: Value| json!({"type": "agent", "id": "leaf", "spec": spec, "input": "leaf"});
    let spec = |pool: Option<&str>| {
        let mut spec = json!({"name": "leaf", "system_prompt": "work"});
        if let Some(pool) = pool {
            spec["pool"] = json!(pool);
        }
        json!({"name": "flow", "root": leaf(spec)})
    };
    let key = world.session(guarded(&["create_workflow"])).await;
    let plan = json!([
        [["create_workflow", {"spec": spec(Some("default"))}]],
        [["create_workflow", {"spec": spec(None)}]],
    ]);
    let id = world.send(key, &format!("plan {plan}")).await;
    let records = world.settle(&[id]).await;
    assert_eq!(records[0].status, SendStatus::Completed);
    assert_eq!(world.script.calls("leaf"), 1);
    let dump = world.dump().await;
    assert_eq!(dump.runs.len(), 1);
    let own = dump.sessions.iter().find(|session| session.key == key);
    let results = own.expect("is there").calls.iter().map(|call| {
        let result = call.result.as_ref().expect("is settled");
        (
            result.failed,
            mainspring_shared::message::plain_text(&result.content),
        )
    });
    let results: Vec<_> = results.collect();
    assert!(
        results[0].0 && results[0].1.contains("pool default"),
        "{results:?}"
    );
    assert!(!results[1].0, "{results:?}");
    assert_eq!(writers(&world, |_| true).await, [GUARDED]);
    world.audit().await;
}
