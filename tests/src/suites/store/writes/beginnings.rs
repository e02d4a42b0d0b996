//! The situations before a write.

use std::time::Duration;

use mainspring_shared::blob::{BlobHash, BlobPlace};
use mainspring_shared::id::{MemoryId, TenantId};
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::{
    AfterSend, Claimed, Inspect, NewBlob, NewMemory, RetireBlobs, SaveMemory,
};
use mainspring_shared::time::Timestamp;
use uuid::Uuid;

use super::super::prelude::*;
use super::super::runs::under_way;
use super::super::tenants::{new, new_key};

/// Session 1 is at rest after an answered send, and process 1 is registered.
pub(super) async fn answered(store: &dyn Inspect) -> Option<Claimed> {
    let claimed = running(store).await;
    complete(store, 20, ending(&claimed, AfterSend::Release)).await;
    None
}

/// Send 1 is running.
pub(super) async fn claimed(store: &dyn Inspect) -> Option<Claimed> {
    Some(running(store).await)
}

/// Send 1 waits for a call to be answered from outside.
pub(super) async fn asked(store: &dyn Inspect) -> Option<Claimed> {
    let claimed = running(store).await;
    let begins = vec![waits(WaitingOn::Tool)];
    wait_for_calls(store, 20, &claimed, WaitingOn::Tool, begins).await;
    Some(claimed)
}

/// A blob.
pub(in super::super) fn new_blob() -> NewBlob {
    NewBlob {
        place: BlobPlace {
            tenant: TenantId::DEFAULT,
            sha256: BlobHash([7; 32]),
            generation: Uuid::from_u128(1),
        },
        media_type: "a/b".to_owned(),
        bytes: 1,
        owner: None,
    }
}

/// Retires everything that is not held after a short time.
pub(super) const RETIRE_BLOBS: RetireBlobs = RetireBlobs {
    grace: Duration::from_millis(10),
    after: None,
    limit: 100,
};

/// An upload has begun, so the bytes of a blob may be there.
pub(super) async fn blob_begun(store: &dyn Inspect) -> Option<Claimed> {
    let begun = store.at(time(10)).begin_blob(new_blob()).await;
    begun.expect("the store answers");
    None
}

/// The bytes of a blob are stored.
pub(super) async fn blob_stored(store: &dyn Inspect) -> Option<Claimed> {
    blob_begun(store).await;
    let stored = store.at(time(10)).finish_blob(new_blob().place, None).await;
    assert!(stored.expect("the store answers"));
    None
}

/// Run 1 is running with one leaf.
pub(super) async fn run_under_way(store: &dyn Inspect) -> Option<Claimed> {
    under_way(store, 1..2).await;
    None
}

/// A memory entry.
pub(super) fn remembered(expires_at: Option<Timestamp>) -> SaveMemory {
    SaveMemory {
        tenant: TenantId::DEFAULT,
        entry: NewMemory {
            id: MemoryId(Uuid::from_u128(1)),
            namespace: "user/1".parse().expect("a namespace"),
            text: "likes tea".to_owned(),
            metadata: serde_json::Map::new(),
            source: None,
            expires_at,
        },
        idempotency: None,
    }
}

pub(super) async fn remember(store: &dyn Inspect) {
    let saved = store.at(time(0)).save_memory(remembered(None)).await;
    saved.expect("the store answers");
}

/// The first tenant to be created.
pub(super) const BLUE: TenantId = TenantId(2);

pub(super) async fn blue(store: &dyn Inspect) {
    let created = store.at(time(0)).create_tenant(new("blue"), None).await;
    created.expect("the store answers");
}

pub(super) async fn blue_key(store: &dyn Inspect) {
    blue(store).await;
    let created = store.at(time(0)).create_key(new_key(1, BLUE), None).await;
    created.expect("the store answers");
}

pub(super) async fn blue_erasing(store: &dyn Inspect) {
    blue_key(store).await;
    let begun = store.at(time(0)).begin_tenant_erasure(BLUE).await;
    begun.expect("the store answers");
}
