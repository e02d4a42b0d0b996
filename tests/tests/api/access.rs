//! Access to the API: keys, scopes, and tenants that cannot see each other.

use std::time::Duration;

use mainspring_api::{Access, RootKey};
use mainspring_runtime::SystemClock;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::time::Clock as _;
use serde_json::{Value, json};

use crate::client::Answer;
use crate::faulty::Faulty;
use crate::runs::two_steps;
use crate::world::{Scheduler, World};

pub(crate) const ROOT: &str = "a root key of these tests";

/// Starts a scheduler that requires keys.
pub(crate) async fn locked(world: &World) -> Scheduler {
    let root = Some(RootKey::new(ROOT));
    world
        .ready_for(Access::Keys {
            root,
            issuers: None,
        })
        .await
}

/// Makes a request with a key.
pub(crate) async fn ask(
    api: &Scheduler,
    key: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> Answer {
    let call = api.call(method, path);
    let call = call.header("authorization", &format!("Bearer {key}"));
    match body {
        Value::Null => call.send().await,
        body => call.json(body).send().await,
    }
}

/// Creates a tenant with a key of these scopes; returns the tenant's id and the key.
pub(crate) async fn tenant(api: &Scheduler, name: &str, scopes: &[&str]) -> (String, String) {
    let body = json!({ "name": name });
    let made = ask(api, ROOT, "POST", "/v1/tenants", &body).await.ok(201);
    let id = made["id"].as_str().expect("an id").to_owned();
    let body = json!({ "name": "test", "scopes": scopes, "tenant": id });
    let made = ask(api, ROOT, "POST", "/v1/keys", &body).await.ok(201);
    let key = made["key"].as_str().expect("the token").to_owned();
    (id, key)
}

/// Creates a session with each of these keys, all with the same idempotency key.
pub(crate) async fn made_with_one_idempotency_key<const N: usize>(
    api: &Scheduler,
    keys: [&String; N],
) -> Vec<Value> {
    let mut ids = Vec::new();
    for key in keys {
        let call = api.call("POST", "/v1/sessions").json(&json!({}));
        let call = call.header("authorization", &format!("Bearer {key}"));
        let made = call.header("idempotency-key", "same").send().await.ok(201);
        ids.push(made["id"].clone());
    }
    ids
}

#[tokio::test]
async fn without_a_key_nothing_under_v1_is_served() {
    let world = World::new().await;
    let api = locked(&world).await;
    for (method, path) in [
        ("GET", "/v1/sessions"),
        ("POST", "/v1/sends"),
        (
            "DELETE",
            "/v1/sessions/ses_00000000000000000000000000000001",
        ),
        (
            "GET",
            "/v1/sends/snd_00000000000000000000000000000001/events",
        ),
        ("GET", "/v1/tenants"),
        ("GET", "/v1/nothing"),
    ] {
        let answer = api.call(method, path).send().await;
        answer.problem(401, "auth.missing");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{path}");
    }
    // Probes and descriptions need no key: they reveal nothing about any tenant.
    for path in ["/livez", "/openapi.json", "/errors/auth.missing"] {
        assert_eq!(api.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn what_is_no_key_is_refused() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, key) = tenant(&api, "blue", &["read"]).await;
    let mut other = key.clone();
    let last = if other.ends_with('0') { '1' } else { '0' };
    other.pop();
    other.push(last);
    let unknown = format!("msk_{}_{}", "1".repeat(32), "2".repeat(64));
    for bad in ["x", "msk_1_2", &other, &unknown] {
        let answer = ask(&api, bad, "GET", "/v1/sessions", &Value::Null).await;
        answer.problem(401, "auth.invalid");
        assert!(
            !answer.text.contains(bad) || bad.len() < 3,
            "{}",
            answer.text
        );
    }
    let basic = api.call("GET", "/v1/sessions");
    let basic = basic.header("authorization", "Basic eDp5").send().await;
    basic.problem(401, "auth.invalid");
    ask(&api, &key, "GET", "/v1/sessions", &Value::Null)
        .await
        .ok(200);
}

#[tokio::test]
async fn a_key_that_is_sent_to_an_open_server_is_checked() {
    let world = World::new().await;
    let api = world.ready().await;
    api.get("/v1/sessions").await.ok(200);
    let answer = ask(&api, "x", "GET", "/v1/sessions", &Value::Null).await;
    answer.problem(401, "auth.invalid");
}

#[tokio::test]
async fn the_first_key_ends_access_without_keys_on_every_scheduler_and_for_good() {
    let world = World::new().await;
    let api = world.ready_for(Access::UntilKeys).await;
    let other = world.ready_for(Access::UntilKeys).await;
    api.get("/v1/tenants").await.ok(200);
    other.get("/v1/tenants").await.ok(200);
    let third = world.ready_for(Access::UntilKeys).await;
    third.get("/v1/sessions").await.ok(200);
    // A proxy on this machine speaks for others.
    for header in ["x-forwarded-for", "forwarded", "via", "x-real-ip"] {
        let call = api.call("GET", "/v1/tenants").header(header, "10.0.0.1");
        call.send().await.problem(401, "auth.missing");
    }
    // Whichever tenant it is for.
    let blue = api.post("/v1/tenants", &json!({ "name": "blue" })).await;
    let id = blue.ok(201)["id"].clone();
    let body = json!({ "scopes": ["admin"], "tenant": id });
    let made = other.post("/v1/keys", &body).await.ok(201);
    for server in [&api, &other] {
        server.get("/v1/tenants").await.problem(401, "auth.missing");
        let body = json!({ "scopes": ["admin"] });
        let again = server.post("/v1/keys", &body).await;
        again.problem(401, "auth.missing");
    }
    // What does not administer may be let in for a second longer.
    let clock = SystemClock::new();
    let begun = clock.monotonic();
    while third.get("/v1/sessions").await.status == 200 {
        let waited = clock.monotonic().saturating_sub(begun);
        assert!(waited < Duration::from_secs(10), "it is still let in");
    }
    third.get("/v1/sessions").await.problem(401, "auth.missing");
    let key = made["key"].as_str().expect("the token");
    let path = format!("/v1/keys/{}", made["id"].as_str().expect("an id"));
    let revoked = ask(&api, key, "DELETE", &path, &Value::Null).await;
    assert_eq!(revoked.status, 204);
    api.get("/v1/tenants").await.problem(401, "auth.missing");
    let fresh = world.ready_for(Access::UntilKeys).await;
    fresh.get("/v1/tenants").await.problem(401, "auth.missing");
}

/// What the store is asked for each of these sends.
async fn asked_for_each(store: &Faulty, api: &Scheduler, key: Option<&str>) -> Vec<&'static str> {
    const SENDS: usize = 40;
    let call = |method: &'static str, path: &str| match key {
        Some(key) => api
            .call(method, path)
            .header("authorization", &format!("Bearer {key}")),
        None => api.call(method, path),
    };
    let session = call("POST", "/v1/sessions")
        .json(&json!({}))
        .send()
        .await
        .ok(201);
    let path = format!(
        "/v1/sessions/{}/sends",
        session["id"].as_str().expect("an id")
    );
    let before = store.all_calls();
    for _ in 0..SENDS {
        call("POST", &path)
            .json(&json!({ "input": "hi" }))
            .send()
            .await
            .ok(202);
    }
    let grown = |name: &str, calls: usize| calls - before.get(name).copied().unwrap_or(0);
    let calls = store.all_calls().into_iter();
    let each = calls.filter(|(name, calls)| grown(name, *calls) >= SENDS);
    each.map(|(name, _)| name).collect()
}

