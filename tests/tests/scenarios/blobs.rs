//! Pictures and files by hash, with a blob store that is unavailable, slow or returns wrong bytes,
//! in simulated time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mainspring_shared::agent::{AgentSpec, ContextSpec, SendOptions};
use mainspring_shared::blob::{Depot, SWEEP_GRACE};
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::list::List;
use mainspring_shared::message::{ContentPart, FileSource, ImageSource, plain_text};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::store::{
    BlobState, CreateOutcome, ImportSession, Inspect, NewSession, Store,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{Fault, FaultPlan, Faulty, FaultyBlobs, World, Wrong};
use serde_json::json;

const MINE: TenantId = TenantId::DEFAULT;

async fn world() -> (World, Arc<FaultyBlobs>) {
    let world = World::new().await;
    let blobs = world.blobs.clone();
    (world, blobs)
}

fn depot(world: &World, store: Arc<dyn Store>, blobs: &Arc<FaultyBlobs>) -> Depot {
    Depot::new(store, blobs.clone(), world.entropy())
}

/// Stores a picture and a file, and returns message parts that refer to them.
async fn named(world: &World, blobs: &Arc<FaultyBlobs>, key: SessionKey) -> Vec<ContentPart> {
    let depot = depot(world, world.store.clone(), blobs);
    let owner = Some(key.session.into());
    let image = depot.put(MINE, owner, "image/png", Bytes::from_static(b"a picture"));
    let image = image.await.expect("is put").blob;
    let file = depot.put(MINE, owner, "text/plain", Bytes::from_static(b"some words"));
    let file = file.await.expect("is put").blob;
    let nothing = ContentPart::Image {
        source: ImageSource::Url { url: String::new() },
    };
    let empty = ContentPart::File {
        name: "a.txt".to_owned(),
        source: FileSource::Text {
            text: String::new(),
        },
    };
    vec![
        ContentPart::text("look"),
        nothing.naming(image),
        empty.naming(file),
    ]
}

async fn send(world: &World, key: SessionKey, input: Vec<ContentPart>) -> SendId {
    world.send_parts(key, input, SendOptions::default()).await
}

/// The content of the last message that the model got in its last call.
fn shown(world: &World) -> Vec<ContentPart> {
    let asked = world.script.ledger().pop().expect("it was asked");
    asked.messages.last().expect("a message").content.clone()
}

fn completed(record: &SendRecord) {
    assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
}

#[tokio::test(start_paused = true)]
async fn a_model_is_shown_what_its_messages_name_and_rows_keep_the_names() {
    let (world, blobs) = world().await;
    let key = world.session(AgentSpec::default()).await;
    let _worker = world.worker("w", world.store.clone());
    let input = named(&world, &blobs, key).await;
    let id = send(&world, key, input.clone()).await;
    completed(&world.settle(&[id]).await[0]);
    let expected = vec![
        ContentPart::text("look"),
        ContentPart::Image {
            source: ImageSource::Base64 {
                media_type: "image/png".to_owned(),
                data: "YSBwaWN0dXJl".to_owned(),
            },
        },
        ContentPart::File {
            name: "a.txt".to_owned(),
            source: FileSource::Text {
                text: "some words".to_owned(),
            },
        },
    ];
    assert_eq!(shown(&world), expected);
    let dump = world.dump().await;
    assert_eq!(dump.sessions[0].messages[0].content, input);
    // Each blob is read once, however often it is shown.
    assert_eq!(blobs.asked("get"), 2);
    let next = world.send(key, "again").await;
    completed(&world.settle(&[next]).await[0]);
    assert_eq!(blobs.asked("get"), 2);
    let first = world.script.ledger().pop().expect("it was asked").messages[0].clone();
    assert_eq!(first.content, expected);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_waited_for_like_a_provider() {
    let (world, blobs) = world().await;
    let key = world.session(AgentSpec::default()).await;
    let input = named(&world, &blobs, key).await;
    blobs.set(Wrong::Away);
    let _worker = world.worker("w", world.store.clone());
    let id = send(&world, key, input).await;
    world.pass(Duration::from_millis(300)).await;
    assert!(blobs.asked("get") > 0);
    assert!(world.script.ledger().is_empty(), "the model was not asked");
    blobs.set(Wrong::Slow(Duration::from_secs(3)));
    completed(&world.settle(&[id]).await[0]);
    assert!(matches!(shown(&world)[1], ContentPart::Image { .. }));
}

#[tokio::test(start_paused = true)]
async fn content_that_is_gone_or_damaged_is_said_to_be() {
    for (wrong, why) in [
        (Wrong::Empty, "its content is gone"),
        (Wrong::Lying, "its content is damaged"),
        (Wrong::Short, "its content is damaged"),
    ] {
        let (world, blobs) = world().await;
        let key = world.session(AgentSpec::default()).await;
        let input = named(&world, &blobs, key).await;
        let hash = input[1].blob().expect("a name");
        blobs.set(wrong);
        let _worker = world.worker("w", world.store.clone());
        let id = send(&world, key, input).await;
        completed(&world.settle(&[id]).await[0]);
        let said = plain_text(&shown(&world));
        let expected = format!("[image, image/png, 9 bytes: {why}; sha256 {hash}]");
        assert!(said.contains(&expected), "{said}");
        assert!(
            said.contains(&format!("[file a.txt, text/plain, 10 bytes: {why}")),
            "{said}"
        );
        // Damaged content is not cached.
        blobs.set(Wrong::Nothing);
        let next = world.send(key, "again").await;
        completed(&world.settle(&[next]).await[0]);
        let first = world.script.ledger().pop().expect("it was asked").messages[0].clone();
        assert!(
            matches!(first.content[1], ContentPart::Image { .. }),
            "{first:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn large_pictures_of_tools_are_stored_before_their_results() {
    let (world, blobs) = world().await;
    let spec = AgentSpec {
        tools: vec![ToolEntry::Named("look".into())],
        ..AgentSpec::default()
    };
    let key = world.session(spec).await;
    let _worker = world.worker("w", world.store.clone());
    let list = json!([[["look", {"image": 90_000}], ["look", {"image": 900}]], "done"]);
    let id = world.send(key, &format!("answers {list}")).await;
    completed(&world.settle(&[id]).await[0]);
    let dump = world.dump().await;
    let results: Vec<_> = dump.sessions[0].messages[2..4].iter().collect();
    assert!(results[0].content[0].blob().is_some(), "{:?}", results[0]);
    assert!(results[1].content[0].inline().is_some());
    assert_eq!(dump.blobs.len(), 1);
    assert_eq!(dump.blobs[0].owners, [key.session.into()]);
    // The model sees both alike.
    let asked = world.script.ledger().pop().expect("it was asked");
    for message in &asked.messages[2..4] {
        assert!(message.content[0].inline().is_some());
    }
    // While the blob store is away they stay in their rows.
    blobs.set(Wrong::Away);
    let list = json!([[["look", {"image": 99_000}]], "done"]);
    let id = world.send(key, &format!("answers {list}")).await;
    world.pass(Duration::from_millis(100)).await;
    blobs.set(Wrong::Nothing);
    completed(&world.settle(&[id]).await[0]);
    let dump = world.dump().await;
    let result = &dump.sessions[0].messages[7].content[0];
    assert!(result.inline().is_some(), "{result:?}");
}

/// Sweeps at a time when every grace period is over.
async fn sweep(world: &World, store: &Arc<dyn Inspect>, blobs: &Arc<FaultyBlobs>) {
    let grace = i64::try_from(SWEEP_GRACE.as_millis()).expect("fits");
    let later = Timestamp(world.clock().now().0 + 2 * grace);
    let store: Arc<dyn Store> = store.at(later);
    let depot = depot(world, store, blobs);
    let swept = depot.sweep(SWEEP_GRACE, None, 100).await;
    assert_eq!(swept.expect("is swept").next, None);
}

/// The process dies at each of its writes: blobs with a reference stay, those without one go, and
/// nothing is left behind.
#[tokio::test(start_paused = true)]
async fn a_death_between_the_steps_of_putting_and_deleting_leaves_nothing_behind() {
    for fault in [
        Fault::DieBefore,
        Fault::DieAfter,
        Fault::FailBefore,
        Fault::FailAfter,
    ] {
        for at in 0..6 {
            let (world, blobs) = world().await;
            let key = world.session(AgentSpec::default()).await;
            let faulty = Arc::new(Faulty::new(world.store.clone(), FaultPlan { at, fault }));
            let broken = depot(&world, faulty.clone(), &blobs);
            let data = Bytes::from_static(b"some bytes");
            let work = async {
                broken.put(MINE, None, "text/plain", data.clone()).await?;
                let grace = Duration::from_secs(1);
                broken.sweep(grace, None, 10).await?;
                world.pass(2 * grace).await;
                broken.sweep(grace, None, 10).await
            };
            // A process that dies never returns.
            let _ = tokio::time::timeout(Duration::from_secs(9), work).await;
            // Another process puts the same content, for a session.
            let other = depot(&world, world.store.clone(), &blobs);
            let owner = Some(key.session.into());
            let stored = other.put(MINE, owner, "text/plain", data.clone()).await;
            let hash = stored.expect("is put").blob.sha256;
            sweep(&world, &world.store, &blobs).await;
            let read = other.read(MINE, hash).await.expect("answers");
            assert_eq!(read, Some(data), "{fault:?} {at}");
            let dump = world.dump().await;
            assert_eq!(dump.blobs.len(), 1);
            assert_eq!(dump.blobs[0].state, BlobState::Stored);
            assert_eq!(blobs.kept(), [dump.blobs[0].place], "{fault:?} {at}");
            if !faulty.fired() {
                assert_eq!(at, 5, "there are five writes");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_whole_of_a_long_output_is_a_blob_that_copies_find_as_well() {
    let (world, blobs) = world().await;
    let spec = AgentSpec {
        tools: ["look", "read_output"]
            .map(|name| ToolEntry::Named(name.into()))
            .to_vec(),
        ..AgentSpec::default()
    };
    let key = world.session(spec.clone()).await;
    let _worker = world.worker("w", world.store.clone());
    let list = json!([[["look", {"lie": true}]], "done"]);
    let id = world.send(key, &format!("answers {list}")).await;
    completed(&world.settle(&[id]).await[0]);
    let dump = world.dump().await;
    let call = &dump.sessions[0].calls[0];
    let result = call.result.as_ref().expect("it has one");
    assert_eq!(result.whole, None);
    let blob = result.whole_blob.as_ref().expect("it is a blob");
    assert!(blob.bytes > 2_000_000);
    let said = plain_text(&dump.sessions[0].messages[2].content);
    assert!(
        said.contains(&format!("left out; sha256 {} …]", blob.sha256)),
        "{said:.200}"
    );
    // A copy has the messages but none of the calls.
    let copy = world.session(spec).await;
    let other = depot(&world, world.store.clone(), &blobs);
    let whole = other
        .output(key, &call.call_id)
        .await
        .expect("answers")
        .expect("is kept");
    assert!(whole.chars().count() == 2_000_000);
    let import = ImportSession {
        session: NewSession {
            key: SessionKey {
                session: SessionId(world.entropy().ordered_id()),
                ..copy
            },
            agent: AgentSpec::default(),
            metadata: serde_json::Map::new(),
            parent: None,
        },
        messages: dump.sessions[0].messages.clone(),
        projections: Vec::new(),
        folds: Vec::new(),
        todo: List::default(),
        notes: List::default(),
        idempotency: None,
        behind: 0,
        more: false,
    };
    let copied = import.session.key;
    let outcome = world.store.import_session(import).await.expect("answers");
    assert!(matches!(outcome, CreateOutcome::Created(_)), "{outcome:?}");
    let found = other.output(copied, &call.call_id).await.expect("answers");
    assert!(found.as_ref() == Some(&whole));
    assert_eq!(
        other.output(copy, &call.call_id).await.expect("answers"),
        None
    );
    // If the blob is gone, the excerpt that was shown is left.
    blobs.set(Wrong::Empty);
    let shown = other.output(copied, &call.call_id).await.expect("answers");
    assert_eq!(shown, Some(said));
}

#[tokio::test(start_paused = true)]
async fn the_model_recalls_by_send_by_number_and_by_what_was_said() {
    let (world, blobs) = world().await;
    let spec = AgentSpec {
        tools: ["look", "recall"]
            .map(|name| ToolEntry::Named(name.into()))
            .to_vec(),
        context: ContextSpec {
            last_messages: Some(2),
            ..ContextSpec::default()
        },
        ..AgentSpec::default()
    };
    let key = world.session(spec.clone()).await;
    let stranger = world.session(spec).await;
    let _worker = world.worker("w", world.store.clone());
    let mut input = named(&world, &blobs, key).await;
    input[0] = ContentPart::text(format!("The code is Zebra-7. {}", "x".repeat(50_000)));
    let first = send(&world, key, input).await;
    completed(&world.settle(&[first]).await[0]);
    let list = json!([[["look", {"n": 4}]], "done"]);
    let second = world.send(key, &format!("answers {list}")).await;
    completed(&world.settle(&[second]).await[0]);
    let recall = |arguments: serde_json::Value| json!(["recall", arguments]);
    let list = json!([
        [
            recall(json!({"query": "zebra-7"})),
            recall(json!({"seq": 1})),
            recall(json!({"seq": 1, "offset": 40_000})),
            recall(json!({"send": -1})),
            recall(json!({"send": first.to_string()})),
            recall(json!({"send": -9})),
            recall(json!({"query": "nobody said this", "before_seq": 5})),
            recall(json!({"session_id": stranger.session.to_string()})),
            recall(json!({"limit": 2})),
            recall(json!({"seq": 99})),
        ],
        "done"
    ]);
    let third = world.send(key, &format!("answers {list}")).await;
    completed(&world.settle(&[third]).await[0]);
    let dump = world.dump().await;
    let calls = dump.sessions.iter().find(|session| session.key == key);
    let calls = calls.expect("it is there").calls.iter();
    let results = calls.filter(|call| call.name == "recall" && call.send_id == third);
    let mut results: Vec<_> = results.collect();
    results.sort_by_key(|call| call.place);
    let said: Vec<String> = results
        .iter()
        .map(|call| plain_text(&call.result.as_ref().expect("a result").content))
        .collect();
    assert!(
        said[0].starts_with("2 messages, in order\n\n[seq 1, user"),
        "{:.300}",
        said[0]
    );
    assert!(said[0].contains("recall seq 1 has all"), "{:.300}", said[0]);
    assert!(
        said[1].contains("continue with offset 40000"),
        "{:.300}",
        said[1]
    );
    assert!(said[1].contains("Zebra-7"));
    // Its picture is shown to the model again.
    let parts = &results[1].result.as_ref().expect("a result").content;
    assert!(parts.iter().any(|part| part.blob().is_some()));
    assert!(said[2].contains("the end]") && said[2].contains("[image, image/png, 9 bytes"));
    assert!(
        said[3].contains("look did 4") && said[3].contains("calls look"),
        "{}",
        said[3]
    );
    assert!(!said[3].contains("Zebra-7"));
    assert!(said[4].contains("Zebra-7") && !said[4].contains("look did 4"));
    assert!(said[5].contains("there is no send"), "{}", said[5]);
    assert_eq!(said[6], "nothing was found");
    assert!(
        said[7].contains("not a conversation that this one started"),
        "{}",
        said[7]
    );
    assert!(
        said[8].starts_with("2 messages, in order; earlier ones"),
        "{:.200}",
        said[8]
    );
    assert!(said[9].contains("there is no message 99"));
}
