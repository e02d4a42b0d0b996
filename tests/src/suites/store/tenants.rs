//! Tenants and API keys.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mainspring_shared::id::{ErasureId, KeyId, TenantId};
use mainspring_shared::store::{
    API_KEY_KEEP, CreateKeyOutcome, CreateTenantOutcome, DeleteTenantOutcome, EraseMemories,
    IdempotencyKey, Inspect, ListErasures, ListKeys, ListTenants, NewKey, NewSession, NewTenant,
    RotateKey, TenantPatch, UpdateTenantOutcome,
};
use mainspring_shared::tenant::{
    Binding, KeyLimits, KeyRecord, Limits, Pools, Retention, Scope, Scopes, Tenant,
};
use mainspring_shared::time::{Span, Timestamp};
use uuid::Uuid;

use super::prelude::*;

fn limits(requests: u32) -> Limits {
    Limits {
        requests_per_second: Some(requests),
        ..Limits::default()
    }
}

pub fn new(name: &str) -> NewTenant {
    NewTenant {
        name: name.to_owned(),
        limits: limits(5),
        weight: 1,
        retention: Retention::default(),
        pools: Pools::default(),
    }
}

fn kept() -> Retention {
    Retention {
        sends: Some(Span(Duration::from_hours(48))),
        hold: true,
        ..Retention::default()
    }
}

fn request(route: &str, body: u8) -> IdempotencyKey {
    IdempotencyKey {
        tenant: TenantId::DEFAULT,
        route: route.to_owned(),
        key: "k1".to_owned(),
        body_hash: [body; 32],
    }
}

pub fn new_key(n: u128, tenant: TenantId) -> NewKey {
    NewKey {
        id: KeyId(Uuid::from_u128(n)),
        tenant,
        name: format!("key {n}"),
        scopes: Scopes(BTreeSet::from([Scope::Read, Scope::Answer])),
        binding: None,
        limits: KeyLimits::default(),
        hash: [n as u8; 32],
        expires_at: Some(Timestamp(START.0 + 1_000_000)),
    }
}

pub(super) async fn tenant(store: &dyn Inspect, name: &str) -> Tenant {
    match store.create_tenant(new(name), None).await.expect("creates") {
        CreateTenantOutcome::Created(tenant) => tenant,
        other => panic!("{other:?}"),
    }
}

async fn api_key(store: &dyn Inspect, n: u128, tenant: TenantId) -> KeyRecord {
    let created = store.create_key(new_key(n, tenant), None).await;
    match created.expect("creates") {
        CreateKeyOutcome::Created(key) => key,
        other => panic!("{other:?}"),
    }
}

pub async fn the_default_tenant_exists_from_the_start(store: &dyn Inspect) {
    let found = store.get_tenant(TenantId::DEFAULT).await.expect("reads");
    assert_eq!(found.expect("exists").name, "default");
    assert_eq!(store.get_tenant(TenantId(2)).await.expect("reads"), None);
}

pub async fn a_tenant_gets_the_next_number_and_a_name_of_its_own(store: &dyn Inspect) {
    let store = &*store.at(START);
    let first = tenant(store, "blue").await;
    assert_eq!(first.id, TenantId(2));
    assert_eq!(first.limits, limits(5));
    assert_eq!(first.created_at, START);
    let again = store
        .create_tenant(new("blue"), None)
        .await
        .expect("answers");
    assert_eq!(again, CreateTenantOutcome::NameTaken);
    assert_eq!(tenant(store, "green").await.id, TenantId(3));
    let page = |after, limit| store.list_tenants(ListTenants { after, limit });
    let all = page(None, 2).await.expect("lists");
    assert!(all.more);
    let numbers: Vec<i32> = all.data.iter().map(|tenant| tenant.id.0).collect();
    assert_eq!(numbers, [1, 2]);
    let rest = page(Some(TenantId(2)), 2).await.expect("lists");
    assert_eq!(rest.data.len(), 1);
    assert!(!rest.more);
}

pub async fn a_tenant_is_found_by_its_name(store: &dyn Inspect) {
    let blue = tenant(store, "blue").await;
    let named = |name: &str| store.named_tenant(name.to_owned());
    assert_eq!(named("blue").await.expect("reads"), Some(blue.id));
    assert_eq!(
        named("default").await.expect("reads"),
        Some(TenantId::DEFAULT)
    );
    for other in ["Blue", "blue ", "blu", ""] {
        assert_eq!(named(other).await.expect("reads"), None, "{other:?}");
    }
    let deleted = store.delete_tenant(blue.id).await.expect("answers");
    assert_eq!(deleted, DeleteTenantOutcome::Deleted);
    assert_eq!(named("blue").await.expect("reads"), None);
}

