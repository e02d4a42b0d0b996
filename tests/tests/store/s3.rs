//! The blob store `s3` against a server that speaks S3 over a socket.

mod peer;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use mainspring_blob_stores::{S3Blobs, S3Settings};
use mainspring_runtime::{OsEntropy, SystemClock};
use mainspring_shared::blob::{BlobHash, BlobPlace, Blobs, Depot, Error, SWEEP_GRACE, Timed};
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{Inspect as _, Store};
use mainspring_shared::time::{Clock as _, Timestamp};
use mainspring_store_model::ModelStore;
use uuid::Uuid;

use self::peer::{KEY, Misbehaviour, Peer, SECRET};

fn place(data: &[u8], n: u128) -> BlobPlace {
    BlobPlace {
        tenant: TenantId::DEFAULT,
        sha256: BlobHash::of(data),
        generation: Uuid::from_u128(n),
    }
}

/// An error with all of its sources.
fn whole(error: &Error) -> String {
    let mut text = format!("{error:?} {error}");
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text} {error:?} {error}");
        source = error.source();
    }
    text
}

#[tokio::test]
async fn what_is_put_is_found_whole_or_in_part_until_it_is_deleted() {
    let peer = Peer::start().await;
    let blobs = peer.blobs();
    let data = Bytes::from_static(b"some bytes");
    let at = place(&data, 1);
    assert_eq!(blobs.get(at, None).await.expect("answers"), None);
    assert_eq!(blobs.get(at, Some(0..4)).await.expect("answers"), None);
    assert!(!blobs.exists(at).await.expect("answers"));
    for _ in 0..2 {
        blobs.put(at, data.clone()).await.expect("is put");
    }
    assert!(blobs.exists(at).await.expect("answers"));
    assert!(!blobs.exists(place(&data, 2)).await.expect("answers"));
    for (range, expected) in [
        (None, &b"some bytes"[..]),
        (Some(0..4), b"some"),
        (Some(5..99), b"bytes"),
        (Some(5..5), b""),
        (Some(10..20), b""),
        (Some(99..100), b""),
    ] {
        let found = blobs.get(at, range.clone()).await.expect("answers");
        assert_eq!(found.as_deref(), Some(expected), "{range:?}");
    }
    let hash = at.sha256;
    let generation = at.generation.as_simple();
    let objects = peer.objects();
    assert_eq!(
        objects,
        [format!("a/b/{}/{hash}-{generation}", at.tenant.0)]
    );
    for _ in 0..2 {
        blobs.delete(at).await.expect("is deleted");
    }
    assert_eq!(peer.objects(), Vec::<String>::new());
    assert_eq!(blobs.get(at, None).await.expect("answers"), None);
}

#[tokio::test]
async fn nothing_and_much_are_content_like_any_other() {
    let peer = Peer::start().await;
    let mut settings = peer.settings();
    settings.prefix = String::new();
    let blobs = S3Blobs::new(&settings).expect("good settings");
    let large: Vec<u8> = (0..9_000_000_u32).map(|n| (n % 251) as u8).collect();
    for data in [Bytes::new(), Bytes::from(large)] {
        let at = place(&data, 1);
        blobs.put(at, data.clone()).await.expect("is put");
        assert_eq!(blobs.get(at, None).await.expect("answers"), Some(data));
    }
    assert!(peer.objects().iter().all(|name| !name.starts_with("a/b")));
}

