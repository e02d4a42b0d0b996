//! Erasing tenants.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{BeginErasureOutcome, ERASED_MS_MIN, Result, TenantErasures};
use mainspring_shared::tenant::{ErasureProgress, Limits, TenantErasure};

use crate::memory::ModelStore;
use crate::state::State;

#[async_trait]
impl TenantErasures for ModelStore {
    async fn begin_tenant_erasure(&self, tenant: TenantId) -> Result<BeginErasureOutcome> {
        let (mut state, now) = self.begin();
        let Some(found) = state.tenants.rows.get_mut(tenant) else {
            return Ok(BeginErasureOutcome::NotFound);
        };
        if found.retention.hold {
            return Ok(BeginErasureOutcome::Held);
        }
        let begun_at = *found.erasing_at.get_or_insert(now);
        let keys = state.tenants.api_keys.values_mut();
        for key in keys.filter(|key| key.tenant == tenant) {
            key.revoked_at.get_or_insert(now);
        }
        let erasure = state.tenants.erasures.entry(tenant);
        let erasure = erasure.or_insert_with(|| TenantErasure {
            tenant,
            begun_at,
            ended_at: None,
            progress: ErasureProgress::default(),
        });
        Ok(BeginErasureOutcome::Begun(erasure.clone()))
    }

    async fn tenant_erasure(&self, tenant: TenantId) -> Result<Option<TenantErasure>> {
        Ok(self.begin().0.tenants.erasures.get(&tenant).cloned())
    }

    async fn erasing_tenants(&self) -> Result<Vec<TenantId>> {
        let (state, _) = self.begin();
        let open = state.tenants.erasures.values();
        let open = open.filter(|erasure| erasure.ended_at.is_none());
        Ok(open.map(|erasure| erasure.tenant).collect())
    }

    async fn erase_tenant_rows(
        &self,
        tenant: TenantId,
        _limit: u32,
    ) -> Result<Option<TenantErasure>> {
        let (mut state, now) = self.begin();
        let Some(mut found) = state.tenants.erasures.get(&tenant).cloned() else {
            return Ok(None);
        };
        if found.ended_at.is_some() {
            return Ok(None);
        }
        let removed = state.erase(tenant);
        let left = state.blobs_of(tenant);
        if found.progress.step(removed, left, now, ERASED_MS_MIN) {
            found.progress.failed = None;
            found.ended_at = Some(now);
            state.tenants.rows.forget(tenant);
            state.apply_limits(tenant, &Limits::default(), now);
        }
        state.tenants.erasures.insert(tenant, found.clone());
        Ok(Some(found))
    }

    async fn note_tenant_erasure(&self, tenant: TenantId, failed: Option<String>) -> Result<()> {
        let (mut state, _) = self.begin();
        let found = state.tenants.erasures.get_mut(&tenant);
        if let Some(found) = found.filter(|found| found.ended_at.is_none()) {
            found.progress.failed = failed;
        }
        Ok(())
    }
}

/// Removes entries from a map. Returns their number.
fn drop_from<K: Ord, V>(map: &mut BTreeMap<K, V>, is_gone: impl Fn(&K) -> bool) -> u64 {
    let before = map.len();
    map.retain(|key, _| !is_gone(key));
    (before - map.len()) as u64
}

fn count<T>(rows: impl Iterator<Item = T>, is_of: impl Fn(&T) -> bool) -> u64 {
    rows.filter(is_of).count() as u64
}

/// Applies a macro to the maps whose keys contain a tenant: `table: map => field`, where `field` is
/// the tenant's in the key.
macro_rules! tenant_maps {
    ($apply:ident, $state:expr, $tenant:expr) => {
        $apply! { $state, $tenant,
            "session_hot": sessions => tenant, "sends": sends.homes => 0,
            "session_names": tenants.names => 0,
            "idempotency_keys": tenants.requests => 0, "lists": agents.lists => 0,
            "skills": agents.skills => 0, "skill_faults": agents.broken_skills => 0,
            "memories": memory.entries => 0, "extractions": memory.extractions => 0,
            "memory_erasures": memory.erasures => 0, "memory_usage": memory.usage => 0,
            "runs": runs.rows => tenant, "timers": timers => 0,
            "agents_named": agents.named => tenant,
            "webhooks": webhooks.endpoints => 0, "webhook_deliveries": webhooks.deliveries => 0,
            "pauses": sends.pauses => tenant, "provider_keys": tenants.provider_keys => 0,
            "pause_waits": sends.pause_waits => 0, "open_sends": sends.places => 0,
            "key_sends": sends.key_places => 0, "seats": tenants.seats => tenant,
        }
    };
}

macro_rules! counted {
    ($state:expr, $tenant:expr, $($table:literal: $($map:ident).+ => $part:tt,)+) => {
        vec![$(($table, count($state.$($map).+.keys(), |key| key.$part == $tenant))),+]
    };
}

macro_rules! dropped {
    ($state:expr, $tenant:expr, $($table:literal: $($map:ident).+ => $part:tt,)+) => {
        vec![$(($table, drop_from(&mut $state.$($map).+, |key| key.$part == $tenant))),+]
    };
}

impl State {
    /// Number of a tenant's rows by the tables of a database, for the tables that have a
    /// counterpart here.
    pub(crate) fn rows_of(&self, tenant: TenantId) -> BTreeMap<String, u64> {
        let mut rows = tenant_maps!(counted, self, tenant);
        rows.extend(self.money_rows(tenant));
        rows.extend([
            (
                "api_keys",
                count(self.tenants.api_keys.values(), |key| key.tenant == tenant),
            ),
            (
                "webhook_events",
                count(self.webhooks.events.iter(), |news| news.tenant == tenant),
            ),
            (
                "blobs",
                count(self.blobs.rows.keys(), |key| key.0 == tenant),
            ),
            (
                "blob_chunks",
                count(self.blobs.chunks.keys(), |key| key.0.tenant == tenant),
            ),
        ]);
        let found = rows.into_iter().filter(|(_, count)| *count > 0);
        found
            .map(|(table, count)| (table.to_owned(), count))
            .collect()
    }

    fn blobs_of(&self, tenant: TenantId) -> u64 {
        let rows = self.rows_of(tenant);
        ["blobs", "blob_chunks"]
            .into_iter()
            .filter_map(|table| rows.get(table))
            .sum()
    }

    /// Removes everything of a tenant. Its blobs are only released.
    fn erase(&mut self, tenant: TenantId) -> Vec<(String, u64)> {
        let events = self.webhooks.events.len();
        self.webhooks.events.retain(|news| news.tenant != tenant);
        let events = (events - self.webhooks.events.len()) as u64;
        let keys = self.tenants.api_keys.len();
        self.tenants.api_keys.retain(|_, key| key.tenant != tenant);
        let keys = (keys - self.tenants.api_keys.len()) as u64;
        let money = self.money_rows(tenant);
        self.forget_money(tenant);
        let mut removed = tenant_maps!(dropped, self, tenant);
        removed.extend([("webhook_events", events), ("api_keys", keys)]);
        removed.extend(money);
        for (_, blob) in self
            .blobs
            .rows
            .iter_mut()
            .filter(|((of, _), _)| *of == tenant)
        {
            blob.let_go();
        }
        removed
            .into_iter()
            .map(|(table, count)| (table.to_owned(), count))
            .collect()
    }
}
