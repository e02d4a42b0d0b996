//! A blob store that is unavailable, slow or returns wrong bytes while a send spills, shows and
//! recalls content, and deaths in between: nothing is lost, and nothing is done twice.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mainspring_shared::agent::{AgentSpec, ContextSpec, ImagesSpec, SendOptions};
use mainspring_shared::blob::{BlobOwner, Depot, SWEEP_GRACE};
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::message::{ContentPart, FileSource, ImageSource, Message, Role, plain_text};
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::session::preview::{Answered, Preview};
use mainspring_shared::store::{Dump, Store};
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::ToolEntry;
use mainspring_tests::world::{
    BLOB_TIMEOUT, Backing, DyingBlobs, Fault, FaultPlan, Faulty, World, Wrong, alone,
};
use serde_json::{Value, json};

const MINE: TenantId = TenantId::DEFAULT;

/// A process without a fault.
fn agent(tools: &[&str]) -> AgentSpec {
    AgentSpec {
        tools: tools
            .iter()
            .map(|name| ToolEntry::Named((*name).into()))
            .collect(),
        ..AgentSpec::default()
    }
}

fn answers(list: &Value) -> String {
    format!("answers {list}")
}

fn completed(record: &SendRecord) {
    assert_eq!(record.status, SendStatus::Completed, "{:?}", record.error);
}

fn depot(world: &World) -> Depot {
    let store: Arc<dyn Store> = world.store.clone();
    Depot::new(store, world.blobs.clone(), world.entropy())
}

/// The messages of the only session.
fn messages(dump: &Dump) -> &[Message] {
    &dump.sessions[0].messages
}

/// Sweeps at a time when every grace period is over.
async fn sweep(world: &World) {
    let grace = i64::try_from(SWEEP_GRACE.as_millis()).expect("fits");
    let later = Timestamp(world.clock().now().0 + 2 * grace);
    let store: Arc<dyn Store> = world.store.at(later);
    let depot = Depot::new(store, world.blobs.clone(), world.entropy());
    let swept = depot.sweep(SWEEP_GRACE, None, 100).await.expect("is swept");
    assert!(swept.failed.is_none() && swept.next.is_none(), "{swept:?}");
}

/// Sweeps, and asserts that exactly the blobs with a row are kept; returns their number.
async fn assert_nothing_stray(world: &World, about: &str) -> usize {
    sweep(world).await;
    let dump = world.dump().await;
    let mut places: Vec<_> = dump.blobs.iter().map(|blob| blob.place).collect();
    places.sort();
    assert_eq!(world.blobs.kept(), places, "{about}");
    world.audit().await;
    places.len()
}

/// Asserts the same, and that there are this many blobs.
async fn assert_tidy(world: &World, blobs: usize, about: &str) {
    let found = assert_nothing_stray(world, about).await;
    assert_eq!(found, blobs, "{about}");
}

#[test]
fn a_store_that_is_away_or_slow_at_a_spill_leaves_content_in_its_rows() {
    Backing::each(|backing| alone(wrong_at_a_spill(backing, Wrong::Away, false)));
    let slow = Wrong::Slow(Duration::from_hours(100));
    Backing::each(|backing| alone(wrong_at_a_spill(backing, slow, true)));
}

async fn wrong_at_a_spill(backing: &Backing, wrong: Wrong, waits: bool) {
    let world = World::over(backing, |_, _, _| {}).await;
    let key = world.session(agent(&["act", "read_output"])).await;
    let _worker = world.worker("w", world.store.clone());
    let list = json!([[["act", {"image": 90_000}], ["act", {"lie": true}]], "done"]);
    world.blobs.set(wrong);
    let began = world.clock().monotonic();
    let id = world.send(key, &answers(&list)).await;
    completed(&world.settle(&[id]).await[0]);
    let took = world.clock().monotonic().saturating_sub(began);
    assert_eq!(took >= BLOB_TIMEOUT, waits, "{wrong:?}: {took:?}");
    assert!(took < 3 * BLOB_TIMEOUT, "{wrong:?}: {took:?}");
    assert_eq!(world.acts.of("act").len(), 2, "each was done once");
    let dump = world.dump().await;
    let image = &messages(&dump)[2].content[0];
    assert!(image.inline().is_some(), "{wrong:?}: {image:?}");
    let calls = &dump.sessions[0].calls;
    let whole = calls
        .iter()
        .find_map(|call| call.result.as_ref()?.whole.clone());
    assert!(
        whole.is_some_and(|whole| whole.len() > 1_999_000),
        "{wrong:?}"
    );
    // A blob that was not stored in time is swept away.
    world.blobs.set(Wrong::Nothing);
    assert_tidy(&world, 0, &format!("{wrong:?}")).await;
}

