//! What one tenant or one key takes of what all share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use mainspring_shared::webhook::{Outgoing, Posted, Poster};
use serde_json::{Value, json};

use crate::access::{ROOT, ask, tenant};
use crate::client::Events;
use crate::webhooks::sealing;
use crate::world::{Scheduler, World};

const PLACES: usize = 16;

/// A scheduler that requires keys and has few places for requests that wait or stream.
async fn small(world: &World) -> Scheduler {
    let root = Some(mainspring_api::RootKey::new(ROOT));
    let keys = mainspring_api::Access::Keys {
        root,
        issuers: None,
    };
    let api = world
        .scheduler_for(keys, |config| config.waiters_max = PLACES)
        .await;
    api.until_ready().await;
    api
}

/// Opens the event stream of a session of this key until it is refused.
async fn all_streams(api: &Scheduler, key: &str) -> Vec<Events> {
    let made = ask(api, key, "POST", "/v1/sessions", &json!({})).await;
    let session = made.ok(201)["id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/sessions/{session}/events");
    let mut streams = Vec::new();
    loop {
        let call = api.call("GET", &path);
        let call = call.header("authorization", &format!("Bearer {key}"));
        match call.stream_or_status().await {
            Ok(stream) => streams.push(stream),
            Err(status) => {
                assert_eq!(status, 429);
                return streams;
            }
        }
        assert!(streams.len() <= PLACES);
    }
}

async fn key_of(api: &Scheduler, tenant: &str) -> String {
    let body = json!({ "name": "more", "scopes": ["admin"], "tenant": tenant });
    let made = ask(api, ROOT, "POST", "/v1/keys", &body).await.ok(201);
    made["key"].as_str().expect("the token").to_owned()
}

#[tokio::test]
async fn streams_of_one_tenant_leave_places_for_the_others() {
    let world = World::new().await;
    let api = small(&world).await;
    let (greedy, first) = tenant(&api, "greedy", &["admin"]).await;
    let (_, other) = tenant(&api, "other", &["admin"]).await;
    let by_one_key = all_streams(&api, &first).await;
    assert!(by_one_key.len() < PLACES * 3 / 4, "{}", by_one_key.len());
    // Another key of the tenant still gets some, and both together not all.
    let second = key_of(&api, &greedy).await;
    let by_another = all_streams(&api, &second).await;
    assert!(!by_another.is_empty());
    assert!(by_one_key.len() + by_another.len() <= PLACES * 3 / 4);
    let refused = ask(&api, &second, "GET", "/v1/sends?wait=1s", &Value::Null).await;
    let told = refused.problem(429, "limit.exceeded")["detail"].to_string();
    assert!(told.contains("share"), "{told}");
    // Others wait and stream as if it were not there.
    let waits = ask(&api, &other, "GET", "/v1/sends?wait=1ms", &Value::Null).await;
    assert_ne!(waits.status, 429);
    assert!(!all_streams(&api, &other).await.is_empty());
    // And what it gives back, it can take again.
    drop((by_one_key, by_another));
    while all_streams(&api, &first).await.is_empty() {
        tokio::task::yield_now().await;
    }
}

/// A poster whose endpoints at one host accept and never answer, and count those that they hold.
#[derive(Debug, Default)]
struct BlackHoles {
    held: AtomicUsize,
    answered: AtomicUsize,
}

#[async_trait]
impl Poster for BlackHoles {
    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    async fn post(&self, message: Outgoing) -> Posted {
        if message.url.contains("black") {
            self.held.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
        self.answered.fetch_add(1, Ordering::Relaxed);
        Posted::Answered {
            status: 200,
            retry_after: None,
        }
    }
}

#[tokio::test]
async fn black_holes_of_one_tenant_leave_places_for_the_webhooks_of_others() {
    let mut world = sealing().await;
    let poster = Arc::new(BlackHoles::default());
    world.webhooks.poster = Some(poster.clone());
    let root = Some(mainspring_api::RootKey::new(ROOT));
    let keys = mainspring_api::Access::Keys {
        root,
        issuers: None,
    };
    let api = world
        .scheduler_for(keys, |config| {
            config.webhooks_in_flight_max = 16;
            // The posts to black holes end with the test, not before.
            config.webhook_timeout = std::time::Duration::from_mins(30);
            config.webhook_interval = std::time::Duration::from_millis(10);
        })
        .await;
    api.until_ready().await;
    let (_, bad) = tenant(&api, "bad", &["admin"]).await;
    let (good_id, good) = tenant(&api, "good", &["admin"]).await;
    for n in 0..20 {
        let body = json!({ "url": format!("https://black{n}.example/"), "events": ["send.*"] });
        ask(&api, &bad, "POST", "/v1/webhooks", &body).await.ok(201);
    }
    let body = json!({ "url": "https://good.example/", "events": ["send.*"] });
    ask(&api, &good, "POST", "/v1/webhooks", &body)
        .await
        .ok(201);
    // Twenty times as many events as there are places.
    for _ in 0..16 {
        let body = json!({ "input": "hi", "options": { "delay": "1h" } });
        let made = ask(&api, &bad, "POST", "/v1/sends", &body).await.json();
        let id = made["id"].as_str().expect("an id").to_owned();
        let cancel = format!("/v1/sends/{id}/cancel");
        ask(&api, &bad, "POST", &cancel, &Value::Null).await;
    }
    while poster.held.load(Ordering::Relaxed) < 8 {
        tokio::task::yield_now().await;
    }
    for n in 1..=10 {
        let body = json!({ "input": "hi", "options": { "delay": "1h" } });
        let made = ask(&api, &good, "POST", "/v1/sends", &body).await.json();
        let id = made["id"].as_str().expect("an id").to_owned();
        let cancel = format!("/v1/sends/{id}/cancel");
        ask(&api, &good, "POST", &cancel, &Value::Null).await;
        let delivered = async {
            while poster.answered.load(Ordering::Relaxed) < n {
                tokio::task::yield_now().await;
            }
        };
        let delivered = tokio::time::timeout(std::time::Duration::from_secs(20), delivered).await;
        delivered.unwrap_or_else(|_| panic!("message {n} of {good_id} is held back"));
    }
    let held = poster.held.load(Ordering::Relaxed);
    assert!(held <= 12, "{held} of 16 places");
}
