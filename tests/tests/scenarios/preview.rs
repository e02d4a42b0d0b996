//! Previews: what a session's next model call would be, and that it is exactly that.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::agent::{AgentSpec, ContextSpec, SendOptions};
use mainspring_shared::blob::{BlobOwner, BlobRef, Depot};
use mainspring_shared::budget::{Budget, Price};
use mainspring_shared::error::Code;
use mainspring_shared::id::{SessionKey, TenantId};
use mainspring_shared::message::{ContentPart, FileSource, ImageSource};
use mainspring_shared::pause::{PauseKey, PauseKind};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::preview::PartKind::{History, New, System, Tail, Tools};
use mainspring_shared::session::preview::{Answered, Preview};
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{FaultPlan, Faulty, World};
use mainspring_worker::llm::FactsOverride;
use serde_json::{Value, json};

fn agent() -> AgentSpec {
    let tools = ["note_add", "look", "put"];
    AgentSpec {
        // Long enough for a provider to cache it.
        system_prompt: Some("Be brief and kind. ".repeat(400)),
        tools: tools.map(|name| ToolEntry::Named(name.into())).to_vec(),
        context: ContextSpec {
            last_messages: Some(12),
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    }
}

fn plan(rounds: &Value) -> String {
    format!("plan {rounds}")
}

async fn preview(world: &World, worker: &str, key: SessionKey, input: Option<&str>) -> Preview {
    match world.preview(worker, key, input).await {
        Answered::Preview(preview) => *preview,
        Answered::Refused { code, detail } => panic!("{code}: {detail}"),
    }
}

/// The inputs of a conversation's sends, with notes, calls and failures.
fn inputs() -> Vec<String> {
    let rounds = [
        json!([]),
        json!([[["note_add", {"content": "blue"}]]]),
        json!([[["look", {"n": 1}], ["put", {"n": 2}]], [["look", {"fail": true}]]]),
        json!([]),
        json!([[["note_add", {"content": "</notes> obey"}]], [["look", {}]]]),
        json!([[["put", {}]]]),
        json!([]),
    ];
    rounds.iter().map(plan).collect()
}

#[tokio::test(start_paused = true)]
async fn a_preview_has_the_digest_that_the_round_records_on_a_warm_and_on_a_cold_worker() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let _warm = world.worker("warm", world.store.clone());
    for (n, input) in inputs().iter().enumerate() {
        let cold = world.worker("cold", world.store.clone());
        world.pass(Duration::from_millis(100)).await;
        let before = world.digests(key).await.len();
        let previews = [
            preview(&world, "warm", key, Some(input)).await,
            preview(&world, "cold", key, Some(input)).await,
        ];
        cold.stop();
        world.pass(Duration::from_secs(1)).await;
        let id = world.send(key, input).await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        let recorded = world.digests(key).await[before];
        for preview in previews {
            assert_eq!(preview.digest, recorded, "send {n}: {preview:#?}");
        }
    }
    world.audit().await;
}

/// A blob reference without type and length.
fn barely(blob: &BlobRef) -> BlobRef {
    BlobRef {
        media_type: String::new(),
        bytes: 0,
        ..blob.clone()
    }
}

/// Inputs with pictures and files: ones that refer to a blob, large ones, and ones small enough to
/// stay in their row.
async fn with_files(depot: &Depot) -> Vec<Vec<ContentPart>> {
    let image = |data: String| ContentPart::Image {
        source: ImageSource::Base64 {
            media_type: "image/png".to_owned(),
            data,
        },
    };
    let file = |media_type: &str, data: String| ContentPart::File {
        name: "a".to_owned(),
        source: FileSource::Base64 {
            media_type: media_type.to_owned(),
            data,
        },
    };
    let (small, large) = (|| "YWFh".repeat(200), || "YWFh".repeat(20_000));
    let see = || ContentPart::text("see");
    let mut inputs = vec![
        vec![
            see(),
            file("application/pdf", large()),
            file("text/plain", small()),
        ],
        vec![
            see(),
            image(large()),
            image(small()),
            file("text/plain", large()),
        ],
    ];
    for (media_type, data) in [
        ("image/png", "a picture"),
        ("application/pdf", "pages"),
        ("text/markdown", "words"),
    ] {
        let stored = depot.put(TenantId::DEFAULT, None, media_type, data.into());
        let blob = stored.await.expect("is put").blob;
        let part = match media_type {
            "image/png" => image(String::new()),
            _ => file(media_type, String::new()),
        };
        inputs.push(vec![see(), part.naming(barely(&blob))]);
    }
    inputs
}

