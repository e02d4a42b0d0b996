//! Blobs, and the message parts that refer to them.

use std::sync::Arc;
use std::time::Duration;

use mainspring_runtime::OsEntropy;

use mainspring_shared::blob::{BlobHash, Depot};
use mainspring_shared::id::TenantId;
use mainspring_shared::message::{ContentPart, ImageSource};

use mainspring_shared::store::RetireBlobs;
use serde_json::{Value, json};

use crate::client::Answer;
use crate::faulty::Faulty;
use crate::world::{Scheduler, World, nothing};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nand so on";

pub(crate) async fn put(api: &Scheduler, media_type: &str, data: &[u8]) -> Answer {
    let call = api.call("POST", "/v1/blobs");
    call.header("content-type", media_type)
        .body(data)
        .send()
        .await
}

pub(crate) fn named(sha256: &str) -> Value {
    json!({ "type": "image", "source": { "type": "blob", "sha256": sha256 } })
}

#[tokio::test]
async fn content_is_stored_once_and_served_whole_or_in_part() {
    let world = World::new().await;
    let api = world.ready().await;
    let sha256 = BlobHash::of(PNG).to_string();
    let stored = put(&api, "image/png; charset=x", PNG).await;
    assert_eq!(
        stored.ok(201),
        json!({ "sha256": sha256, "media_type": "image/png", "bytes": PNG.len() })
    );
    let path = format!("/v1/blobs/{sha256}");
    assert_eq!(stored.header("location"), Some(path.as_str()));
    put(&api, "image/png", PNG).await.ok(200);

    let text = b"0123456789";
    let stored = put(&api, "text/html", text).await.ok(201);
    let path = format!("/v1/blobs/{}", stored["sha256"].as_str().expect("a hash"));
    let whole = api.get(&path).await;
    assert_eq!((whole.status, whole.text.as_str()), (200, "0123456789"));
    // A browser must neither interpret nor display it.
    for (name, value) in [
        ("content-type", "text/html"),
        ("content-disposition", "attachment"),
        ("x-content-type-options", "nosniff"),
        ("accept-ranges", "bytes"),
    ] {
        assert_eq!(whole.header(name), Some(value));
    }
    let tag = whole.header("etag").expect("a tag").to_owned();
    let asked = |name: &str, value: &str| api.call("GET", &path).header(name, value).send();
    assert_eq!(asked("if-none-match", &tag).await.status, 304);
    let part = asked("range", "bytes=2-4").await;
    assert_eq!((part.status, part.text.as_str()), (206, "234"));
    assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
    let behind = asked("range", "bytes=10-").await;
    assert_eq!(behind.status, 416);
    assert_eq!(behind.header("content-range"), Some("bytes */10"));
}

#[tokio::test]
async fn what_is_no_blob_is_refused() {
    let world = World::new().await;
    let api = world.ready().await;
    let unknown = "0".repeat(64);
    for name in [unknown.as_str(), "x", "../../etc/passwd"] {
        let path = format!("/v1/blobs/{}", name.replace('/', "%2F"));
        api.get(&path).await.problem(404, "blob.not_found");
    }
    let untold = api.call("POST", "/v1/blobs").body("x").send().await;
    untold.problem(415, "request.unsupported_media_type");
    put(&api, "nonsense", b"x")
        .await
        .problem(400, "request.invalid");
    let max = mainspring_shared::blob::BLOB_BYTES_MAX;
    let call = api.call("POST", "/v1/blobs").header("content-type", "a/b");
    let large = call.promise(max + 1).await;
    large.problem(413, "blob.too_large");
}

#[tokio::test]
async fn a_part_may_name_a_blob_that_is_there() {
    let world = World::new().await;
    let api = world.ready().await;
    let image = put(&api, "image/png", PNG).await.ok(201);
    let sha256 = image["sha256"].as_str().expect("a hash");
    let text = put(&api, "text/plain", b"words").await.ok(201);
    let text = text["sha256"].as_str().expect("a hash");
    let file = json!({
        "type": "file", "name": "a.md",
        "source": { "type": "blob", "sha256": text, "media_type": "text/markdown" },
    });
    let sent = api
        .post("/v1/sends", &json!({ "input": [named(sha256), file] }))
        .await
        .ok(202);
    let session = sent["session_id"].as_str().expect("an id");
    let claimed = world.claim(session).await;
    let shown = serde_json::to_value(&claimed.send.record.input).expect("is JSON");
    assert_eq!(
        shown,
        json!([
            { "type": "image", "source": {
                "type": "blob", "sha256": sha256, "media_type": "image/png", "bytes": PNG.len() } },
            { "type": "file", "name": "a.md", "source": {
                "type": "blob", "sha256": text, "media_type": "text/markdown", "bytes": 5 } },
        ])
    );
    // Both blobs are kept as long as the session.
    let retire = |ms| RetireBlobs {
        grace: Duration::from_millis(ms),
        after: None,
        limit: 10,
    };
    let later = world.store.now().await.expect("answers");
    let later = mainspring_shared::time::Timestamp(later.0 + 1_000_000);
    let retired = world.store.at(later).retire_blobs(retire(1_000)).await;
    assert_eq!(retired.expect("answers").going, []);
    let deleted = api
        .call("DELETE", &format!("/v1/sessions/{session}"))
        .send()
        .await;
    assert!(deleted.status < 300, "{}", deleted.text);
    let retired = world.store.at(later).retire_blobs(retire(1_000)).await;
    assert_eq!(retired.expect("answers").going.len(), 2);
}