#[tokio::test]
async fn no_way_in_asks_the_database_for_each_request() {
    let (world, store) = Faulty::world().await;
    let open = world.ready_for(Access::Open).await;
    let expected = asked_for_each(&store, &open, None).await;
    assert_eq!(expected, ["accept_sends"], "no more than the send itself");
    let keyless = world.ready_for(Access::UntilKeys).await;
    assert_eq!(asked_for_each(&store, &keyless, None).await, expected);
    let keyed = locked(&world).await;
    assert_eq!(asked_for_each(&store, &keyed, Some(ROOT)).await, expected);
    let (_, own) = tenant(&keyed, "blue", &["use", "define"]).await;
    assert_eq!(asked_for_each(&store, &keyed, Some(&own)).await, expected);
}

#[tokio::test]
async fn a_wrong_secret_is_no_use_of_a_key() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, admin) = tenant(&api, "blue", &["admin"]).await;
    let made = json!({ "scopes": ["read"] });
    let made = ask(&api, &admin, "POST", "/v1/keys", &made).await.ok(201);
    let path = format!("/v1/keys/{}", made["id"].as_str().expect("an id"));
    let prefix = made["prefix"].as_str().expect("a prefix");
    let wrong = format!("{prefix}_{}", "0".repeat(64));
    let refused = ask(&api, &wrong, "GET", "/v1/sessions", &Value::Null).await;
    refused.problem(401, "auth.invalid");
    let shown = ask(&api, &admin, "GET", &path, &Value::Null).await.ok(200);
    assert_eq!(shown["last_used_at"], Value::Null);
    let key = made["key"].as_str().expect("the token");
    ask(&api, key, "GET", "/v1/sessions", &Value::Null)
        .await
        .ok(200);
    let shown = ask(&api, &admin, "GET", &path, &Value::Null).await.ok(200);
    assert_ne!(shown["last_used_at"], Value::Null);
}

