//! Tokens with which pages of browsers use one session.

use std::time::Duration;

use mainspring_shared::time::Timestamp;
use serde_json::{Value, json};

use crate::access::{ROOT, ask, locked, tenant};
use crate::issuers::trusting;
use crate::webhooks::sealing;
use crate::world::{Scheduler, World};

const NONE: Value = Value::Null;

async fn session(api: &Scheduler, key: &str) -> String {
    let made = ask(api, key, "POST", "/v1/sessions", &json!({})).await;
    made.ok(201)["id"].as_str().expect("an id").to_owned()
}

async fn token(api: &Scheduler, key: &str, body: &Value) -> String {
    let made = ask(api, key, "POST", "/v1/tokens", body).await.ok(201);
    made["token"].as_str().expect("a token").to_owned()
}

#[tokio::test]
async fn a_token_reaches_its_session_and_nothing_else() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (_, key) = tenant(&api, "blue", &["read", "send", "answer", "manage"]).await;
    let (mine, other) = (session(&api, &key).await, session(&api, &key).await);
    let body = json!({ "session_id": mine, "scopes": ["read", "use"] });
    let made = ask(&api, &key, "POST", "/v1/tokens", &body).await.ok(201);
    assert_eq!(made["session_id"], json!(mine));
    assert_eq!(made["scopes"], json!(["read", "use"]));
    let token = made["token"].as_str().expect("a token");
    assert!(token.starts_with("mst_"), "{token}");
    assert!(!token.contains(&mine), "it is sealed");

    let sends = format!("/v1/sessions/{mine}/sends");
    let said = json!({ "input": "hello" });
    let sent = ask(&api, token, "POST", &sends, &said).await.ok(202);
    let send = format!("/v1/sends/{}", sent["id"].as_str().expect("an id"));
    ask(&api, token, "GET", &send, &NONE).await.ok(200);
    let listed = ask(&api, token, "GET", "/v1/sessions", &NONE).await.ok(200);
    let ids: Vec<&Value> = listed["data"].as_array().expect("a list").iter().collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(ids[0]["id"], json!(mine));

    let there = format!("/v1/sessions/{other}");
    let outside = ask(&api, token, "GET", &there, &NONE).await;
    outside.problem(404, "session.not_found");
    let outside = ask(&api, token, "POST", &format!("{there}/sends"), &said).await;
    outside.problem(404, "session.not_found");
    let outside = ask(&api, token, "POST", "/v1/sessions", &json!({})).await;
    outside.problem(403, "auth.binding");
    let published = json!({ "name": "spy", "spec": { "system_prompt": "x" } });
    ask(&api, &key, "POST", "/v1/agents", &published)
        .await
        .ok(201);
    for options in [json!({ "agent": "spy" }), json!({ "system_prompt": "x" })] {
        let body = json!({ "input": "x", "options": options });
        let refused = ask(&api, token, "POST", &sends, &body).await;
        refused.problem(403, "auth.binding");
    }
    // Lists show what is inside on full pages, although everything else is newer.
    for _ in 0..3 {
        ask(
            &api,
            &key,
            "POST",
            &format!("/v1/sessions/{other}/sends"),
            &said,
        )
        .await
        .ok(202);
    }
    let listed = ask(&api, token, "GET", "/v1/sends?limit=1", &NONE)
        .await
        .ok(200);
    assert_eq!(listed["data"][0]["id"], sent["id"]);
    let agents = ask(&api, token, "GET", "/v1/agents", &NONE).await.ok(200);
    assert_eq!(agents["data"], json!([]));
    let memories = ask(&api, token, "GET", "/v1/memories", &NONE).await.ok(200);
    assert_eq!(memories["data"], json!([]));
    let refused = ask(
        &api,
        token,
        "DELETE",
        &format!("/v1/sessions/{mine}"),
        &NONE,
    )
    .await;
    refused.problem(403, "auth.forbidden");
    let timer = json!({ "session_id": mine, "input": "x", "every": "1s" });
    let refused = ask(&api, token, "POST", "/v1/timers", &timer).await;
    refused.problem(403, "auth.forbidden");
    let refused = ask(&api, token, "POST", "/v1/tokens", &body).await;
    refused.problem(403, "auth.forbidden");
}