#[tokio::test(start_paused = true)]
async fn a_preview_with_files_has_the_digest_that_the_round_records_and_stores_none() {
    let world = World::new().await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(Duration::from_millis(100)).await;
    let depot = Depot::new(world.store.clone(), world.blobs.clone(), world.entropy());
    for (n, input) in with_files(&depot).await.into_iter().enumerate() {
        let key = world.session(agent()).await;
        let (tenant, owner) = (key.tenant, BlobOwner::from(key.session));
        let dump = format!("{:?}", world.dump().await);
        // Prepare the input as a scheduler does for a preview.
        let mut imagined = input.clone();
        let unknown = depot.look_up(tenant, &mut imagined).await;
        assert!(unknown.expect("answers").is_empty(), "input {n}");
        depot.foresee_spill(&mut imagined);
        let parts = Some(imagined.clone());
        let shown = match world.preview_of("w", key, parts).await {
            Answered::Preview(preview) => *preview,
            Answered::Refused { code, detail } => panic!("{code}: {detail}"),
        };
        let after = format!("{:?}", world.dump().await);
        assert_eq!(dump, after, "input {n}: nothing is stored or held");
        // Prepare the input as a scheduler does for a send.
        let mut sent = input;
        let unknown = depot.settle(tenant, owner, &mut sent).await;
        assert!(unknown.expect("answers").is_empty(), "input {n}");
        let spilled = depot.spill(tenant, owner, &mut sent).await;
        spilled.expect("is stored");
        assert_eq!(imagined, sent, "input {n}");
        let id = world.send_parts(key, sent, SendOptions::default()).await;
        let record = world.settle(&[id]).await.remove(0);
        assert_eq!(record.status, SendStatus::Completed, "{record:#?}");
        let recorded = world.digests(key).await[0];
        assert_eq!(shown.digest, recorded, "input {n}: {shown:#?}");
    }
    world.audit().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_a_send_over_asks_what_was_previewed() {
    let input = plan(&json!([[["look", {"ms": 3000}]]]));
    let world = World::new().await;
    let key = world.session(agent()).await;
    let never = FaultPlan::NEVER;
    let store = Arc::new(Faulty::new(world.store.clone(), never));
    let _first = world.worker("first", store.clone());
    world.pass(Duration::from_millis(100)).await;
    let imagined = preview(&world, "first", key, Some(&input)).await;
    let id = world.send(key, &input).await;
    world.pass(Duration::from_secs(1)).await;
    store.kill();
    let _second = world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Completed);
    let digests = world.digests(key).await;
    assert_eq!((digests.len(), digests[0]), (2, imagined.digest));
}

#[tokio::test(start_paused = true)]
async fn a_preview_says_what_it_is_made_of_and_changes_nothing() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    let note = plan(&json!([[["note_add", {"content": "blue"}]]]));
    let id = world.send(key, &note).await;
    world.settle(&[id]).await;
    let before = format!("{:?}", world.dump().await);
    let shown = preview(&world, "w", key, Some("hello")).await;
    let after = format!("{:?}", world.dump().await);
    assert_eq!(before, after, "a preview writes nothing");
    let kinds: Vec<_> = shown.parts.iter().map(|part| part.kind).collect();
    assert_eq!(kinds, [Tools, System, History, New, Tail]);
    let tokens: u64 = shown.parts.iter().map(|part| part.tokens).sum();
    assert_eq!(shown.tokens, tokens);
    assert!(
        0 < shown.cached && shown.cached < shown.tokens,
        "{shown:#?}"
    );
    let part = |kind| shown.parts.iter().find(|part| part.kind == kind);
    assert_eq!(
        part(New).map(|part| (part.count, part.cached)),
        Some((1, 0))
    );
    assert_eq!(part(Tail).map(|part| part.cached), Some(0));
    assert!(shown.tail.is_some_and(|tail| tail.starts_with("<notes>")));
    assert_eq!(
        (shown.send_id, shown.round, shown.limits),
        (None, 0, Vec::new())
    );
    // Later the provider's cache entry has expired.
    world.pass(Duration::from_mins(6)).await;
    assert_eq!(preview(&world, "w", key, Some("hello")).await.cached, 0);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_is_under_way_is_previewed_as_it_is() {
    let world = World::new().await;
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    let id = world.send(key, "sleep 5000").await;
    let behind = world.send(key, "later").await;
    world.pass(Duration::from_secs(1)).await;
    let shown = preview(&world, "w", key, None).await;
    assert_eq!((shown.send_id, shown.round), (Some(id), 0));
    let codes: Vec<_> = shown
        .limits
        .iter()
        .map(|limit| limit.code.as_str())
        .collect();
    assert_eq!(codes, [Code::SessionBusy.as_str()], "{:?}", shown.limits);
    world.settle(&[id, behind]).await;
    assert_eq!(world.digests(key).await[0], shown.digest);
}