#[tokio::test]
async fn a_scope_allows_what_it_is_for_and_nothing_else() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, admin) = tenant(&api, "blue", &["admin"]).await;
    let session = ask(&api, &admin, "POST", "/v1/sessions", &json!({}))
        .await
        .ok(201);
    let session = format!("/v1/sessions/{}", session["id"].as_str().expect("an id"));
    let sends = format!("{session}/sends");
    let results = format!("{session}/tool-results");
    let no_results = json!({ "results": [{ "call_id": "x", "output": 1 }] });
    let hi = json!({ "input": "hi" });
    let nothing = json!({ "metadata": {} });
    // What is allowed answers the call that does not exist with 404.
    let tries = [
        ("read", "GET", session.as_str(), Value::Null, 200),
        ("send", "POST", sends.as_str(), hi, 202),
        ("answer", "POST", results.as_str(), no_results, 404),
        ("manage", "PATCH", session.as_str(), nothing, 200),
        ("admin", "GET", "/v1/keys", Value::Null, 200),
    ];
    for scope in ["read", "send", "answer", "manage", "admin"] {
        let body = json!({ "name": scope, "scopes": [scope] });
        let key = ask(&api, &admin, "POST", "/v1/keys", &body).await.ok(201);
        assert_eq!(key["tenant"], id.as_str());
        let key = key["key"].as_str().expect("the token").to_owned();
        for (needed, method, path, body, allowed) in &tries {
            let answer = ask(&api, &key, method, path, body).await;
            if scope == *needed || scope == "admin" {
                assert_eq!(answer.status, *allowed, "{scope} {path}: {}", answer.text);
            } else {
                answer.problem(403, "auth.forbidden");
                assert!(answer.text.contains(needed), "{}", answer.text);
            }
        }
    }
}

