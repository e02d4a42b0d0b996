//! Keys bound to a part of their tenant: anything outside it does not exist for them.

mod kept;
mod tenants;

use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, made_with_one_idempotency_key, tenant};
use crate::runs::two_steps;
use crate::webhooks::sealing;
use crate::world::{Scheduler, World};

const NONE: Value = Value::Null;

/// A binding with every kind of restriction.
fn everything() -> Value {
    json!({ "agents": ["mine"], "metadata": { "user": "1" }, "namespace": "user/1" })
}

/// Creates a bound key with every scope that a bound key may have.
async fn bound(api: &Scheduler, admin: &str, binding: &Value) -> String {
    let scopes = ["read", "send", "answer", "manage"];
    let body = json!({ "name": "bound", "scopes": scopes, "binding": binding });
    let made = ask(api, admin, "POST", "/v1/keys", &body).await.ok(201);
    assert_eq!(&made["binding"], binding);
    made["key"].as_str().expect("the token").to_owned()
}

async fn made(api: &Scheduler, key: &str, path: &str, body: &Value) -> String {
    let answer = ask(api, key, "POST", path, body).await;
    assert!(answer.status < 300, "{path}: {}", answer.text);
    let id = answer.json()["id"].as_str().map(str::to_owned);
    id.unwrap_or_default()
}

async fn publish(api: &Scheduler, key: &str, name: &str) {
    let memory = json!({ "namespace": "user/{{metadata.user}}" });
    let body = json!({ "name": name, "spec": { "system_prompt": "x", "memory": memory } });
    made(api, key, "/v1/agents", &body).await;
}