#[tokio::test]
async fn a_store_that_fails_for_a_moment_is_asked_again() {
    let peer = Peer::start().await;
    let blobs = peer.blobs();
    let data = Bytes::from_static(b"some bytes");
    let at = place(&data, 1);
    peer.set(Misbehaviour::Failing(2));
    blobs.put(at, data.clone()).await.expect("is put");
    assert_eq!(peer.asked(&Method::PUT), 3);
    peer.set(Misbehaviour::Failing(2));
    let found = blobs.get(at, None).await.expect("answers");
    assert_eq!(found, Some(data));
    // A lasting outage is reported, after as many attempts.
    peer.set(Misbehaviour::Failing(u32::MAX));
    let before = peer.asked(&Method::GET);
    let error = blobs.get(at, None).await.expect_err("is away");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert_eq!(peer.asked(&Method::GET) - before, 3);
    for error in [
        blobs.put(at, Bytes::new()).await.expect_err("is away"),
        blobs.delete(at).await.expect_err("is away"),
        blobs.exists(at).await.expect_err("is away"),
        blobs.check().await.expect_err("is away"),
    ] {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_not_waited_for_forever() {
    let peer = Peer::start().await;
    let mut settings = peer.settings();
    settings.timeout = Duration::from_millis(200);
    let blobs = S3Blobs::new(&settings).expect("good settings");
    let data = Bytes::from_static(b"some bytes");
    let at = place(&data, 1);
    peer.set(Misbehaviour::Silent);
    let put = blobs.put(at, data.clone());
    let put = tokio::time::timeout(Duration::from_secs(20), put).await;
    let error = put.expect("gives up").expect_err("does not answer");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    // The server had stored it all the same: repeating the put changes nothing.
    peer.set(Misbehaviour::None);
    assert_eq!(peer.objects().len(), 1);
    blobs.put(at, data.clone()).await.expect("is put");
    assert_eq!(blobs.get(at, None).await.expect("answers"), Some(data));
    assert_eq!(peer.objects().len(), 1);
}

#[tokio::test]
async fn half_of_an_object_is_an_outage_and_other_bytes_are_for_the_hash_to_find() {
    let peer = Peer::start().await;
    let blobs = peer.blobs();
    let data = Bytes::from_static(b"some bytes");
    let at = place(&data, 1);
    blobs.put(at, data.clone()).await.expect("is put");
    peer.set(Misbehaviour::Short);
    let error = blobs.get(at, None).await.expect_err("is not whole");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    peer.set(Misbehaviour::WrongBytes);
    let found = blobs.get(at, None).await.expect("answers").expect("bytes");
    assert_ne!(BlobHash::of(&found), at.sha256);
}

#[tokio::test]
async fn writers_of_the_same_blob_do_not_disturb_each_other() {
    let peer = Peer::start().await;
    let blobs = Arc::new(peer.blobs());
    let data = Bytes::from(vec![7; 300_000]);
    let at = place(&data, 1);
    let writers = (0..8).map(|_| {
        let (blobs, data) = (blobs.clone(), data.clone());
        tokio::spawn(async move { blobs.put(at, data).await })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("no panic").expect("is put");
    }
    assert_eq!(blobs.get(at, None).await.expect("answers"), Some(data));
    assert_eq!(peer.objects().len(), 1);
}

#[tokio::test]
async fn a_check_finds_what_is_wrong_and_never_says_the_secret() {
    let peer = Peer::start().await;
    peer.blobs().check().await.expect("can be written");
    assert_eq!(peer.objects(), Vec::<String>::new());
    let good = peer.settings();
    let elsewhere = S3Settings {
        endpoint: Some("http://me:a-password@127.0.0.1:9".to_owned()),
        ..good.clone()
    };
    let stranger = S3Settings {
        secret_access_key: Some(format!("not-{SECRET}")),
        ..good.clone()
    };
    for (settings, expected) in [
        (elsewhere, "127.0.0.1:9"),
        (stranger, "SignatureDoesNotMatch"),
    ] {
        let blobs = S3Blobs::new(&settings).expect("good settings");
        let error = blobs.check().await.expect_err("is wrong");
        let said = whole(&error);
        assert!(matches!(error, Error::Unavailable { .. }), "{said}");
        assert!(said.contains(expected), "{said}");
        let shown = format!("{said} {settings:?} {blobs:?} {}", blobs.describe());
        assert!(!shown.contains(SECRET), "{shown}");
        // The server quotes the key in its error; that must not be shown either.
        assert!(!shown.contains(KEY), "{shown}");
        assert!(!shown.contains("a-password"), "{shown}");
    }
    assert!(!format!("{good:?}").contains(KEY));
    let described = peer.blobs().describe();
    assert!(
        described.starts_with("bucket bucket of http://127.0.0.1:"),
        "{described}"
    );
}

#[tokio::test]
async fn what_nothing_names_leaves_the_bucket() {
    let peer = Peer::start().await;
    let clock = Arc::new(SystemClock::new());
    let store = Arc::new(ModelStore::open(clock.clone()));
    let grace = i64::try_from(SWEEP_GRACE.as_millis()).expect("fits");
    let later: Arc<dyn Store> = store.at(Timestamp(clock.now().0 + 2 * grace));
    let depots = [store as Arc<dyn Store>, later].map(|store| {
        let bytes = Arc::new(peer.blobs());
        let timed = Timed::new(bytes, clock.clone(), Duration::from_secs(20));
        Depot::new(store, Arc::new(timed), Arc::new(OsEntropy))
    });
    let [now, later] = depots;
    let tenant = TenantId::DEFAULT;
    let data = Bytes::from_static(b"some bytes");
    let stored = now.put(tenant, None, "text/plain", data.clone()).await;
    let hash = stored.expect("is put").blob.sha256;
    let read = now.read(tenant, hash).await.expect("answers");
    assert_eq!(read, Some(data.clone()));
    peer.set(Misbehaviour::WrongBytes);
    let error = now.read(tenant, hash).await.expect_err("is damaged");
    assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
    peer.set(Misbehaviour::None);
    now.sweep(SWEEP_GRACE, None, 100).await.expect("is swept");
    assert_eq!(peer.objects().len(), 1, "its day is not over");
    // A pass that cannot reach the bucket leaves the work to the next one.
    peer.set(Misbehaviour::Failing(u32::MAX));
    let swept = later.sweep(SWEEP_GRACE, None, 100).await.expect("is swept");
    assert!(swept.failed.is_some(), "{swept:?}");
    peer.set(Misbehaviour::None);
    let swept = later.sweep(SWEEP_GRACE, None, 100).await.expect("is swept");
    assert_eq!(swept.blobs, 1, "{swept:?}");
    assert_eq!(peer.objects(), Vec::<String>::new());
    assert_eq!(now.find(tenant, hash).await.expect("answers"), None);
    // Stored again, the blob gets another name.
    now.put(tenant, None, "text/plain", data)
        .await
        .expect("is put");
    assert_eq!(peer.objects().len(), 1);
}
