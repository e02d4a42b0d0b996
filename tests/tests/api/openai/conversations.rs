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
    refused(
        &api.post(&format!("{path}/items"), &json!({ "items": [] }))
            .await,
        400,
        Some("items"),
        "request.invalid",
    );
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
