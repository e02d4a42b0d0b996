//! Erasing tenants with everything they have.

use mainspring_shared::id::{MemoryId, TenantId};
use mainspring_shared::store::{
    BeginErasureOutcome, CreateKeyOutcome, CreateTenantOutcome, ERASED_MS_MIN, Inspect, NewKey,
    NewMemory, SaveMemory, TenantPatch, delete_whole,
};
use mainspring_shared::tenant::{Retention, TenantErasure};
use serde_json::Map;
use uuid::Uuid;

use super::furnished::{furnish, session_of};
use super::prelude::*;
use super::tenants::{new, new_key, tenant};

async fn begin(store: &dyn Inspect, tenant: TenantId) -> TenantErasure {
    match store.begin_tenant_erasure(tenant).await.expect("answers") {
        BeginErasureOutcome::Begun(erasure) => erasure,
        other => panic!("{other:?}"),
    }
}

/// Erases rows until none are found, with a limit that requires several steps.
async fn erase(store: &dyn Inspect, tenant: TenantId, ms: i64) -> TenantErasure {
    for _ in 0..200 {
        let step = store.at(time(ms)).erase_tenant_rows(tenant, 1).await;
        let erasure = step.expect("erases").expect("it is under way");
        if erasure.progress.quiet_since.is_some() {
            return erasure;
        }
    }
    panic!("it finds more and more");
}

pub async fn nothing_is_left_of_an_erased_tenant_and_everything_of_the_others(store: &dyn Inspect) {
    let now = &*store.at(START);
    let blue = tenant(now, "blue").await.id;
    let red = tenant(now, "red").await.id;
    furnish(store, blue, 1).await;
    furnish(store, red, 2).await;
    let others = store.rows_of(red).await.expect("counts");
    assert!(others.len() >= 11, "{others:?}");
    begin(now, blue).await;
    assert_eq!(now.erasing_tenants().await.expect("lists"), [blue]);
    // The tenant exists as long as any of its data does.
    let shown = now.get_tenant(blue).await.expect("reads").expect("exists");
    assert_eq!(shown.erasing_at, Some(START));
    delete_whole(now, boot(1), session_of(blue, 1))
        .await
        .expect("deletes");
    let quiet = erase(store, blue, 10).await;
    assert_eq!(quiet.ended_at, None);
    assert_eq!(store.rows_of(blue).await.expect("counts"), [].into());
    assert!(quiet.progress.rows() >= 9, "{quiet:?}");
    let late = store.at(time(10 + ERASED_MS_MIN));
    let ended = late.erase_tenant_rows(blue, 100).await.expect("ends");
    let ended = ended.expect("it was under way");
    assert_eq!(ended.ended_at, at(10 + ERASED_MS_MIN));
    assert_eq!(late.tenant_erasure(blue).await.expect("reads"), Some(ended));
    assert_eq!(late.erasing_tenants().await.expect("lists"), []);
    assert_eq!(late.get_tenant(blue).await.expect("reads"), None);
    assert_eq!(
        late.erase_tenant_rows(blue, 100).await.expect("answers"),
        None
    );
    assert_eq!(store.rows_of(blue).await.expect("counts"), [].into());
    assert_eq!(store.rows_of(red).await.expect("counts"), others);
    // The name can be reused, the number cannot.
    let again = late
        .create_tenant(new("blue"), None)
        .await
        .expect("creates");
    match again {
        CreateTenantOutcome::Created(again) => assert_eq!(again.id, TenantId(red.0 + 1)),
        other => panic!("{other:?}"),
    }
}

pub async fn what_is_written_late_is_found_before_an_erasure_ends(store: &dyn Inspect) {
    let blue = tenant(&*store.at(START), "blue").await.id;
    begin(&*store.at(START), blue).await;
    erase(store, blue, 10).await;
    let memory = SaveMemory {
        tenant: blue,
        entry: NewMemory {
            id: MemoryId(Uuid::from_u128(1)),
            namespace: "late".parse().expect("a namespace"),
            text: "x".to_owned(),
            metadata: Map::new(),
            source: None,
            expires_at: None,
        },
        idempotency: None,
    };
    store.at(time(20)).save_memory(memory).await.expect("saves");
    let late = store.at(time(10 + ERASED_MS_MIN));
    let step = late.erase_tenant_rows(blue, 100).await.expect("erases");
    let step = step.expect("it is under way");
    assert_eq!((step.ended_at, step.progress.quiet_since), (None, None));
    assert_eq!(store.rows_of(blue).await.expect("counts"), [].into());
}

pub async fn an_erasure_begins_once_and_revokes_keys(store: &dyn Inspect) {
    let now = &*store.at(START);
    let blue = tenant(now, "blue").await.id;
    now.create_key(new_key(1, blue), None)
        .await
        .expect("creates");
    let first = begin(now, blue).await;
    let later = &*store.at(time(50));
    assert_eq!(begin(later, blue).await, first);
    // Its name is still taken, but no longer resolves to a tenant that may act.
    let named = later.named_tenant("blue".to_owned()).await;
    assert_eq!(named.expect("reads"), None);
    let found = later.find_key(new_key(1, blue).id).await.expect("reads");
    assert_eq!(found.and_then(|key| key.revoked_at), Some(START));
    let another: NewKey = new_key(2, blue);
    let refused = later.create_key(another, None).await.expect("answers");
    assert_eq!(refused, CreateKeyOutcome::NoTenant);
    later
        .note_tenant_erasure(blue, Some("blobs".to_owned()))
        .await
        .expect("notes");
    let noted = later.tenant_erasure(blue).await.expect("reads");
    let noted = noted.expect("it is under way");
    assert_eq!(noted.progress.failed.as_deref(), Some("blobs"));
    let unknown = later.begin_tenant_erasure(TenantId(77)).await;
    assert_eq!(unknown.expect("answers"), BeginErasureOutcome::NotFound);
    assert_eq!(
        later.tenant_erasure(TenantId(77)).await.expect("reads"),
        None
    );
}

pub async fn a_held_tenant_is_not_erased(store: &dyn Inspect) {
    let blue = tenant(store, "blue").await.id;
    let patch = TenantPatch {
        retention: Some(Retention {
            hold: true,
            ..Retention::default()
        }),
        ..TenantPatch::default()
    };
    store.update_tenant(blue, patch).await.expect("updates");
    let refused = store.begin_tenant_erasure(blue).await.expect("answers");
    assert_eq!(refused, BeginErasureOutcome::Held);
    assert_eq!(store.erasing_tenants().await.expect("lists"), []);
    assert_eq!(
        store.erase_tenant_rows(blue, 9).await.expect("answers"),
        None
    );
}