#[tokio::test]
async fn a_part_that_names_no_fitting_blob_is_pointed_at() {
    let world = World::new().await;
    let api = world.ready().await;
    let text = put(&api, "text/plain", b"words").await.ok(201);
    let text = text["sha256"].as_str().expect("a hash");
    let unknown = "1".repeat(64);
    let source = |source: Value| json!({ "type": "image", "source": source });
    for (part, pointer) in [
        (named(&unknown), "/input/0/source/sha256"),
        (named(text), "/input/0/source"),
        (named("x"), "/input/0"),
        (source(json!({ "type": "blob" })), "/input/0"),
        (
            source(json!({ "type": "blob", "sha256": text, "url": "x" })),
            "/input/0",
        ),
        (
            source(json!({ "type": "url", "url": "https://a.example", "bytes": 1 })),
            "/input/0",
        ),
    ] {
        let body = json!({ "input": [part] });
        let problem = api
            .post("/v1/sends", &body)
            .await
            .problem(400, "request.invalid");
        let told = problem["errors"][0]["pointer"].as_str().expect("a pointer");
        assert!(told.starts_with(pointer), "{problem}");
    }
    let batch = json!({ "sends": [{ "input": "a" }, { "input": [named(&unknown)] }] });
    let answered = api.post("/v1/sends:batch", &batch).await.ok(200);
    assert_eq!(answered["results"][0]["status"], 202, "{answered}");
    let problem = &answered["results"][1]["problem"];
    assert_eq!(
        problem["errors"][0]["pointer"], "/sends/1/input/0/source/sha256",
        "{answered}"
    );
    let session = nothing("ses_");
    let timer = json!({ "session_id": session, "after": "1h", "input": [named(&unknown)] });
    let problem = api
        .post("/v1/timers", &timer)
        .await
        .problem(400, "request.invalid");
    assert_eq!(
        problem["errors"][0]["pointer"], "/input/0/source/sha256",
        "{problem}"
    );
}

/// An inline image with this many base64 characters.
pub(crate) fn inline(chars: usize) -> Value {
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "A".repeat(chars) });
    json!({ "type": "image", "source": source })
}

#[tokio::test]
async fn large_pictures_leave_their_rows() {
    let world = World::new().await;
    let api = world.ready().await;
    let body = json!({ "input": [inline(8_000), inline(80_000)] });
    let sent = api.post("/v1/sends", &body).await.ok(202);
    let claimed = world
        .claim(sent["session_id"].as_str().expect("an id"))
        .await;
    let [
        ContentPart::Image {
            source: ImageSource::Base64 { .. },
        },
        large,
    ] = claimed.send.record.input.as_slice()
    else {
        panic!("{:?}", claimed.send.record.input)
    };
    let sha256 = large.blob().expect("a name");
    let depot = Depot::in_database(world.store.clone(), Arc::new(OsEntropy));
    let data = depot
        .read(TenantId::DEFAULT, sha256)
        .await
        .expect("answers");
    assert_eq!(data.expect("is there"), vec![0; 60_000]);
}

#[tokio::test]
async fn a_picture_stays_in_its_row_while_no_blob_can_be_stored() {
    let (world, faulty) = Faulty::world().await;
    let api = world.ready().await;
    faulty.fail_next("begin_blob", 1);
    let body = json!({ "input": [inline(80_000)] });
    let sent = api.post("/v1/sends", &body).await.ok(202);
    assert_eq!(faulty.calls("begin_blob"), 1);
    let claimed = world
        .claim(sent["session_id"].as_str().expect("an id"))
        .await;
    let [part] = claimed.send.record.input.as_slice() else {
        panic!("one part")
    };
    assert!(part.blob().is_none() && part.inline().is_some());
    // An input that refers to a blob by its hash needs the database.
    faulty.fail_next("hold_blobs", 1);
    let body = json!({ "input": [named(&"1".repeat(64))] });
    let away = api.post("/v1/sends", &body).await;
    away.problem(503, "store.unavailable");
}

#[tokio::test]
async fn a_copy_holds_what_its_messages_name() {
    let world = World::new().await;
    let api = world.ready().await;
    let image = put(&api, "image/png", PNG).await.ok(201);
    let sha256 = image["sha256"].as_str().expect("a hash");
    let sent = api
        .post("/v1/sends", &json!({ "input": [named(sha256)] }))
        .await
        .ok(202);
    let session = sent["session_id"].as_str().expect("an id").to_owned();
    let claimed = world.claim(&session).await;
    world.complete(&claimed, 0, "seen").await;
    let path = format!("/v1/sessions/{session}");
    let archive = api.get(&format!("{path}/export")).await.text;
    api.post(&format!("{path}/fork"), &json!({})).await.ok(201);
    let call = api.call("POST", "/v1/sessions:import");
    let call = call.header("content-type", "application/x-ndjson");
    call.body(archive.into_bytes()).send().await.ok(201);
    let dump = world.store.dump().await.expect("answers");
    assert_eq!(dump.blobs[0].owners.len(), 3);
}
