//! Blobs: their rows, and their bytes in the database.

use std::sync::Arc;

use bytes::Bytes;
use mainspring_shared::blob::{
    BlobHash, BlobOwner, BlobPlace, Blobs as _, CHUNK_BYTES, InDatabase,
};
use mainspring_shared::id::{RunId, TenantId};
use mainspring_shared::store::{
    BeginBlob, BlobRecord, BlobState, Inspect, NewBlob, RetireBlobs, RetiredBlobs,
};
use uuid::Uuid;

use super::prelude::*;
use super::timers::session;

const MINE: TenantId = TenantId::DEFAULT;

fn hash(n: u8) -> BlobHash {
    BlobHash([n; 32])
}

fn place(n: u8, generation: u128) -> BlobPlace {
    BlobPlace {
        tenant: MINE,
        sha256: hash(n),
        generation: Uuid::from_u128(generation),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as the port takes it")]
fn owner(session: u128) -> Option<BlobOwner> {
    Some(key(session).session.into())
}

fn blob(n: u8, generation: u128) -> NewBlob {
    NewBlob {
        place: place(n, generation),
        media_type: "image/png".to_owned(),
        bytes: 5,
        owner: None,
    }
}

async fn begin(store: &dyn Inspect, ms: i64, blob: NewBlob) -> BeginBlob {
    let begun = store.at(time(ms)).begin_blob(blob).await;
    begun.expect("the store answers")
}

async fn finish(store: &dyn Inspect, ms: i64, place: BlobPlace, owner: Option<BlobOwner>) -> bool {
    let done = store.at(time(ms)).finish_blob(place, owner).await;
    done.expect("the store answers")
}

/// Stores a blob.
async fn stored(store: &dyn Inspect, ms: i64, n: u8, owner: Option<BlobOwner>) {
    begin(store, ms, blob(n, u128::from(n))).await;
    assert!(finish(store, ms, place(n, u128::from(n)), owner).await);
}

async fn hold(store: &dyn Inspect, ms: i64, asked: Vec<BlobHash>) -> Vec<Option<BlobRecord>> {
    let owner = key(1).session.into();
    let held = store.at(time(ms)).hold_blobs(MINE, owner, asked).await;
    held.expect("the store answers")
}

async fn retire(store: &dyn Inspect, ms: i64, grace: i64) -> RetiredBlobs {
    let query = RetireBlobs {
        grace: millis(grace),
        after: None,
        limit: 100,
    };
    let retired = store.at(time(ms)).retire_blobs(query).await;
    retired.expect("the store answers")
}

async fn is_there(store: &dyn Inspect, n: u8) -> bool {
    let found = store.get_blobs(MINE, vec![hash(n)]).await;
    one(found.expect("the store answers")).is_some()
}

pub async fn a_blob_is_found_once_its_bytes_are_stored(store: &dyn Inspect) {
    let begun = begin(store, 10, blob(1, 1)).await;
    assert_eq!(begun, BeginBlob::Begun(place(1, 1)));
    assert!(!is_there(store, 1).await);
    // A later writer may have to finish the upload, and puts the same bytes in the same place.
    let begun = begin(store, 20, blob(1, 2)).await;
    assert_eq!(begun, BeginBlob::Begun(place(1, 1)));
    assert!(
        !finish(store, 30, place(1, 2), None).await,
        "another generation"
    );
    assert!(finish(store, 30, place(1, 1), None).await);
    assert!(finish(store, 31, place(1, 1), None).await, "a repeat");
    let renamed = NewBlob {
        media_type: "image/webp".to_owned(),
        ..blob(1, 3)
    };
    assert_eq!(begin(store, 40, renamed).await, BeginBlob::Known);
    let asked = vec![hash(2), hash(1)];
    let found = store.get_blobs(MINE, asked.clone()).await;
    let found = found.expect("the store answers");
    let [None, Some(record)] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(record.place, place(1, 1));
    assert_eq!(
        (record.media_type.as_str(), record.bytes, record.created_at),
        // Who has the bytes does not thereby change what others refer to.
        ("image/png", 5, time(10))
    );
    let foreign = store.get_blobs(TenantId(2), asked).await;
    assert_eq!(foreign.expect("the store answers"), [None, None]);
}

pub async fn what_is_held_stays_as_long_as_its_owner(store: &dyn Inspect) {
    register(store, SCHEDULER).await;
    session(store, 1).await;
    stored(store, 10, 1, owner(1)).await;
    stored(store, 10, 2, None).await;
    stored(
        store,
        10,
        3,
        Some(BlobOwner::Run(RunId(Uuid::from_u128(9)))),
    )
    .await;
    let asked = vec![hash(2), hash(4)];
    let held = hold(store, 20, asked).await;
    assert!(matches!(held.as_slice(), [Some(_), None]), "{held:?}");
    // Too little time has passed since they were written or held.
    assert_eq!(retire(store, 60, 50).await, RetiredBlobs::default());
    // The run that owns blob 3 does not exist.
    let retired = retire(store, 1_000, 50).await;
    assert_eq!((retired.holds, retired.going), (1, vec![place(3, 3)]));
    assert!(is_there(store, 1).await && is_there(store, 2).await);
    assert!(!is_there(store, 3).await);
    let later = store.at(time(1_010));
    let deleted = later.delete_session(key(1), boot(SCHEDULER)).await;
    deleted.expect("the store answers");
    let retired = retire(store, 1_020, 50).await;
    assert_eq!(retired.holds, 2);
    assert_eq!(retired.going, [place(1, 1), place(2, 2), place(3, 3)]);
}

pub async fn a_marked_blob_is_nobodys_until_it_is_begun_anew(store: &dyn Inspect) {
    stored(store, 10, 1, None).await;
    assert_eq!(retire(store, 100, 50).await.going, [place(1, 1)]);
    assert!(!is_there(store, 1).await);
    assert_eq!(
        begin(store, 110, blob(1, 2)).await,
        BeginBlob::Going(place(1, 1))
    );
    assert!(!finish(store, 110, place(1, 1), owner(1)).await);
    assert_eq!(hold(store, 110, vec![hash(1)]).await, [None]);
    // A blob whose deletion did not finish is found again.
    assert_eq!(retire(store, 120, 50).await.going, [place(1, 1)]);
    for _ in 0..2 {
        store
            .forget_blob(place(1, 1))
            .await
            .expect("the store answers");
    }
    assert_eq!(
        begin(store, 130, blob(1, 2)).await,
        BeginBlob::Begun(place(1, 2))
    );
    // A late delete refers to the first generation.
    store
        .forget_blob(place(1, 1))
        .await
        .expect("the store answers");
    assert!(finish(store, 140, place(1, 2), None).await);
    let dump = store.dump().await.expect("the store answers");
    let states = dump.blobs.iter().map(|blob| (blob.place, blob.state));
    assert_eq!(
        states.collect::<Vec<_>>(),
        [(place(1, 2), BlobState::Stored)]
    );
}

pub async fn what_was_begun_and_not_finished_goes_as_well(store: &dyn Inspect) {
    begin(store, 10, blob(1, 1)).await;
    assert_eq!(retire(store, 50, 50).await, RetiredBlobs::default());
    begin(store, 60, blob(1, 2)).await;
    assert_eq!(retire(store, 100, 50).await, RetiredBlobs::default());
    assert_eq!(retire(store, 200, 50).await.going, [place(1, 1)]);
}

pub async fn blobs_are_looked_at_page_by_page(store: &dyn Inspect) {
    for n in 1..=5 {
        stored(store, 10, n, None).await;
    }
    let mut after = None;
    let mut pages = Vec::new();
    loop {
        let query = RetireBlobs {
            grace: millis(50),
            after,
            limit: 2,
        };
        let retired = store.at(time(100)).retire_blobs(query).await;
        let retired = retired.expect("the store answers");
        pages.push(retired.going.len());
        after = retired.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, [2, 2, 1]);
}

pub async fn putting_and_sweeping_at_once_never_loses_what_is_held(store: &dyn Inspect) {
    session(store, 1).await;
    for n in 1..=8 {
        stored(store, 10, n, None).await;
    }
    let holds =
        (1..=8).map(|n| async move { one(hold(store, 1_000, vec![hash(n)]).await).is_some() });
    let sweeps = (0..4).map(|_| retire(store, 1_000, 50));
    let (held, _) = futures::future::join(
        futures::future::join_all(holds),
        futures::future::join_all(sweeps),
    )
    .await;
    for (n, held) in (1..).zip(held) {
        assert_eq!(is_there(store, n).await, held, "{n}");
    }
}

pub async fn bytes_are_kept_in_pieces(store: &dyn Inspect) {
    let blobs = InDatabase::new(store.at(time(10)) as Arc<dyn mainspring_shared::store::Store>);
    let one = place(1, 1);
    assert_eq!(blobs.get(one, None).await.expect("answers"), None);
    let empty = Bytes::new();
    blobs.put(one, empty.clone()).await.expect("is put");
    assert!(blobs.exists(one).await.expect("answers"));
    assert_eq!(blobs.get(one, None).await.expect("answers"), Some(empty));
    let data: Vec<u8> = (0..2 * CHUNK_BYTES + 7).map(|n| (n % 251) as u8).collect();
    let data = Bytes::from(data);
    let large = place(2, 1);
    for _ in 0..2 {
        blobs.put(large, data.clone()).await.expect("is put");
    }
    let whole = blobs.get(large, None).await.expect("answers");
    assert!(whole.as_ref() == Some(&data), "it comes back as it was");
    let edge = CHUNK_BYTES as u64;
    let ends = data.len() as u64;
    for range in [
        0..3,
        edge - 2..edge + 2,
        edge..2 * edge,
        5..ends,
        ends - 3..ends + 9,
    ] {
        let part = blobs
            .get(large, Some(range.clone()))
            .await
            .expect("answers");
        let expected = data.slice(range.start as usize..range.end.min(ends) as usize);
        assert!(part == Some(expected), "{range:?}");
    }
    assert!(!blobs.exists(place(2, 2)).await.expect("answers"));
    for _ in 0..2 {
        blobs.delete(large).await.expect("is deleted");
    }
    assert_eq!(blobs.get(large, None).await.expect("answers"), None);
    assert!(blobs.exists(one).await.expect("answers"));
}
