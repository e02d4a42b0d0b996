//! Tenants, their limits and keys.

use std::time::Duration;

use mainspring_runtime::SystemClock;
use mainspring_shared::time::Clock as _;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::context::{answering, example};
use crate::world::World;

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
async fn more_requests_than_the_limit_are_refused_with_the_time_to_wait() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &["read"]).await;
    let (_, other) = tenant(&api, "red", &["read"]).await;
    let patch = json!({ "limits": { "requests_per_second": 1 } });
    ask(&api, ROOT, "PATCH", &format!("/v1/tenants/{id}"), &patch)
        .await
        .ok(200);
    ask(&api, &key, "GET", "/v1/sessions", &NONE).await.ok(200);
    let mut refused = None;
    for _ in 0..20 {
        let answer = ask(&api, &key, "GET", "/v1/sessions", &NONE).await;
        if answer.status == 429 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("twenty requests in a row are more than one a second");
    refused.problem(429, "limit.requests");
    assert_eq!(refused.header("retry-after"), Some("1"));
    ask(&api, &other, "GET", "/v1/sessions", &NONE)
        .await
        .ok(200);
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
    // Another scheduler has not looked it up before.
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

/// Sets the limits of a tenant, and waits until the scheduler knows.
async fn limit(api: &crate::world::Scheduler, id: &str, limits: &Value) {
    let patch = json!({ "limits": limits });
    ask(api, ROOT, "PATCH", &format!("/v1/tenants/{id}"), &patch)
        .await
        .ok(200);
}

#[tokio::test]
async fn answers_say_how_much_of_a_limit_is_left() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &["read"]).await;
    limit(&api, &id, &json!({ "requests_per_second": 2 })).await;
    let free = ask(&api, ROOT, "GET", "/v1/sessions", &NONE).await;
    assert_eq!(free.header("ratelimit-policy"), None);
    assert_eq!(free.header("ratelimit"), None);
    let first = ask(&api, &key, "GET", "/v1/sessions", &NONE).await;
    assert_eq!(first.status, 200);
    assert_eq!(
        first.header("ratelimit-policy"),
        Some("\"requests\";q=2;w=1")
    );
    assert_eq!(first.header("ratelimit"), Some("\"requests\";r=1;t=1"));
    for _ in 0..20 {
        let answer = ask(&api, &key, "GET", "/v1/sessions", &NONE).await;
        if answer.status == 429 {
            assert_eq!(answer.header("ratelimit"), Some("\"requests\";r=0;t=1"));
            return;
        }
    }
    panic!("twenty requests in a row are more than two a second");
}

#[tokio::test]
async fn a_tenant_has_no_more_open_sends_than_its_limit() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &["read", "send"]).await;
    let (_, other) = tenant(&api, "red", &["send"]).await;
    limit(&api, &id, &json!({ "sends_open": 3 })).await;
    let shown = ask(&api, ROOT, "GET", &format!("/v1/tenants/{id}"), &NONE).await;
    assert_eq!(shown.ok(200)["limits"], json!({ "sends_open": 3 }));
    let send = |n: u32| json!({ "input": format!("{n}"), "session": {} });
    let keyed = |n: u32| {
        let call = api.call("POST", "/v1/sends").json(&send(n));
        let call = call.header("authorization", &format!("Bearer {key}"));
        call.header("idempotency-key", &format!("send-{n}"))
    };
    let first = keyed(1).send().await.ok(202);
    let batch = json!({ "sends": [send(2), send(3), send(4)] });
    let batch = ask(&api, &key, "POST", "/v1/sends:batch", &batch).await;
    let items = batch.ok(200)["results"].clone();
    let codes: Vec<&Value> = (0..3).map(|n| &items[n]["problem"]["code"]).collect();
    assert_eq!(codes, [&NONE, &NONE, &json!("limit.sends")], "{items}");
    let refused = keyed(5).send().await;
    refused.problem(429, "limit.sends");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(
        refused.header("ratelimit-policy"),
        Some("\"sends-open\";q=3;qu=\"concurrent-requests\"")
    );
    assert_eq!(refused.header("ratelimit"), Some("\"sends-open\";r=0;t=1"));
    // Whoever repeats a request gets its answer, and takes no place.
    let again = keyed(1).send().await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(202)["id"], first["id"]);
    // Others are not held to it.
    for n in 0..5 {
        ask(&api, &other, "POST", "/v1/sends", &send(n))
            .await
            .ok(202);
    }
    // What ends makes room; what is refused for another reason takes none.
    let cancel = format!("/v1/sends/{}/cancel", first["id"].as_str().expect("an id"));
    ask(&api, &key, "POST", &cancel, &NONE).await;
    let unknown = "/v1/sessions/ses_00000000000000000000000000000001/sends";
    for _ in 0..3 {
        let refused = ask(&api, &key, "POST", unknown, &json!({ "input": "x" })).await;
        refused.problem(404, "session.not_found");
    }
    keyed(5).send().await.ok(202);
    keyed(6).send().await.problem(429, "limit.sends");
    // A preview of a send that nobody has sent says so, too.
    answering(&world, example(false));
    let session = first["session_id"].as_str().expect("an id");
    let path = format!("/v1/sessions/{session}/context");
    let shown = ask(&api, &key, "POST", &path, &json!({ "input": "x" })).await;
    assert_eq!(shown.ok(200)["limits"][0]["code"], "limit.sends");
}

