//! Vectors.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use mainspring_shared::bus::{Notice, Topic};
use mainspring_shared::error::Code;
use mainspring_shared::id::BootId;
use mainspring_shared::memory::{VectorsAsk, VectorsMade};
use mainspring_shared::model::PublishedModels;
use mainspring_shared::store::{NewBoot, Role};
use mainspring_shared::tool::Published;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::refused;
use crate::access::{ask, locked, tenant};
use crate::world::World;

/// Starts a worker with the model `main/embed`, which tells the length of each text; returns the questions. It
/// refuses a text of one letter.
async fn worker(world: &World) -> mpsc::UnboundedReceiver<VectorsAsk> {
    let models = PublishedModels {
        vectors: Some("main/embed".to_owned()),
        ..PublishedModels::default()
    };
    let tools = Published {
        models: Some(models),
        ..Published::default()
    };
    let boot = NewBoot {
        id: BootId(uuid::Uuid::from_u128(7)),
        role: Role::Worker,
        name: "one".to_owned(),
        // The default one has a worker that does not say which models it has.
        pool: "vectors".to_owned(),
        concurrency: 1,
        ttl: Duration::from_mins(1),
        protocol: mainspring_shared::store::PROTOCOL,
        tools,
    };
    world.store.register_boot(boot).await.expect("registers");
    let bus = Arc::clone(&world.bus);
    let mut asks = bus.subscribe(Topic::Asks).await;
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Notice::Payload(json)) = asks.next().await {
            let ask: VectorsAsk = serde_json::from_slice(&json).expect("a question");
            let refuses = ask.texts.iter().any(|text| text.len() == 1);
            let made = if refuses {
                VectorsMade::Refused {
                    code: Code::RequestInvalid,
                    detail: "too short".to_owned(),
                }
            } else {
                let vectors = ask.texts.iter().map(|text| vec![text.len() as f32, -0.5]);
                VectorsMade::Vectors {
                    vectors: vectors.collect(),
                    tokens: ask.texts.len() as u64,
                }
            };
            let made = serde_json::to_vec(&made).expect("JSON");
            bus.publish(Topic::Answers(ask.id), Bytes::from(made));
            // Not every test reads the questions.
            let _ = tell.send(ask);
        }
    });
    told
}

fn asked(input: &Value) -> Value {
    json!({ "model": "embed", "input": input })
}

#[tokio::test]
async fn vectors_are_computed_by_a_worker_with_the_model() {
    let world = World::new().await;
    let mut asks = worker(&world).await;
    let api = world.ready().await;
    let made = api.post("/v1/embeddings", &asked(&json!("hello"))).await;
    let made = made.ok(200);
    assert_eq!(
        made,
        json!({
            "object": "list", "model": "main/embed",
            "data": [{ "object": "embedding", "index": 0, "embedding": [5.0, -0.5] }],
            "usage": { "prompt_tokens": 1, "total_tokens": 1 },
        })
    );
    assert_eq!(asks.recv().await.expect("a question").texts, ["hello"]);
    let mut body = asked(&json!(["ab", "abc"]));
    body["model"] = json!("main/embed");
    body["encoding_format"] = json!("base64");
    body["dimensions"] = json!(2);
    let made = api.post("/v1/embeddings", &body).await.ok(200);
    // 3.0 and -0.5 as bytes.
    assert_eq!(made["data"][1]["embedding"], "AABAQAAAAL8=");
    let models = api.get("/v1/models").await;
    assert!(models.text.contains("\"main/embed\""), "{}", models.text);
}

#[tokio::test]
async fn many_texts_are_asked_for_one_part_after_the_other() {
    let world = World::new().await;
    let mut asks = worker(&world).await;
    let api = world.ready().await;
    let texts: Vec<String> = (10..110).map(|n| "x".repeat(n)).collect();
    let made = api.post("/v1/embeddings", &asked(&json!(texts))).await;
    let made = made.ok(200);
    let firsts: Vec<_> = made["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["index"].as_u64(), one["embedding"][0].as_f64()))
        .collect();
    let expected: Vec<_> = (0..100).map(|n| (Some(n), Some((n + 10) as f64))).collect();
    assert_eq!(firsts, expected);
    assert_eq!(made["usage"]["total_tokens"], 100);
    for count in [64, 36] {
        assert_eq!(asks.recv().await.expect("a question").texts.len(), count);
    }
}

#[tokio::test]
async fn what_has_no_vector_is_refused_by_name() {
    let world = World::new().await;
    let api = world.ready().await;
    let none = api.post("/v1/embeddings", &asked(&json!("hello"))).await;
    let said = refused(&none, 404, Some("model"), "model_not_found");
    assert!(said.contains("memory.embeddings_model"), "{said}");
    worker(&world).await;
    for (member, value, param) in [
        ("input", json!([]), "input"),
        ("input", json!(["hello", ""]), "input"),
        ("input", json!([1, 2]), "input"),
        ("input", json!("x"), "input"),
        ("encoding_format", json!("int8"), "encoding_format"),
        ("dimensions", json!(3), "dimensions"),
        ("no_such", json!(3), "no_such"),
    ] {
        let mut body = asked(&json!("hello"));
        body[member] = value;
        let answer = api.post("/v1/embeddings", &body).await;
        refused(&answer, 400, Some(param), "request.invalid");
    }
    let mut other = asked(&json!("hello"));
    other["model"] = json!("other");
    let answer = api.post("/v1/embeddings", &other).await;
    let said = refused(&answer, 404, Some("model"), "model_not_found");
    assert!(said.contains("\"main/embed\""), "{said}");
}

#[tokio::test]
async fn a_key_needs_a_scope_for_vectors_and_no_agent_that_it_is_bound_to() {
    let world = World::new().await;
    worker(&world).await;
    let api = locked(&world).await;
    let (_, reader) = tenant(&api, "one", &["read"]).await;
    let body = asked(&json!("hello"));
    let answer = ask(&api, &reader, "POST", "/v1/embeddings", &body).await;
    refused(&answer, 403, None, "auth.forbidden");
    let (_, admin) = tenant(&api, "two", &["admin"]).await;
    let answer = ask(&api, &admin, "POST", "/v1/embeddings", &body).await;
    assert_eq!(answer.ok(200)["object"], "list");
    let bound =
        json!({ "name": "bound", "scopes": ["read", "send"], "binding": { "agents": ["mine"] } });
    let bound = ask(&api, &admin, "POST", "/v1/keys", &bound).await.ok(201);
    let key = bound["key"].as_str().expect("a key");
    let answer = ask(&api, key, "POST", "/v1/embeddings", &body).await;
    refused(&answer, 403, None, "auth.binding");
}
