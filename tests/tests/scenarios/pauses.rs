//! Paused work waits: none of it starts, nothing is lost, and it continues when resumed.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, SendOptions};
use mainspring_shared::id::{SendId, TenantId};
use mainspring_shared::pause::{PauseKey, PauseKind};
use mainspring_shared::retry::Policy;
use mainspring_shared::send::{SendRecord, SendStatus, StopReason, WaitingOn};
use mainspring_shared::time::Span;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World, alone};
use mainspring_worker::WorkerConfig;
use serde_json::json;

/// Longer than any worker caches the pauses.
const KNOWN: Duration = Duration::from_secs(2);

/// Longer than a send could wait just by polling.
const LONG: Duration = Duration::from_mins(20);

fn tenant() -> PauseKey {
    PauseKey::tenant(TenantId::DEFAULT)
}

fn agent_named(name: &str) -> AgentSpec {
    AgentSpec {
        name: Some(name.to_owned()),
        tools: ["look", "put", "act", "alone"]
            .map(|name| ToolEntry::Named(name.to_owned()))
            .to_vec(),
        ..AgentSpec::default()
    }
}

fn agent() -> PauseKey {
    PauseKey::of(TenantId::DEFAULT, PauseKind::Agent, "a")
}

fn tool(name: &str) -> PauseKey {
    PauseKey::of(TenantId::DEFAULT, PauseKind::Tool, name)
}

fn provider(name: &str) -> PauseKey {
    PauseKey::of_system(PauseKind::Provider, name)
}

fn plan(rounds: &serde_json::Value) -> String {
    format!("plan {rounds}")
}

fn assert_parked(record: &SendRecord) {
    assert_eq!(record.status, SendStatus::Waiting, "{record:?}");
    assert_eq!(record.waiting_on, Some(WaitingOn::Retry));
    assert!(record.alarm_at.is_some());
}

async fn assert_completed(world: &World, id: SendId) -> SendRecord {
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed, "{record:?}");
    world.audit().await;
    record
}

/// Number of calls of a tool.
fn acts(world: &World, name: &str) -> usize {
    world.acts.of(name).len()
}

