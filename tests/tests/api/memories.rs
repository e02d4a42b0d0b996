//! Agents' memories.

use serde_json::{Value, json};

use crate::client::Answer;
use crate::world::{Scheduler, World};

async fn enter(api: &Scheduler, namespace: &str, text: &str) -> Value {
    let body = json!({ "namespace": namespace, "text": text });
    api.post("/v1/memories", &body).await.ok(201)
}

fn id(entry: &Value) -> &str {
    entry["id"].as_str().expect("an id")
}

fn texts(answer: &Answer) -> Vec<String> {
    let page = answer.ok(200);
    let data = page["data"].as_array().expect("a list").iter();
    let texts = data.map(|entry| entry["text"].as_str().expect("a text").to_owned());
    texts.collect()
}

#[tokio::test]
async fn an_entry_is_made_shown_changed_and_deleted() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({
        "namespace": "user/42", "text": "likes tea", "metadata": { "by": "me" },
        "expires_at": "2999-01-01T00:00:00Z",
    });
    let answer = api.post("/v1/memories", &body).await;
    let made = answer.ok(201);
    let path = format!("/v1/memories/{}", id(&made));
    assert_eq!(answer.header("location"), Some(path.as_str()));
    assert!(id(&made).starts_with("mem_"), "{made}");
    assert_eq!(made["metadata"], body["metadata"]);
    assert_eq!(made["expires_at"], "2999-01-01T00:00:00.000Z");
    assert_eq!(api.get(&path).await.ok(200), made);
    let change = json!({ "text": "likes coffee", "expires_at": null });
    let changed = api.call("PATCH", &path).json(&change).send().await.ok(200);
    assert_eq!(changed["text"], "likes coffee");
    assert_eq!(changed["metadata"], body["metadata"]);
    assert_eq!(changed.get("expires_at"), None);
    let deleted = api.call("DELETE", &path).send().await;
    assert_eq!(deleted.status, 204);
    api.get(&path).await.problem(404, "memory.not_found");
    let again = api.call("DELETE", &path).send().await;
    again.problem(404, "memory.not_found");
    let gone = api.call("PATCH", &path).json(&change).send().await;
    gone.problem(404, "memory.not_found");
    api.get("/v1/memories/x")
        .await
        .problem(404, "memory.not_found");
}

#[tokio::test]
async fn a_change_of_nothing_leaves_an_entry_as_it_is() {
    let world = World::new().await;
    let api = world.ready().await;
    let made = enter(&api, "user/42", "likes tea").await;
    let path = format!("/v1/memories/{}", id(&made));
    // Wait for the clock to advance.
    while enter(&api, "user/42", "likes tea").await["created_at"] == made["created_at"] {}
    let same = api.call("PATCH", &path).json(&json!({})).send().await;
    assert_eq!(same.ok(200), made);
    let touched = json!({ "metadata": {} });
    let touched = api.call("PATCH", &path).json(&touched).send().await.ok(200);
    assert_ne!(touched["updated_at"], made["updated_at"]);
    api.call("DELETE", &path).send().await;
    let gone = api.call("PATCH", &path).json(&json!({})).send().await;
    gone.problem(404, "memory.not_found");
}

#[tokio::test]
async fn a_repeated_request_enters_one_entry() {
    let world = World::new().await;
    let api = world.ready().await;
    let post = async |text: &str| {
        let body = json!({ "namespace": "user/1", "text": text });
        let call = api.call("POST", "/v1/memories").json(&body);
        call.header("Idempotency-Key", "k").send().await
    };
    let first = post("likes tea").await.ok(201);
    let again = post("likes tea").await;
    assert_eq!(again.ok(201), first);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    post("other").await.problem(422, "idempotency.mismatch");
    assert_eq!(texts(&api.get("/v1/memories").await), ["likes tea"]);
}

