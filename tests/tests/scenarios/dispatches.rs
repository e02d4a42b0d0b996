//! Sends that are dispatched directly to the worker that keeps their session.

use std::collections::BTreeSet;
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::{BootId, SendId, SessionKey};
use mainspring_shared::send::{SendStatus, StopReason};
use mainspring_shared::step::{StepKind, StepRefs};
use mainspring_tests::world::{DispatchDelivery, World};
use mainspring_worker::WorkerConfig;

use crate::lives::{faulty, secs};

/// A session whose first send is final.
async fn rested(world: &World) -> SessionKey {
    let key = world.session(AgentSpec::default()).await;
    let first = world.send(key, "hello").await;
    let record = world.settle(&[first]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    // Its worker releases it.
    world.pass(secs(1)).await;
    key
}

/// How a send ended: the grant's epoch, the worker, and the reasons for which it was resumed.
#[derive(Debug, PartialEq)]
struct End {
    epoch: i64,
    boot: BootId,
    resumed: Vec<String>,
}

async fn end(world: &World, key: SessionKey, id: SendId) -> End {
    let dump = world.dump().await;
    let session = dump.sessions.into_iter().find(|session| session.key == key);
    let steps = session.expect("it exists").steps;
    let mut mine = steps.iter().filter(|step| step.send_id == id);
    let resumed = mine.clone().filter(|step| step.kind == StepKind::Resumed);
    let reason = |refs: &StepRefs| refs.reason.clone().unwrap_or_default();
    let resumed = resumed.map(|step| reason(&step.refs)).collect();
    let last = mine.next_back().expect("it has steps");
    assert_eq!(last.kind, StepKind::Finished);
    End {
        epoch: last.epoch,
        boot: last.boot,
        resumed,
    }
}

#[tokio::test(start_paused = true)]
async fn the_worker_that_keeps_a_session_runs_its_next_sends() {
    let world = World::new().await;
    for name in ["a", "b", "c"] {
        world.worker(name, faulty(&world));
    }
    let key = rested(&world).await;
    let mut boots = BTreeSet::new();
    for n in 2..=20 {
        // Some sends arrive before the worker releases the session, some after.
        world.pass(Duration::from_millis(n % 3 * 40)).await;
        let id = world.send(key, "hello").await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!((record.crashes, record.attempts), (0, 1));
        assert_eq!(record.started_at, Some(record.created_at), "{record:#?}");
        let end = end(&world, key, id).await;
        assert_eq!((end.epoch, end.resumed.len()), (n as i64, 0));
        boots.insert(end.boot);
    }
    assert_eq!(boots.len(), 1);
    assert_eq!(world.script.asked(), 20);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn with_nothing_direct_each_send_is_claimed() {
    let world = World::new().await;
    let config = WorkerConfig {
        direct_percent: 0,
        ..WorkerConfig::default()
    };
    world.worker_with(config, faulty(&world));
    let key = rested(&world).await;
    world.set_dispatch_delivery(DispatchDelivery::IsLost);
    let id = world.send(key, "hello").await;
    let record = world.settle(&[id]).await.remove(0);
    assert!(record.finished_at.expect("final").since(record.created_at) < secs(1));
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_send_whose_message_is_lost_is_found_by_its_worker() {
    let world = World::new().await;
    world.worker_with(WorkerConfig::default(), faulty(&world));
    let key = rested(&world).await;
    world.set_dispatch_delivery(DispatchDelivery::IsLost);
    let id = world.send(key, "hello").await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!((record.status, record.crashes), (SendStatus::Completed, 0));
    let took = record.finished_at.expect("final").since(record.created_at);
    assert!(took > secs(1) && took < secs(4), "{took:?}");
    assert_eq!(end(&world, key, id).await.resumed, ["handover"]);
    assert_eq!(world.script.asked(), 2);
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_late_begins_nothing() {
    let world = World::new().await;
    world.worker_with(WorkerConfig::default(), faulty(&world));
    let key = rested(&world).await;
    world.set_dispatch_delivery(DispatchDelivery::IsKept);
    let id = world.send(key, "sleep 20000").await;
    world.pass(secs(5)).await;
    assert_eq!(world.script.asked(), 2, "it was found meanwhile");
    world.set_dispatch_delivery(DispatchDelivery::Arrives);
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!((record.status, record.crashes), (SendStatus::Completed, 0));
    assert_eq!(world.script.asked(), 2);
    world.audit().await;
}

/// While commits are slow, every message comes late. The send goes on as one that was enqueued does,
/// and has lost nothing.
#[tokio::test(start_paused = true)]
async fn a_message_that_comes_late_gives_the_session_back_at_once() {
    let world = World::new().await;
    world.worker_with(WorkerConfig::default(), faulty(&world));
    let key = rested(&world).await;
    world.set_dispatch_delivery(DispatchDelivery::IsKept);
    let id = world.send(key, "hello").await;
    world.pass(Duration::from_millis(900)).await;
    assert_eq!(world.script.asked(), 1, "it was not found yet");
    world.set_dispatch_delivery(DispatchDelivery::Arrives);
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    assert_eq!((record.crashes, record.attempts), (0, 1));
    let took = record.finished_at.expect("final").since(record.created_at);
    assert!(took < Duration::from_millis(1_300), "{took:?}");
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_says_it_works_and_brings_nothing_costs_seconds() {
    let world = World::new().await;
    world.lose_jobs();
    let config = WorkerConfig {
        direct_percent: 0,
        ..WorkerConfig::default()
    };
    world.worker_with(config, faulty(&world));
    let key = world.session(AgentSpec::default()).await;
    let id = world.send(key, "hello").await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!((record.status, record.attempts), (SendStatus::Completed, 1));
    let took = record.finished_at.expect("final").since(record.created_at);
    assert!(took < secs(10), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_twice_begins_one_run() {
    let world = World::new().await;
    world.worker("a", faulty(&world));
    let key = rested(&world).await;
    world.set_dispatch_delivery(DispatchDelivery::Repeats);
    for _ in 0..5 {
        let id = world.send(key, "hello").await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!((record.crashes, record.attempts), (0, 1));
        world.pass(secs(1)).await;
    }
    assert_eq!(world.script.asked(), 6);
    world.audit().await;
}

/// Nobody waits for a worker that has stopped listening.
#[tokio::test(start_paused = true)]
async fn what_a_worker_that_is_gone_was_granted_is_anothers_at_once() {
    let world = World::new().await;
    let first = world.worker("a", faulty(&world));
    let key = rested(&world).await;
    let before = end(&world, key, world.dump().await.sessions[0].sends[0].id).await;
    assert!(first.shut_down(secs(60)).await);
    world.worker("b", faulty(&world));
    let id = world.send(key, "hello").await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!((record.status, record.crashes), (SendStatus::Completed, 0));
    let took = record.finished_at.expect("final").since(record.created_at);
    assert!(took < secs(1), "{took:?}");
    assert_ne!(end(&world, key, id).await.boot, before.boot);
    world.audit().await;
}

/// The worker listens but does nothing, so its lease expires.
#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_behind_the_grant_is_taken_over_from() {
    let world = World::new().await;
    let store = faulty(&world);
    world.worker_with(WorkerConfig::default(), store.clone());
    let key = rested(&world).await;
    store.kill();
    world.worker_with(WorkerConfig::default(), faulty(&world));
    let id = world.send(key, "hello").await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!((record.status, record.crashes), (SendStatus::Completed, 1));
    let took = record.finished_at.expect("final").since(record.created_at);
    assert!(took < secs(6), "{took:?}");
    assert_eq!(end(&world, key, id).await.resumed, ["takeover"]);
    world.audit().await;
}

/// A send that kills each worker before any step is stopped, whichever worker gets the grant.
#[tokio::test(start_paused = true)]
async fn a_grant_that_kills_its_worker_counts() {
    let world = World::new().await;
    let store = faulty(&world);
    let config = WorkerConfig {
        crashes_max: 1,
        ..WorkerConfig::default()
    };
    world.worker_with(config.clone(), store.clone());
    let key = rested(&world).await;
    store.kill();
    let id = world.send(key, "hello").await;
    world.pass(secs(6)).await;
    world.worker_with(config, faulty(&world));
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.stop_reason, Some(StopReason::WorkerCrashLimit));
    world.audit().await;
}

/// A worker whose slots are all taken by the time it hears of a grant gives it back.
#[tokio::test(start_paused = true)]
async fn a_grant_without_a_slot_goes_to_others() {
    let world = World::new().await;
    let config = WorkerConfig {
        concurrency: 1,
        direct_percent: 100,
        ..WorkerConfig::default()
    };
    world.worker_with(config.clone(), faulty(&world));
    let key = rested(&world).await;
    let other = world.session(AgentSpec::default()).await;
    let long = world.send(other, "sleep 60000").await;
    world.pass(secs(1)).await;
    world.worker_with(config, faulty(&world));
    let id = world.send(key, "hello").await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!((record.status, record.crashes), (SendStatus::Completed, 0));
    let took = record.finished_at.expect("final").since(record.created_at);
    // The worker without a slot may take the session off the queue, and then the sweep has to
    // enqueue it again.
    assert!(took < secs(3), "{took:?}");
    let busy = world.record(long).await;
    assert_eq!(busy.status, SendStatus::Running);
    world.settle(&[long]).await;
    world.audit().await;
}

/// The keeper's cached session is compared with what the accept saw.
#[tokio::test(start_paused = true)]
async fn a_changed_agent_or_transcript_is_read_again() {
    let world = World::new().await;
    world.worker("a", faulty(&world));
    let key = rested(&world).await;
    let other = AgentSpec {
        system_prompt: Some("Speak of the sea.".into()),
        ..AgentSpec::default()
    };
    world.update(key, other).await;
    let id = world.send(key, "hello").await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.started_at, Some(record.created_at), "it was granted");
    let asked = world.script.ledger().pop().expect("it was asked");
    assert!(
        format!("{asked:?}").contains("Speak of the sea."),
        "{asked:?}"
    );
    world.audit().await;
}

/// The worker stops while messages to it are in flight.
#[tokio::test(start_paused = true)]
async fn a_worker_that_drains_gives_back_what_it_is_granted() {
    let world = World::new().await;
    let first = world.worker("a", faulty(&world));
    let mut keys = Vec::new();
    for _ in 0..10 {
        keys.push(rested(&world).await);
    }
    let busy = world.session(AgentSpec::default()).await;
    let long = world.send(busy, "sleep 15000").await;
    world.pass(secs(1)).await;
    first.stop();
    world.worker("b", faulty(&world));
    let mut ids = Vec::new();
    for key in keys {
        ids.push(world.send(key, "hello").await);
    }
    for record in world.settle(&ids).await {
        assert_eq!((record.status, record.crashes), (SendStatus::Completed, 0));
        let took = record.finished_at.expect("final").since(record.created_at);
        assert!(took < secs(1), "{took:?}");
    }
    world.settle(&[long]).await;
    world.audit().await;
}
