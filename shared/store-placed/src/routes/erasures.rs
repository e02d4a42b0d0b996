//! Erasing tenants: first on the database with a tenant's rows, then at home.

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::placements::Elsewhere;
use mainspring_shared::store::{BeginErasureOutcome, Result, TenantErasures};
use mainspring_shared::tenant::TenantErasure;

use super::by_tenant::placed;
use crate::catalogue::Known;
use crate::store::PlacedStore;

placed! { TenantErasures:
    fn begin_tenant_erasure(tenant: TenantId) -> BeginErasureOutcome = by (begin);
    fn tenant_erasure(tenant: TenantId) -> Option<TenantErasure> = by (progress);
    fn erasing_tenants() -> Vec<TenantId> = home ();
    fn erase_tenant_rows(tenant: TenantId, limit: u32) -> Option<TenantErasure> = by (erase);
    fn note_tenant_erasure(tenant: TenantId, failed: Option<String>) -> () = home ();
}

/// Where a tenant is; fails with `Elsewhere` while a move has frozen it.
async fn settled(store: &PlacedStore, tenant: TenantId) -> Result<Known> {
    let known = store.catalogue.find_again(tenant).await?;
    if known.phase.is_frozen() {
        return Err(Elsewhere.into());
    }
    Ok(known)
}

async fn begin(store: &PlacedStore, tenant: TenantId) -> Result<BeginErasureOutcome> {
    let known = settled(store, tenant).await?;
    let home = store.home();
    let begun = home.ask(home.store.begin_tenant_erasure(tenant)).await?;
    if known.place != 0 && matches!(begun, BeginErasureOutcome::Begun(_)) {
        let place = store.place(known);
        place.ask(place.store.begin_tenant_erasure(tenant)).await?;
    }
    Ok(begun)
}

async fn progress(store: &PlacedStore, tenant: TenantId) -> Result<Option<TenantErasure>> {
    let known = store.catalogue.find(tenant).await?;
    let home = store.home();
    let at_home = home.ask(home.store.tenant_erasure(tenant)).await?;
    if known.place == 0 {
        return Ok(at_home);
    }
    let place = store.place(known);
    let there = place.ask(place.store.tenant_erasure(tenant)).await?;
    Ok(joined(at_home, there))
}

async fn erase(store: &PlacedStore, tenant: TenantId, limit: u32) -> Result<Option<TenantErasure>> {
    let known = settled(store, tenant).await?;
    let home = store.home();
    if known.place == 0 {
        return home.ask(home.store.erase_tenant_rows(tenant, limit)).await;
    }
    let place = store.place(known);
    // Repeat the start there, in case it was interrupted after the home.
    place.ask(place.store.begin_tenant_erasure(tenant)).await?;
    let there = place
        .ask(place.store.erase_tenant_rows(tenant, limit))
        .await?;
    if there.as_ref().is_some_and(|there| there.ended_at.is_none()) {
        let at_home = home.ask(home.store.tenant_erasure(tenant)).await?;
        return Ok(joined(at_home, there));
    }
    let there = place.ask(place.store.tenant_erasure(tenant)).await?;
    let at_home = home
        .ask(home.store.erase_tenant_rows(tenant, limit))
        .await?;
    Ok(joined(at_home, there))
}

/// Merges the records of one erasure on two databases. It ends when it ends at home.
fn joined(at_home: Option<TenantErasure>, there: Option<TenantErasure>) -> Option<TenantErasure> {
    let mut all = at_home?;
    let Some(there) = there else {
        return Some(all);
    };
    for (table, count) in there.progress.removed {
        *all.progress.removed.entry(table).or_default() += count;
    }
    all.progress.blobs_left += there.progress.blobs_left;
    all.progress.failed = all.progress.failed.or(there.progress.failed);
    if there.ended_at.is_none() && there.progress.quiet_since.is_none() {
        all.progress.quiet_since = None;
    }
    Some(all)
}