/// The ids of someone's resources, by the path template or placeholder that they fill.
struct Resources(Vec<(&'static str, String)>);

impl Resources {
    /// Creates one of each resource, with this agent and for this user.
    async fn of(api: &Scheduler, key: &str, agent: &str, user: &str) -> Self {
        let session = json!({ "agent": agent, "metadata": { "user": user } });
        let session = made(api, key, "/v1/sessions", &session).await;
        let sends = format!("/v1/sessions/{session}/sends");
        let send = made(api, key, &sends, &json!({ "input": "hi" })).await;
        let timer = json!({ "session_id": session, "after": "1h", "input": "x" });
        let timer = made(api, key, "/v1/timers", &timer).await;
        let run = json!({ "spec": two_steps(), "session_id": session, "input": "x" });
        let run = made(api, key, "/v1/runs", &run).await;
        let memory = json!({ "namespace": format!("user/{user}"), "text": "x" });
        let memory = made(api, key, "/v1/memories", &memory).await;
        let skill = "---\nname: tidy\ndescription: x\n---\nx";
        let skill = json!({ "files": { "SKILL.md": skill } });
        made(api, key, "/v1/skills", &skill).await;
        let webhook = json!({ "url": "https://example.com/x", "events": ["send.completed"] });
        let webhook = made(api, key, "/v1/webhooks", &webhook).await;
        let hex = |id: &str| id[id.len() - 32..].to_owned();
        let (of_session, of_send) = (hex(&session), hex(&send));
        Self(vec![
            ("/v1/sessions/{id}", session),
            ("/v1/sends/{id}", send),
            ("/v1/timers/{id}", timer),
            ("/v1/runs/{id}", run),
            ("/v1/memories/{id}", memory),
            ("/v1/webhooks/{id}", webhook),
            ("/v1/agents/{name}", agent.to_owned()),
            ("/v1/skills/{name}", "tidy".to_owned()),
            ("/v1/conversations/{id}", format!("conv_{of_session}")),
            ("/v1/responses/{id}", format!("resp_{of_send}")),
            ("/v1/models/{id}", format!("agent/{agent}")),
            ("{item_id}", format!("msg_{of_send}_in1")),
            // Last, because there may be another one that has ended.
            ("/v1/chat/completions/{id}", format!("chatcmpl-{of_send}")),
        ])
    }

    /// Fills in a path's placeholders; `None` if the path names none of these resources.
    fn fill_path(&self, path: &str) -> Option<String> {
        let (prefix, id) = self.0.iter().find(|(prefix, _)| {
            let rest = path.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })?;
        let (kind, _) = prefix.rsplit_once('/').expect("a path");
        let rest = path[prefix.len()..]
            .replace("{call_id}", self.placeholder("{call_id}"))
            .replace("{item_id}", self.placeholder("{item_id}"))
            .replace("{path}", file_or_node(prefix))
            .replace("{n}", "1")
            .replace("{alias}", "live")
            .replace("{delivery_id}", self.placeholder("{delivery_id}"));
        Some(format!("{kind}/{id}{rest}"))
    }

    /// The value of a placeholder.
    fn placeholder(&self, place: &str) -> &str {
        let found = self.0.iter().find(|(name, _)| *name == place);
        found.map_or("none", |(_, id)| id)
    }
}

/// The value of `{path}` below this prefix.
fn file_or_node(prefix: &str) -> &'static str {
    if prefix.starts_with("/v1/skills/") {
        "SKILL.md"
    } else {
        "root"
    }
}

/// A body of the right shape for a request.
fn body_of(method: &str, path: &str, call: &str) -> Value {
    match (method, path) {
        ("PATCH", "/v1/sessions/{id}") => json!({ "closed": true }),
        ("POST", "/v1/sessions/{id}/sends" | "/v1/sessions/{id}/context") => {
            json!({ "input": "hi" })
        }
        ("POST", "/v1/sessions/{id}/prune") => json!({ "keep_last": 1 }),
        ("POST", "/v1/sessions/{id}/tool-results") => {
            json!({ "results": [{ "call_id": call, "output": 1 }] })
        }
        ("PUT", "/v1/provider-keys/{provider}") => json!({ "key": "sk-0123456789-mine" }),
        ("PUT", "/v1/secrets/{name}") => {
            json!({ "value": "sk-0123456789-mine", "hosts": ["mine.example"] })
        }
        ("PUT", _) => json!({ "version": 1 }),
        ("PATCH", "/v1/tenants/{id}") => json!({ "name": "mine" }),
        ("POST", "/v1/tenants/{id}/erase") => json!({ "name": "blue" }),
        ("PATCH", "/v1/memories/{id}") | ("POST", "/v1/runs/{id}/nodes/{path}/steer") => {
            json!({ "text": "y" })
        }
        ("POST", "/v1/conversations/{id}") => json!({ "metadata": { "topic": "mine" } }),
        ("POST", "/v1/conversations/{id}/items") => {
            json!({ "items": [{ "role": "user", "content": "hi" }] })
        }
        ("POST", "/v1/runs/{id}/nodes/{path}/amend") => json!({ "output": "y" }),
        ("PATCH", "/v1/timers/{id}") => json!({ "every": "2h" }),
        ("POST", "/v1/timers/{id}/fire") => json!({ "n": 1 }),
        ("PATCH", "/v1/webhooks/{id}") => json!({ "events": ["send.failed"] }),
        _ => Value::Null,
    }
}

/// Every operation of the API description that names something in its path.
pub(crate) fn operations() -> Vec<(String, String)> {
    let document = include_str!("../../../docs/openapi.json");
    let document: Value = serde_json::from_str(document).expect("is JSON");
    let paths = document["paths"].as_object().expect("has paths");
    let mut found = Vec::new();
    for (path, operations) in paths {
        let methods = operations.as_object().expect("an object").keys();
        for method in methods.filter(|method| *method != "parameters") {
            found.push((method.to_uppercase(), path.clone()));
        }
    }
    found
}

/// Makes every request that names a resource, with one that is not the key's own, and asserts that
/// it finds nothing.
async fn finds_nothing(api: &Scheduler, key: &str, resources: &Resources, is_bound: bool) {
    let mut asked = 0;
    for (method, path) in operations() {
        let Some(filled) = resources.fill_path(&path) else {
            continue;
        };
        let body = body_of(&method, &path, resources.placeholder("{call_id}"));
        let answer = ask(api, key, &method, &filled, &body).await;
        let own = path.starts_with("/v1/skills/") || path.starts_with("/v1/webhooks/");
        let nodes = path.starts_with("/v1/runs/{id}/") && method == "POST";
        // An agent can be paused without having been published by the caller, but a pause affects
        // the whole tenant.
        let pauses = path.starts_with("/v1/agents/") && method == "POST";
        let own_runs = ["cancel", "pause", "resume"].map(|act| format!("/v1/runs/{{id}}/{act}"));
        let nodes = nodes && !own_runs.contains(&path);
        let closed = is_bound && (own || nodes || pauses);
        if closed {
            answer.problem(403, "auth.binding");
        } else if pauses
            || method == "PUT"
                && ["/v1/provider-keys/", "/v1/secrets/"]
                    .iter()
                    .any(|it| path.starts_with(it))
        {
            // This only names something, possibly of the caller's own tenant.
            let taken = matches!(answer.status, 200 | 204);
            assert!(taken, "{method} {filled}: {}", answer.text);
        } else {
            assert_eq!(answer.status, 404, "{method} {filled}: {}", answer.text);
        }
        asked += 1;
    }
    assert!(asked > 55, "{asked}");
    for list in [
        "/v1/sessions",
        "/v1/sends",
        "/v1/timers",
        "/v1/runs",
        "/v1/memories",
        "/v1/agents",
    ] {
        let found = ask(api, key, "GET", list, &NONE).await.ok(200);
        assert_eq!(found["data"], json!([]), "{list}");
    }
    let session = &resources.0[0].1;
    let elsewhere = json!({ "input": "x", "session_id": session });
    let answer = ask(api, key, "POST", "/v1/sends", &elsewhere).await;
    answer.problem(404, "session.not_found");
    let batch = json!({ "sends": [elsewhere] });
    let answer = ask(api, key, "POST", "/v1/sends:batch", &batch).await;
    assert_eq!(answer.ok(200)["results"][0]["status"], 404);
    let timer = json!({ "session_id": session, "after": "1h", "input": "x" });
    let answer = ask(api, key, "POST", "/v1/timers", &timer).await;
    answer.problem(404, "session.not_found");
    let batch = json!({ "timers": [timer] });
    let answer = ask(api, key, "POST", "/v1/timers:batch", &batch).await;
    assert_eq!(answer.ok(200)["results"][0]["status"], 404);
    let named = |kind| {
        json!([{ "type": kind, "id": resources.placeholder("{item_id}"), "output": "x",
                                "call_id": resources.placeholder("{call_id}") }])
    };
    let said = json!({ "role": "user", "content": "x" });
    for (member, value) in [
        (
            "conversation",
            json!(resources.placeholder("/v1/conversations/{id}")),
        ),
        (
            "previous_response_id",
            json!(resources.placeholder("/v1/responses/{id}")),
        ),
        ("input", json!([named("item_reference")[0], said])),
        ("input", named("function_call_output")),
    ] {
        let mut body = json!({ "model": "agent/mine", "input": "x", "background": true });
        body[member] = value;
        let answer = ask(api, key, "POST", "/v1/responses", &body).await;
        assert_eq!(answer.status, 404, "{body}: {}", answer.text);
    }
    let models = ask(api, key, "GET", "/v1/models", &NONE).await;
    let agent = resources.placeholder("/v1/models/{id}");
    assert!(!models.text.contains(agent), "{}", models.text);
}

#[tokio::test]
async fn what_lies_outside_of_a_keys_binding_is_not_found_by_any_request() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    publish(&api, &blue, "other").await;
    let resources = Resources::of(&api, &blue, "other", "2").await;
    publish(&api, &blue, "third").await;
    let own = json!({ "agent": "third" });
    let own = made(&api, &blue, "/v1/sessions", &own).await;
    let one = bound(&api, &blue, &json!({ "sessions": [own] })).await;
    let shown = ask(&api, &one, "GET", &format!("/v1/sessions/{own}"), &NONE).await;
    assert_eq!(shown.ok(200)["id"], json!(own));
    let delete = ask(&api, &blue, "DELETE", &format!("/v1/sessions/{own}"), &NONE).await;
    assert!(delete.status < 300, "{}", delete.text);
    let key = bound(&api, &blue, &everything()).await;
    for key in [&one, &key] {
        finds_nothing(&api, key, &resources, true).await;
    }
    // Nothing has changed, and nobody else lost anything.
    let (_, send) = &resources.0[1];
    let own = ask(&api, &blue, "GET", &format!("/v1/sends/{send}"), &NONE).await;
    assert_eq!(own.ok(200)["status"], "queued");
    // Requests that concern the tenant as a whole are refused.
    for path in ["/v1/webhooks", "/v1/skills", "/v1/pauses"] {
        let answer = ask(&api, &key, "GET", path, &NONE).await;
        answer.problem(403, "auth.binding");
    }
    // So is pausing an agent inside the binding, because others use it too.
    for path in ["/v1/agents/mine/pause", "/v1/agents/mine/resume"] {
        let answer = ask(&api, &key, "POST", path, &NONE).await;
        answer.problem(403, "auth.binding");
    }
    ask(&api, &key, "GET", "/v1/nothing", &NONE)
        .await
        .problem(404, "request.not_found");
}