pub async fn a_repeated_request_creates_one_tenant(store: &dyn Inspect) {
    let key = Some(request("POST /v1/tenants", 1));
    let first = store.create_tenant(new("blue"), key.clone()).await;
    let CreateTenantOutcome::Created(first) = first.expect("creates") else {
        panic!("the first request creates");
    };
    let again = store.create_tenant(new("blue"), key.clone()).await;
    assert_eq!(
        again.expect("answers"),
        CreateTenantOutcome::Replayed(first.clone())
    );
    let other = Some(request("POST /v1/tenants", 2));
    let other = store
        .create_tenant(new("red"), other)
        .await
        .expect("answers");
    assert_eq!(other, CreateTenantOutcome::Mismatch);
    store.delete_tenant(first.id).await.expect("deletes");
    let again = store
        .create_tenant(new("blue"), key)
        .await
        .expect("answers");
    assert_eq!(again, CreateTenantOutcome::Gone);
}

pub async fn a_tenant_is_renamed_to_a_name_that_is_free(store: &dyn Inspect) {
    let blue = tenant(store, "blue").await;
    tenant(store, "green").await;
    let rename = |name: &str| TenantPatch {
        name: Some(name.to_owned()),
        ..TenantPatch::default()
    };
    let taken = store.update_tenant(blue.id, rename("green")).await;
    assert_eq!(taken.expect("answers"), UpdateTenantOutcome::NameTaken);
    let same = store.update_tenant(blue.id, rename("blue")).await;
    assert_eq!(
        same.expect("answers"),
        UpdateTenantOutcome::Updated(Box::new(blue.clone()))
    );
    let patch = TenantPatch {
        limits: Some(Limits::default()),
        weight: Some(7),
        retention: Some(kept()),
        ..rename("navy")
    };
    let renamed = Tenant {
        name: "navy".to_owned(),
        limits: Limits::default(),
        weight: 7,
        retention: kept(),
        ..blue
    };
    let changed = store.update_tenant(blue.id, patch).await.expect("answers");
    assert_eq!(
        changed,
        UpdateTenantOutcome::Updated(Box::new(renamed.clone()))
    );
    assert_eq!(
        store.get_tenant(blue.id).await.expect("reads"),
        Some(renamed)
    );
    let unknown = store.update_tenant(TenantId(77), rename("x")).await;
    assert_eq!(unknown.expect("answers"), UpdateTenantOutcome::NotFound);
}

pub async fn what_a_tenant_says_of_pools_is_kept_and_listed(store: &dyn Inspect) {
    let pools = |allowed: &[&str], own: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Pools {
            allowed: (!allowed.is_empty()).then(|| names(allowed)),
            own: names(own),
            ..Pools::default()
        }
    };
    let list = async || store.tenant_pools().await.expect("reads");
    assert_eq!(list().await, []);
    let blue = tenant(store, "blue").await.id;
    let owner = NewTenant {
        pools: pools(&[], &["red"]),
        ..new("red")
    };
    let created = store.create_tenant(owner, None).await.expect("creates");
    let red = match created {
        CreateTenantOutcome::Created(tenant) => tenant,
        other => panic!("{other:?}"),
    };
    assert_eq!(red.pools, pools(&[], &["red"]));
    let change = async |given: Option<Pools>| {
        let patch = TenantPatch {
            pools: given,
            ..TenantPatch::default()
        };
        match store.update_tenant(blue, patch).await.expect("answers") {
            UpdateTenantOutcome::Updated(tenant) => tenant.pools,
            other => panic!("{other:?}"),
        }
    };
    let bounded = pools(&["default", "gpu"], &["blue"]);
    assert_eq!(change(Some(bounded.clone())).await, bounded);
    assert_eq!(change(None).await, bounded, "what is not named stays");
    let found = store
        .get_tenant(blue)
        .await
        .expect("reads")
        .expect("it is there");
    assert_eq!(found.pools, bounded);
    assert_eq!(list().await, [(blue, bounded), (red.id, red.pools.clone())]);
    assert_eq!(change(Some(Pools::default())).await, Pools::default());
    assert_eq!(list().await, [(red.id, red.pools)]);
    store.delete_tenant(red.id).await.expect("deletes");
    assert_eq!(list().await, []);
}

