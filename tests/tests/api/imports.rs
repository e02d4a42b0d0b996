//! Archives that are larger than their memory budget.

use std::sync::Arc;

use mainspring_queue_local::LocalBus;
use mainspring_runtime::SystemClock;
use mainspring_shared::agent::AgentSpec;
use mainspring_shared::id::SendId;
use mainspring_shared::list::List;
use mainspring_shared::message::{ContentPart, Message, NewMessage};
use mainspring_shared::store::{ImportSession, NewSession};
use mainspring_shared::time::Timestamp;
use mainspring_store_model::ModelStore;
use serde_json::{Map, json};

use crate::client::Answer;
use crate::faulty::Faulty;
use crate::world::{Scheduler, World, key, nothing};

const MESSAGES: usize = 240;

/// Memory budget of all request bodies together: a tenth of the archive.
const BYTES_MAX: usize = 1_200_000;

async fn import(api: &Scheduler, archive: &str) -> Answer {
    let call = api.call("POST", "/v1/sessions:import");
    let call = call.header("content-type", "application/x-ndjson");
    call.body(archive.to_owned()).send().await
}

fn said(n: usize) -> Message {
    let words = vec![ContentPart::text(format!("{n} {}", "x".repeat(50_000)))];
    let send = SendId(key(&nothing("ses_")).session.0);
    NewMessage::user(words, 0).at(1 + n as i64, send, Timestamp(1), 0)
}

#[tokio::test]
async fn an_archive_ten_times_as_long_as_what_may_be_in_memory_is_imported() {
    let store = Arc::new(ModelStore::open(Arc::new(SystemClock::new())));
    let store = Arc::new(Faulty::over(store));
    let world = World::over(store.clone(), Arc::new(LocalBus::new())).await;
    let api = world
        .scheduler_with(|config| config.bodies_bytes_max = BYTES_MAX)
        .await;
    api.until_ready().await;
    let source = nothing("ses_");
    let item = ImportSession {
        projections: Vec::new(),
        folds: Vec::new(),
        session: NewSession {
            key: key(&source),
            agent: AgentSpec::default(),
            metadata: Map::new(),
            parent: None,
        },
        messages: (0..MESSAGES).map(said).collect(),
        todo: List::default(),
        notes: List::default(),
        idempotency: None,
        behind: 0,
        more: false,
    };
    let imported = world.store.import_session(item).await;
    imported.expect("the store answers");
    let export = api.get(&format!("/v1/sessions/{source}/export")).await;
    let archive = export.text;
    assert!(archive.len() > 10 * BYTES_MAX);

    let before = store.calls("import_session");
    let made = import(&api, &archive).await.ok(201);
    assert_eq!(made["messages"], MESSAGES);
    let pages = store.calls("import_session") - before;
    assert!(pages >= archive.len() / BYTES_MAX, "{pages} pages");
    let copy = made["id"].as_str().expect("an id");
    let last = format!("/v1/sessions/{copy}/messages?cursor={}", MESSAGES - 1);
    let last = api.get(&last).await.ok(200);
    let text = last["data"][0]["content"][0]["text"].as_str();
    let said = format!("{} x", MESSAGES - 1);
    assert!(text.is_some_and(|text| text.starts_with(&said)), "{text:?}");

    // A fault is reported at the end; what was stored until then was never visible.
    let sessions = api.get("/v1/sessions").await.ok(200)["data"].clone();
    let cut = &archive[..archive.len() - 10];
    import(&api, cut).await.problem(400, "request.invalid");
    let wrong = archive.replacen("\"seq\":200,", "\"seq\":201,", 1);
    let refused = import(&api, &wrong).await.problem(400, "request.invalid");
    let pointer = format!("{}:/sha256", MESSAGES + 2);
    assert_eq!(refused["errors"][0]["pointer"], json!(pointer));
    assert_eq!(api.get("/v1/sessions").await.ok(200)["data"], sessions);
    // The import gave its room back.
    api.post("/v1/sends", &json!({ "input": "x".repeat(100_000) }))
        .await
        .ok(202);
}
