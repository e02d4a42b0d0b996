//! Previews of model calls, with and without a worker that can render them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use mainspring_shared::agent::FoldStrategy;
use mainspring_shared::bus::{Notice, Topic};
use mainspring_shared::id::SendId;
use mainspring_shared::model::Digest;
use mainspring_shared::session::preview::{
    Answered, Ask, FoldWhen, NextFold, PartKind, Preview, PreviewCost, PreviewFold, PreviewLimit,
    PreviewPart,
};
use mainspring_shared::tool::schema::Schema;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::blobs::{inline, named, put};
use crate::world::World;

/// The published API description.
const OPENAPI: &str = include_str!("../../../docs/openapi.json");

/// A schema of the published description, with everything it refers to.
fn published(name: &str) -> Schema {
    let paper: Value = serde_json::from_str(OPENAPI).expect("JSON");
    let all = &paper["components"]["schemas"];
    let (mut found, mut wanted) = (BTreeMap::new(), vec![name.to_owned()]);
    while let Some(name) = wanted.pop() {
        let schema = all[&name].clone();
        assert!(schema.is_object(), "{name}");
        let text = schema.to_string();
        let names = text.split("#/components/schemas/").skip(1);
        let names = names.filter_map(|rest| rest.split('"').next());
        found.insert(name, schema.clone());
        wanted.extend(
            names
                .filter(|name| !found.contains_key(*name))
                .map(str::to_owned),
        );
    }
    let whole = json!({
        "$ref": format!("#/components/schemas/{name}"),
        "components": { "schemas": found },
    });
    Schema::compile(&whole).expect("a schema")
}

/// A preview with all optional members, or with none.
pub(crate) fn example(full: bool) -> Preview {
    let part = |kind| PreviewPart {
        kind,
        count: 2,
        tokens: 900,
        cached: 500,
        written: 400,
        cost_usd: full.then_some(0.25),
    };
    let kinds = [
        PartKind::Tools,
        PartKind::System,
        PartKind::Folds,
        PartKind::History,
        PartKind::New,
        PartKind::Tail,
    ];
    Preview {
        digest: Digest([7; 32]),
        provider: "main".to_owned(),
        model: "m".to_owned(),
        send_id: full.then_some(SendId(Uuid::from_u128(5))),
        round: 3,
        parts: kinds.map(part).into_iter().filter(|_| full).collect(),
        tokens: 5_400,
        cached: 3_000,
        window: 8_000,
        budget: 6_000,
        answer_max: 1_000,
        from_seq: 4,
        folds: full
            .then_some(PreviewFold {
                from_seq: 1,
                to_seq: 3,
                tokens: 100,
            })
            .into_iter()
            .collect(),
        tail: full.then(|| "<notes>".to_owned()),
        cost: full.then_some(PreviewCost {
            input_usd: 1.5,
            cache_read_usd: 0.5,
            cache_write_usd: 0.5,
            answer_max_usd: 2.0,
        }),
        next_fold: full.then_some(NextFold {
            when: FoldWhen::Before,
            strategy: FoldStrategy::Summary,
            from_seq: 1,
            to_seq: 9,
            tokens: 2_000,
        }),
        aged_to: full.then_some(12),
        limits: full
            .then(|| PreviewLimit {
                code: "pause.provider".to_owned(),
                detail: "it waits".to_owned(),
            })
            .into_iter()
            .collect(),
        request: full.then(|| json!({ "model": "m" })),
    }
}

/// Starts a worker that answers each question with this preview; returns the questions.
pub(crate) fn answering(world: &World, preview: Preview) -> mpsc::UnboundedReceiver<Ask> {
    let bus = Arc::clone(&world.bus);
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut asks = bus.subscribe(Topic::Asks).await;
        while let Some(Notice::Payload(json)) = asks.next().await {
            let ask: Ask = serde_json::from_slice(&json).expect("a question");
            let answer = Answered::Preview(Box::new(preview.clone()));
            let answer = serde_json::to_vec(&answer).expect("JSON");
            bus.publish(Topic::Answers(ask.id), Bytes::from(answer));
            // Not every test reads the questions.
            let _ = tell.send(ask);
        }
    });
    told
}

#[tokio::test]
async fn a_preview_has_the_shape_that_is_published() {
    let schema = published("Preview");
    for full in [true, false] {
        let world = World::new().await;
        answering(&world, example(full));
        let api = world.ready().await;
        let session = api.session().await;
        let path = format!("/v1/sessions/{session}/context");
        for found in [
            api.get(&path).await.ok(200),
            api.post(&path, &json!({ "input": "hi" })).await.ok(200),
        ] {
            assert_eq!(schema.faults(&found), Vec::<String>::new(), "{found}");
            assert_eq!(found["next_fold"]["when"] == "before", full);
            // Every member must be described; the schema alone would not catch an undescribed one.
            let paper: Value = serde_json::from_str(OPENAPI).expect("JSON");
            let schemas = &paper["components"]["schemas"];
            for (value, name) in [
                (&found, "Preview"),
                (&found["parts"][0], "PreviewPart"),
                (&found["cost"], "PreviewCost"),
                (&found["next_fold"], "NextFold"),
            ] {
                let described = schemas[name]["properties"].as_object().expect(name);
                for member in value
                    .as_object()
                    .into_iter()
                    .flat_map(|object| object.keys())
                {
                    assert!(described.contains_key(member), "{name}: {member}");
                }
            }
        }
        let other = json!({ "digest": 1 });
        assert!(!schema.faults(&other).is_empty());
    }
}

