//! Pausing and resuming: who may do it, how it shows, and that repeats change nothing.

use mainspring_shared::id::TenantId;
use mainspring_shared::pause::{PauseKey, PauseKind};
use mainspring_shared::store::PauseWait;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::world::World;

const NONE: Value = Value::Null;

#[tokio::test]
async fn a_pause_is_shown_until_it_ends_and_repeats_change_nothing() {
    let world = World::new().await;
    let api = locked(&world).await;
    tenant(&api, "blue", &["read"]).await;
    for (path, kind, name, of) in [
        ("tenants/ten_2", "tenant", "ten_2", json!("ten_2")),
        ("agents/reviewer", "agent", "reviewer", json!("ten_1")),
        ("providers/main", "provider", "main", NONE),
        ("tools/git%20push%2F1", "tool", "git push/1", json!("ten_1")),
        ("pools/gpu", "pool", "gpu", NONE),
    ] {
        let (pause, resume) = (format!("/v1/{path}/pause"), format!("/v1/{path}/resume"));
        let paused = ask(&api, ROOT, "POST", &pause, &json!({ "reason": "load" })).await;
        let paused = paused.ok(200);
        assert_eq!(paused["kind"], kind);
        assert_eq!(paused["name"], name);
        assert_eq!(paused.get("tenant").unwrap_or(&NONE), &of);
        assert_eq!(paused["reason"], "load");
        // It works without a body, too.
        let again = ask(&api, ROOT, "POST", &pause, &NONE).await.ok(200);
        assert_eq!(again, paused);
        let listed = ask(&api, ROOT, "GET", "/v1/pauses", &NONE).await.ok(200);
        assert_eq!(listed["data"], json!([paused]), "{path}");
        for _ in 0..2 {
            let resumed = ask(&api, ROOT, "POST", &resume, &NONE).await;
            assert_eq!(resumed.status, 204, "{path}");
        }
        let listed = ask(&api, ROOT, "GET", "/v1/pauses", &NONE).await.ok(200);
        assert_eq!(listed["data"], json!([]), "{path}");
    }
}

#[tokio::test]
async fn the_list_goes_on_behind_its_cursor() {
    let world = World::new().await;
    let api = locked(&world).await;
    for name in ["a.b", "c", "d"] {
        let path = format!("/v1/tools/{name}/pause");
        ask(&api, ROOT, "POST", &path, &NONE).await.ok(200);
    }
    let first = ask(&api, ROOT, "GET", "/v1/pauses?limit=1", &NONE).await;
    let first = first.ok(200);
    assert_eq!(first["data"][0]["name"], "a.b");
    let cursor = first["next_cursor"].as_str().expect("there is more");
    let path = format!("/v1/pauses?cursor={cursor}");
    let rest = ask(&api, ROOT, "GET", &path, &NONE).await.ok(200);
    assert_eq!(rest["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(rest["next_cursor"], NONE);
    let bad = ask(&api, ROOT, "GET", "/v1/pauses?cursor=x", &NONE).await;
    bad.problem(400, "request.invalid");
}

#[tokio::test]
async fn only_operators_pause_what_is_everybodys_and_tenants_their_own() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, admin) = tenant(&api, "blue", &["admin"]).await;
    let (_, reader) = tenant(&api, "red", &["read", "send", "answer"]).await;
    for (path, status, code) in [
        ("tenants/ten_2", 404, "tenant.not_found"),
        ("providers/main", 403, "auth.forbidden"),
        ("pools/gpu", 403, "auth.forbidden"),
    ] {
        for verb in ["pause", "resume"] {
            let path = format!("/v1/{path}/{verb}");
            let refused = ask(&api, &admin, "POST", &path, &NONE).await;
            refused.problem(status, code);
        }
    }
    for path in ["agents/a", "tools/t"] {
        let path = format!("/v1/{path}/pause");
        let refused = ask(&api, &reader, "POST", &path, &NONE).await;
        refused.problem(403, "auth.forbidden");
        let mine = ask(&api, &admin, "POST", &path, &NONE).await.ok(200);
        assert_eq!(mine["tenant"], "ten_2");
    }
    // Other tenants cannot see the pause, and cannot end it.
    let theirs = ask(&api, &reader, "GET", "/v1/pauses", &NONE).await;
    assert_eq!(theirs.ok(200)["data"], json!([]));
    let (_, other) = tenant(&api, "green", &["manage", "read"]).await;
    let resumed = ask(&api, &other, "POST", "/v1/tools/t/resume", &NONE).await;
    assert_eq!(resumed.status, 204);
    let mine = ask(&api, &admin, "GET", "/v1/pauses", &NONE).await.ok(200);
    assert_eq!(mine["data"].as_array().map(Vec::len), Some(2));
    let all = ask(&api, ROOT, "GET", "/v1/pauses", &NONE).await.ok(200);
    assert_eq!(all["data"], mine["data"]);
}