#[tokio::test]
async fn what_lies_inside_is_used_as_by_any_other_key() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    publish(&api, &blue, "mine").await;
    publish(&api, &blue, "other").await;
    Resources::of(&api, &blue, "other", "2").await;
    let theirs = Resources::of(&api, &blue, "mine", "1").await;
    let key = bound(&api, &blue, &everything()).await;
    for (prefix, id) in &theirs.0[..5] {
        let path = format!("{}/{id}", prefix.rsplit_once('/').expect("a path").0);
        ask(&api, &key, "GET", &path, &NONE).await.ok(200);
        let list = path.rsplit_once('/').expect("a path").0;
        let found = ask(&api, &key, "GET", list, &NONE).await.ok(200);
        assert_eq!(
            found["data"].as_array().map(Vec::len),
            Some(1),
            "{list}: {found}"
        );
    }
    let found = ask(&api, &key, "GET", "/v1/agents", &NONE).await.ok(200);
    assert_eq!(found["data"][0]["name"], "mine", "{found}");
    // A new session gets the binding's metadata automatically, and belongs to the key.
    let new = json!({ "agent": "mine", "metadata": { "more": "x" } });
    let session = ask(&api, &key, "POST", "/v1/sessions", &new).await.ok(201);
    assert_eq!(session["metadata"], json!({ "more": "x", "user": "1" }));
    let path = format!("/v1/sessions/{}", session["id"].as_str().expect("an id"));
    let fork = format!("{path}/fork");
    let forked = ask(&api, &key, "POST", &fork, &json!({ "metadata": {} })).await;
    assert_eq!(forked.ok(201)["metadata"]["user"], "1");
    let change = json!({ "metadata": { "other": "y" } });
    let changed = ask(&api, &key, "PATCH", &path, &change).await.ok(200);
    assert_eq!(changed["metadata"], json!({ "other": "y", "user": "1" }));
    let send = json!({ "input": "hi", "session": { "agent": "mine" } });
    let send = ask(&api, &key, "POST", "/v1/sends", &send).await.ok(202);
    let send = format!("/v1/sends/{}", send["id"].as_str().expect("an id"));
    let cancelled = ask(&api, &key, "POST", &format!("{send}/cancel"), &NONE).await;
    assert_eq!(cancelled.ok(200)["status"], "cancelled");
    // Lists show only resources inside the binding, on full pages.
    let page = ask(&api, &key, "GET", "/v1/sessions?limit=2", &NONE)
        .await
        .ok(200);
    assert_eq!(page["data"].as_array().map(Vec::len), Some(2));
    let next = page["next_cursor"].as_str().expect("more");
    let next = format!("/v1/sessions?limit=10&cursor={next}");
    let rest = ask(&api, &key, "GET", &next, &NONE).await.ok(200);
    assert_eq!(rest["data"].as_array().map(Vec::len), Some(2), "{rest}");
    assert_eq!(rest["next_cursor"], NONE);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of requests")]
