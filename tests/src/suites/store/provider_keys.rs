//! Keys that tenants bring for model providers.

use mainspring_shared::id::TenantId;
use mainspring_shared::provider_key::ProviderKeyRecord;
use mainspring_shared::store::{DeleteTenantOutcome, Inspect, ListProviderKeys, SetProviderKey};

use super::prelude::*;
use super::tenants::new;

/// Sets the default tenant's key for a provider.
pub fn setting(provider: &str, sealed: &str) -> SetProviderKey {
    SetProviderKey {
        tenant: TenantId::DEFAULT,
        provider: provider.to_owned(),
        sealed: sealed.to_owned(),
        hint: "abcd".to_owned(),
    }
}

async fn set(store: &dyn Inspect, ms: i64, item: SetProviderKey) -> ProviderKeyRecord {
    let set = store.at(time(ms)).set_provider_key(item).await;
    set.expect("sets")
}

async fn find(store: &dyn Inspect, tenant: TenantId, name: &str) -> Option<ProviderKeyRecord> {
    let found = store.find_provider_key(tenant, name.to_owned()).await;
    found.expect("finds")
}

async fn names(store: &dyn Inspect, after: Option<&str>, limit: u32) -> (Vec<String>, bool) {
    let query = ListProviderKeys {
        tenant: TenantId::DEFAULT,
        after: after.map(str::to_owned),
        limit,
    };
    let page = store.list_provider_keys(query).await.expect("lists");
    let names = page.data.into_iter().map(|key| key.provider);
    (names.collect(), page.more)
}

pub async fn a_key_takes_the_place_of_the_one_before(store: &dyn Inspect) {
    assert_eq!(find(store, TenantId::DEFAULT, "main").await, None);
    let first = set(store, 5, setting("main", "v1.one")).await;
    assert_eq!((first.sealed.as_str(), first.set_at), ("v1.one", time(5)));
    let second = set(store, 9, setting("main", "v1.two")).await;
    assert_eq!((second.hint.as_str(), second.set_at), ("abcd", time(9)));
    assert_eq!(find(store, TenantId::DEFAULT, "main").await, Some(second));
    assert_eq!(
        find(store, TenantId::DEFAULT, "Main").await,
        None,
        "to the letter"
    );
    assert_eq!(
        find(store, TenantId(2), "main").await,
        None,
        "another tenant's"
    );
}

pub async fn keys_are_listed_by_their_providers(store: &dyn Inspect) {
    for name in ["b", "a", "Z"] {
        set(store, 5, setting(name, "v1.x")).await;
    }
    let mut others = setting("c", "v1.x");
    others.tenant = TenantId(2);
    set(store, 5, others).await;
    let page = |names: &[&str], more| {
        let names = names.iter().map(|name| (*name).to_owned());
        (names.collect::<Vec<_>>(), more)
    };
    assert_eq!(names(store, None, 2).await, page(&["Z", "a"], true));
    assert_eq!(names(store, Some("a"), 2).await, page(&["b"], false));
}

pub async fn a_deleted_key_is_gone(store: &dyn Inspect) {
    set(store, 5, setting("main", "v1.x")).await;
    let delete = || store.delete_provider_key(TenantId::DEFAULT, "main".to_owned());
    assert!(delete().await.expect("deletes"));
    assert!(!delete().await.expect("deletes"), "there is none any more");
    assert_eq!(find(store, TenantId::DEFAULT, "main").await, None);
}

pub async fn the_provider_keys_of_a_tenant_go_with_it(store: &dyn Inspect) {
    let created = store.at(time(0)).create_tenant(new("blue"), None).await;
    created.expect("creates");
    let blue = TenantId(2);
    let mut item = setting("main", "v1.x");
    item.tenant = blue;
    set(store, 5, item).await;
    set(store, 5, setting("main", "v1.y")).await;
    let deleted = store.at(time(10)).delete_tenant(blue).await;
    assert_eq!(deleted.expect("deletes"), DeleteTenantOutcome::Deleted);
    assert_eq!(find(store, blue, "main").await, None);
    assert!(find(store, TenantId::DEFAULT, "main").await.is_some());
}