pub async fn only_an_empty_tenant_is_deleted_and_its_keys_with_it(store: &dyn Inspect) {
    let store = &*store.at(START);
    let blue = tenant(store, "blue").await;
    let mine = api_key(store, 1, blue.id).await;
    let session = NewSession {
        key: mainspring_shared::id::SessionKey {
            tenant: blue.id,
            ..key(1)
        },
        ..new_session(1)
    };
    let session_key = session.key;
    store
        .create_sessions(vec![(session, None)])
        .await
        .expect("creates");
    let full = store.delete_tenant(blue.id).await.expect("answers");
    assert_eq!(full, DeleteTenantOutcome::NotEmpty);
    assert_eq!(
        store.find_key(mine.id).await.expect("reads"),
        Some(mine.clone())
    );
    store
        .delete_session(session_key, boot(1))
        .await
        .expect("deletes");
    let erase = EraseMemories {
        tenant: blue.id,
        namespace: "user/1".parse().expect("a namespace"),
        erasure: ErasureId(Uuid::from_u128(1)),
        fingerprint: "print".to_owned(),
        limit: 10,
        by: mine.id.to_string(),
    };
    store.erase_memories(erase).await.expect("erases");
    let empty = store.delete_tenant(blue.id).await.expect("answers");
    assert_eq!(empty, DeleteTenantOutcome::Deleted);
    let erasures = ListErasures {
        tenant: blue.id,
        fingerprint: None,
        before: None,
        limit: 10,
    };
    let proofs = store.list_erasures(erasures).await.expect("reads").data;
    // The proof of the erasure remains, but not who requested it.
    let proofs: Vec<_> = proofs
        .iter()
        .map(|it| (&*it.namespace_sha256, &it.by))
        .collect();
    assert_eq!(proofs, [("print", &None)]);
    assert_eq!(store.find_key(mine.id).await.expect("reads"), None);
    let again = store.delete_tenant(blue.id).await.expect("answers");
    assert_eq!(again, DeleteTenantOutcome::NotFound);
    let refused = store.create_key(new_key(2, blue.id), None).await;
    assert_eq!(refused.expect("answers"), CreateKeyOutcome::NoTenant);
    // The name can be reused, the number cannot.
    assert_eq!(tenant(store, "blue").await.id, TenantId(blue.id.0 + 1));
}

pub async fn a_key_is_found_by_its_id_as_it_was_created(store: &dyn Inspect) {
    let store = &*store.at(START);
    let created = api_key(store, 9, TenantId::DEFAULT).await;
    let expected = KeyRecord {
        id: KeyId(Uuid::from_u128(9)),
        tenant: TenantId::DEFAULT,
        name: "key 9".to_owned(),
        scopes: Scopes(BTreeSet::from([Scope::Read, Scope::Answer])),
        binding: None,
        limits: KeyLimits::default(),
        hash: [9; 32],
        previous: None,
        created_at: START,
        expires_at: Some(Timestamp(START.0 + 1_000_000)),
        revoked_at: None,
        last_used_at: None,
    };
    assert_eq!(created, expected);
    assert_eq!(
        store.find_key(created.id).await.expect("reads"),
        Some(expected)
    );
    let unknown = store.find_key(KeyId(Uuid::from_u128(10))).await;
    assert_eq!(unknown.expect("reads"), None);
}

pub async fn a_key_keeps_what_it_is_bound_to(store: &dyn Inspect) {
    let binding = Binding {
        agents: BTreeSet::from(["support".parse().expect("a name")]),
        metadata: BTreeMap::from([("user".to_owned(), "7 \u{1f511}".to_owned())]),
        namespace: Some("user/7".parse().expect("a namespace")),
        ..Binding::default()
    };
    let new = NewKey {
        binding: Some(binding.clone()),
        ..new_key(9, TenantId::DEFAULT)
    };
    let created = match store.create_key(new, None).await.expect("creates") {
        CreateKeyOutcome::Created(key) => key,
        other => panic!("{other:?}"),
    };
    assert_eq!(created.binding.as_ref(), Some(&binding));
    assert_eq!(created.scopes, new_key(9, TenantId::DEFAULT).scopes);
    let found = store.find_key(created.id).await.expect("reads");
    assert_eq!(found.as_ref(), Some(&created));
    let item = RotateKey {
        tenant: TenantId::DEFAULT,
        id: created.id,
        hash: [7; 32],
        overlap_ms: 500,
    };
    let rotated = store.rotate_key(item).await.expect("rotates");
    assert_eq!(rotated.and_then(|key| key.binding), Some(binding));
}

