//! Tenants and their keys.

use std::time::Duration;

use mainspring_runtime::SystemClock;
use mainspring_shared::time::Clock as _;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::world::{World, nothing};

const NONE: Value = Value::Null;

#[tokio::test]
async fn a_tenant_is_created_shown_changed_and_deleted() {
    let world = World::new().await;
    let api = locked(&world).await;
    let body = json!({ "name": "blue", "limits": { "requests_per_second": 100 } });
    let created = ask(&api, ROOT, "POST", "/v1/tenants", &body).await;
    let blue = created.ok(201);
    assert_eq!(blue["id"], "ten_2");
    assert_eq!(created.header("location"), Some("/v1/tenants/ten_2"));
    let shown = ask(&api, ROOT, "GET", "/v1/tenants/ten_2", &NONE)
        .await
        .ok(200);
    assert_eq!(shown, blue);
    let again = ask(&api, ROOT, "POST", "/v1/tenants", &body).await;
    again.problem(409, "tenant.name_taken");
    let patch = json!({ "name": "navy", "limits": {} });
    let changed = ask(&api, ROOT, "PATCH", "/v1/tenants/ten_2", &patch)
        .await
        .ok(200);
    assert_eq!(changed["name"], "navy");
    assert_eq!(changed["limits"], json!({}));
    let list = ask(&api, ROOT, "GET", "/v1/tenants?limit=1", &NONE)
        .await
        .ok(200);
    assert_eq!(list["data"][0]["name"], "default");
    assert_eq!(list["next_cursor"], "ten_1");
    let rest = ask(&api, ROOT, "GET", "/v1/tenants?cursor=ten_1", &NONE)
        .await
        .ok(200);
    assert_eq!(rest["data"], json!([changed]));
    let gone = ask(&api, ROOT, "DELETE", "/v1/tenants/ten_2", &NONE).await;
    assert_eq!(gone.status, 204);
    let gone = ask(&api, ROOT, "GET", "/v1/tenants/ten_2", &NONE).await;
    gone.problem(404, "tenant.not_found");
}

#[tokio::test]
async fn a_tenant_with_sessions_and_the_default_one_stay() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &["send"]).await;
    ask(&api, &key, "POST", "/v1/sessions", &json!({}))
        .await
        .ok(201);
    for id in [id.as_str(), "ten_1"] {
        let refused = ask(&api, ROOT, "DELETE", &format!("/v1/tenants/{id}"), &NONE).await;
        refused.problem(409, "tenant.not_empty");
    }
}

#[tokio::test]
async fn bad_members_are_named() {
    let world = World::new().await;
    let api = locked(&world).await;
    for (path, body, pointer) in [
        ("/v1/tenants", json!({ "name": "" }), "/name"),
        ("/v1/tenants", json!({ "name": "x".repeat(101) }), "/name"),
        (
            "/v1/tenants",
            json!({ "name": "x", "weight": 0 }),
            "/weight",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "limits": { "requests_per_second": 0 } }),
            "/limits/requests_per_second",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "limits": { "sends_open": 0 } }),
            "/limits/sends_open",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "limits": { "usd_per_day": 0 } }),
            "/limits/usd_per_day",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "limits": { "usd_per_month": -1 } }),
            "/limits/usd_per_month",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "limits": { "tokens_per_minute": 0 } }),
            "/limits/tokens_per_minute",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "limits": { "tokens_per_day": 0 } }),
            "/limits/tokens_per_day",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "limits": { "tokens_per_month": 0 } }),
            "/limits/tokens_per_month",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "pools": { "allowed": ["GPU"] } }),
            "/pools/allowed",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "pools": { "allowed": [] } }),
            "/pools/allowed",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "pools": { "own": ["default"] } }),
            "/pools/own",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "limits": { "bytes": 0 } }),
            "/limits/bytes",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "limits": { "sends_running": 0 } }),
            "/limits/sends_running",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "limits": { "leaves_running": 100_001 } }),
            "/limits/leaves_running",
        ),
        (
            "/v1/tenants",
            json!({ "name": "x", "limits": { "sends_walking": 1 } }),
            "/limits/sends_walking",
        ),
        ("/v1/keys", json!({ "name": "x", "scopes": [] }), "/scopes"),
        (
            "/v1/keys",
            json!({ "name": "x", "scopes": ["rule"] }),
            "/scopes/0",
        ),
        (
            "/v1/keys",
            json!({ "name": "x", "scopes": ["read"], "expires_at": 1 }),
            "/expires_at",
        ),
    ] {
        let problem = ask(&api, ROOT, "POST", path, &body).await;
        let problem = problem.problem(400, "request.invalid");
        assert_eq!(
            problem["errors"][0]["pointer"], pointer,
            "{body}: {problem}"
        );
    }
}