#[tokio::test]
async fn entries_are_listed_searched_and_erased_by_namespace() {
    let world = World::new().await;
    let api = world.ready().await;
    for (namespace, text) in [
        ("user/1", "the dog is called Rex"),
        ("user/1/work", "works as a nurse"),
        ("user/12", "has a dog, too"),
        ("user/2", "likes tea"),
    ] {
        enter(&api, namespace, text).await;
    }
    let mine = ["works as a nurse", "the dog is called Rex"];
    assert_eq!(texts(&api.get("/v1/memories?namespace=user/1").await), mine);
    let page = api
        .get("/v1/memories?namespace=user/1&limit=1")
        .await
        .ok(200);
    let cursor = page["next_cursor"].as_str().expect("more follow");
    let rest = format!("/v1/memories?namespace=user/1&cursor={cursor}");
    assert_eq!(texts(&api.get(&rest).await), mine[1..]);
    let found = api
        .get("/v1/memories?namespace=user/1&q=What+is+the+dog+called")
        .await;
    assert_eq!(texts(&found), mine[1..]);
    let nothing = api.get("/v1/memories?namespace=user/9&q=dog").await;
    assert_eq!(texts(&nothing), Vec::<String>::new());
    let erased = api
        .call("DELETE", "/v1/memories?namespace=user/1")
        .send()
        .await;
    assert_eq!(erased.ok(200), json!({ "deleted": 2 }));
    assert_eq!(
        texts(&api.get("/v1/memories").await),
        ["likes tea", "has a dog, too"]
    );
    let again = api
        .call("DELETE", "/v1/memories?namespace=user/1")
        .send()
        .await;
    assert_eq!(again.ok(200), json!({ "deleted": 0 }));
    // The record that remains says when, by whom and how many, but not what.
    let path = "/v1/memories/erasures";
    let all = api.get(path).await.ok(200);
    let counts: Vec<_> = all["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|erasure| (erasure["deleted"].clone(), erasure["by"].clone()))
        .collect();
    let by = json!("operator");
    assert_eq!(counts, [(json!(0), by.clone()), (json!(2), by)]);
    assert!(!all.to_string().contains("user/1"), "{all}");
    assert!(!all.to_string().contains("Rex"), "{all}");
    let first = &all["data"][1];
    assert!(id(first).starts_with("era_"), "{first}");
    assert!(first["erased_at"].is_string(), "{first}");
    let mine = api.get(&format!("{path}?namespace=user/1")).await.ok(200);
    assert_eq!(mine["data"], all["data"]);
    let other = api.get(&format!("{path}?namespace=user/12")).await.ok(200);
    assert_eq!(other["data"], json!([]));
    let page = api.get(&format!("{path}?limit=1")).await.ok(200);
    let cursor = page["next_cursor"].as_str().expect("more follow");
    let rest = api.get(&format!("{path}?cursor={cursor}")).await.ok(200);
    assert_eq!(rest["data"], json!([first]));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_name() {
    let world = World::new().await;
    let api = world.ready().await;
    for (body, pointer) in [
        (json!({ "namespace": "a//b", "text": "x" }), "/namespace"),
        (json!({ "namespace": "../b", "text": "x" }), "/namespace"),
        (json!({ "namespace": "a", "text": " " }), "/text"),
        (
            json!({ "namespace": "a", "text": "x".repeat(4_001) }),
            "/text",
        ),
        (json!({ "namespace": "a", "text": "x", "more": 1 }), "/more"),
        (
            json!({ "namespace": "a", "text": "x", "metadata": { "m": "x".repeat(9_000) } }),
            "/metadata",
        ),
    ] {
        let problem = api.post("/v1/memories", &body).await;
        let problem = problem.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    for path in [
        "/v1/memories?q=dog",
        "/v1/memories?namespace=a/",
        "/v1/memories?namespace=a&q=x&cursor=mem_00000000000000000000000000000001",
        "/v1/memories?cursor=x",
    ] {
        api.get(path).await.problem(400, "request.invalid");
    }
    let all = api.call("DELETE", "/v1/memories").send().await;
    all.problem(400, "request.invalid");
}

#[tokio::test]
async fn an_agent_whose_namespace_has_no_value_is_refused_with_its_session() {
    let world = World::new().await;
    let api = world.ready().await;
    let memory = json!({ "namespace": "user/{{metadata.user_id}}" });
    let session = |metadata: Value, memory: &Value| json!({ "agent": { "memory": memory }, "metadata": metadata });
    let made = api
        .post("/v1/sessions", &session(json!({ "user_id": "7" }), &memory))
        .await;
    let agent = &made.ok(201)["agent"]["memory"];
    assert_eq!(agent["namespace"], memory["namespace"]);
    assert_eq!(agent["budget_tokens"], 1_500);
    for (metadata, memory, pointer) in [
        (json!({}), memory, "/agent/memory/namespace"),
        (
            json!({}),
            json!({ "namespace": "a//b" }),
            "/agent/memory/namespace",
        ),
        (
            json!({}),
            json!({ "namespace": "{{nodes.a}}" }),
            "/agent/memory/namespace",
        ),
        (
            json!({}),
            json!({ "namespace": "a", "budget_tokens": 0 }),
            "/agent/memory/budget_tokens",
        ),
        (
            json!({}),
            json!({ "namespace": "a", "grants": "../b" }),
            "/agent/memory/grants",
        ),
        (
            json!({}),
            json!({ "namespace": "a", "recall": "often" }),
            "/agent/memory/recall",
        ),
        (
            json!({}),
            json!({ "namespace": "a", "more": 1 }),
            "/agent/memory/more",
        ),
    ] {
        let refused = api.post("/v1/sessions", &session(metadata, &memory)).await;
        let problem = refused.problem(400, "request.invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
}