#[tokio::test]
async fn without_a_worker_nobody_says_what_the_next_call_would_be() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "agent": { "pool": "elsewhere" } });
    let session = api.post("/v1/sessions", &body).await.ok(201);
    let session = session["id"].as_str().expect("an id");
    let path = format!("/v1/sessions/{session}/context");
    let problem = api.get(&path).await.problem(503, "store.unavailable");
    assert_eq!(
        problem["detail"],
        "no worker of the pool \"elsewhere\" is alive"
    );
    let body = json!({ "input": "hi", "options": { "model": "m" }, "request": true });
    api.post(&path, &body)
        .await
        .problem(503, "store.unavailable");
}

#[tokio::test]
async fn a_preview_is_asked_for_as_a_send_is() {
    let world = World::new().await;
    let api = world.ready().await;
    let session = api.session().await;
    let path = format!("/v1/sessions/{session}/context");
    for (body, pointer) in [
        (json!({}), ""),
        (json!({ "input": "" }), "/input"),
        (json!({ "input": "hi", "inputs": 1 }), ""),
        (
            json!({ "input": "hi", "options": { "max_rounds": 0 } }),
            "/options/max_rounds",
        ),
    ] {
        let problem = api.post(&path, &body).await.problem(400, "request.invalid");
        if !pointer.is_empty() {
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}");
        }
    }
    api.get(&format!("{path}?requests=true"))
        .await
        .problem(400, "request.invalid");
    api.get("/v1/sessions/ses_00000000000070008000000000000000/context")
        .await
        .problem(404, "session.not_found");
}

/// A file whose content is a stored blob.
fn file(sha256: &str) -> Value {
    let source = json!({ "type": "blob", "sha256": sha256 });
    json!({ "type": "file", "name": "a", "source": source })
}

#[tokio::test]
async fn an_imagined_send_says_what_the_send_would_say_and_stores_nothing() {
    let world = World::new().await;
    let mut asks = answering(&world, example(true));
    let api = world.ready().await;
    let session = api.session().await;
    let mut input = vec![
        json!({ "type": "text", "text": "see" }),
        inline(80_000),
        inline(800),
    ];
    for (media_type, data) in [
        ("image/png", &b"\x89PNG\r\n\x1a\nand so on"[..]),
        ("application/pdf", &b"%PDF-1.7"[..]),
        ("text/plain", &b"words"[..]),
    ] {
        let stored = put(&api, media_type, data).await.ok(201);
        let sha256 = stored["sha256"].as_str().expect("a hash");
        let is_image = media_type == "image/png";
        input.push(if is_image {
            named(sha256)
        } else {
            file(sha256)
        });
    }
    let before = world.store.dump().await.expect("answers").blobs;
    let path = format!("/v1/sessions/{session}/context");
    let mut told = Vec::new();
    for with_request in [false, true] {
        let body = json!({ "input": input, "request": with_request });
        api.post(&path, &body).await.ok(200);
        told.push(asks.recv().await.expect("a worker is asked"));
    }
    let after = world.store.dump().await.expect("answers").blobs;
    assert_eq!(before, after);
    let body = json!({ "session_id": session, "input": input });
    api.post("/v1/sends", &body).await.ok(202);
    let sent = world.claim(&session).await.send.record.input.clone();
    let blobs = sent.iter().filter(|part| part.blob().is_some()).count();
    assert_eq!(blobs, 4, "{sent:?}");
    for ask in &told {
        assert_eq!(ask.input.as_ref(), Some(&sent));
    }
    // The content that is stored nowhere is sent along when the request is to be shown.
    let content: Vec<_> = told.into_iter().map(|ask| ask.content).collect();
    assert_eq!(content, [Vec::new(), vec!["A".repeat(80_000)]]);
}

#[tokio::test]
async fn an_imagined_send_is_refused_for_its_blobs_as_the_send_is() {
    let world = World::new().await;
    let _asks = answering(&world, example(true));
    let api = world.ready().await;
    let session = api.session().await;
    let text = put(&api, "text/plain", b"words").await.ok(201);
    let text = text["sha256"].as_str().expect("a hash");
    let unknown = "1".repeat(64);
    let path = format!("/v1/sessions/{session}/context");
    for (input, pointer) in [
        (json!([named(&unknown)]), "/input/0/source/sha256"),
        (
            json!([file(text), file(&unknown)]),
            "/input/1/source/sha256",
        ),
        (json!([named(text)]), "/input/0/source"),
    ] {
        let imagined = api.post(&path, &json!({ "input": input })).await;
        let imagined = imagined.problem(400, "request.invalid");
        let body = json!({ "session_id": session, "input": input });
        let sent = api.post("/v1/sends", &body).await;
        let sent = sent.problem(400, "request.invalid");
        assert_eq!(imagined["errors"], sent["errors"], "{input}");
        let told = imagined["errors"][0]["pointer"].as_str().expect("one");
        assert!(told.starts_with(pointer), "{imagined}");
    }
}