#[test]
fn a_store_that_stays_away_fails_the_send_and_nothing_else() {
    for wrong in [Wrong::Away, Wrong::Slow(Duration::from_hours(100))] {
        Backing::each(|backing| alone(stays_wrong(backing, wrong)));
    }
}

async fn stays_wrong(backing: &Backing, wrong: Wrong) {
    let world = World::over(backing, |_, _, _| {}).await;
    let key = world.session(AgentSpec::default()).await;
    let owner = Some(key.session.into());
    let data = Bytes::from_static(b"a picture");
    let stored = depot(&world).put(MINE, owner, "image/png", data).await;
    let url = String::new();
    let source = ImageSource::Url { url };
    let image = ContentPart::Image { source };
    let image = image.naming(stored.expect("is put").blob);
    world.blobs.set(wrong);
    let _worker = world.worker("w", world.store.clone());
    let input = vec![ContentPart::text("look"), image];
    let id = world.send_parts(key, input, SendOptions::default()).await;
    let record = world.settle(&[id]).await.remove(0);
    assert_eq!(record.status, SendStatus::Failed, "{wrong:?}");
    let error = record.error.expect("says why");
    assert_eq!(error.code, Code::BlobUnavailable, "{wrong:?}: {error:?}");
    assert!(world.script.ledger().is_empty(), "no model was asked");
    // A preview of the same reports it, too.
    let refused = world.preview("w", key, Some("and now")).await;
    let Answered::Refused { code, .. } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(code, Code::BlobUnavailable);
    // The session continues once the store is back, and shows what could not be shown before.
    world.blobs.set(Wrong::Nothing);
    let id = world.send(key, "again").await;
    completed(&world.settle(&[id]).await[0]);
    let asked = world.script.ledger().pop().expect("it was asked");
    assert!(asked.messages[0].content[1].inline().is_some());
}

#[test]
fn an_output_is_waited_for_and_what_is_damaged_is_said_to_be() {
    Backing::each(|backing| alone(reads_damaged(backing)));
}

async fn reads_damaged(backing: &Backing) {
    let world = World::over(backing, |_, _, _| {}).await;
    let key = world.session(agent(&["look", "read_output"])).await;
    let _worker = world.worker("w", world.store.clone());
    let list = json!([[["look", {"lie": true}]], "done"]);
    let id = world.send(key, &answers(&list)).await;
    completed(&world.settle(&[id]).await[0]);
    let dump = world.dump().await;
    let call = dump.sessions[0].calls[0].call_id.clone();
    let reads = json!([[["read_output", {"call_id": call, "offset": 1_000_000}]], "done"]);
    let read = async |world: &World, id: SendId| {
        let dump = world.dump().await;
        let mut told = messages(&dump).iter();
        let told = told.find(|message| message.send_id == id && message.role == Role::Tool);
        let told = told.expect("a result");
        (told.failed, plain_text(&told.content))
    };

    world.blobs.set(Wrong::Away);
    let id = world.send(key, &answers(&reads)).await;
    world.pass(Duration::from_secs(20)).await;
    world.blobs.set(Wrong::Nothing);
    completed(&world.settle(&[id]).await[0]);
    let (failed, text) = read(&world, id).await;
    assert!(!failed && text.contains("of 2000000;"), "{text:.300}");

    for wrong in [Wrong::Lying, Wrong::Short] {
        world.blobs.set(wrong);
        let id = world.send(key, &answers(&reads)).await;
        completed(&world.settle(&[id]).await[0]);
        let (failed, text) = read(&world, id).await;
        assert!(failed && text.contains("cannot be read"), "{text:.300}");
        let output = depot(&world).output(key, &call).await;
        assert_eq!(
            mainspring_shared::error::Coded::code(&output.expect_err("is damaged")),
            Code::BlobCorrupt
        );
    }
    // If the blob is lost, only the excerpt that was shown is left.
    world.blobs.set(Wrong::Empty);
    let id = world.send(key, &answers(&reads)).await;
    completed(&world.settle(&[id]).await[0]);
    let (_, text) = read(&world, id).await;
    assert!(!text.contains("of 2000000;"), "{text:.300}");
}

