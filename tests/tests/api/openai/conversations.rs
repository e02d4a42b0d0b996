//! Conversations.

use serde_json::json;

use super::{answered, begin, refused};
use crate::access::{ask, locked, tenant};
use crate::world::{World, nothing};

#[tokio::test]
async fn a_conversation_is_a_session() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "metadata": { "topic": "tea" }, "items": [
        { "role": "user", "content": "hi" }, { "role": "assistant", "content": "hello" },
    ] });
    let made = api.post("/v1/conversations", &body).await.ok(200);
    assert_eq!(
        (&made["object"], &made["metadata"]["topic"]),
        (&json!("conversation"), &json!("tea"))
    );
    let id = made["id"].as_str().expect("an id");
    let path = format!("/v1/conversations/{id}");
    let done = answered(
        &world,
        &api,
        json!({ "model": "demo", "input": "tea?", "conversation": { "id": id } }),
        "yes",
    )
    .await;
    assert_eq!(done["conversation"]["id"], id);
    let items = api
        .get(&format!(
            "{path}/items?order=asc&limit=3&include[]=a&include[]=b"
        ))
        .await
        .ok(200);
    let roles: Vec<_> = items["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item["role"].clone())
        .collect();
    assert_eq!(
        (roles, &items["has_more"]),
        (
            vec![json!("user"), json!("assistant"), json!("user")],
            &json!(true)
        )
    );
    let last = items["last_id"].as_str().expect("an id");
    let rest = api
        .get(&format!("{path}/items?order=asc&after={last}"))
        .await
        .ok(200);
    assert_eq!(rest["data"][0]["id"], done["output"][0]["id"]);
    let one = api.get(&format!("{path}/items/{last}")).await.ok(200);
    assert_eq!(one["content"][0]["text"], "tea?");
    let changed = api
        .post(&path, &json!({ "metadata": { "topic": "coffee" } }))
        .await
        .ok(200);
    assert_eq!(changed["metadata"], json!({ "topic": "coffee" }));
    // One at a time.
    let busy = json!({ "model": "demo", "input": "more", "conversation": id });
    begin(&api, busy.clone()).await;
    refused(
        &api.post("/v1/responses", &busy).await,
        409,
        None,
        "conversation_locked",
    );
    let gone = api.call("DELETE", &path).send().await.ok(200);
    assert_eq!(gone["object"], "conversation.deleted");
    refused(&api.get(&path).await, 404, None, "session.not_found");
    let nobody = json!({ "model": "demo", "input": "x", "conversation": nothing("conv_") });
    refused(
        &api.post("/v1/responses", &nobody).await,
        404,
        Some("conversation"),
        "session.not_found",
    );
    let both = json!({ "model": "demo", "input": "x", "conversation": id, "previous_response_id": "resp_x" });
    refused(
        &api.post("/v1/responses", &both).await,
        400,
        Some("previous_response_id"),
        "request.invalid",
    );
}