async fn nothing_is_made_outside_of_a_binding() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    publish(&api, &blue, "mine").await;
    publish(&api, &blue, "other").await;
    let key = bound(&api, &blue, &everything()).await;
    let session = json!({ "agent": "mine" });
    let session = made(&api, &key, "/v1/sessions", &session).await;
    let session = format!("/v1/sessions/{session}");
    let wait = two_steps();
    let spec = json!({ "name": "mine", "system_prompt": "x" });
    let with = |options: Value| json!({ "input": "x", "options": options });
    let user = json!({ "user": "2" });
    for (method, path, body) in [
        ("POST", "/v1/sessions".to_owned(), json!({})),
        ("POST", "/v1/sessions".to_owned(), json!({ "agent": spec })),
        (
            "POST",
            "/v1/sessions".to_owned(),
            json!({ "agent": "other" }),
        ),
        (
            "POST",
            "/v1/sessions".to_owned(),
            json!({ "agent": "no-one" }),
        ),
        (
            "POST",
            "/v1/sessions".to_owned(),
            json!({ "agent": "mine", "metadata": user }),
        ),
        ("POST", "/v1/sends".to_owned(), json!({ "input": "x" })),
        (
            "POST",
            format!("{session}/sends"),
            with(json!({ "agent": "other" })),
        ),
        (
            "POST",
            format!("{session}/sends"),
            with(json!({ "system_prompt": "x" })),
        ),
        (
            "POST",
            format!("{session}/sends"),
            with(json!({ "model": "x" })),
        ),
        (
            "POST",
            format!("{session}/context"),
            with(json!({ "system_prompt": "x" })),
        ),
        (
            "POST",
            format!("{session}/fork"),
            json!({ "agent": "other" }),
        ),
        (
            "POST",
            format!("{session}/fork"),
            json!({ "metadata": user }),
        ),
        ("PATCH", session.clone(), json!({ "agent": "other" })),
        ("PATCH", session.clone(), json!({ "agent": spec })),
        ("PATCH", session.clone(), json!({ "metadata": user })),
        ("POST", "/v1/runs".to_owned(), json!({ "spec": wait })),
        (
            "POST",
            "/v1/timers".to_owned(),
            json!({ "run": { "spec": wait }, "after": "1h" }),
        ),
        (
            "POST",
            "/v1/agents".to_owned(),
            json!({ "name": "other", "spec": {} }),
        ),
        (
            "POST",
            "/v1/agents:diff".to_owned(),
            json!({ "name": "other", "spec": {} }),
        ),
        (
            "POST",
            "/v1/memories".to_owned(),
            json!({ "namespace": "user/2", "text": "x" }),
        ),
        (
            "POST",
            "/v1/memories".to_owned(),
            json!({ "namespace": "user", "text": "x" }),
        ),
        ("POST", "/v1/skills".to_owned(), json!({ "files": {} })),
    ] {
        let answer = ask(&api, &key, method, &path, &body).await;
        assert_eq!(
            answer.status, 403,
            "{method} {path} {body}: {}",
            answer.text
        );
        answer.problem(403, "auth.binding");
    }
    let archive = ask(&api, &blue, "GET", &format!("{session}/export"), &NONE).await;
    let import = api.call("POST", "/v1/sessions:import");
    let import = import.header("authorization", &format!("Bearer {key}"));
    let import = import.header("content-type", "application/x-ndjson");
    let answer = import.body(archive.text.as_bytes()).send().await;
    answer.problem(403, "auth.binding");
    let batch =
        json!({ "sends": [{ "input": "x" }, { "input": "x", "session": { "agent": "mine" } }] });
    let results = ask(&api, &key, "POST", "/v1/sends:batch", &batch)
        .await
        .ok(200);
    assert_eq!(results["results"][0]["status"], 403, "{results}");
    assert_eq!(results["results"][1]["status"], 202, "{results}");
}

