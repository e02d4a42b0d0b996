//! `?wait`: an answer as soon as there is one, and never after the time limit.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use mainspring_queue_local::LocalBus;
use mainspring_runtime::SystemClock;
use mainspring_shared::bus::{Bus, Notice, Topic};
use mainspring_shared::send::WaitingOn;
use mainspring_store_model::ModelStore;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn who_waits_is_answered_when_the_send_ends() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let path = format!("/v1/sessions/{id}/sends?wait=20s");
    let waiting = tokio::spawn(
        api.call("POST", &path)
            .json(&json!({ "input": "hi" }))
            .send(),
    );
    let claimed = loop {
        if !api.get("/v1/sends").await.ok(200)["data"]
            .as_array()
            .expect("a list")
            .is_empty()
        {
            break world.claim(&id).await;
        }
    };
    world.complete(&claimed, 0, "hello").await;
    let send = waiting.await.expect("joins").ok(200);
    assert_eq!(send["status"], "completed");
    assert_eq!(send["output_text"], "hello");
    assert_eq!(send["usage"]["input_tokens"], 10);
    let path = format!("/v1/sends/{}?wait=20s", send["id"].as_str().expect("an id"));
    assert_eq!(api.get(&path).await.ok(200), send);
}

#[tokio::test]
async fn a_wait_that_passes_answers_with_the_send_as_it_is() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let path = format!("/v1/sessions/{id}/sends?wait=1ms");
    let send = api.post(&path, &json!({ "input": "hi" })).await.ok(202);
    assert_eq!(send["status"], "queued");
    let path = format!("/v1/sends/{}?wait=0s", send["id"].as_str().expect("an id"));
    assert_eq!(api.get(&path).await.ok(200)["status"], "queued");
}

#[tokio::test]
async fn a_longer_wait_than_is_allowed_is_cut() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.wait_max = Duration::from_millis(1))
        .await;
    api.until_ready().await;
    let id = api.session().await;
    let path = format!("/v1/sessions/{id}/sends?wait=1000h");
    let send = api.post(&path, &json!({ "input": "hi" })).await.ok(202);
    assert_eq!(send["status"], "queued");
}

#[tokio::test]
async fn who_waits_is_answered_early_when_a_person_is_asked() {
    let world = World::new().await;
    let api = world.ready().await;
    for (on, name) in [
        (WaitingOn::Human, "human"),
        (WaitingOn::Tool, "tool"),
        (WaitingOn::Recovery, "recovery"),
    ] {
        let id = api.session().await;
        let send = api.send(&id, "hi").await;
        let waiting = tokio::spawn(
            api.call("GET", &format!("/v1/sends/{send}?wait=20s"))
                .send(),
        );
        world.park(&world.claim(&id).await, on, 0).await;
        let shown = waiting.await.expect("joins").ok(200);
        assert_eq!(shown["status"], "waiting");
        assert_eq!(shown["waiting_on"], name);
    }
}

#[tokio::test]
async fn a_lost_notice_delays_an_answer_only_a_little() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    let waiting = tokio::spawn(
        api.call("GET", &format!("/v1/sends/{send}?wait=20s"))
            .send(),
    );
    world
        .complete_silently(&world.claim(&id).await, 0, "hello")
        .await;
    assert_eq!(waiting.await.expect("joins").ok(200)["status"], "completed");
}

/// A bus that delivers nothing, and reports itself as unavailable.
#[derive(Debug)]
struct Away;

#[async_trait]
impl Bus for Away {
    fn publish(&self, _topic: Topic, _payload: Bytes) {}

    async fn tell(&self, _topic: Topic, _payload: Bytes) -> bool {
        false
    }

    async fn subscribe(&self, _topic: Topic) -> BoxStream<'static, Notice> {
        Box::pin(futures::stream::pending())
    }

    fn is_available(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn while_the_bus_is_away_the_database_is_asked() {
    let store = Arc::new(ModelStore::open(Arc::new(SystemClock::new())));
    let world = World::over(store, Arc::new(Away)).await;
    let api = world.ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    let mut events = api.events(&format!("/v1/sends/{send}/events")).await;
    assert_eq!(events.names(1).await, ["send.queued"]);
    let waiting = tokio::spawn(
        api.call("GET", &format!("/v1/sends/{send}?wait=20s"))
            .send(),
    );
    world.complete(&world.claim(&id).await, 0, "hello").await;
    assert_eq!(waiting.await.expect("joins").ok(200)["status"], "completed");
    assert_eq!(
        events.rest().await.last().expect("events").name,
        "send.completed"
    );
}

#[tokio::test]
async fn a_wait_on_another_replica_hears_of_the_end() {
    let world = World::new().await;
    let (one, two) = (world.ready().await, world.ready().await);
    let id = one.session().await;
    let send = one.send(&id, "hi").await;
    let waiting = tokio::spawn(
        two.call("GET", &format!("/v1/sends/{send}?wait=20s"))
            .send(),
    );
    world.complete(&world.claim(&id).await, 0, "hello").await;
    assert_eq!(
        waiting.await.expect("joins").ok(200)["output_text"],
        "hello"
    );
}

#[tokio::test]
async fn a_stop_answers_who_waits_with_what_is_known() {
    let world = World::over(
        Arc::new(ModelStore::open(Arc::new(SystemClock::new()))),
        Arc::new(LocalBus::new()),
    )
    .await;
    let mut api = world.ready().await;
    let id = api.session().await;
    let path = format!("/v1/sessions/{id}/sends?wait=60s");
    let waiting = tokio::spawn(
        api.call("POST", &path)
            .json(&json!({ "input": "hi" }))
            .send(),
    );
    while api.get("/v1/sends").await.ok(200)["data"]
        .as_array()
        .is_none_or(Vec::is_empty)
    {}
    assert!(api.lifecycle.shut_down(Duration::from_secs(5)).await);
    assert_eq!(waiting.await.expect("joins").ok(202)["status"], "queued");
    (&mut api.task).await.expect("joins").expect("ends well");
}