#[tokio::test]
async fn tenants_do_not_see_each_other() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let (_, red) = tenant(&api, "red", &["admin"]).await;
    let send = ask(&api, &blue, "POST", "/v1/sends", &json!({ "input": "hi" })).await;
    let send = send.ok(202);
    let (send, session) = (&send["id"], &send["session_id"]);
    let (send, session) = (send.as_str().expect("id"), session.as_str().expect("id"));
    let timer = json!({ "session_id": session, "after": "1h", "input": "x" });
    let timer = ask(&api, &blue, "POST", "/v1/timers", &timer).await.ok(201);
    let timer = timer["id"].as_str().expect("an id");
    let run = json!({ "spec": two_steps(), "input": "x" });
    let run = ask(&api, &blue, "POST", "/v1/runs", &run).await.ok(202);
    let run = run["id"].as_str().expect("an id").to_owned();
    let none = Value::Null;
    let hi = json!({ "input": "hi" });
    for (method, path, body) in [
        ("GET", format!("/v1/sessions/{session}"), &none),
        ("GET", format!("/v1/sessions/{session}/messages"), &none),
        ("GET", format!("/v1/sessions/{session}/events"), &none),
        ("GET", format!("/v1/sessions/{session}/export"), &none),
        ("GET", format!("/v1/sessions/{session}/usage"), &none),
        ("GET", format!("/v1/sessions/{session}/calls"), &none),
        ("GET", format!("/v1/sessions/{session}/inbox"), &none),
        ("POST", format!("/v1/sessions/{session}/sends"), &hi),
        ("POST", format!("/v1/sessions/{session}/fork"), &none),
        (
            "PATCH",
            format!("/v1/sessions/{session}"),
            &json!({ "closed": true }),
        ),
        ("DELETE", format!("/v1/sessions/{session}"), &none),
        ("GET", format!("/v1/sends/{send}"), &none),
        ("GET", format!("/v1/sends/{send}/events"), &none),
        ("POST", format!("/v1/sends/{send}/cancel"), &none),
        ("GET", format!("/v1/timers/{timer}"), &none),
        ("DELETE", format!("/v1/timers/{timer}"), &none),
        ("GET", format!("/v1/runs/{run}"), &none),
        ("POST", format!("/v1/runs/{run}/cancel"), &none),
    ] {
        let answer = ask(&api, &red, method, &path, body).await;
        assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text);
    }
    let elsewhere = json!({ "input": "x", "session_id": session });
    let answer = ask(&api, &red, "POST", "/v1/sends", &elsewhere).await;
    answer.problem(404, "session.not_found");
    let batch = json!({ "sends": [elsewhere] });
    let answer = ask(&api, &red, "POST", "/v1/sends:batch", &batch)
        .await
        .ok(200);
    assert_eq!(answer["results"][0]["status"], 404, "{answer}");
    for list in ["/v1/sessions", "/v1/sends", "/v1/timers", "/v1/runs"] {
        let theirs = ask(&api, &red, "GET", list, &none).await.ok(200);
        assert_eq!(theirs["data"], json!([]), "{list}");
    }
    // Nothing has changed, and the owner can see it.
    let own = ask(&api, &blue, "GET", &format!("/v1/sends/{send}"), &none).await;
    assert_eq!(own.ok(200)["status"], "queued");
    let mine = ask(&api, &blue, "GET", "/v1/sessions", &none).await.ok(200);
    let mine = mine["data"].as_array().expect("a list");
    assert!(mine.iter().any(|one| one["id"] == session), "{mine:?}");
}

#[tokio::test]
async fn an_idempotency_key_is_its_tenants() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["send"]).await;
    let (_, red) = tenant(&api, "red", &["send"]).await;
    let ids = made_with_one_idempotency_key(&api, [&blue, &red, &blue]).await;
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2]);
}