#[tokio::test(start_paused = true)]
async fn the_sends_of_a_paused_tenant_or_agent_wait_and_others_go_on() {
    for key in [tenant(), agent()] {
        let world = World::new().await;
        let _worker = world.worker("w", world.store.clone());
        world.hold_back(&key).await;
        world.pass(KNOWN).await;
        let mine = world.session(agent_named("a")).await;
        let other = world.session(agent_named("b")).await;
        let held = world.send(mine, "hello").await;
        let free = world.send(other, "others").await;
        world.pass(LONG).await;
        assert_parked(&world.record(held).await);
        assert_eq!(world.script.calls("hello"), 0);
        let is_tenant = key.kind == PauseKind::Tenant;
        assert_eq!(world.script.calls("others"), usize::from(!is_tenant));
        // More sends are accepted, and queue behind it.
        let behind = world.send(mine, "behind").await;
        world.let_go(&key).await;
        world.pass(KNOWN).await;
        for id in [held, free, behind] {
            assert_completed(&world, id).await;
        }
        assert_eq!(world.script.calls("hello"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_send_under_way_stops_at_the_end_of_its_round_and_repeats_nothing() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let key = world.session(agent_named("a")).await;
    let slow = json!([[["look", {"n": 1, "ms": 5_000}], ["act", {"n": 2}]], [["act", {"n": 3}]]]);
    let id = world.send(key, &plan(&slow)).await;
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(acts(&world, "look"), 1);
    world.hold_back(&agent()).await;
    world.pass(LONG).await;
    let record = world.record(id).await;
    assert_parked(&record);
    assert_eq!(record.rounds, 1);
    assert_eq!((acts(&world, "look"), acts(&world, "act")), (1, 1));
    assert_eq!(world.script.ledger().len(), 1);
    world.let_go(&agent()).await;
    world.pass(KNOWN).await;
    assert_completed(&world, id).await;
    assert_eq!((acts(&world, "look"), acts(&world, "act")), (1, 2));
    assert_eq!(world.script.ledger().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_paused_provider_is_not_asked_and_another_model_stands_in() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    world.hold_back(&provider("script")).await;
    world.pass(KNOWN).await;
    let fallback = AgentSpec {
        fallback: vec!["missing/x".to_owned(), "demo/demo".to_owned()],
        ..AgentSpec::default()
    };
    let with = world.session(fallback).await;
    let without = world.session(AgentSpec::default()).await;
    let (helped, held) = (
        world.send(with, "hello").await,
        world.send(without, "hello").await,
    );
    assert_completed(&world, helped).await;
    world.pass(LONG).await;
    assert_parked(&world.record(held).await);
    assert!(world.script.ledger().is_empty());
    world.let_go(&provider("script")).await;
    let record = assert_completed(&world, held).await;
    assert_eq!(record.output_text.as_deref(), Some("echo: hello"));
    assert_eq!(world.script.calls("hello"), 1);
}

#[tokio::test(start_paused = true)]
async fn attempts_before_a_pause_are_no_reason_to_fail_after_it() {
    let world = World::new().await;
    let tries = Policy::default().attempts_max;
    let config = WorkerConfig {
        // The pause is longer than the whole time allowed for an answer.
        answer_timeout: Some(Duration::from_mins(5)),
        ..WorkerConfig::default()
    };
    let _worker = world.worker_with(config, world.store.clone());
    let key = world.session(AgentSpec::default()).await;
    let text = format!("fail {}", tries + 1);
    let id = world.send(key, &text).await;
    while world.script.calls(&text) < tries as usize - 1 {
        world.pass(Duration::from_millis(5)).await;
    }
    world.hold_back(&provider("script")).await;
    world.pass(LONG).await;
    assert_parked(&world.record(id).await);
    let before = world.script.calls(&text);
    assert!(before < tries as usize, "{before}");
    world.let_go(&provider("script")).await;
    assert_completed(&world, id).await;
    assert_eq!(world.script.calls(&text), tries as usize + 2);
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_paused_tool_wait_while_others_are_made() {
    for (held, calls) in [
        ("act", json!([[["act", {"n": 1}], ["look", {"n": 2}]]])),
        ("put", json!([[["look", {"n": 1}], ["put", {"n": 2}]]])),
        ("alone", json!([[["look", {"n": 1}], ["alone", {"n": 2}]]])),
    ] {
        let world = World::new().await;
        let _worker = world.worker("w", world.store.clone());
        world.hold_back(&tool(held)).await;
        world.pass(KNOWN).await;
        let key = world.session(agent_named("a")).await;
        let id = world.send(key, &plan(&calls)).await;
        world.pass(LONG).await;
        assert_parked(&world.record(id).await);
        assert_eq!((acts(&world, held), acts(&world, "look")), (0, 1), "{held}");
        world.let_go(&tool(held)).await;
        assert_completed(&world, id).await;
        // Results from before the pause are stored, and those calls are not repeated.
        assert_eq!((acts(&world, held), acts(&world, "look")), (1, 1), "{held}");
        let dump = world.dump().await;
        let failed = dump.sessions[0].calls.iter();
        let failed = failed.filter(|call| call.result.as_ref().is_none_or(|it| it.failed));
        assert_eq!(failed.count(), 0, "{held}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_runs_alone_is_not_called_before_one_that_is_held_back() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    world.hold_back(&tool("look")).await;
    world.pass(KNOWN).await;
    let key = world.session(agent_named("a")).await;
    let calls = json!([[["look", {"n": 1}], ["alone", {"n": 2}], ["put", {"n": 3}]]]);
    let id = world.send(key, &plan(&calls)).await;
    world.pass(LONG).await;
    assert_parked(&world.record(id).await);
    let made = ["look", "alone", "put"].map(|name| acts(&world, name));
    assert_eq!(made, [0, 0, 0]);
    world.let_go(&tool("look")).await;
    assert_completed(&world, id).await;
    let made = ["look", "alone", "put"].map(|name| acts(&world, name));
    assert_eq!(made, [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn the_workers_of_a_paused_pool_take_nothing_and_end_what_they_have() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    let pool = PauseKey::of_system(PauseKind::Pool, "default");
    let busy = world.session(AgentSpec::default()).await;
    let under_way = world.send(busy, "sleep 5000").await;
    let behind = world.send(busy, "behind").await;
    world.pass(Duration::from_secs(1)).await;
    world.hold_back(&pool).await;
    world.pass(KNOWN).await;
    let key = world.session(AgentSpec::default()).await;
    let held = world.send(key, "hello").await;
    world.pass(LONG).await;
    assert_eq!(world.record(under_way).await.status, SendStatus::Completed);
    for id in [behind, held] {
        assert_eq!(world.record(id).await.status, SendStatus::Queued);
    }
    world.let_go(&pool).await;
    for id in [behind, held] {
        assert_completed(&world, id).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_send_ends_by_its_deadline_or_when_it_is_cancelled() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    world.hold_back(&agent()).await;
    world.pass(KNOWN).await;
    let (late, unwanted) = (
        world.session(agent_named("a")).await,
        world.session(agent_named("a")).await,
    );
    let options = SendOptions {
        deadline: Some(Span(Duration::from_mins(1))),
        ..SendOptions::default()
    };
    let late = world.send_with(late, "late", options).await;
    let id = world.send(unwanted, "unwanted").await;
    world.pass(Duration::from_secs(10)).await;
    assert_parked(&world.record(id).await);
    world.cancel(unwanted, id).await;
    let records = world.settle(&[late, id]).await;
    assert_eq!(records[0].stop_reason, Some(StopReason::Deadline));
    assert_eq!(records[1].status, SendStatus::Cancelled);
    assert!(world.script.ledger().is_empty());
    world.let_go(&agent()).await;
    world.pass(KNOWN).await;
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn an_end_of_the_pause_between_note_and_park_is_not_missed() {
    let world = World::new().await;
    let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    let _worker = world.worker("w", store.clone());
    world.hold_back(&agent()).await;
    world.pass(KNOWN).await;
    let (inner, clock) = (world.store.clone(), world.clock());
    store.then("await_resume", async move {
        inner.resume(agent()).await.expect("never fails");
        // The wake-up runs while the send is not parked yet.
        clock.sleep(Duration::from_secs(3)).await;
    });
    let key = world.session(agent_named("a")).await;
    let id = world.send(key, "hello").await;
    let began = world.clock().monotonic();
    assert_completed(&world, id).await;
    let took = world.clock().monotonic().saturating_sub(began);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_is_held_by_workers_that_begin_later_too() {
    let world = World::new().await;
    world.hold_back(&agent()).await;
    let key = world.session(agent_named("a")).await;
    let id = world.send(key, "hello").await;
    let first = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
    let _first = world.worker("first", first.clone());
    world.pass(Duration::from_secs(5)).await;
    assert_parked(&world.record(id).await);
    // The worker that parked it dies; a waiting send needs no worker.
    first.kill();
    let _second = world.worker("second", world.store.clone());
    world.pass(Duration::from_mins(5)).await;
    let record = world.record(id).await;
    assert_parked(&record);
    assert_eq!(record.crashes, 0);
    world.let_go(&agent()).await;
    assert_completed(&world, id).await;
    assert_eq!(world.script.calls("hello"), 1);
}

/// Runs a send whose agent is paused midway and resumed, with one fault at one write of its worker.
/// False if there were fewer writes than that.
async fn faulty_at(at: usize, fault: Fault) -> bool {
    let world = World::new().await;
    let store = Arc::new(Faulty::new(world.store.clone(), FaultPlan { at, fault }));
    let _worker = world.worker("w", store.clone());
    let key = world.session(agent_named("a")).await;
    let calls = json!([[["look", {"n": 1, "ms": 3_000}], ["put", {"n": 2}]], [["put", {"n": 3}]]]);
    let id = world.send(key, &plan(&calls)).await;
    world.pass(Duration::from_secs(1)).await;
    world.hold_back(&agent()).await;
    world.pass(Duration::from_secs(5)).await;
    let _other = world.worker("other", world.store.clone());
    world.pass(Duration::from_mins(2)).await;
    assert_parked(&world.record(id).await);
    world.let_go(&agent()).await;
    assert_completed(&world, id).await;
    store.fired()
}

#[test]
fn a_worker_may_die_at_any_write_around_a_pause() {
    for fault in Fault::ALL {
        let mut at = 0;
        while alone(faulty_at(at, fault)) {
            at += 1;
            assert!(at < 60, "it does not end");
        }
        assert!(at > 4, "{fault:?}: {at}");
    }
}