#[tokio::test]
async fn a_bound_namespace_hides_the_rest_of_the_memory() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    for namespace in ["user/1", "user/1/deep", "user/11", "user/2"] {
        let body = json!({ "namespace": namespace, "text": format!("tea in {namespace}") });
        made(&api, &blue, "/v1/memories", &body).await;
    }
    let key = bound(&api, &blue, &json!({ "namespace": "user/1" })).await;
    let count = async |query: &str| {
        let path = format!("/v1/memories{query}");
        let found = ask(&api, &key, "GET", &path, &NONE).await.ok(200);
        found["data"].as_array().map(Vec::len).expect("a list")
    };
    for (query, expected) in [
        ("", 2),
        ("?namespace=user", 2),
        ("?namespace=user%2F1%2Fdeep", 1),
        ("?namespace=user%2F11", 0),
        ("?namespace=user&q=tea", 2),
        ("?namespace=user%2F2&q=tea", 0),
    ] {
        assert_eq!(count(query).await, expected, "{query}");
    }
    let erase = async |namespace: &str| {
        let path = format!("/v1/memories?namespace={namespace}");
        ask(&api, &key, "DELETE", &path, &NONE).await.ok(200)["deleted"].clone()
    };
    assert_eq!(erase("user%2F2").await, 0);
    assert_eq!(erase("user").await, 2);
    let left = ask(&api, &blue, "GET", "/v1/memories", &NONE).await.ok(200);
    assert_eq!(left["data"].as_array().map(Vec::len), Some(2), "{left}");
    // A session is refused if its agent would read memories outside the binding.
    let elsewhere = json!({ "agent": { "memory": { "namespace": "user/2" } } });
    let answer = ask(&api, &key, "POST", "/v1/sessions", &elsewhere).await;
    answer.problem(403, "auth.binding");
    let here = json!({ "agent": { "memory": { "namespace": "user/1/x" } } });
    made(&api, &key, "/v1/sessions", &here).await;
}