#[tokio::test]
async fn a_tenant_has_a_weight_and_a_retention() {
    let world = World::new().await;
    let api = locked(&world).await;
    let body = json!({ "name": "blue", "weight": 3, "retention": { "sends": "30d" } });
    let blue = ask(&api, ROOT, "POST", "/v1/tenants", &body).await.ok(201);
    assert_eq!(
        (&blue["weight"], &blue["retention"]),
        (&json!(3), &json!({ "sends": "30d" }))
    );
    let body = json!({ "name": "green" });
    let green = ask(&api, ROOT, "POST", "/v1/tenants", &body).await.ok(201);
    assert_eq!(
        (&green["weight"], &green["retention"]),
        (&json!(1), &json!({}))
    );
    let patch = json!({ "weight": 5 });
    let changed = ask(&api, ROOT, "PATCH", "/v1/tenants/ten_2", &patch)
        .await
        .ok(200);
    assert_eq!(changed["weight"], 5);
    assert_eq!(changed["retention"], json!({ "sends": "30d" }), "it stays");
    for (patch, pointer) in [
        (json!({ "weight": 0 }), "/weight"),
        (json!({ "weight": 1001 }), "/weight"),
        (json!({ "retention": { "runs": "1s" } }), "/retention/runs"),
        (json!({ "retention": { "cats": "1d" } }), "/retention/cats"),
    ] {
        let refused = ask(&api, ROOT, "PATCH", "/v1/tenants/ten_2", &patch).await;
        let problem = refused.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
}

#[tokio::test]
async fn nothing_is_kept_for_less_time_than_the_keys_of_requests() {
    let world = World::new().await;
    let api = locked(&world).await;
    let body = json!({ "name": "blue", "retention": { "sends": "2d" } });
    ask(&api, ROOT, "POST", "/v1/tenants", &body).await.ok(201);
    for member in ["sends", "runs", "sessions"] {
        let retention = json!({ member: "47h" });
        let made = json!({ "name": "green", "retention": retention });
        let changed = json!({ "retention": retention });
        for (method, path, body) in [
            ("POST", "/v1/tenants", made),
            ("PATCH", "/v1/tenants/ten_2", changed),
        ] {
            let refused = ask(&api, ROOT, method, path, &body).await;
            let problem = refused.problem(400, "request.invalid");
            let error = &problem["errors"][0];
            assert_eq!(error["pointer"], format!("/retention/{member}"));
            let detail = error["detail"].as_str().expect("a detail");
            assert!(detail.contains("at least 2d"), "{detail}");
        }
        let changed = json!({ "retention": { member: "48h" } });
        let kept = ask(&api, ROOT, "PATCH", "/v1/tenants/ten_2", &changed).await;
        assert_eq!(kept.ok(200)["retention"], json!({ member: "2d" }));
    }
}

#[tokio::test]
async fn nothing_of_a_tenant_on_hold_is_removed_by_a_request() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &["send", "manage", "read"]).await;
    let session = ask(&api, &key, "POST", "/v1/sessions", &json!({}))
        .await
        .ok(201);
    let path = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    let hold = |held: bool| json!({ "retention": { "hold": held } });
    let tenant = format!("/v1/tenants/{id}");
    ask(&api, ROOT, "PATCH", &tenant, &hold(true)).await.ok(200);
    let prune = json!({ "keep_last": 1 });
    for (method, path, body) in [
        ("DELETE", path.clone(), &NONE),
        ("POST", format!("{path}/prune"), &prune),
        ("DELETE", "/v1/memories?namespace=user".to_owned(), &NONE),
    ] {
        let refused = ask(&api, &key, method, &path, body).await;
        refused.problem(409, "tenant.held");
    }
    let refused = ask(&api, ROOT, "DELETE", &tenant, &NONE).await;
    refused.problem(409, "tenant.held");
    ask(&api, &key, "GET", &path, &NONE).await.ok(200);
    ask(&api, ROOT, "PATCH", &tenant, &hold(false))
        .await
        .ok(200);
    let gone = ask(&api, &key, "DELETE", &path, &NONE).await;
    assert_eq!(gone.status, 204);
}

