//! Previews of model calls, where there is no worker that could render one.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn without_a_worker_nobody_says_what_the_next_call_would_be() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "agent": { "pool": "elsewhere" } });
    let session = api.post("/v1/sessions", &body).await.ok(201);
    let session = session["id"].as_str().expect("an id");
    let path = format!("/v1/sessions/{session}/context");
    let problem = api.get(&path).await.problem(503, "store.unavailable");
    assert_eq!(
        problem["detail"],
        "no worker of the pool \"elsewhere\" is alive"
    );
    let body = json!({ "input": "hi", "options": { "model": "m" }, "request": true });
    api.post(&path, &body)
        .await
        .problem(503, "store.unavailable");
}

#[tokio::test]
async fn a_preview_is_asked_for_as_a_send_is() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let path = format!("/v1/sessions/{session}/context");
    for (body, pointer) in [
        (json!({}), ""),
        (json!({ "input": "" }), "/input"),
        (json!({ "input": "hi", "inputs": 1 }), ""),
        (
            json!({ "input": "hi", "options": { "max_rounds": 0 } }),
            "/options/max_rounds",
        ),
    ] {
        let problem = api.post(&path, &body).await.problem(400, "request.invalid");
        if !pointer.is_empty() {
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}");
        }
    }
    api.get(&format!("{path}?requests=true"))
        .await
        .problem(400, "request.invalid");
    api.get("/v1/sessions/ses_00000000000070008000000000000000/context")
        .await
        .problem(404, "session.not_found");
}
