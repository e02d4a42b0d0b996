//! Calibration of token counts: learned by one worker and used by the others.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::SessionKey;
use mainspring_shared::session::preview::Answered;
use mainspring_tests::world::{FaultPlan, Faulty, ModelBehaviour, World};

/// A world whose model counts three tokens where two are estimated.
async fn world() -> (World, SessionKey) {
    let world = World::new().await;
    world.script.set_behaviour(ModelBehaviour {
        counts: Some(1.5),
        ..ModelBehaviour::default()
    });
    let key = world.session(AgentSpec::default()).await;
    (world, key)
}

fn words() -> String {
    "what was decided about it, and why it was decided so. ".repeat(30)
}

/// Runs one send on any worker.
async fn talk(world: &World, key: SessionKey) {
    let id = world.send(key, &format!("say {}", words())).await;
    world.settle(&[id]).await;
}

/// A worker's estimate of the size of the session's next request.
async fn expected(world: &World, worker: &str, key: SessionKey) -> u64 {
    match world.preview(worker, key, Some(&words())).await {
        Answered::Preview(preview) => preview.tokens,
        Answered::Refused { code, detail } => panic!("{code}: {detail}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_begins_with_what_one_before_it_learned() {
    let (world, key) = world().await;
    let first = world.worker("first", world.store.clone());
    world.pass(Duration::from_millis(100)).await;
    let unlearned = expected(&world, "first", key).await;
    talk(&world, key).await;
    let other = world.session(AgentSpec::default()).await;
    let learned = expected(&world, "first", other).await;
    assert!(learned * 10 > unlearned * 13, "{learned}, {unlearned}");
    assert_eq!(world.store.list_calibrations(9).await.expect("answers"), []);
    first.stop();
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(
        world
            .store
            .list_calibrations(9)
            .await
            .expect("answers")
            .len(),
        1
    );
    let _second = world.worker("second", world.store.clone());
    world.pass(Duration::from_millis(100)).await;
    assert_eq!(expected(&world, "second", other).await, learned);
}

#[tokio::test(start_paused = true)]
async fn workers_hear_of_each_other_within_two_minutes() {
    let (world, key) = world().await;
    let _first = world.worker("first", world.store.clone());
    world.pass(Duration::from_millis(100)).await;
    talk(&world, key).await;
    let learned = expected(&world, "first", key).await;
    let _second = world.worker("second", world.store.clone());
    world.pass(Duration::from_millis(100)).await;
    let other = expected(&world, "second", key).await;
    assert!(other < learned, "{other}, {learned}");
    world.pass(Duration::from_secs(121)).await;
    assert_eq!(expected(&world, "second", key).await, learned);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_does_not_say_what_was_learned_delays_no_send() {
    for name in ["list_calibrations", "save_calibrations"] {
        let (world, key) = world().await;
        let faulty = Arc::new(Faulty::new(world.store.clone(), FaultPlan::NEVER));
        faulty.corrupt_reads(name);
        let worker = world.worker("first", faulty);
        let by = world.clock().monotonic() + Duration::from_secs(1);
        talk(&world, key).await;
        assert!(world.clock().monotonic() < by, "{name}");
        world.pass(Duration::from_secs(61)).await;
        talk(&world, key).await;
        worker.stop();
        world.pass(Duration::from_secs(2)).await;
        world.audit().await;
    }
}
