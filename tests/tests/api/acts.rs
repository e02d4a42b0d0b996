//! Many things acted on in one request.

use mainspring_shared::error::Code;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::world::{Scheduler, World};

const NONE: Value = Value::Null;

/// Acts on what a query finds; the ids and whether each was done, and where to go on.
async fn act(api: &Scheduler, target: &str) -> (Vec<(String, bool)>, Value) {
    let answer = api.post(target, &json!({})).await.ok(200);
    let results = answer["results"].as_array().expect("a list").iter();
    let results = results.map(|one| {
        let id = one["id"].as_str().expect("an id").to_owned();
        (id, one["done"] == true)
    });
    (results.collect(), answer["next_cursor"].clone())
}

fn done(ids: &[&String]) -> Vec<(String, bool)> {
    ids.iter().map(|id| ((*id).clone(), true)).collect()
}

async fn status(api: &Scheduler, path: &str) -> Value {
    api.get(path).await.ok(200)["status"].clone()
}

#[tokio::test]
async fn sends_that_a_query_finds_are_cancelled_piece_by_piece() {
    let world = World::new().await;
    let api = world.ready().await;
    let (session, other) = (api.session().await, api.session().await);
    let mut sends = Vec::new();
    for n in 0..4 {
        sends.push(api.send(&session, &format!("{n}")).await);
    }
    let elsewhere = api.send(&other, "hi").await;
    let claimed = world.claim(&session).await;
    world.complete(&claimed, 0, "done").await;

    // The first one has ended, and is none of those.
    let target = format!("/v1/sends:cancel?session_id={session}&limit=2");
    let (results, cursor) = act(&api, &target).await;
    assert_eq!(results, done(&[&sends[3], &sends[2]]));
    let cursor = cursor.as_str().expect("there is more").to_owned();
    let (results, cursor) = act(&api, &format!("{target}&cursor={cursor}")).await;
    assert_eq!((results, cursor), (done(&[&sends[1]]), NONE));
    for (n, expected) in ["completed", "cancelled", "cancelled", "cancelled"]
        .iter()
        .enumerate()
    {
        let path = format!("/v1/sends/{}", sends[n]);
        assert_eq!(status(&api, &path).await, *expected, "{n}");
    }
    assert_eq!(act(&api, &target).await, (Vec::new(), NONE));
    let path = format!("/v1/sends/{elsewhere}");
    assert_eq!(status(&api, &path).await, "queued");
}

#[tokio::test]
async fn what_failed_is_sent_again_once_however_often_it_is_asked_for() {
    let world = World::new().await;
    let api = world.ready().await;
    let mut failed = Vec::new();
    for _ in 0..3 {
        let session = api.session().await;
        failed.push(api.send(&session, "hi").await);
        let claimed = world.claim(&session).await;
        world.fail(&claimed, Code::LlmUnavailable, "away").await;
    }
    let expected = done(&[&failed[2], &failed[1], &failed[0]]);
    for _ in 0..2 {
        let (results, cursor) = act(&api, "/v1/sends:retry?status=failed").await;
        assert_eq!((results, cursor), (expected.clone(), NONE));
    }
    let list = api.get("/v1/sends?status=queued").await.ok(200);
    assert_eq!(list["data"].as_array().map(Vec::len), Some(3));
    // None waits for a decision about its recovery.
    let resumed = act(&api, "/v1/sends:resume?status=queued").await;
    assert_eq!(resumed, (Vec::new(), NONE));
}

#[tokio::test]
async fn runs_are_cancelled_and_retried() {
    let world = World::new().await;
    let api = world.ready().await;
    let leaf = json!({ "type": "agent", "id": "a", "spec": { "name": "a", "system_prompt": "x" } });
    let body = json!({ "spec": { "name": "x", "root": leaf } });
    let mut runs = Vec::new();
    for _ in 0..2 {
        let run = api.post("/v1/runs", &body).await.ok(202);
        runs.push(run["id"].as_str().expect("an id").to_owned());
    }
    let from = "created_from=2020-01-01T00:00:00Z";
    let (results, _) = act(&api, &format!("/v1/runs:cancel?{from}")).await;
    assert_eq!(results, done(&[&runs[1], &runs[0]]));
    for run in &runs {
        let ended = api.get(&format!("/v1/runs/{run}?wait=10s")).await.ok(200);
        assert_eq!(ended["status"], "cancelled", "{ended}");
    }
    let (results, _) = act(&api, "/v1/runs:retry?status=cancelled&limit=1").await;
    assert_eq!(results, done(&[&runs[1]]));
}

