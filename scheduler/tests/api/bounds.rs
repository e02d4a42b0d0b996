//! Too much is refused early, and what is under way goes on.

use std::sync::Arc;

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn bodies_beyond_the_bound_are_refused_however_they_arrive() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| {
            config.body_bytes_max = 10_000;
            config.batch_bytes_max = 20_000;
        })
        .await;
    api.until_ready().await;
    let fits = json!({ "input": "x".repeat(9_000) });
    let large = json!({ "input": "x".repeat(10_000) });
    api.post("/v1/sends", &fits).await.ok(202);
    api.call("POST", "/v1/sends")
        .json(&fits)
        .chunked()
        .send()
        .await
        .ok(202);
    let path = format!("/v1/sessions/{}", api.session().await);
    for (method, path) in [
        ("POST", "/v1/sends"),
        ("POST", "/v1/sessions"),
        ("PATCH", path.as_str()),
    ] {
        let call = api.call(method, path).json(&large);
        call.clone().send().await.problem(413, "request.too_large");
        call.chunked()
            .send()
            .await
            .problem(413, "request.too_large");
    }
    api.post("/v1/sends:batch", &json!({ "sends": [fits, fits] }))
        .await
        .ok(200);
    let refused = api
        .post("/v1/sends:batch", &json!({ "sends": [fits, fits, fits] }))
        .await;
    refused.problem(413, "request.too_large");
}

#[tokio::test]
async fn too_many_waiters_are_refused_and_others_are_served() {
    let world = World::new().await;
    let api = world.scheduler_with(|config| config.waiters_max = 1).await;
    api.until_ready().await;
    let id = api.session().await;
    let send = api.send(&id, "hi").await;
    let mut events = api.events(&format!("/v1/sends/{send}/events")).await;
    assert_eq!(events.names(1).await, ["send.queued"]);
    let refused = api.get(&format!("/v1/sends/{send}?wait=1s")).await;
    assert_eq!(refused.problem(429, "limit.exceeded")["retryable"], true);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let refused = api.get(&format!("/v1/sessions/{id}/events")).await;
    refused.problem(429, "limit.exceeded");
    api.get(&format!("/v1/sends/{send}")).await.ok(200);

    // The end of the stream makes room.
    world.complete(&world.claim(&id).await, 0, "done").await;
    events.rest().await;
    while api.get(&format!("/v1/sends/{send}?wait=1s")).await.status == 429 {}
}

#[tokio::test]
async fn too_many_requests_are_refused_but_probes_are_answered() {
    let world = World::new().await;
    let api = world.scheduler_with(|config| config.requests_max = 0).await;
    api.until_ready().await;
    for path in ["/v1/sessions", "/v1/workers", "/v1/info"] {
        let refused = api.get(path).await;
        refused.problem(429, "limit.exceeded");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    for path in ["/livez", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(api.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn sends_beyond_what_can_be_on_its_way_are_refused() {
    let world = World::new().await;
    let api = world
        .scheduler_with(|config| config.accepting_max = 2)
        .await;
    api.until_ready().await;
    let item = json!({ "input": "hi" });
    let sends = json!({ "sends": [item, item, item] });
    api.post("/v1/sends:batch", &sends)
        .await
        .problem(429, "limit.exceeded");
    api.post("/v1/sends:batch", &json!({ "sends": [item, item] }))
        .await
        .ok(200);
    api.post("/v1/sends", &item).await.ok(202);
}

#[tokio::test]
async fn many_concurrent_sends_are_all_accepted() {
    let world = Arc::new(World::new().await);
    let api = world.ready().await;
    let calls: Vec<_> = (0..100)
        .map(|n| {
            tokio::spawn(
                api.call("POST", "/v1/sends")
                    .json(&json!({ "input": format!("{n}") }))
                    .send(),
            )
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for call in calls {
        ids.insert(call.await.expect("joins").ok(202)["id"].to_string());
    }
    assert_eq!(ids.len(), 100);
}