#[tokio::test]
async fn a_token_allows_no_more_than_its_key_and_dies_with_it() {
    let world = sealing().await;
    let api = locked(&world).await;
    let (id, key) = tenant(&api, "blue", &["read"]).await;
    let (_, writer) = tenant(&api, "red", &["read", "use", "define"]).await;
    let red = session(&api, &writer).await;
    let unseen = ask(
        &api,
        &key,
        "POST",
        "/v1/tokens",
        &json!({ "session_id": red }),
    )
    .await;
    unseen.problem(404, "session.not_found");
    let more = json!({ "session_id": red, "scopes": ["answer"] });
    let refused = ask(&api, &writer, "POST", "/v1/tokens", &more).await;
    refused.problem(403, "auth.forbidden");
    for (body, pointer) in [
        (json!({}), "/session_id"),
        (
            json!({ "session_id": red, "scopes": ["read", "admin"] }),
            "/scopes/1",
        ),
        (json!({ "session_id": red, "scopes": [] }), "/scopes"),
        (json!({ "session_id": red, "ttl": "25h" }), "/ttl"),
        (json!({ "session_id": red, "ttl": "0s" }), "/ttl"),
    ] {
        let refused = ask(&api, &writer, "POST", "/v1/tokens", &body).await;
        refused.problem(400, "request.invalid");
        assert_eq!(refused.json()["errors"][0]["pointer"], pointer, "{body}");
    }
    let reader = token(&api, &writer, &json!({ "session_id": red })).await;
    let path = format!("/v1/sessions/{red}");
    ask(&api, &reader, "GET", &path, &NONE).await.ok(200);
    let sends = format!("{path}/sends");
    let refused = ask(&api, &reader, "POST", &sends, &json!({ "input": "x" })).await;
    refused.problem(403, "auth.forbidden");
    // Of one that was changed, cut or made up, nothing is told.
    let cut = &reader[..reader.len() - 6];
    for bad in [cut, &format!("{reader}A"), "mst_", "mst_v1.x.y.z"] {
        let refused = ask(&api, bad, "GET", &path, &NONE).await;
        refused.problem(401, "auth.invalid");
    }
    let moment = token(&api, &writer, &json!({ "session_id": red, "ttl": "1ms" })).await;
    while ask(&api, &moment, "GET", &path, &NONE).await.status == 200 {}
    let over = ask(&api, &moment, "GET", &path, &NONE).await;
    over.problem(401, "auth.invalid");
    // Another scheduler knows it as well, and that its key is gone.
    let (key_id, _) = writer["msk_".len()..].split_once('_').expect("an id");
    let red_tenant = ask(&api, ROOT, "GET", "/v1/tenants", &NONE).await.ok(200);
    let red_tenant = red_tenant["data"].as_array().expect("a list").iter();
    let mut red_tenant = red_tenant.filter(|it| it["name"] == "red");
    let red_tenant = red_tenant.next().expect("it is there")["id"].clone();
    assert_ne!(red_tenant, json!(id));
    let revoke = api.call("DELETE", &format!("/v1/keys/key_{key_id}"));
    let revoke = revoke.header("authorization", &format!("Bearer {ROOT}"));
    let tenant = red_tenant.as_str().expect("an id");
    let revoked = revoke.header("mainspring-tenant", tenant).send().await;
    assert!(revoked.status < 300, "{}", revoked.text);
    let second = locked(&world).await;
    let dead = ask(&second, &reader, "GET", &path, &NONE).await;
    dead.problem(401, "auth.invalid");
}

#[tokio::test]
async fn the_root_key_makes_tokens_too_and_nobody_does_without_a_key_to_seal_them() {
    let world = sealing().await;
    let api = locked(&world).await;
    let mine = session(&api, ROOT).await;
    let token = token(&api, ROOT, &json!({ "session_id": mine })).await;
    ask(&api, &token, "GET", &format!("/v1/sessions/{mine}"), &NONE)
        .await
        .ok(200);
    // Made for another tenant, it is of that one.
    let (blue, key) = tenant(&api, "blue", &["read", "send"]).await;
    let theirs = session(&api, &key).await;
    let operator = json!({ "scopes": ["admin", "operate"] });
    let operator = ask(&api, ROOT, "POST", "/v1/keys", &operator).await.ok(201);
    for maker in [ROOT, operator["key"].as_str().expect("the key")] {
        let made = api.call("POST", "/v1/tokens");
        let made = made.json(&json!({ "session_id": theirs }));
        let made = made.header("authorization", &format!("Bearer {maker}"));
        let made = made.header("mainspring-tenant", &blue).send().await.ok(201);
        let made = made["token"].as_str().expect("a token");
        let path = format!("/v1/sessions/{theirs}");
        ask(&api, made, "GET", &path, &NONE).await.ok(200);
    }
    for operators in ["/v1/tenants", "/v1/workers", "/v1/keys"] {
        let refused = ask(&api, &token, "GET", operators, &NONE).await;
        assert!(
            [403, 404].contains(&refused.status),
            "{operators}: {}",
            refused.text
        );
    }
    let world = World::new().await;
    let api = locked(&world).await;
    let mine = session(&api, ROOT).await;
    let body = json!({ "session_id": mine });
    let refused = ask(&api, ROOT, "POST", "/v1/tokens", &body).await;
    refused.problem(409, "secret.no_seal");
}

#[tokio::test]
async fn a_token_that_was_made_with_an_issuers_ends_with_it() {
    let world = sealing().await;
    let api = trusting(&world).await;
    let (_, key) = tenant(&api, "blue", &["read", "send"]).await;
    let mine = session(&api, &key).await;
    let body = json!({ "session_id": mine, "ttl": "12h" });
    let of_key = ask(&api, &key, "POST", "/v1/tokens", &body).await.ok(201);
    let of_issuer = ask(&api, "blue.read.60", "POST", "/v1/tokens", &body).await;
    let of_issuer = of_issuer.ok(201);
    let ends = |made: &Value| -> Timestamp {
        serde_json::from_value(made["expires_at"].clone()).expect("a time")
    };
    let between = ends(&of_key).since(ends(&of_issuer));
    assert!(between > Duration::from_hours(11), "{between:?}");
    let token = of_issuer["token"].as_str().expect("a token");
    ask(&api, token, "GET", &format!("/v1/sessions/{mine}"), &NONE)
        .await
        .ok(200);
}
