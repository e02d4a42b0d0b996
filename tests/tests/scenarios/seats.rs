//! A tenant or agent with a limit of sends in flight: never exceeded, no send lost, in order,
//! whoever dies.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentKey, AgentLimits, AgentRef, AgentSpec, Bound};
use mainspring_shared::id::{SendId, TenantId};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::store::{PublishAgent, TenantPatch};
use mainspring_shared::tenant::Limits;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, World};

const STEP: Duration = Duration::from_millis(100);

const NEVER: FaultPlan = FaultPlan {
    at: usize::MAX,
    fault: Fault::FailBefore,
};

async fn limit(world: &World, sends: Option<u32>) {
    let patch = TenantPatch {
        limits: Some(Limits {
            sends_running: sends,
            ..Limits::default()
        }),
        ..TenantPatch::default()
    };
    let changed = world.store.update_tenant(TenantId::DEFAULT, patch).await;
    changed.expect("the store answers");
}

async fn sends(world: &World, count: usize, text: &str) -> Vec<SendId> {
    sends_of(world, &AgentSpec::default(), count, text).await
}

/// Publishes an agent with or without a limit of sends in flight, and returns it as a session takes
/// it.
async fn published(world: &World, name: &str, running: Option<u32>) -> AgentSpec {
    let key = AgentKey {
        tenant: TenantId::DEFAULT,
        name: name.parse().expect("a name"),
    };
    let reference = AgentRef {
        name: key.name.clone(),
        version: 1,
    };
    let item = PublishAgent {
        key,
        spec: AgentSpec::default(),
        limits: Some(AgentLimits {
            sends_running: running,
            ..AgentLimits::default()
        }),
        idempotency: None,
    };
    let done = world.store.publish_agent(item).await;
    done.expect("the store answers");
    AgentSpec {
        name: Some(name.to_owned()),
        bound: Some(Box::new(Bound {
            agent: Some(reference),
            ..Bound::default()
        })),
        ..AgentSpec::default()
    }
}

async fn sends_of(world: &World, agent: &AgentSpec, count: usize, text: &str) -> Vec<SendId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let key = world.session(agent.clone()).await;
        ids.push(world.send(key, text).await);
    }
    ids
}

async fn running(world: &World) -> usize {
    let dump = world.dump().await;
    let sends = dump.sessions.iter().flat_map(|session| &session.sends);
    sends
        .filter(|send| send.status == SendStatus::Running)
        .count()
}

/// Lets time pass until every send has ended, and asserts that never more than `most` run.
async fn ends(world: &World, ids: &[SendId], most: usize) -> Vec<SendRecord> {
    let mut seen = 0;
    for _ in 0..2_000 {
        let now = running(world).await;
        assert!(now <= most, "{now} run");
        seen = seen.max(now);
        let dump = world.dump().await;
        let mut all = dump.sessions.iter().flat_map(|session| &session.sends);
        if all.all(|send| send.status.is_final()) {
            break;
        }
        world.pass(STEP).await;
    }
    assert_eq!(seen, most, "all seats were used");
    let records = world.settle(ids).await;
    for record in &records {
        assert_eq!(record.status, SendStatus::Completed, "{record:?}");
    }
    world.audit().await;
    records
}

#[tokio::test(start_paused = true)]
async fn sends_beyond_the_limit_wait_and_begin_in_order() {
    let world = World::new().await;
    limit(&world, Some(2)).await;
    let _workers = ["a", "b", "c"].map(|name| world.worker(name, world.store.clone()));
    let ids = sends(&world, 12, "sleep 1000").await;
    let records = ends(&world, &ids, 2).await;
    let began: Vec<_> = records.iter().map(|record| record.started_at).collect();
    assert!(began.is_sorted(), "{began:?}");
    let first = began[0].expect("it began");
    let last = began[11].expect("it began");
    // Six turns of a second each, and a moment between two: freeing a seat wakes the next send.
    let took = last.since(first);
    assert!(took < Duration::from_millis(5_600), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_with_a_seat_neither_loses_nor_doubles_it() {
    let world = World::new().await;
    limit(&world, Some(3)).await;
    let dies = Arc::new(Faulty::new(world.store.clone(), NEVER));
    let _dies = world.worker("dies", dies.clone());
    let ids = sends(&world, 9, "sleep 3000").await;
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(running(&world).await, 3);
    dies.kill();
    let _lives = world.worker("lives", world.store.clone());
    let records = ends(&world, &ids, 3).await;
    let crashed = records.iter().filter(|record| record.attempts > 1).count();
    assert_eq!(crashed, 3, "those that it had");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_changes_while_sends_wait_loses_none() {
    let world = World::new().await;
    limit(&world, Some(4)).await;
    let _workers = ["a", "b"].map(|name| world.worker(name, world.store.clone()));
    let ids = sends(&world, 20, "sleep 2000").await;
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(running(&world).await, 4);
    limit(&world, Some(1)).await;
    world.pass(Duration::from_secs(4)).await;
    assert_eq!(running(&world).await, 1, "as seats were given back");
    limit(&world, Some(3)).await;
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(running(&world).await, 3);
    limit(&world, None).await;
    // No send waits any more.
    world.pass(Duration::from_secs(3)).await;
    for record in world.settle(&ids).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:?}");
    }
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn an_agents_sends_wait_in_order_and_keep_no_others_waiting() {
    let world = World::new().await;
    let support = published(&world, "support", Some(1)).await;
    let triage = published(&world, "triage", None).await;
    let dies = Arc::new(Faulty::new(world.store.clone(), NEVER));
    let _dies = world.worker("dies", dies.clone());
    let limited = sends_of(&world, &support, 5, "sleep 1000").await;
    let others = sends_of(&world, &triage, 3, "sleep 1000").await;
    world.pass(Duration::from_millis(500)).await;
    // Queued behind four waiting sends.
    assert_eq!(running(&world).await, 4);
    // The worker that takes over the agent's send also takes over its seat.
    dies.kill();
    let _lives = world.worker("lives", world.store.clone());
    for _ in 0..2_000 {
        let dump = world.dump().await;
        let mut sends = dump.sessions.iter().flat_map(|session| &session.sends);
        let of_agent = sends.clone().filter(|send| limited.contains(&send.id));
        let now = of_agent.filter(|send| send.status == SendStatus::Running);
        assert!(now.count() <= 1, "of the agent");
        if sends.all(|send| send.status.is_final()) {
            break;
        }
        world.pass(STEP).await;
    }
    let records = world.settle(&limited).await;
    for record in records.iter().chain(&world.settle(&others).await) {
        assert_eq!(record.status, SendStatus::Completed, "{record:?}");
    }
    let began: Vec<_> = records.iter().map(|record| record.started_at).collect();
    assert!(began.is_sorted(), "{began:?}");
    world.audit().await;
}