#[tokio::test]
async fn sessions_are_deleted_unless_their_tenant_is_held() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, blue) = tenant(&api, "blue", &["admin"]).await;
    let mut sessions = Vec::new();
    for user in ["1", "2", "1"] {
        let body = json!({ "metadata": { "user": user } });
        let made = ask(&api, &blue, "POST", "/v1/sessions", &body).await;
        sessions.push(made.ok(201)["id"].clone());
    }
    let held = |held: bool| json!({ "retention": { "hold": held } });
    let path = format!("/v1/tenants/{id}");
    ask(&api, ROOT, "PATCH", &path, &held(true)).await.ok(200);
    let target = "/v1/sessions:delete?metadata.user=1";
    let delete = async |target: &str| ask(&api, &blue, "POST", target, &json!({})).await;
    delete(target).await.problem(409, "tenant.held");
    ask(&api, ROOT, "PATCH", &path, &held(false)).await.ok(200);
    let answer = delete(target).await.ok(200);
    let expected = json!({ "results": [
        { "id": sessions[2], "done": true }, { "id": sessions[0], "done": true },
    ], "next_cursor": null });
    assert_eq!(answer, expected);
    let left = ask(&api, &blue, "GET", "/v1/sessions", &NONE).await.ok(200);
    assert_eq!(left["data"][0]["id"], sessions[1]);
    assert_eq!(left["data"].as_array().map(Vec::len), Some(1));
    let named = delete("/v1/sessions:delete?key=mine&status=idle").await;
    named.problem(400, "request.invalid");
}

#[tokio::test]
async fn nothing_is_acted_on_without_a_filter() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let send = api.send(&session, "hi").await;
    let cursor = format!("limit=5&cursor={send}");
    for target in [
        "/v1/sends:cancel",
        "/v1/sends:retry",
        "/v1/sends:resume",
        "/v1/runs:cancel",
        "/v1/runs:retry",
        "/v1/sessions:delete",
        &format!("/v1/sends:cancel?{cursor}"),
    ] {
        let refused = api.post(target, &json!({})).await;
        let problem = refused.problem(400, "request.invalid");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains("filter"), "{target}: {problem}");
    }
    let wrong = api.post("/v1/sends:cancel?state=queued", &json!({})).await;
    wrong.problem(400, "request.invalid");
    assert_eq!(status(&api, &format!("/v1/sends/{send}")).await, "queued");
}

#[tokio::test]
async fn a_bound_key_acts_on_its_own_only() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let mut sends = Vec::new();
    for user in ["1", "2"] {
        let session = json!({ "metadata": { "user": user } });
        let body = json!({ "input": "hi", "session": session });
        let made = ask(&api, &blue, "POST", "/v1/sends", &body).await;
        sends.push(made.ok(202)["id"].clone());
    }
    let body = json!({
        "scopes": ["read", "send", "manage"], "binding": { "metadata": { "user": "1" } },
    });
    let made = ask(&api, &blue, "POST", "/v1/keys", &body).await.ok(201);
    let key = made["key"].as_str().expect("the token");
    let target = "/v1/sends:cancel?status=queued";
    let answer = ask(&api, key, "POST", target, &json!({})).await.ok(200);
    assert_eq!(answer["results"], json!([{ "id": sends[0], "done": true }]));
    let target = "/v1/sessions:delete?status=idle&created_from=2020-01-01T00:00:00Z";
    let answer = ask(&api, key, "POST", target, &json!({})).await.ok(200);
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(1));
    let other = sends[1].as_str().expect("an id");
    let other = ask(&api, &blue, "GET", &format!("/v1/sends/{other}"), &NONE).await;
    assert_eq!(other.ok(200)["status"], "queued");
}
