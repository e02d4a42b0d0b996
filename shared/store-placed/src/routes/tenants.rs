//! Tenants and their keys, which are at home. A tenant's database has a copy of its limits, under
//! which places, seats and money are taken.

use std::sync::Arc;

use async_trait::async_trait;
use mainspring_shared::id::{KeyId, SendId, TenantId};
use mainspring_shared::store::placements::Elsewhere;
use mainspring_shared::store::{
    CalledSeats, CreateKeyOutcome, CreateTenantOutcome, DeleteTenantOutcome, IdempotencyKey, Keys,
    ListKeys, ListTenants, NewKey, NewTenant, Page, Result, RotateKey, TenantPatch, TenantUsage,
    TenantUsageQuery, Tenants, UpdateTenantOutcome,
};
use mainspring_shared::tenant::{KeyRecord, Pools, Tenant};

use super::by_tenant::placed;
use crate::place::Place;
use crate::store::{GRACE, PlacedStore};

placed! { Tenants:
    fn create_tenant(
        tenant: NewTenant,
        key: Option<IdempotencyKey>,
    ) -> CreateTenantOutcome = home ();
    fn get_tenant(id: TenantId) -> Option<Tenant> = home ();
    fn named_tenant(name: String) -> Option<TenantId> = home ();
    fn tenant_pools() -> Vec<(TenantId, Pools)> = home ();
    fn list_tenants(query: ListTenants) -> Page<Tenant> = home ();
    fn update_tenant(id: TenantId, patch: TenantPatch) -> UpdateTenantOutcome = by (update);
    fn delete_tenant(id: TenantId) -> DeleteTenantOutcome = by (delete);
    fn reserve_sends(
        tenant: TenantId,
        key: Option<KeyId>,
        sends: Vec<SendId>,
        max: u32,
    ) -> u32 = at (tenant);
    fn release_sends(tenant: TenantId, key: Option<KeyId>, sends: Vec<SendId>) -> () = at (tenant);
    fn call_seats(tenant: Option<TenantId>) -> CalledSeats = by (call_seats);
    fn tenant_usage(query: TenantUsageQuery) -> TenantUsage = at (query.tenant);
    fn first_open_send(tenant: TenantId, from: SendId) -> Option<SendId> = at (tenant);
    fn tenant_bytes(tenant: TenantId) -> u64 = at (tenant);
}

placed! { Keys:
    fn create_key(key: NewKey, idempotency: Option<IdempotencyKey>) -> CreateKeyOutcome = home ();
    fn find_key(id: KeyId) -> Option<KeyRecord> = home ();
    fn had_keys() -> bool = home ();
    fn list_keys(query: ListKeys) -> Page<KeyRecord> = home ();
    fn rotate_key(item: RotateKey) -> Option<KeyRecord> = home ();
    fn revoke_key(tenant: TenantId, id: KeyId) -> bool = home ();
    fn touch_keys(ids: Vec<KeyId>) -> () = home ();
}

/// Updates the home first, from where the tenant is read; a repeat catches up on the tenant's
/// database.
async fn update(
    store: &PlacedStore,
    id: TenantId,
    patch: TenantPatch,
) -> Result<UpdateTenantOutcome> {
    let known = store.catalogue.find_again(id).await?;
    if known.phase.is_frozen() {
        return Err(Elsewhere.into());
    }
    let home = store.home();
    if known.place == 0 {
        return home.ask(home.store.update_tenant(id, patch)).await;
    }
    let update = home.placements.update_tenant_at_home(id, patch.clone());
    let outcome = home.ask(update).await?;
    if matches!(outcome, UpdateTenantOutcome::Updated(_)) {
        let place = store.place(known);
        let there = TenantPatch {
            name: None,
            ..patch
        };
        place.ask(place.store.update_tenant(id, there)).await?;
    }
    Ok(outcome)
}

/// Deletes it on its own database first: a tenant with rows is not deleted.
async fn delete(store: &PlacedStore, id: TenantId) -> Result<DeleteTenantOutcome> {
    let known = store.catalogue.find_again(id).await?;
    if known.phase.is_frozen() {
        return Err(Elsewhere.into());
    }
    if known.place != 0 {
        let place = store.place(known);
        let outcome = place.ask(place.store.delete_tenant(id)).await?;
        if outcome == DeleteTenantOutcome::NotEmpty {
            return Ok(outcome);
        }
    }
    let home = store.home();
    home.ask(home.store.delete_tenant(id)).await
}

async fn call_seats(store: &PlacedStore, tenant: Option<TenantId>) -> Result<CalledSeats> {
    let call = move |place: Arc<Place>| async move { place.store.call_seats(tenant).await };
    if let Some(tenant) = tenant {
        return store.at(tenant, call).await;
    }
    let found = store.each(GRACE, call).await.some()?;
    let mut all = CalledSeats::default();
    for (_, part) in found {
        all.enqueue.extend(part.enqueue);
        all.waiting += part.waiting;
    }
    Ok(all)
}

/// Updates copies of limits that a change at home did not reach.
pub(super) async fn follow(store: &PlacedStore) {
    if !store.follows_now() {
        return;
    }
    for row in store.catalogue.rows() {
        let Ok(known) = store.catalogue.known(row.tenant) else {
            continue;
        };
        if known.place == 0 || known.phase.is_frozen() {
            continue;
        }
        if let Err(error) = follow_one(store, row.tenant, store.place(known)).await {
            tracing::debug!(
                tenant.id = %row.tenant,
                %error,
                "could not synchronize the limits of a tenant"
            );
        }
    }
}

async fn follow_one(store: &PlacedStore, tenant: TenantId, place: &Arc<Place>) -> Result<()> {
    let home = store.home();
    let wanted = home.ask(home.store.get_tenant(tenant)).await?;
    let found = place.ask(place.store.get_tenant(tenant)).await?;
    let (Some(wanted), Some(found)) = (wanted, found) else {
        return Ok(());
    };
    if wanted.erasing_at.is_some() && found.erasing_at.is_none() {
        place.ask(place.store.begin_tenant_erasure(tenant)).await?;
    }
    let is_same = wanted.limits == found.limits
        && wanted.weight == found.weight
        && wanted.retention == found.retention
        && wanted.pools == found.pools;
    if !is_same {
        let patch = TenantPatch {
            name: None,
            limits: Some(wanted.limits),
            weight: Some(wanted.weight),
            retention: Some(wanted.retention),
            pools: Some(wanted.pools),
        };
        place.ask(place.store.update_tenant(tenant, patch)).await?;
    }
    Ok(())
}
