//! Archives that carry the blobs their messages name, between systems with different blob stores.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use std::ops::Range;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use mainspring_blob_stores::FileBlobs;
use mainspring_runtime::OsEntropy;
use mainspring_shared::blob::{BlobHash, BlobPlace, Blobs, Depot, Error};
use mainspring_shared::id::TenantId;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Answer;
use crate::copies::{import, resealed, transcript};
use crate::world::{Scheduler, World};

const SOUND: u8 = 0;
const AWAY: u8 = 1;
const LYING: u8 = 2;
/// Answers once more, then is away.
const ONCE: u8 = 3;

/// A blob folder that can be unavailable, or return wrong bytes.
#[derive(Debug)]
struct Shelf {
    files: FileBlobs,
    wrong: AtomicU8,
}

impl Shelf {
    fn set(&self, wrong: u8) {
        self.wrong.store(wrong, Ordering::SeqCst);
    }

    fn is(&self, wrong: u8) -> bool {
        self.wrong.load(Ordering::SeqCst) == wrong
    }

    fn there(&self) -> Result<&FileBlobs, Error> {
        if self.is(AWAY) {
            return Err(Error::unavailable("taken away by the test"));
        }
        Ok(&self.files)
    }
}

#[async_trait]
impl Blobs for Shelf {
    async fn put(&self, place: BlobPlace, data: Bytes) -> Result<(), Error> {
        self.there()?.put(place, data).await
    }

    async fn get(
        &self,
        place: BlobPlace,
        range: Option<Range<u64>>,
    ) -> Result<Option<Bytes>, Error> {
        let found = self.there()?.get(place, range).await?;
        if self.is(ONCE) {
            self.set(AWAY);
        }
        Ok(found.map(|data| {
            if self.is(LYING) {
                vec![b'?'; data.len()].into()
            } else {
                data
            }
        }))
    }

    async fn exists(&self, place: BlobPlace) -> Result<bool, Error> {
        self.there()?.exists(place).await
    }

    async fn delete(&self, place: BlobPlace) -> Result<(), Error> {
        self.there()?.delete(place).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.there()?.check().await
    }

    fn describe(&self) -> String {
        self.files.describe()
    }
}

/// A world whose blobs are in a folder.
async fn with_folder() -> (World, Arc<Shelf>, TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let shelf = Arc::new(Shelf {
        files: FileBlobs::new(folder.path()),
        wrong: AtomicU8::new(SOUND),
    });
    let mut world = World::new().await;
    let depot = Depot::new(world.store.clone(), shelf.clone(), Arc::new(OsEntropy));
    world.blobs = Arc::new(depot.bounded(4 << 20, 64 << 10));
    (world, shelf, folder)
}

async fn put(api: &Scheduler, media_type: &str, data: impl Into<Vec<u8>>) -> String {
    let call = api.call("POST", "/v1/blobs");
    let call = call.header("content-type", media_type);
    let stored = call.body(data).send().await;
    assert!(matches!(stored.status, 200 | 201), "{}", stored.text);
    let sha256 = stored.json()["sha256"].as_str().map(str::to_owned);
    sha256.expect("a hash")
}

/// A modification of an archive's lines.
type Change = fn(&mut Vec<Value>);

/// A text that takes two and a half archive pieces.
fn long() -> String {
    let mut text = String::new();
    for n in 0..200_000 {
        let _ = writeln!(text, "{n:09}");
    }
    text
}

/// Creates a session whose messages refer to a picture twice and to a long text once. Returns its
/// id and the blobs' hashes.
async fn conversation(world: &World, api: &Scheduler) -> (String, [String; 2]) {
    let picture = put(api, "image/png", &b"\x89PNG and so on"[..]).await;
    let text = put(api, "text/plain", long()).await;
    let image = json!({ "type": "image", "source": { "type": "blob", "sha256": picture } });
    let file =
        json!({ "type": "file", "name": "a.txt", "source": { "type": "blob", "sha256": text } });
    let body = json!({ "input": [image, file, image] });
    let sent = api.post("/v1/sends", &body).await.ok(202);
    let session = sent["session_id"].as_str().expect("an id").to_owned();
    let claimed = world.claim(&session).await;
    world.complete(&claimed, 0, "seen").await;
    (session, [picture, text])
}

async fn export(api: &Scheduler, session: &str, query: &str) -> Answer {
    let path = format!("/v1/sessions/{session}/export{query}");
    let exported = api.get(&path).await;
    assert_eq!(exported.status, 200, "{}", exported.text);
    exported
}