#[tokio::test]
async fn what_was_said_elsewhere_is_added_without_an_answer() {
    let world = World::new().await;
    let api = world.ready().await;
    let made = api.post("/v1/conversations", &json!({})).await.ok(200);
    let id = made["id"].as_str().expect("an id");
    let path = format!("/v1/conversations/{id}/items");
    let call = json!({ "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}" });
    let result = json!({ "type": "function_call_output", "call_id": "c1", "output": "42" });
    let user = |text: &str| json!({ "role": "user", "content": text });
    let items =
        json!({ "items": [user("hi"), call, result, { "role": "assistant", "content": "hello" }] });
    let add = |items: &serde_json::Value, count: &str| {
        let call = api.call("POST", &path).json(items);
        call.header("x-stainless-retry-count", count)
    };
    let added = add(&items, "0").send().await.ok(200);
    let kinds: Vec<_> = added["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item["type"].as_str().expect("a type").to_owned())
        .collect();
    let expected = [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ];
    assert_eq!(kinds, expected);
    // A repeat adds nothing, and the same words once more are said once more.
    assert_eq!(add(&items, "1").send().await.ok(200), added);
    let again = add(&json!({ "items": [user("hi")] }), "0");
    let again = again.send().await.ok(200);
    let once_more = add(&json!({ "items": [user("hi")] }), "0");
    let once_more = once_more.send().await.ok(200);
    assert_ne!(once_more["first_id"], again["first_id"]);
    let keyed = async |items: serde_json::Value| {
        let call = api.call("POST", &path).json(&items);
        call.header("idempotency-key", "k1").send().await
    };
    let first = keyed(json!({ "items": [user("ho")] })).await.ok(200);
    assert_eq!(keyed(json!({ "items": [user("ho")] })).await.ok(200), first);
    let all = api.get(&format!("{path}?order=asc")).await.ok(200);
    assert_eq!(all["data"].as_array().map(Vec::len), Some(7));
    let done = answered(
        &world,
        &api,
        json!({ "model": "demo", "input": "on", "conversation": id }),
        "yes",
    )
    .await;
    let all = api.get(&format!("{path}?order=asc")).await.ok(200);
    assert_eq!(all["data"][8]["id"], done["output"][0]["id"]);
    for (items, param) in [
        (json!([]), "items"),
        (json!([call]), "items"),
        (json!([{ "role": "system", "content": "x" }]), "items"),
        (json!([{ "type": "computer_call" }]), "items[0].type"),
    ] {
        let answer = api.post(&path, &json!({ "items": items })).await;
        refused(&answer, 400, Some(param), "request.invalid");
    }
    begin(
        &api,
        json!({ "model": "demo", "input": "more", "conversation": id }),
    )
    .await;
    let busy = api.post(&path, &json!({ "items": [user("x")] })).await;
    refused(&busy, 409, None, "conversation_locked");
}

#[tokio::test]
async fn a_key_reaches_what_its_tenant_has_and_what_its_scopes_allow() {
    let world = World::new().await;
    let api = locked(&world).await;
    let none = api.get("/v1/models").await;
    refused(&none, 401, None, "auth.missing");
    let (_, key) = tenant(&api, "one", &["send", "read"]).await;
    let (_, other) = tenant(&api, "two", &["send", "read", "manage"]).await;
    let body = json!({ "model": "demo", "input": "hello", "background": true });
    let made = ask(&api, &key, "POST", "/v1/responses", &body)
        .await
        .ok(200);
    let path = format!("/v1/responses/{}", made["id"].as_str().expect("an id"));
    assert_eq!(
        ask(&api, &key, "GET", &path, &json!(null)).await.ok(200)["id"],
        made["id"]
    );
    refused(
        &ask(&api, &other, "GET", &path, &json!(null)).await,
        404,
        None,
        "send.not_found",
    );
    let after = json!({ "model": "demo", "input": "x", "previous_response_id": made["id"] });
    let stolen = ask(&api, &other, "POST", "/v1/responses", &after).await;
    refused(&stolen, 404, Some("previous_response_id"), "send.not_found");
    refused(
        &ask(&api, &key, "DELETE", &path, &json!(null)).await,
        403,
        None,
        "auth.forbidden",
    );
    let conversation = ask(&api, &key, "POST", "/v1/conversations", &json!({})).await;
    let conversation = conversation.ok(200)["id"].clone();
    let of_key = format!(
        "/v1/conversations/{}",
        conversation.as_str().expect("an id")
    );
    let changed = json!({ "metadata": { "topic": "mine" } });
    for (method, path, body) in [
        ("GET", of_key.clone(), json!(null)),
        ("POST", of_key.clone(), changed),
        ("GET", format!("{of_key}/items"), json!(null)),
        ("DELETE", of_key.clone(), json!(null)),
    ] {
        let answer = ask(&api, &other, method, &path, &body).await;
        refused(&answer, 404, None, "session.not_found");
    }
    let within = json!({ "model": "demo", "input": "x", "conversation": conversation });
    let within = ask(&api, &other, "POST", "/v1/responses", &within).await;
    refused(&within, 404, Some("conversation"), "session.not_found");
    let (_, reader) = tenant(&api, "three", &["read"]).await;
    refused(
        &ask(&api, &reader, "POST", "/v1/responses", &body).await,
        403,
        None,
        "auth.forbidden",
    );
}