#[tokio::test]
async fn only_the_operator_sees_the_system_as_a_whole() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, admin) = tenant(&api, "blue", &["admin"]).await;
    let none = Value::Null;
    for path in [
        "/v1/tenants",
        "/v1/workers",
        "/v1/queue",
        "/v1/scaling/default",
    ] {
        let answer = ask(&api, &admin, "GET", path, &none).await;
        answer.problem(403, "auth.forbidden");
        ask(&api, ROOT, "GET", path, &none).await.ok(200);
    }
    // Nor can it create keys for other tenants, or act for them.
    let body = json!({ "name": "x", "scopes": ["admin"], "tenant": "ten_1" });
    let answer = ask(&api, &admin, "POST", "/v1/keys", &body).await;
    answer.problem(403, "auth.forbidden");
    let call = api
        .call("GET", "/v1/sessions")
        .header("mainspring-tenant", "ten_1");
    let call = call.header("authorization", &format!("Bearer {admin}"));
    call.send().await.problem(403, "auth.forbidden");
    // The operator can.
    let made = ask(&api, &admin, "POST", "/v1/sessions", &json!({}))
        .await
        .ok(201);
    let call = api
        .call("GET", "/v1/sessions")
        .header("mainspring-tenant", &id);
    let call = call.header("authorization", &format!("Bearer {ROOT}"));
    let seen = call.send().await.ok(200);
    assert_eq!(seen["data"][0]["id"], made["id"]);
    let call = api
        .call("GET", "/v1/sessions")
        .header("mainspring-tenant", "ten_77");
    let call = call.header("authorization", &format!("Bearer {ROOT}"));
    call.send().await.problem(404, "tenant.not_found");
}

#[tokio::test]
async fn a_stream_ends_once_its_key_is_revoked() {
    let world = World::new().await;
    let root = Some(RootKey::new(ROOT));
    let api = world
        .ready_for(Access::Keys {
            root,
            issuers: None,
        })
        .await;
    let (tenant_id, key) = tenant(&api, "blue", &["read"]).await;
    let session = api.call("POST", "/v1/sessions").json(&json!({}));
    let session = session.header("authorization", &format!("Bearer {ROOT}"));
    let session = session
        .header("mainspring-tenant", &tenant_id)
        .send()
        .await
        .ok(201);
    let session = session["id"].as_str().expect("an id").to_owned();
    let stream = api.call("GET", &format!("/v1/sessions/{session}/events"));
    let stream = stream.header("authorization", &format!("Bearer {key}"));
    let mut stream = stream.stream().await;
    let id = format!("key_{}", &key[4..36]);
    let revoke = api.call("DELETE", &format!("/v1/keys/{id}"));
    let revoke = revoke.header("authorization", &format!("Bearer {ROOT}"));
    let revoke = revoke.header("mainspring-tenant", &tenant_id).send().await;
    assert_eq!(revoke.status, 204, "{}", revoke.text);
    // Once the key is looked up again, the stream ends at its next event.
    let limit = tokio::time::Instant::now() + Duration::from_secs(20);
    while !stream.ends_within(Duration::from_millis(200)).await {
        assert!(tokio::time::Instant::now() < limit, "the stream goes on");
        let send = api.call("POST", &format!("/v1/sessions/{session}/sends"));
        let send = send.header("authorization", &format!("Bearer {ROOT}"));
        let send = send.header("mainspring-tenant", &tenant_id);
        send.json(&json!({ "input": "x" })).send().await.ok(202);
    }
    let answer = ask(&api, &key, "GET", "/v1/sessions", &Value::Null).await;
    answer.problem(401, "auth.invalid");
}

#[tokio::test]
async fn a_question_is_answered_only_by_its_tenant() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, red) = tenant(&api, "red", &["answer"]).await;
    let send = ask(&api, ROOT, "POST", "/v1/sends", &json!({ "input": "x" })).await;
    let session = send.ok(202)["session_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let claimed = world.claim(&session).await;
    let call = world.ask(&claimed, WaitingOn::Human, false).await;
    let body = json!({ "results": [{ "call_id": call, "output": "yes" }] });
    let path = format!("/v1/sessions/{session}/tool-results");
    let answer = ask(&api, &red, "POST", &path, &body).await;
    answer.problem(404, "session.not_found");
    let answer = ask(&api, ROOT, "POST", &path, &body).await.ok(200);
    assert_eq!(answer["results"][0]["status"], "accepted");
}