fn lines(archive: &str) -> Vec<Value> {
    let lines = archive.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("lines of JSON")
}

async fn read(world: &World, sha256: &str) -> Option<Bytes> {
    let sha256: BlobHash = sha256.parse().expect("a hash");
    let read = world.blobs.read(TenantId::DEFAULT, sha256).await;
    read.expect("answers")
}

#[tokio::test]
async fn an_archive_brings_its_blobs_into_another_system() {
    let here = World::new().await;
    let api = here.ready().await;
    let (session, [picture, text]) = conversation(&here, &api).await;
    let archive = export(&api, &session, "").await.text;
    let all = lines(&archive);
    let named: Vec<_> = all.iter().map(|line| &line["blob"]["sha256"]).collect();
    let none = Value::Null;
    let (p, t) = (json!(picture), json!(text));
    // The header, one piece, three pieces, two messages, the counts.
    assert_eq!(named, [&none, &p, &t, &t, &t, &none, &none, &none]);
    assert_eq!(all[7]["blobs"], 2);
    assert_eq!(all[1]["blob"]["media_type"], "image/png");

    let (there, _shelf, folder) = with_folder().await;
    // The size limit of a body covers only the part of an archive that is not blobs.
    let other = there
        .scheduler_with(|config| config.batch_bytes_max = 2_400_000)
        .await;
    other.until_ready().await;
    let copy = import(&other, &archive).await.ok(201);
    let copy = copy["id"].as_str().expect("an id").to_owned();
    assert_eq!(
        transcript(&other, &copy).await,
        transcript(&api, &session).await
    );
    let served = other.get(&format!("/v1/blobs/{text}")).await;
    assert_eq!(served.header("content-type"), Some("text/plain"));
    assert!(served.text == long());
    let found = read(&there, &picture).await.expect("is there");
    assert_eq!(found, &b"\x89PNG and so on"[..]);
    let tenant = folder.path().join(TenantId::DEFAULT.0.to_string());
    let folders = std::fs::read_dir(tenant).expect("a folder");
    assert_eq!(folders.count(), 2);
    // The session references the blobs, and so does a fork.
    let path = format!("/v1/sessions/{copy}/fork");
    other.post(&path, &json!({})).await.ok(201);
    let dump = there.store.dump().await.expect("answers");
    assert_eq!(dump.blobs.len(), 2);
    for blob in &dump.blobs {
        assert_eq!(blob.owners.len(), 2);
    }
    // Exported again, the archive is the same, and importing it again stores no blob twice.
    let again = export(&other, &copy, "").await.text;
    assert_eq!(lines(&again)[1..7], all[1..7]);
    import(&other, &again).await.ok(201);
    let dump = there.store.dump().await.expect("answers");
    assert_eq!(dump.blobs.len(), 2);
}

#[tokio::test]
async fn an_archive_without_its_blobs_is_smaller_and_says_so_where_they_are_shown() {
    let here = World::new().await;
    let api = here.ready().await;
    let (session, [_, text]) = conversation(&here, &api).await;
    let archive = export(&api, &session, "?blobs=false").await.text;
    assert_eq!(lines(&archive).len(), 4);
    assert!(lines(&archive)[3].get("blobs").is_none());
    let (there, _shelf, _folder) = with_folder().await;
    let other = there.ready().await;
    import(&other, &archive).await.ok(201);
    assert_eq!(read(&there, &text).await, None);
    let path = format!("/v1/blobs/{text}");
    other.get(&path).await.problem(404, "blob.not_found");
    api.get(&format!("/v1/sessions/{session}/export?blobs=maybe"))
        .await
        .problem(400, "request.invalid");
}