#[tokio::test]
async fn the_token_of_a_key_is_shown_once() {
    let world = World::new().await;
    let api = locked(&world).await;
    let body = json!({ "name": "ci", "scopes": ["send", "read"] });
    let call = api.call("POST", "/v1/keys").json(&body);
    let call = call.header("authorization", &format!("Bearer {ROOT}"));
    let call = call.header("idempotency-key", "one");
    let created = call.clone().send().await.ok(201);
    let token = created["key"].as_str().expect("the token");
    assert!(token.starts_with(created["prefix"].as_str().expect("a prefix")));
    assert_eq!(created["scopes"], json!(["read", "send"]));
    let repeated = call.send().await;
    assert_eq!(repeated.header("idempotency-replayed"), Some("true"));
    let repeated = repeated.ok(201);
    assert_eq!(repeated["id"], created["id"]);
    assert_eq!(repeated.get("key"), None);
    let list = ask(&api, ROOT, "GET", "/v1/keys", &NONE).await;
    assert!(!list.text.contains(token), "{}", list.text);
    assert_eq!(list.ok(200)["data"].as_array().map(Vec::len), Some(1));
    let dump = world.store.dump().await.expect("dumps");
    assert!(!format!("{dump:?}").contains(&token[37..]));
}

#[tokio::test]
async fn a_key_without_a_name_is_called_by_its_scopes() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, admin) = tenant(&api, "blue", &["admin"]).await;
    let end = "2100-01-01T00:00:00Z";
    let body = json!({ "tenant": id, "scopes": ["send", "read", "send"], "expires_at": end });
    let created = ask(&api, ROOT, "POST", "/v1/keys", &body).await;
    // The caller's own tenant has no such key.
    assert_eq!(created.header("location"), None);
    assert_eq!(created.ok(201)["name"], "read+send");
    let keys = ask(&api, &admin, "GET", "/v1/keys", &NONE).await.ok(200);
    assert_eq!(keys["data"][0]["name"], "read+send");
    let body = json!({ "name": "", "scopes": ["read"] });
    let refused = ask(&api, &admin, "POST", "/v1/keys", &body).await;
    let problem = refused.problem(400, "request.invalid");
    assert_eq!(problem["errors"][0]["pointer"], "/name");
}

#[tokio::test]
async fn a_key_is_shown_at_its_location_to_administrators_of_its_tenant() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let (_, red) = tenant(&api, "red", &["admin"]).await;
    let body = json!({ "name": "app", "scopes": ["read"] });
    let created = ask(&api, &blue, "POST", "/v1/keys", &body).await;
    let path = created.header("location").expect("a place").to_owned();
    let mut made = created.ok(201);
    let members = made.as_object_mut().expect("an object");
    let token = members.remove("key").expect("the token");
    let token = token.as_str().expect("a text");
    let shown = ask(&api, &blue, "GET", &path, &NONE).await.ok(200);
    assert_eq!(shown, made);
    let keys = ask(&api, &blue, "GET", "/v1/keys", &NONE).await.ok(200);
    assert_eq!(keys["data"][0], shown);
    for other in [red.as_str(), ROOT] {
        let hidden = ask(&api, other, "GET", &path, &NONE).await;
        hidden.problem(404, "key.not_found");
    }
    for unknown in ["x", &nothing("key_")] {
        let unknown = format!("/v1/keys/{unknown}");
        let unknown = ask(&api, &blue, "GET", &unknown, &NONE).await;
        unknown.problem(404, "key.not_found");
    }
    let refused = ask(&api, token, "GET", &path, &NONE).await;
    refused.problem(403, "auth.forbidden");
    let revoked = ask(&api, &blue, "DELETE", &path, &NONE).await;
    assert_eq!(revoked.status, 204);
    let shown = ask(&api, &blue, "GET", &path, &NONE).await.ok(200);
    assert!(shown["revoked_at"].is_string(), "{shown}");
}

#[tokio::test]
async fn a_rotated_key_accepts_both_tokens_until_the_overlap_ends() {
    let world = World::new().await;
    let api = locked(&world).await;
    let body = json!({ "name": "ci", "scopes": ["read"] });
    let created = ask(&api, ROOT, "POST", "/v1/keys", &body).await.ok(201);
    let old = created["key"].as_str().expect("the token").to_owned();
    let rotate = format!("/v1/keys/{}/rotate", created["id"].as_str().expect("an id"));
    let rotated = ask(&api, ROOT, "POST", &rotate, &json!({})).await.ok(200);
    let new = rotated["key"].as_str().expect("the token").to_owned();
    assert_ne!(old, new);
    for token in [&old, &new] {
        ask(&api, token, "GET", "/v1/sessions", &NONE).await.ok(200);
    }
    // Checked on another scheduler, which has not cached the key.
    let at_once = ask(&api, ROOT, "POST", &rotate, &json!({ "overlap": "0ms" })).await;
    let newest = at_once.ok(200)["key"]
        .as_str()
        .expect("the token")
        .to_owned();
    let elsewhere = locked(&world).await;
    for token in [&old, &new] {
        let answer = ask(&elsewhere, token, "GET", "/v1/sessions", &NONE).await;
        answer.problem(401, "auth.invalid");
    }
    ask(&elsewhere, &newest, "GET", "/v1/sessions", &NONE)
        .await
        .ok(200);
    let unknown = "/v1/keys/key_00000000000000000000000000000001/rotate";
    let unknown = ask(&api, ROOT, "POST", unknown, &json!({})).await;
    unknown.problem(404, "key.not_found");
}