#[tokio::test]
async fn many_at_once_have_no_more_open_sends_than_the_limit() {
    const MAX: usize = 640;
    let world = World::new().await;
    // Two schedulers, which take places ahead, each for itself.
    let (one, other) = (locked(&world).await, locked(&world).await);
    let (id, key) = tenant(&one, "blue", &["read", "send"]).await;
    limit(&one, &id, &json!({ "sends_open": MAX })).await;
    let body = json!({ "input": "x", "session": {} });
    let ask = async |n: usize| {
        let api = if n.is_multiple_of(2) { &one } else { &other };
        let answer = ask(api, &key, "POST", "/v1/sends", &body).await;
        answer.status == 202
    };
    let mut accepted = 0;
    for begin in (0..2 * MAX).step_by(64) {
        let at_once = futures::future::join_all((begin..begin + 64).map(&ask)).await;
        accepted += at_once.into_iter().filter(|it| *it).count();
        assert!(accepted <= MAX, "{accepted}");
    }
    // What each keeps for itself is a part of the limit in 64.
    assert!(accepted >= MAX - 2 * MAX / 64, "{accepted}");
    // What was kept is found by one who asks long enough.
    let rest = async {
        while accepted < MAX {
            for n in 0..2 {
                accepted += usize::from(ask(n).await);
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(90), rest).await;
    found.expect("nothing is kept for long");
    assert_eq!(accepted, MAX);
    assert!(!ask(0).await && !ask(1).await);
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
    // It is the operator's to see.
    let refused = ask(&api, &key, "GET", &path, &NONE).await;
    refused.problem(403, "auth.forbidden");
}

/// Sends until one is refused with this code: limits and sums are believed for some seconds.
async fn refused(api: &crate::world::Scheduler, status: u16, code: &str) -> crate::client::Answer {
    let body = json!({ "input": "more", "session": {} });
    for _ in 0..150 {
        let answer = ask(api, ROOT, "POST", "/v1/sends", &body).await;
        if answer.status != 202 {
            answer.problem(status, code);
            return answer;
        }
        SystemClock::new().sleep(Duration::from_millis(200)).await;
    }
    panic!("nothing is refused with {code}");
}

#[tokio::test]
async fn a_tenant_that_has_spent_what_it_may_is_refused() {
    let world = World::new().await;
    let api = locked(&world).await;
    let keyed = |n: u32| {
        let call = api.call("POST", "/v1/sends");
        let call = call.json(&json!({ "input": format!("{n}"), "session": {} }));
        let call = call.header("authorization", &format!("Bearer {ROOT}"));
        call.header("idempotency-key", &format!("send-{n}"))
    };
    let first = keyed(1).send().await.ok(202);
    let claimed = world
        .claim(first["session_id"].as_str().expect("an id"))
        .await;
    world.complete_for(&claimed, 0.5).await;
    limit(&api, "ten_1", &json!({ "usd_per_day": 0.5 })).await;
    let answer = refused(&api, 402, "limit.money").await;
    let wait: u64 = answer
        .header("retry-after")
        .and_then(|text| text.parse().ok())
        .expect("seconds");
    assert!((1..=86_400).contains(&wait), "{wait}");
    // Whoever repeats a request gets its answer.
    let again = keyed(1).send().await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    let shown = ask(&api, ROOT, "GET", "/v1/tenants/ten_1", &NONE).await;
    assert_eq!(shown.ok(200)["limits"], json!({ "usd_per_day": 0.5 }));
    limit(
        &api,
        "ten_1",
        &json!({ "usd_per_day": 0.6, "usd_per_month": 0.5 }),
    )
    .await;
    let answer = loop {
        let answer = refused(&api, 402, "limit.money").await;
        if answer
            .problem(402, "limit.money")
            .to_string()
            .contains("in a month")
        {
            break answer;
        }
        SystemClock::new().sleep(Duration::from_millis(200)).await;
    };
    assert!(answer.header("retry-after").is_some());
}

#[tokio::test]
async fn a_tenant_whose_calls_take_more_tokens_than_it_may_is_refused() {
    let world = World::new().await;
    let api = locked(&world).await;
    limit(&api, "ten_1", &json!({ "tokens_per_minute": 15 })).await;
    let body = json!({ "input": "hello", "session": {} });
    // Until the scheduler knows the limit: then its answers are compared with the first sum.
    SystemClock::new().sleep(Duration::from_secs(6)).await;
    let first = ask(&api, ROOT, "POST", "/v1/sends", &body).await.ok(202);
    let claimed = world
        .claim(first["session_id"].as_str().expect("an id"))
        .await;
    world.complete_for(&claimed, 0.0).await;
    let answer = refused(&api, 429, "limit.tokens").await;
    assert_eq!(
        answer.header("ratelimit-policy"),
        Some("\"tokens\";q=15;qu=\"tokens\";w=60")
    );
    let wait: u64 = answer
        .header("retry-after")
        .and_then(|text| text.parse().ok())
        .expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
}

#[tokio::test]
async fn a_tenant_stores_no_more_bytes_than_it_may() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &["read", "send", "manage"]).await;
    limit(&api, &id, &json!({ "bytes": 10 })).await;
    let put = async |data: &'static [u8]| {
        let call = api
            .call("POST", "/v1/blobs")
            .header("content-type", "text/plain");
        let call = call.header("authorization", &format!("Bearer {key}"));
        call.body(data).send().await
    };
    put(b"eleven byte").await.problem(429, "limit.bytes");
    put(b"ten bytes!").await.ok(201);
    put(b"x").await.problem(429, "limit.bytes");
    let body = json!({ "input": "hello", "session": {} });
    let answer = ask(&api, &key, "POST", "/v1/sends", &body).await;
    answer.problem(429, "limit.bytes");
    assert!(answer.header("retry-after").is_some());
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
    own.problem(403, "auth.forbidden");
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
    // The loop removes what there is, a piece at a time.
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
