//! The database is away or slow, in simulated time: no worker may be taken for dead.

use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, Recovery};
use mainspring_shared::send::SendStatus;
use mainspring_tests::world::World;
use mainspring_worker::WorkerConfig;

use crate::lives::{faulty, secs, sends, steps};

#[tokio::test(start_paused = true)]
async fn outages_of_the_database_are_no_deaths() {
    let world = World::new().await;
    let store = faulty(&world);
    let _worker = world.worker("w", store.clone());
    let ids = sends(&world, &AgentSpec::default(), 20, "sleep 60000").await;
    for _ in 0..2 {
        world.pass(secs(5)).await;
        store.set_unavailable(true);
        world.pass(secs(12)).await;
        store.set_unavailable(false);
    }
    world.pass(secs(70)).await;
    for record in world.settle(&ids).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        assert_eq!((record.crashes, record.attempts), (0, 3));
        // The length of one call after the last outage, and the time to notice.
        let took = record.finished_at.expect("final").since(record.created_at);
        assert!(took < secs(34 + 60 + 5), "{took:?}");
    }
    for kinds in steps(&world).await {
        assert!(kinds.values().sum::<usize>() <= 4, "{kinds:?}");
    }
    world.audit().await;
}

/// With the default lease, whenever the stalls begin.
#[tokio::test(start_paused = true)]
async fn stalls_of_two_seconds_drop_nothing() {
    let world = World::new().await;
    let store = faulty(&world);
    let _worker = world.worker_with(WorkerConfig::default(), store.clone());
    let ids = sends(&world, &AgentSpec::default(), 20, "sleep 60000").await;
    for _ in 0..13 {
        world.pass(Duration::from_millis(1_730)).await;
        store.set_unavailable(true);
        world.pass(secs(2)).await;
        store.set_unavailable(false);
    }
    world.pass(secs(20)).await;
    for record in world.settle(&ids).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        assert_eq!((record.crashes, record.attempts), (0, 1));
    }
    world.audit().await;
}

/// When several workers all lost the database, the first one back does not take the others for
/// dead.
#[tokio::test(start_paused = true)]
async fn an_outage_for_all_counts_as_nobodys_death() {
    let world = World::new().await;
    let stores: Vec<_> = (0..3).map(|_| faulty(&world)).collect();
    for (n, store) in stores.iter().enumerate() {
        world.worker(&format!("w{n}"), store.clone());
    }
    let manual = AgentSpec {
        recovery: Recovery::Manual,
        ..AgentSpec::default()
    };
    let ids = sends(&world, &manual, 30, "sleep 60000").await;
    for _ in 0..2 {
        world.pass(secs(5)).await;
        for store in &stores {
            store.set_unavailable(true);
        }
        world.pass(secs(13)).await;
        // They get it back at slightly different times.
        for store in &stores {
            store.set_unavailable(false);
            world.pass(Duration::from_millis(30)).await;
        }
    }
    for record in world.settle(&ids).await {
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        assert_eq!(record.crashes, 0);
    }
    world.audit().await;
}
