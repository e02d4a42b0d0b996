//! Sessions that somebody keeps locked: requests for them are retried for a while, and requests for
//! others are served at once.

use mainspring_shared::send::WaitingOn;
use serde_json::json;

use crate::faulty::Faulty;

/// More than the number of attempts of any operation.
const ALWAYS: usize = 1_000;

#[tokio::test]
async fn what_is_locked_for_a_moment_is_done_in_the_same_request() {
    let (world, store) = Faulty::world().await;
    let api = world.ready().await;
    let session = api.session().await;
    let send = api.send(&session, "go").await;
    let claimed = world.claim(&session).await;
    let path = format!("/v1/sessions/{session}/sends");
    store.lock_first(3);
    let words = json!({ "input": "more", "options": { "on_busy": "steer" } });
    let steered = api.post(&path, &words).await.ok(202);
    assert_eq!(steered["id"], send.as_str());
    assert_eq!(store.calls("deliver_items"), 4);
    let call = world.ask(&claimed, WaitingOn::Tool, false).await;
    store.lock_first(3);
    let body = json!({ "results": [{ "call_id": call, "output": 1 }] });
    let path = format!("/v1/sessions/{session}/tool-results");
    let posted = api.post(&path, &body).await.ok(200);
    assert_eq!(posted["results"][0]["status"], "accepted");
    store.lock_first(3);
    let path = format!("/v1/sends/{send}/cancel");
    let cancelled = api.call("POST", &path).send().await.ok(200);
    assert_eq!(cancelled["status"], "cancelled");
}

#[tokio::test]
async fn what_stays_locked_is_refused_and_its_neighbours_are_told_their_outcomes() {
    let (world, store) = Faulty::world().await;
    let api = world.ready().await;
    let session = api.session().await;
    let send = api.send(&session, "go").await;
    let claimed = world.claim(&session).await;
    let call = world.ask(&claimed, WaitingOn::Tool, false).await;
    store.lock_first(ALWAYS);
    let path = format!("/v1/sessions/{session}/tool-results");
    let one = json!({ "call_id": call, "output": 1 });
    let other = json!({ "call_id": "call_x", "output": 1 });
    let refused = api.post(&path, &json!({ "results": [one] })).await;
    refused.problem(503, "store.unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let both = api.post(&path, &json!({ "results": [one, other] })).await;
    let both = both.ok(200);
    let said = [0, 1].map(|n| both["results"][n]["status"].clone());
    assert_eq!(said, ["locked", "unknown"]);
    let words = json!({ "input": "more", "options": { "on_busy": "steer" } });
    let refused = api
        .post(&format!("/v1/sessions/{session}/sends"), &words)
        .await;
    refused.problem(503, "store.unavailable");
    let path = format!("/v1/sends/{send}/cancel");
    let refused = api.call("POST", &path).send().await;
    refused.problem(503, "store.unavailable");
    assert_eq!(refused.header("retry-after"), Some("1"));

    // Nothing was stored.
    store.lock_first(0);
    let inbox = format!("/v1/sessions/{session}/inbox");
    assert_eq!(api.get(&inbox).await.ok(200)["data"], json!([]));
    let path = format!("/v1/sessions/{session}/tool-results");
    let posted = api.post(&path, &json!({ "results": [one] })).await.ok(200);
    assert_eq!(posted["results"][0]["status"], "accepted");
}