/// Runs one send with these calls of one tool, on a worker with this fault and then on another one.
async fn spilling(
    tool: &str,
    calls: &[Value],
    plan: FaultPlan,
    death: Option<(usize, bool)>,
) -> (World, SendId, bool) {
    let mut world = World::new().await;
    let key = world.session(agent(&[tool])).await;
    let process = Arc::new(Faulty::new(world.store.clone(), plan));
    let dying = death.map(|(at, after)| {
        Arc::new(DyingBlobs::new(
            world.blobs.clone(),
            process.clone(),
            at,
            after,
        ))
    });
    if let Some(dying) = &dying {
        world.blobs_of_next = Some(dying.clone());
    }
    let _first = world.worker("first", process.clone());
    world.pass(Duration::from_millis(100)).await;
    world.blobs_of_next = None;
    let calls: Vec<_> = calls.iter().map(|call| json!([tool, call])).collect();
    let id = world.send(key, &answers(&json!([calls, "done"]))).await;
    world.pass(Duration::from_secs(5)).await;
    let _second = world.worker("second", world.store.clone());
    let record = world.settle(&[id]).await.remove(0);
    completed(&record);
    let fired = match &dying {
        Some(dying) => dying.fired(),
        None => process.fired(),
    };
    (world, id, fired)
}

/// A picture and a long output.
fn both() -> [Value; 2] {
    [json!({"image": 90_000}), json!({"lie": true})]
}