#[tokio::test]
async fn an_idempotency_key_is_that_of_one_binding() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let one = bound(&api, &blue, &json!({ "metadata": { "user": "1" } })).await;
    let other = bound(&api, &blue, &json!({ "metadata": { "user": "2" } })).await;
    let same = bound(&api, &blue, &json!({ "metadata": { "user": "1" } })).await;
    let ids = made_with_one_idempotency_key(&api, [&one, &other, &same, &blue]).await;
    assert_ne!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2]);
    assert_ne!(ids[0], ids[3]);
}

#[tokio::test]
async fn a_binding_is_checked_when_it_is_made() {
    let world = World::new().await;
    let api = locked(&world).await;
    let (_, blue) = tenant(&api, "blue", &["admin"]).await;
    let read = json!(["read"]);
    for (scopes, binding, pointer) in [
        (&read, json!({}), "/binding"),
        (&json!(["read", "admin"]), everything(), "/scopes"),
        (&read, json!({ "namespace": "/x" }), ""),
        (&read, json!({ "agents": ["a b"] }), ""),
        (&read, json!({ "colour": "red" }), ""),
        (&read, json!({ "metadata": { "user": 1 } }), ""),
    ] {
        let body = json!({ "name": "x", "scopes": scopes, "binding": binding });
        let answer = ask(&api, &blue, "POST", "/v1/keys", &body).await;
        let problem = answer.problem(400, "request.invalid");
        if !pointer.is_empty() {
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        }
    }
    bound(&api, &blue, &everything()).await;
    let keys = ask(&api, &blue, "GET", "/v1/keys", &NONE).await.ok(200);
    assert_eq!(keys["data"][0]["binding"], everything());
    assert_eq!(keys["data"][1]["binding"], NONE);
}

#[tokio::test]
async fn a_bound_key_of_the_default_tenant_is_no_operators() {
    let world = World::new().await;
    let api = locked(&world).await;
    let key = bound(&api, ROOT, &json!({ "metadata": { "user": "1" } })).await;
    for path in ["/v1/queue", "/v1/workers", "/v1/scaling/default"] {
        let answer = ask(&api, &key, "GET", path, &NONE).await;
        answer.problem(403, "auth.forbidden");
    }
    let (id, _) = tenant(&api, "blue", &["read"]).await;
    let call = api
        .call("GET", "/v1/sessions")
        .header("mainspring-tenant", &id);
    let call = call.header("authorization", &format!("Bearer {key}"));
    call.send().await.problem(403, "auth.forbidden");
}