#[tokio::test]
async fn the_last_use_of_a_key_is_shown() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &["admin"]).await;
    let keys = ask(&api, &key, "GET", "/v1/keys", &NONE).await.ok(200);
    let shown = &keys["data"][0];
    assert_eq!(shown["tenant"], id.as_str());
    assert!(shown["last_used_at"].is_string(), "{shown}");
}

#[tokio::test]
async fn what_a_tenant_used_is_shown_by_day() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &["admin"]).await;
    let path = format!("/v1/tenants/{id}/usage");
    let body = json!({ "input": "hello", "session": {} });
    for _ in 0..2 {
        ask(&api, &key, "POST", "/v1/sends", &body).await.ok(202);
    }
    let used = ask(&api, ROOT, "GET", &path, &NONE).await.ok(200);
    assert_eq!(used["days"].as_array().map(Vec::len), Some(7));
    assert_eq!(used["days"][0]["sends"], 2);
    assert_eq!(used["days"][0]["usage"]["input_tokens"], 0);
    assert_eq!(used["days"][1]["sends"], 0);
    assert_eq!(used["total"]["sends"], 2);
    assert_eq!(used["blob_bytes"], 0);
    let one = ask(&api, ROOT, "GET", &format!("{path}?days=1"), &NONE).await;
    assert_eq!(one.ok(200)["days"].as_array().map(Vec::len), Some(1));
    for days in ["0", "93", "x"] {
        let bad = ask(&api, ROOT, "GET", &format!("{path}?days={days}"), &NONE).await;
        bad.problem(400, "request.invalid");
    }
    let unknown = ask(&api, ROOT, "GET", "/v1/tenants/ten_9/usage", &NONE).await;
    unknown.problem(404, "tenant.not_found");
    // Only the operator may see it.
    let refused = ask(&api, &key, "GET", &path, &NONE).await;
    refused.problem(404, "tenant.not_found");
}

#[tokio::test]
async fn an_erased_tenant_leaves_nothing_but_its_number() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &["admin"]).await;
    let send = ask(&api, &key, "POST", "/v1/sends", &json!({ "input": "hi" })).await;
    send.ok(202);
    let path = format!("/v1/tenants/{id}/erase");
    let wrong = ask(&api, ROOT, "POST", &path, &json!({ "name": "red" })).await;
    wrong.problem(400, "request.invalid");
    let own = ask(&api, &key, "POST", &path, &json!({ "name": "blue" })).await;
    own.problem(404, "tenant.not_found");
    let hold = |hold: bool| json!({ "retention": { "hold": hold } });
    let tenant_path = format!("/v1/tenants/{id}");
    ask(&api, ROOT, "PATCH", &tenant_path, &hold(true))
        .await
        .ok(200);
    let held = ask(&api, ROOT, "POST", &path, &json!({ "name": "blue" })).await;
    held.problem(409, "tenant.held");
    ask(&api, ROOT, "PATCH", &tenant_path, &hold(false))
        .await
        .ok(200);
    let begun = ask(&api, ROOT, "POST", &path, &json!({ "name": "blue" })).await;
    assert_eq!(begun.ok(202)["status"], "erasing");
    let call = api
        .call("GET", "/v1/sessions")
        .header("mainspring-tenant", &id);
    let call = call.header("authorization", &format!("Bearer {ROOT}"));
    call.send().await.problem(409, "tenant.erasing");
    // The loop removes the tenant's rows, a batch at a time.
    let path = format!("/v1/tenants/{id}/erasure");
    for _ in 0..200 {
        let shown = ask(&api, ROOT, "GET", &path, &NONE).await.ok(200);
        if shown["removed"]["session_hot"] == 1 {
            let unknown = ask(&api, ROOT, "GET", "/v1/tenants/ten_9/erasure", &NONE).await;
            unknown.problem(404, "tenant.not_found");
            let refused = ask(&api, &key, "GET", "/v1/sessions", &NONE).await;
            refused.problem(401, "auth.invalid");
            return;
        }
        SystemClock::new().sleep(Duration::from_millis(100)).await;
    }
    panic!("nothing is removed");
}