/// Texts, and hashes of large parts, by message: the contents of a copy of the transcript.
fn told(dump: &Dump) -> Vec<String> {
    let name = |part: &ContentPart| match part.blob() {
        Some(sha256) => sha256.to_string(),
        None => plain_text(std::slice::from_ref(part)),
    };
    let of = |message: &Message| {
        message
            .content
            .iter()
            .map(name)
            .collect::<Vec<_>>()
            .join("|")
    };
    messages(dump).iter().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn a_death_around_each_put_of_a_spill_loses_nothing() {
    let (sound, ..) = spilling("look", &both(), FaultPlan::NEVER, None).await;
    let expected = sound.dump().await;
    let writes = sound.blobs.asked("put");
    assert_eq!(writes, 2);
    for at in 0..writes {
        for after in [false, true] {
            let about = format!("{at} {after}");
            let (world, _, fired) =
                spilling("look", &both(), FaultPlan::NEVER, Some((at, after))).await;
            assert!(fired, "{about}");
            let dump = world.dump().await;
            assert_eq!(told(&dump), told(&expected), "{about}");
            // Calls may have been repeated, but each result is there once.
            assert!(world.acts.of("look").len() <= 4, "{about}");
            assert_tidy(&world, 2, &about).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_be_done_once_is_not_done_again_for_a_spill() {
    for at in 0..2 {
        for after in [false, true] {
            let about = format!("{at} {after}");
            let (world, _, fired) =
                spilling("act", &both(), FaultPlan::NEVER, Some((at, after))).await;
            assert!(fired, "{about}");
            let acts = world.acts.of("act");
            assert_eq!(acts.len(), 2, "{about}: {acts:?}");
            assert_nothing_stray(&world, &about).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_at_each_write_of_a_send_that_spills_loses_nothing() {
    let picture = [json!({"image": 90_000})];
    let (sound, ..) = spilling("look", &picture, FaultPlan::NEVER, None).await;
    let expected = told(&sound.dump().await);
    for fault in Fault::ALL {
        let mut at = 0;
        loop {
            let plan = FaultPlan { at, fault };
            let about = format!("{plan:?}");
            let (world, _, fired) = spilling("look", &picture, plan, None).await;
            if !fired {
                assert!(
                    at > 3,
                    "{about}: rounds, results and rows of blobs are written"
                );
                break;
            }
            let dump = world.dump().await;
            // If a blob could not be stored, its content stays in the message's own row.
            let found = told(&dump);
            assert_eq!(found.len(), expected.len(), "{about}");
            for (found, expected) in found.iter().zip(&expected) {
                let is_large = expected.len() == 64;
                assert!(found == expected || is_large, "{about}: {found:.200}");
            }
            assert_nothing_stray(&world, &about).await;
            at += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_stored_for_a_session_that_was_never_made_goes() {
    let world = World::new().await;
    let nobody = SessionId(world.entropy().ordered_id());
    let owner = Some(BlobOwner::from(nobody));
    let put = depot(&world)
        .put(MINE, owner, "text/plain", Bytes::from_static(b"x"))
        .await;
    put.expect("is put");
    assert_eq!(world.blobs.kept().len(), 1);
    // The first pass removes the hold, the second one the blob that nothing holds any more.
    sweep(&world).await;
    assert_tidy(&world, 0, "never made").await;
}

async fn preview(world: &World, worker: &str, key: SessionKey) -> Preview {
    match world.preview(worker, key, Some("see")).await {
        Answered::Preview(preview) => *preview,
        Answered::Refused { code, detail } => panic!("{code}: {detail}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_takes_no_pictures_is_told_of_them_on_every_worker_alike() {
    let world = World::new().await;
    let spec = AgentSpec {
        model: Some("blind".to_owned()),
        ..agent(&["look"])
    };
    let key = world.session(spec).await;
    let _warm = world.worker("warm", world.store.clone());
    let owner = Some(key.session.into());
    let mut parts = vec![ContentPart::text("look")];
    for (name, media_type, data) in [
        ("", "image/png", "a picture"),
        ("a.pdf", "application/pdf", "pages"),
        ("a.mp3", "audio/mpeg", "sound"),
        ("a.zip", "application/zip", "files"),
        ("a.md", "text/markdown", "words"),
    ] {
        let stored = depot(&world)
            .put(MINE, owner, media_type, data.into())
            .await;
        let part = if name.is_empty() {
            let url = String::new();
            let source = ImageSource::Url { url };
            ContentPart::Image { source }
        } else {
            let text = String::new();
            let source = FileSource::Text { text };
            let name = name.to_owned();
            ContentPart::File { name, source }
        };
        parts.push(part.naming(stored.expect("is put").blob));
    }
    let id = world.send_parts(key, parts, SendOptions::default()).await;
    completed(&world.settle(&[id]).await[0]);
    let asked = world.script.ledger().pop().expect("it was asked");
    let shown = &asked.messages[0].content;
    let said = plain_text(shown);
    for line in [
        "[image, image/png, 9 bytes: this model takes no pictures; sha256 ",
        "[file a.pdf, application/pdf, 5 bytes: this model takes no PDF files; sha256 ",
        "[file a.mp3, audio/mpeg, 5 bytes: this model takes no such sound; sha256 ",
        "[file a.zip, application/zip, 5 bytes: models take no files of this type; sha256 ",
    ] {
        assert!(said.contains(line), "{said}");
    }
    let ContentPart::File {
        source: FileSource::Text { text },
        ..
    } = &shown[5]
    else {
        panic!("{shown:?}");
    };
    assert_eq!(text, "words");
    // Only the words were read.
    assert_eq!(world.blobs.asked("get"), 1);
    // A picture from a tool, and the same in a preview by a worker that has nothing cached.
    let list = json!([[["look", {"image": 900}]], "done"]);
    let id = world.send(key, &answers(&list)).await;
    completed(&world.settle(&[id]).await[0]);
    let asked = world.script.ledger().pop().expect("it was asked");
    let result = plain_text(&asked.messages.last().expect("a message").content);
    assert!(result.contains("this model takes no pictures"), "{result}");
    let _cold = world.worker("cold", world.store.clone());
    world.pass(Duration::from_millis(100)).await;
    let [warm, cold] = [
        preview(&world, "warm", key).await.digest,
        preview(&world, "cold", key).await.digest,
    ];
    assert_eq!(warm, cold);
    let before = world.digests(key).await.len();
    let id = world.send(key, "see").await;
    completed(&world.settle(&[id]).await[0]);
    assert_eq!(world.digests(key).await[before], warm);
}

#[tokio::test(start_paused = true)]
async fn a_picture_that_cannot_be_scaled_fails_no_send() {
    let world = World::new().await;
    let spec = AgentSpec {
        context: ContextSpec {
            images: ImagesSpec {
                max_edge: Some(512),
                ..ImagesSpec::default()
            },
            ..ContextSpec::default()
        },
        ..agent(&["look"])
    };
    let key = world.session(spec).await;
    let _worker = world.worker("w", world.store.clone());
    let list = json!([[["look", {"image": 900}], ["look", {"image": 90_000}]], "done"]);
    let id = world.send(key, &answers(&list)).await;
    completed(&world.settle(&[id]).await[0]);
    let asked = world.script.ledger().pop().expect("it was asked");
    let results: Vec<_> = asked.messages[2..4].iter().collect();
    for result in results {
        let said = plain_text(&result.content);
        assert!(
            said.contains("its content is not a readable image"),
            "{said}"
        );
    }
    // The transcript keeps them as they arrived.
    let dump = world.dump().await;
    assert!(messages(&dump)[2].content[0].inline().is_some());
    assert!(messages(&dump)[3].content[0].blob().is_some());
    let digest = preview(&world, "w", key).await.digest;
    let before = world.digests(key).await.len();
    let id = world.send(key, "see").await;
    completed(&world.settle(&[id]).await[0]);
    assert_eq!(world.digests(key).await[before], digest);
}