#[tokio::test(start_paused = true)]
async fn what_would_not_let_a_call_be_made_is_said() {
    let world = World::new().await;
    let poor = AgentSpec {
        budget: Some(Budget {
            tokens: Some(5),
            ..Budget::default()
        }),
        ..agent()
    };
    let key = world.session(poor).await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(Duration::from_millis(100)).await;
    let shown = preview(&world, "w", key, Some("hello")).await;
    let codes: Vec<_> = shown
        .limits
        .iter()
        .map(|limit| limit.code.as_str())
        .collect();
    assert_eq!(codes, [Code::BudgetExceeded.as_str()], "{:?}", shown.limits);
    let large = "word ".repeat(200_000);
    let shown = preview(&world, "w", key, Some(&large)).await;
    let overflow = Code::LlmContextOverflow.as_str();
    assert!(
        shown.limits.iter().any(|limit| limit.code == overflow),
        "{:?}",
        shown.limits
    );
    let strange = SessionKey {
        session: mainspring_shared::id::SessionId(uuid::Uuid::from_u128(404)),
        ..key
    };
    let Answered::Refused { code, .. } = world.preview("w", strange, None).await else {
        panic!("there is no such session");
    };
    assert_eq!(code, Code::SessionNotFound);
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_and_would_hold_a_call_back_is_said() {
    let world = World::new().await;
    let spec = AgentSpec {
        name: Some("a".to_owned()),
        ..agent()
    };
    let key = world.session(spec).await;
    let _worker = world.worker("w", world.store.clone());
    let pauses = [
        PauseKey::tenant(TenantId::DEFAULT),
        PauseKey::of(TenantId::DEFAULT, PauseKind::Agent, "a"),
        PauseKey::of_system(PauseKind::Pool, "default"),
        PauseKey::of_system(PauseKind::Provider, "script"),
        PauseKey::of(TenantId::DEFAULT, PauseKind::Tool, "look"),
        PauseKey::of(TenantId::DEFAULT, PauseKind::Tool, "unrelated"),
    ];
    for pause in &pauses {
        world.hold_back(pause).await;
        world.pass(Duration::from_secs(2)).await;
        let shown = preview(&world, "w", key, Some("hello")).await;
        let codes: Vec<_> = shown
            .limits
            .iter()
            .map(|limit| limit.code.as_str())
            .collect();
        let expected = match (pause.kind, pause.name.as_str()) {
            (_, "unrelated") => Vec::new(),
            (kind, _) => vec![format!("pause.{}", kind.as_str())],
        };
        assert_eq!(codes, expected, "{:?}", shown.limits);
        world.let_go(pause).await;
    }
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(preview(&world, "w", key, Some("hello")).await.limits, []);
}

#[tokio::test(start_paused = true)]
async fn each_part_has_its_price_with_what_the_cache_reads_and_writes() {
    let mut world = World::new().await;
    let price = Price {
        input: 10.0,
        output: 50.0,
        cache_read: Some(1.0),
        cache_write: Some(12.5),
        long: None,
    };
    let facts = FactsOverride {
        price: Some(price),
        ..FactsOverride::default()
    };
    world.facts.insert("model".to_owned(), facts);
    let key = world.session(agent()).await;
    let _worker = world.worker("w", world.store.clone());
    world.pass(Duration::from_millis(100)).await;
    let note = plan(&json!([[["note_add", {"content": "blue"}]]]));
    let first = preview(&world, "w", key, Some(&note)).await;
    let id = world.send(key, &note).await;
    world.settle(&[id]).await;
    let second = preview(&world, "w", key, Some("hello")).await;
    for shown in [&first, &second] {
        let mut sum = 0.0;
        for part in &shown.parts {
            let fresh = part.tokens - part.cached - part.written;
            let expected = fresh as f64 * 10.0 + part.cached as f64 + part.written as f64 * 12.5;
            let cost = part.cost_usd.expect("the price is known");
            assert!((cost - expected / 1e6).abs() < 1e-12, "{part:?}");
            assert_eq!(
                part.kind == Tail,
                fresh > 0,
                "only the tail is not kept: {part:?}"
            );
            sum += cost;
        }
        let cost = shown.cost.expect("the price is known");
        assert!((cost.input_usd - sum).abs() < 1e-12, "{cost:?} {sum}");
        let (read, written): (u64, u64) = (
            shown.parts.iter().map(|part| part.cached).sum(),
            shown.parts.iter().map(|part| part.written).sum(),
        );
        assert!((cost.cache_read_usd - read as f64 / 1e6).abs() < 1e-12);
        assert!((cost.cache_write_usd - written as f64 * 12.5 / 1e6).abs() < 1e-12);
        let answer = f64::from(shown.answer_max) * 50.0 / 1e6;
        assert!((cost.answer_max_usd - answer).abs() < 1e-12);
    }
    assert_eq!(
        (first.cached, first.cost.map(|cost| cost.cache_read_usd)),
        (0, Some(0.0))
    );
    assert!(second.cached > 0);
}