pub async fn a_key_keeps_its_limits(store: &dyn Inspect) {
    let limits = KeyLimits {
        requests_per_second: Some(7),
        sends_open: Some(3),
        ..KeyLimits::default()
    };
    let new = NewKey {
        limits: limits.clone(),
        ..new_key(9, TenantId::DEFAULT)
    };
    let created = match store.create_key(new, None).await.expect("creates") {
        CreateKeyOutcome::Created(key) => key,
        other => panic!("{other:?}"),
    };
    assert_eq!(created.limits, limits);
    let found = store.find_key(created.id).await.expect("reads");
    assert_eq!(found.as_ref(), Some(&created));
    let list = ListKeys {
        tenant: TenantId::DEFAULT,
        before: None,
        limit: 1,
    };
    assert_eq!(
        store.list_keys(list).await.expect("lists").data,
        std::slice::from_ref(&created)
    );
    let item = RotateKey {
        tenant: TenantId::DEFAULT,
        id: created.id,
        hash: [7; 32],
        overlap_ms: 500,
    };
    let rotated = store.rotate_key(item).await.expect("rotates");
    assert_eq!(rotated.map(|key| key.limits), Some(limits));
}

pub async fn a_repeated_request_creates_one_key(store: &dyn Inspect) {
    let request = |body| Some(request("POST /v1/keys", body));
    let first = store
        .create_key(new_key(1, TenantId::DEFAULT), request(1))
        .await;
    let CreateKeyOutcome::Created(first) = first.expect("creates") else {
        panic!("the first request creates");
    };
    let again = store
        .create_key(new_key(2, TenantId::DEFAULT), request(1))
        .await;
    assert_eq!(again.expect("answers"), CreateKeyOutcome::Replayed(first));
    let other = store
        .create_key(new_key(3, TenantId::DEFAULT), request(2))
        .await;
    assert_eq!(other.expect("answers"), CreateKeyOutcome::Mismatch);
    let query = ListKeys {
        tenant: TenantId::DEFAULT,
        before: None,
        limit: 10,
    };
    assert_eq!(store.list_keys(query).await.expect("lists").data.len(), 1);
}

pub async fn keys_are_listed_newest_first_and_only_their_tenants(store: &dyn Inspect) {
    let blue = tenant(store, "blue").await;
    for n in 1..=3 {
        api_key(store, n, TenantId::DEFAULT).await;
    }
    api_key(store, 4, blue.id).await;
    let list = |before: Option<u128>| ListKeys {
        tenant: TenantId::DEFAULT,
        before: before.map(|n| KeyId(Uuid::from_u128(n))),
        limit: 2,
    };
    let first = store.list_keys(list(None)).await.expect("lists");
    let ids: Vec<u128> = first.data.iter().map(|key| key.id.0.as_u128()).collect();
    assert_eq!((ids, first.more), (vec![3, 2], true));
    let rest = store.list_keys(list(Some(2))).await.expect("lists");
    let ids: Vec<u128> = rest.data.iter().map(|key| key.id.0.as_u128()).collect();
    assert_eq!((ids, rest.more), (vec![1], false));
}

pub async fn a_rotation_keeps_the_secret_before_for_its_overlap(store: &dyn Inspect) {
    let blue = tenant(store, "blue").await;
    let store = &*store.at(START);
    let key = api_key(store, 1, TenantId::DEFAULT).await;
    let item = RotateKey {
        tenant: TenantId::DEFAULT,
        id: key.id,
        hash: [7; 32],
        overlap_ms: 500,
    };
    let rotated = store.rotate_key(item).await.expect("rotates");
    let expected = KeyRecord {
        hash: [7; 32],
        previous: Some((Timestamp(START.0 + 500), key.hash)),
        ..key.clone()
    };
    assert_eq!(rotated, Some(expected));
    let others = RotateKey {
        tenant: blue.id,
        ..item
    };
    assert_eq!(store.rotate_key(others).await.expect("answers"), None);
    let late = store.at(Timestamp(START.0 + 1_000_000));
    assert_eq!(late.rotate_key(item).await.expect("answers"), None);
}