#[tokio::test]
async fn what_is_wrong_with_a_blob_is_named_by_its_line() {
    let here = World::new().await;
    let api = here.ready().await;
    let (session, _) = conversation(&here, &api).await;
    let archive = export(&api, &session, "").await.text;
    let (there, _shelf, _folder) = with_folder().await;
    let other = there.ready().await;
    let changes: [(&str, &str, Change); 10] = [
        ("line 2", "/data", |all| {
            all[1]["data"] = json!(STANDARD.encode("\u{89}PNG and so on"));
        }),
        ("line 2", "/data", |all| all[1]["data"] = json!("no base64")),
        ("line 2", "/at", |all| all[1]["at"] = json!(1)),
        ("line 2", "/blob/media_type", |all| {
            all[1]["blob"]["media_type"] = json!("x");
        }),
        ("line 4", "/at", |all| drop(all.remove(3))),
        ("line 4", "/at", |all| all.swap(3, 4)),
        ("line 5", "/blob", |all| all[4]["blob"]["bytes"] = json!(9)),
        ("line 5", "/blob", |all| drop(all.remove(4))),
        ("line 7", "/blobs", |all| drop(all.remove(1))),
        ("line 3", "/blob/sha256", |all| {
            all.insert(2, all[1].clone());
        }),
    ];
    for (place, (line, pointer, change)) in changes.into_iter().enumerate() {
        let refused = import(&other, &resealed(&archive, change)).await;
        let said = refused.problem(400, "request.invalid").to_string();
        assert!(said.contains(line), "{place}: {said}");
        assert!(said.contains(pointer), "{place}: {said}");
    }
    // A blob that is too large for this system.
    let large = resealed(&archive, |all| all[1]["blob"]["bytes"] = json!(5 << 20));
    let problem = import(&other, &large).await.problem(413, "blob.too_large");
    assert!(problem.to_string().contains("line 2"), "{problem}");
    // Nothing of the failed imports is visible.
    let sessions = other.get("/v1/sessions").await.ok(200);
    assert_eq!(sessions["data"], json!([]));
    import(&other, &archive).await.ok(201);
}

#[tokio::test]
async fn a_blob_store_that_is_away_or_lies_breaks_no_copy() {
    let (here, shelf, _folder) = with_folder().await;
    let api = here.ready().await;
    let (session, [picture, text]) = conversation(&here, &api).await;
    let archive = export(&api, &session, "").await.text;

    // Unavailable during the import: nothing is created, and a retry works later.
    let (there, other_shelf, _other_folder) = with_folder().await;
    let other = there.ready().await;
    other_shelf.set(AWAY);
    let refused = import(&other, &archive).await;
    refused.problem(503, "blob.unavailable");
    let sessions = other.get("/v1/sessions").await.ok(200);
    assert_eq!(sessions["data"], json!([]));
    other_shelf.set(SOUND);
    import(&other, &archive).await.ok(201);
    assert!(read(&there, &text).await.is_some());

    // Unavailable during the export: an error says so. Unavailable after the first blob: the
    // response breaks off, and cannot be mistaken for complete.
    let path = format!("/v1/sessions/{session}/export");
    shelf.set(AWAY);
    api.get(&path).await.problem(503, "blob.unavailable");
    shelf.set(ONCE);
    let broken = api.call("GET", &path);
    let broken = broken.cut_short().await;
    assert!(broken.lines().count() <= 2, "{broken}");
    let refused = import(&other, &broken).await;
    refused.problem(400, "request.invalid");
    shelf.set(AWAY);
    // An export without blobs needs no blob store, and neither does a fork.
    export(&api, &session, "?blobs=false").await;
    let fork = format!("/v1/sessions/{session}/fork");
    api.post(&fork, &json!({})).await.ok(201);

    // A damaged blob is left out, and never sent.
    shelf.set(LYING);
    let without = export(&api, &session, "").await.text;
    assert_eq!(lines(&without).len(), 4);
    let (third, _shelf, _folder) = with_folder().await;
    let last = third.ready().await;
    import(&last, &without).await.ok(201);
    assert_eq!(read(&third, &picture).await, None);

    // A large input part stays in its row while no blob can be stored.
    shelf.set(AWAY);
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "A".repeat(80_000) });
    let body = json!({ "input": [{ "type": "image", "source": source }] });
    let sent = api.post("/v1/sends", &body).await.ok(202);
    let claimed = here
        .claim(sent["session_id"].as_str().expect("an id"))
        .await;
    assert!(claimed.send.record.input[0].inline().is_some());

    // Reading the content itself.
    shelf.set(LYING);
    let path = format!("/v1/blobs/{picture}");
    api.get(&path).await.problem(500, "blob.corrupt");
    shelf.set(AWAY);
    api.get(&path).await.problem(503, "blob.unavailable");
    let call = api.call("POST", "/v1/blobs");
    let call = call.header("content-type", "text/plain").body("new");
    call.send().await.problem(503, "blob.unavailable");
    shelf.set(SOUND);
    assert!(api.get(&format!("/v1/blobs/{text}")).await.text == long());
    put(&api, "text/plain", "new").await;
}
