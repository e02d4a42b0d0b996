//! Limits of tenants.

use std::time::Duration;

use mainspring_runtime::SystemClock;
use mainspring_shared::time::Clock as _;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::client::Answer;
use crate::context::{answering, example};
use crate::world::{Scheduler, World};

const NONE: Value = Value::Null;

/// Makes requests in quick succession and returns the first refusal.
async fn refused_at_last(api: &Scheduler, key: &str) -> Answer {
    for _ in 0..20 {
        let answer = ask(api, key, "GET", "/v1/sessions", &NONE).await;
        if answer.status == 429 {
            return answer;
        }
    }
    panic!("twenty requests in a row are more than one a second");
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
    let refused = refused_at_last(&api, &key).await;
    refused.problem(429, "limit.requests");
    assert_eq!(refused.header("retry-after"), Some("1"));
    ask(&api, &other, "GET", "/v1/sessions", &NONE)
        .await
        .ok(200);
}

/// Sets a tenant's limits and waits until the scheduler knows them.
async fn limit(api: &Scheduler, id: &str, limits: &Value) {
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
async fn schedulers_divide_the_requests_of_a_tenant() {
    let world = World::new().await;
    let (one, other) = (locked(&world).await, locked(&world).await);
    let (id, key) = tenant(&one, "blue", &["read"]).await;
    limit(&one, &id, &json!({ "requests_per_second": 8 })).await;
    for api in [&one, &other] {
        let answer = ask(api, &key, "GET", "/v1/sessions", &NONE).await;
        let policy = answer.header("ratelimit-policy");
        assert_eq!(policy, Some("\"requests\";q=8;w=1"));
        let left = answer.header("ratelimit");
        assert_eq!(left, Some("\"requests\";r=3;t=1"), "of a half of it");
    }
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
    // A repeated request gets its original answer, and takes no place.
    let again = keyed(1).send().await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(202)["id"], first["id"]);
    // The limit does not affect other tenants.
    for n in 0..5 {
        ask(&api, &other, "POST", "/v1/sends", &send(n))
            .await
            .ok(202);
    }
    // A send that ends frees its place; one that is refused for another reason takes none.
    let cancel = format!("/v1/sends/{}/cancel", first["id"].as_str().expect("an id"));
    ask(&api, &key, "POST", &cancel, &NONE).await;
    let unknown = "/v1/sessions/ses_00000000000000000000000000000001/sends";
    for _ in 0..3 {
        let refused = ask(&api, &key, "POST", unknown, &json!({ "input": "x" })).await;
        refused.problem(404, "session.not_found");
    }
    keyed(5).send().await.ok(202);
    keyed(6).send().await.problem(429, "limit.sends");
    // A preview of a send that has not been made reports it, too.
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
    // Two schedulers, each of which reserves places in advance.
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
    // Each scheduler reserves at most 1/64 of the limit.
    assert!(accepted >= MAX - 2 * MAX / 64, "{accepted}");
    // Reserved places become available to those who keep trying.
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

/// Sends until one is refused with this code: limits and sums are cached for some seconds.
async fn refused(api: &Scheduler, status: u16, code: &str) -> Answer {
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
    // A repeated request gets its original answer.
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
    // Wait until the scheduler knows the limit; from then on it compares with the first sum.
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
async fn a_tenant_whose_calls_took_the_tokens_of_a_day_or_a_month_is_refused() {
    let world = World::new().await;
    let api = locked(&world).await;
    let body = json!({ "input": "hello", "session": {} });
    let first = ask(&api, ROOT, "POST", "/v1/sends", &body).await.ok(202);
    let claimed = world
        .claim(first["session_id"].as_str().expect("an id"))
        .await;
    world.complete_for(&claimed, 0.0).await;
    for (span, seconds) in [("day", 86_400), ("month", 31 * 86_400)] {
        let limit_name = format!("tokens_per_{span}");
        limit(&api, "ten_1", &json!({ limit_name.as_str(): 15 })).await;
        let answer = loop {
            let answer = refused(&api, 429, "limit.tokens").await;
            let problem = answer.problem(429, "limit.tokens").to_string();
            if problem.contains(&format!("in a {span}")) {
                break answer;
            }
            SystemClock::new().sleep(Duration::from_millis(200)).await;
        };
        let policy = answer.header("ratelimit-policy").expect("a policy");
        let name = format!("\"tokens-{span}\";q=15;qu=\"tokens\";w=");
        assert!(policy.starts_with(&name), "{policy}");
        let wait: u64 = answer
            .header("retry-after")
            .and_then(|text| text.parse().ok())
            .expect("seconds");
        assert!((1..=seconds).contains(&wait), "{wait}");
    }
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

/// Creates a key of a tenant, with limits of its own.
async fn limited_key(api: &Scheduler, tenant: &str, limits: &Value) -> String {
    let body = json!({
        "name": "limited", "scopes": ["read", "send"], "tenant": tenant, "limits": limits,
    });
    let made = ask(api, ROOT, "POST", "/v1/keys", &body).await.ok(201);
    assert_eq!(&made["limits"], limits);
    made["key"].as_str().expect("the token").to_owned()
}

#[tokio::test]
async fn a_key_sends_no_more_requests_than_its_own_limit() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (id, other) = tenant(&api, "blue", &["read"]).await;
    limit(&api, &id, &json!({ "requests_per_second": 1000 })).await;
    let key = limited_key(&api, &id, &json!({ "requests_per_second": 1 })).await;
    let refused = refused_at_last(&api, &key).await;
    let problem = refused.problem(429, "limit.requests").to_string();
    assert!(problem.contains("API key"), "{problem}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let policy = refused.header("ratelimit-policy");
    assert_eq!(policy, Some("\"key-requests\";q=1;w=1"));
    let free = ask(&api, &other, "GET", "/v1/sessions", &NONE).await;
    assert_eq!(free.status, 200);
    let policy = free.header("ratelimit-policy");
    assert_eq!(policy, Some("\"requests\";q=1000;w=1"));
}

#[tokio::test]
async fn a_key_has_no_more_open_sends_than_its_own_limit() {
    let world = World::new().await;
    let (api, elsewhere) = (locked(&world).await, locked(&world).await);
    let (id, other) = tenant(&api, "blue", &["read", "send"]).await;
    limit(&api, &id, &json!({ "sends_open": 4 })).await;
    let key = limited_key(&api, &id, &json!({ "sends_open": 2 })).await;
    let body = json!({ "input": "x", "session": {} });
    let keyed = |api: &Scheduler, name: &str| {
        let call = api.call("POST", "/v1/sends").json(&body);
        let call = call.header("authorization", &format!("Bearer {key}"));
        call.header("idempotency-key", name)
    };
    let first = keyed(&api, "first").send().await.ok(202);
    let batch = json!({ "sends": [body.clone(), body.clone()] });
    let batch = ask(&elsewhere, &key, "POST", "/v1/sends:batch", &batch).await;
    let items = batch.ok(200)["results"].clone();
    let codes: Vec<&Value> = (0..2).map(|n| &items[n]["problem"]["code"]).collect();
    assert_eq!(codes, [&NONE, &json!("limit.sends")], "{items}");
    for api in [&api, &elsewhere] {
        let refused = ask(api, &key, "POST", "/v1/sends", &body).await;
        let problem = refused.problem(429, "limit.sends").to_string();
        assert!(problem.contains("API key"), "{problem}");
        let policy = refused.header("ratelimit-policy");
        let expected = "\"key-sends-open\";q=2;qu=\"concurrent-requests\"";
        assert_eq!(policy, Some(expected));
    }
    // A repeated request gets its original answer.
    let again = keyed(&elsewhere, "first").send().await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.ok(202)["id"], first["id"]);
    // Sends refused for the key's limit took none of the tenant's places.
    for _ in 0..2 {
        ask(&api, &other, "POST", "/v1/sends", &body).await.ok(202);
    }
    let refused = ask(&api, &other, "POST", "/v1/sends", &body).await;
    let policy = refused.header("ratelimit-policy");
    let expected = "\"sends-open\";q=4;qu=\"concurrent-requests\"";
    assert_eq!(policy, Some(expected));
    // A send that ends frees a place under both limits.
    let cancel = format!("/v1/sends/{}/cancel", first["id"].as_str().expect("an id"));
    ask(&api, &key, "POST", &cancel, &NONE).await;
    ask(&api, &key, "POST", "/v1/sends", &body).await.ok(202);
}

/// Publishes an agent with these limits.
async fn publish(api: &Scheduler, key: &str, name: &str, limits: &Value) -> Answer {
    let body = json!({ "name": name, "spec": { "system_prompt": "Do." }, "limits": limits });
    ask(api, key, "POST", "/v1/agents", &body).await
}

#[tokio::test]
async fn an_agent_has_no_more_open_sends_than_its_own_limit() {
    let world = World::new().await;
    let (api, elsewhere) = (locked(&world).await, locked(&world).await);
    let (id, key) = tenant(&api, "blue", &["read", "send", "manage"]).await;
    limit(&api, &id, &json!({ "sends_open": 5 })).await;
    publish(&api, &key, "support", &json!({ "sends_open": 2 }))
        .await
        .ok(201);
    publish(&api, &key, "triage", &json!({})).await.ok(201);
    let shown = ask(&api, &key, "GET", "/v1/agents/support", &NONE).await;
    assert_eq!(shown.ok(200)["limits"], json!({ "sends_open": 2 }));
    let to = |agent: &str| json!({ "input": "x", "session": { "agent": agent } });
    let send =
        async |api: &Scheduler, body: &Value| ask(api, &key, "POST", "/v1/sends", body).await;
    let first = send(&api, &to("support")).await.ok(202);
    // The other sends of a batch are accepted.
    let batch = json!({ "sends": [to("support"), to("support"), to("triage")] });
    let batch = ask(&api, &key, "POST", "/v1/sends:batch", &batch).await;
    let items = batch.ok(200)["results"].clone();
    let codes: Vec<&Value> = (0..3).map(|n| &items[n]["problem"]["code"]).collect();
    assert_eq!(codes, [&NONE, &json!("limit.sends"), &NONE], "{items}");
    // On every scheduler, in a new session and in an existing one.
    let session = first["session_id"].as_str().expect("an id");
    let path = format!("/v1/sessions/{session}/sends");
    for api in [&api, &elsewhere] {
        for refused in [
            send(api, &to("support")).await,
            ask(api, &key, "POST", &path, &json!({ "input": "x" })).await,
        ] {
            let problem = refused.problem(429, "limit.sends").to_string();
            assert!(problem.contains("the agent may have"), "{problem}");
            assert_eq!(refused.header("retry-after"), Some("1"));
            let policy = refused.header("ratelimit-policy");
            let expected = "\"agent-sends-open\";q=2;qu=\"concurrent-requests\"";
            assert_eq!(policy, Some(expected));
        }
    }
    // Refused sends took none of the tenant's places: three are open.
    let mut last = NONE;
    for _ in 0..2 {
        last = send(&elsewhere, &to("triage")).await.ok(202);
    }
    send(&api, &to("triage")).await.problem(429, "limit.sends");
    // A send that ends frees its place.
    let cancel = async |send: &Value| {
        let path = format!("/v1/sends/{}/cancel", send["id"].as_str().expect("an id"));
        ask(&api, &key, "POST", &path, &NONE).await;
    };
    cancel(&first).await;
    send(&api, &to("support")).await.ok(202);
    // A new version of the agent keeps the limit, and a removed limit no longer applies.
    let next = json!({ "name": "support", "spec": { "system_prompt": "Do well." } });
    ask(&api, &key, "POST", "/v1/agents", &next).await.ok(201);
    cancel(&last).await;
    let refused = send(&api, &to("support")).await;
    let problem = refused.problem(429, "limit.sends").to_string();
    assert!(problem.contains("the agent may have"), "{problem}");
    let lifted =
        json!({ "name": "support", "spec": { "system_prompt": "Do well." }, "limits": {} });
    ask(&api, &key, "POST", "/v1/agents", &lifted).await.ok(200);
    send(&api, &to("support")).await.ok(202);
    for name in ["sends_open", "sends_running"] {
        let wrong = publish(&api, &key, "triage", &json!({ name: 0 })).await;
        let problem = wrong.problem(400, "request.invalid");
        let pointer = format!("/limits/{name}");
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
    let limits = json!({ "sends_running": 1 });
    publish(&api, &key, "triage", &limits).await.ok(200);
    let shown = ask(&api, &key, "GET", "/v1/agents/triage", &NONE).await;
    assert_eq!(shown.ok(200)["limits"], limits);
}

#[tokio::test]
async fn limits_of_keys_are_checked() {
    let world = World::new().await;
    let api = locked(&world).await;
    for name in ["requests_per_second", "sends_open"] {
        let body = json!({ "name": "x", "scopes": ["read"], "limits": { name: 0 } });
        let refused = ask(&api, ROOT, "POST", "/v1/keys", &body).await;
        let problem = refused.problem(400, "request.invalid");
        let pointer = format!("/limits/{name}");
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
}