pub async fn a_revoked_key_keeps_the_time_of_its_first_revocation(store: &dyn Inspect) {
    let blue = tenant(store, "blue").await;
    let now = store.at(START);
    let key = api_key(&*now, 1, TenantId::DEFAULT).await;
    assert!(!now.revoke_key(blue.id, key.id).await.expect("answers"));
    assert!(now.revoke_key(key.tenant, key.id).await.expect("revokes"));
    let later = store.at(Timestamp(START.0 + 5));
    assert!(later.revoke_key(key.tenant, key.id).await.expect("answers"));
    let found = store
        .find_key(key.id)
        .await
        .expect("reads")
        .expect("is kept");
    assert_eq!(found.revoked_at, Some(START));
    let rotate = RotateKey {
        tenant: key.tenant,
        id: key.id,
        hash: [7; 32],
        overlap_ms: 0,
    };
    assert_eq!(later.rotate_key(rotate).await.expect("answers"), None);
}

pub async fn a_key_is_forgotten_a_while_after_it_was_revoked_or_has_expired(store: &dyn Inspect) {
    let now = store.at(START);
    let expires = api_key(&*now, 1, TenantId::DEFAULT).await;
    let revoked = api_key(&*now, 2, TenantId::DEFAULT).await;
    let unlimited = NewKey {
        expires_at: None,
        ..new_key(3, TenantId::DEFAULT)
    };
    now.create_key(unlimited, None).await.expect("creates");
    let revoke = now.revoke_key(revoked.tenant, revoked.id);
    assert!(revoke.await.expect("revokes"));
    let sweep = async |after: i64, keep: Duration| {
        let ms = START.0 + API_KEY_KEEP.as_millis() as i64 + after;
        let swept = store.at(Timestamp(ms)).sweep_retention(keep).await;
        swept.expect("sweeps")
    };
    let shown = async |n: u128| {
        let found = store.find_key(KeyId(Uuid::from_u128(n))).await;
        found.expect("reads").is_some()
    };
    let day = Duration::from_hours(24);
    assert_eq!(sweep(0, day).await, 0);
    // A key is kept for as long as the request that created it may be repeated.
    assert_eq!(sweep(1, API_KEY_KEEP + day).await, 0);
    assert_eq!(sweep(1, day).await, 1);
    assert!(!shown(2).await && shown(1).await);
    let expiry = expires.expires_at.expect("expires").0 - START.0;
    assert_eq!(sweep(expiry, day).await, 0);
    assert_eq!(sweep(expiry + 1, day).await, 1);
    assert!(!shown(1).await && shown(3).await);
}

pub async fn that_there_were_keys_is_remembered_when_none_is_left(store: &dyn Inspect) {
    assert!(!store.had_keys().await.expect("answers"));
    let blue = tenant(store, "blue").await;
    let refused = store.create_key(new_key(9, TenantId(77)), None).await;
    assert_eq!(refused.expect("answers"), CreateKeyOutcome::NoTenant);
    assert!(!store.had_keys().await.expect("answers"));
    let now = store.at(START);
    let key = api_key(&*now, 1, blue.id).await;
    assert!(store.had_keys().await.expect("answers"));
    assert!(now.revoke_key(blue.id, key.id).await.expect("revokes"));
    let day = Duration::from_hours(24);
    let later = store.at(Timestamp(START.0 + API_KEY_KEEP.as_millis() as i64 + 1));
    assert_eq!(later.sweep_retention(day).await.expect("sweeps"), 1);
    assert_eq!(store.find_key(key.id).await.expect("reads"), None);
    assert!(store.had_keys().await.expect("answers"));
    let deleted = store.delete_tenant(blue.id).await.expect("answers");
    assert_eq!(deleted, DeleteTenantOutcome::Deleted);
    assert!(store.had_keys().await.expect("answers"));
}

pub async fn the_last_use_of_a_key_is_noted(store: &dyn Inspect) {
    let key = api_key(store, 1, TenantId::DEFAULT).await;
    let other = api_key(store, 2, TenantId::DEFAULT).await;
    let unknown = KeyId(Uuid::from_u128(3));
    let now = store.at(START);
    now.touch_keys(vec![key.id, unknown]).await.expect("notes");
    let used = |found: Option<KeyRecord>| found.expect("exists").last_used_at;
    assert_eq!(
        used(store.find_key(key.id).await.expect("reads")),
        Some(START)
    );
    assert_eq!(used(store.find_key(other.id).await.expect("reads")), None);
}
