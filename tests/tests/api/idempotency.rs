//! Idempotency keys: a repeat creates nothing, and shows the current state.

use serde_json::{Value, json};

use crate::client::Answer;
use crate::world::{Scheduler, World};

async fn keyed(api: &Scheduler, path: &str, key: &str, body: &Value) -> Answer {
    api.call("POST", path)
        .header("idempotency-key", key)
        .json(body)
        .send()
        .await
}

#[tokio::test]
async fn a_repeated_send_is_the_same_send() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let path = format!("/v1/sessions/{id}/sends");
    let body = json!({ "input": "hi", "options": { "priority": "high" } });
    let first = keyed(&api, &path, "k1", &body).await;
    assert_eq!(first.header("idempotency-replayed"), None);
    let send = first.ok(202);
    // Whitespace and the order of members do not matter.
    let again = api
        .call("POST", &path)
        .header("idempotency-key", "k1")
        .header("content-type", "application/json")
        .body(r#" { "options" : {"priority":"high"}, "input":"hi" } "#);
    let again = again.send().await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(202), send);
    assert_eq!(
        api.get("/v1/sends").await.ok(200)["data"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );

    let other = keyed(&api, &path, "k1", &json!({ "input": "ho" })).await;
    assert_eq!(
        other.problem(422, "idempotency.mismatch")["retryable"],
        false
    );
    keyed(&api, &path, "k2", &body).await.ok(202);
    // A key is scoped to its route: another session's sends do not know it.
    let elsewhere = format!("/v1/sessions/{}/sends", api.session().await);
    assert_eq!(
        keyed(&api, &elsewhere, "k1", &body)
            .await
            .header("idempotency-replayed"),
        None
    );
}

#[tokio::test]
async fn a_repeat_shows_the_present_state_and_waits() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let path = format!("/v1/sessions/{id}/sends");
    let body = json!({ "input": "hi" });
    keyed(&api, &path, "k", &body).await.ok(202);
    let claimed = world.claim(&id).await;
    let wait = format!("{path}?wait=20s");
    let call = api
        .call("POST", &wait)
        .header("idempotency-key", "k")
        .json(&body);
    let waiting = tokio::spawn(call.send());
    world.complete(&claimed, 0, "hello").await;
    let replayed = waiting.await.expect("joins");
    assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
    assert_eq!(replayed.ok(200)["output_text"], "hello");
    assert_eq!(
        keyed(&api, &path, "k", &body).await.ok(202)["status"],
        "completed"
    );
}

#[tokio::test]
async fn a_refused_request_leaves_its_key_unused() {
    let world = World::new().await;
    let api = world.ready().await;
    let id = api.session().await;
    let path = format!("/v1/sessions/{id}/sends");
    let body = json!({ "input": "hi", "options": { "on_busy": "reject" } });
    api.send(&id, "first").await;
    keyed(&api, &path, "k", &body)
        .await
        .problem(409, "session.busy");
    keyed(&api, &path, "k", &json!({ "input": "" }))
        .await
        .problem(400, "request.invalid");
    world.complete(&world.claim(&id).await, 0, "done").await;
    let accepted = keyed(&api, &path, "k", &body).await;
    assert_eq!(accepted.header("idempotency-replayed"), None);
    accepted.ok(202);
}

#[tokio::test]
async fn a_repeated_session_is_the_same_session() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "agent": { "name": "a" } });
    let first = keyed(&api, "/v1/sessions", "k", &body).await.ok(201);
    let again = keyed(&api, "/v1/sessions", "k", &body).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(201), first);
    keyed(&api, "/v1/sessions", "k", &json!({}))
        .await
        .problem(422, "idempotency.mismatch");
}

#[tokio::test]
async fn a_repeated_send_with_a_new_session_creates_one_session() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "input": "hi", "session": {} });
    let first = keyed(&api, "/v1/sends", "k", &body).await.ok(202);
    assert_eq!(keyed(&api, "/v1/sends", "k", &body).await.ok(202), first);
    assert_eq!(
        api.get("/v1/sessions").await.ok(200)["data"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn concurrent_repeats_create_one_send() {
    let world = World::new().await;
    let (one, two) = (world.ready().await, world.ready().await);
    let id = one.session().await;
    let path = format!("/v1/sessions/{id}/sends");
    let calls = (0..20).map(|n| {
        let api = if n % 2 == 0 { &one } else { &two };
        let call = api.call("POST", &path).header("idempotency-key", "k");
        tokio::spawn(call.json(&json!({ "input": "hi" })).send())
    });
    let calls: Vec<_> = calls.collect();
    let mut ids = std::collections::BTreeSet::new();
    for call in calls {
        ids.insert(call.await.expect("joins").ok(202)["id"].to_string());
    }
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn a_request_with_two_keys_is_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "input": "hi" });
    for (path, body) in [
        ("/v1/sends", body.clone()),
        ("/v1/sends:batch", json!({ "sends": [body] })),
    ] {
        let call = api.call("POST", path).header("idempotency-key", "one");
        let call = call.header("idempotency-key", "other").json(&body);
        let problem = call.send().await.problem(400, "request.invalid");
        let pointer = &problem["errors"][0]["pointer"];
        assert_eq!(pointer, "#idempotency-key", "{path}");
    }
    assert_eq!(api.get("/v1/sends").await.ok(200)["data"], json!([]));
}

#[tokio::test]
async fn keys_that_are_none_are_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "input": "hi" });
    for key in ["", "a b", "\u{e4}", &"k".repeat(256)] {
        let refused = keyed(&api, "/v1/sends", key, &body)
            .await
            .problem(400, "request.invalid");
        assert_eq!(refused["errors"][0]["pointer"], "#idempotency-key");
    }
    keyed(&api, "/v1/sends", &"k".repeat(255), &body)
        .await
        .ok(202);
}