#[tokio::test]
async fn what_cannot_be_paused_is_refused() {
    let world = World::new().await;
    let api = locked(&world).await;
    let unknown = ask(&api, ROOT, "POST", "/v1/tenants/ten_9/pause", &NONE).await;
    unknown.problem(404, "tenant.not_found");
    let unknown = ask(&api, ROOT, "POST", "/v1/tenants/ten_9/resume", &NONE).await;
    unknown.problem(404, "tenant.not_found");
    let long = format!("/v1/tools/{}/pause", "x".repeat(201));
    let refused = ask(&api, ROOT, "POST", &long, &NONE).await;
    refused.problem(400, "request.invalid");
    let refused = ask(&api, ROOT, "POST", "/v1/tools/a%0Ab/pause", &NONE).await;
    refused.problem(400, "request.invalid");
    for (body, pointer) in [
        (json!({ "reason": "x".repeat(1_001) }), "/reason"),
        (json!({ "reason": " " }), "/reason"),
        (json!({ "why": "x" }), "/why"),
    ] {
        let refused = ask(&api, ROOT, "POST", "/v1/tools/t/pause", &body).await;
        let refused = refused.problem(400, "request.invalid");
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{refused}");
    }
    let listed = ask(&api, ROOT, "GET", "/v1/pauses", &NONE).await.ok(200);
    assert_eq!(listed["data"], json!([]));
}

#[tokio::test]
async fn what_is_paused_is_accepted_and_the_notes_of_sends_go_when_it_is_resumed() {
    let world = World::new().await;
    let api = locked(&world).await;
    ask(&api, ROOT, "POST", "/v1/tenants/ten_1/pause", &NONE)
        .await
        .ok(200);
    let body = json!({ "input": "hello", "session": {} });
    let sent = ask(&api, ROOT, "POST", "/v1/sends", &body).await.ok(202);
    let send = sent["id"].as_str().and_then(|id| id.parse().ok());
    let wait = PauseWait {
        tenant: TenantId::DEFAULT,
        send: send.expect("an id"),
        pause: PauseKey::tenant(TenantId::DEFAULT),
    };
    assert_eq!(wait.pause.kind, PauseKind::Tenant);
    world.store.await_resume(wait).await.expect("notes");
    let resumed = ask(&api, ROOT, "POST", "/v1/tenants/ten_1/resume", &NONE).await;
    assert_eq!(resumed.status, 204);
    // Resuming wakes the sends itself: nothing is left for the sweep.
    let left = world
        .store
        .wake_paused(10)
        .await
        .expect("the store answers");
    assert_eq!(left, 0);
    let shown = format!("/v1/sends/{}", sent["id"].as_str().expect("an id"));
    let shown = ask(&api, ROOT, "GET", &shown, &NONE).await.ok(200);
    assert_eq!(shown["status"], "queued");
}
