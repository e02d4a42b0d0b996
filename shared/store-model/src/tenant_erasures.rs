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
        let Some(found) = state.tenants.get_mut(tenant) else {
            return Ok(BeginErasureOutcome::NotFound);
        };
        if found.retention.hold {
            return Ok(BeginErasureOutcome::Held);
        }
        let begun_at = *found.erasing_at.get_or_insert(now);
        let keys = state.api_keys.values_mut();
        for key in keys.filter(|key| key.tenant == tenant) {
            key.revoked_at.get_or_insert(now);
        }
        let erasure = state.tenant_erasures.entry(tenant);
        let erasure = erasure.or_insert_with(|| TenantErasure {
            tenant,
            begun_at,
            ended_at: None,
            progress: ErasureProgress::default(),
        });
        Ok(BeginErasureOutcome::Begun(erasure.clone()))
    }

    async fn tenant_erasure(&self, tenant: TenantId) -> Result<Option<TenantErasure>> {
        Ok(self.begin().0.tenant_erasures.get(&tenant).cloned())
    }

    async fn erasing_tenants(&self) -> Result<Vec<TenantId>> {
        let (state, _) = self.begin();
        let open = state.tenant_erasures.values();
        let open = open.filter(|erasure| erasure.ended_at.is_none());
        Ok(open.map(|erasure| erasure.tenant).collect())
    }

    async fn erase_tenant_rows(
        &self,
        tenant: TenantId,
        _limit: u32,
    ) -> Result<Option<TenantErasure>> {
        let (mut state, now) = self.begin();
        let Some(mut found) = state.tenant_erasures.get(&tenant).cloned() else {
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
            state.tenants.forget(tenant);
            state.follow_limits(tenant, &Limits::default(), now);
        }
        state.tenant_erasures.insert(tenant, found.clone());
        Ok(Some(found))
    }

    async fn note_tenant_erasure(&self, tenant: TenantId, failed: Option<String>) -> Result<()> {
        let (mut state, _) = self.begin();
        let found = state.tenant_erasures.get_mut(&tenant);
        if let Some(found) = found.filter(|found| found.ended_at.is_none()) {
            found.progress.failed = failed;
        }
        Ok(())
    }
}

/// Removes from a map, and says how many.
fn drop_from<K: Ord, V>(map: &mut BTreeMap<K, V>, is_gone: impl Fn(&K) -> bool) -> u64 {
    let before = map.len();
    map.retain(|key, _| !is_gone(key));
    (before - map.len()) as u64
}

impl State {
    /// How much there is of a tenant, by the tables that a database would have it in, as far as they are maps here.
    pub(crate) fn rows_of(&self, tenant: TenantId) -> BTreeMap<String, u64> {
        let counts = [
            (
                "session_hot",
                self.sessions
                    .keys()
                    .filter(|key| key.tenant == tenant)
                    .count(),
            ),
            (
                "sends",
                self.homes.keys().filter(|key| key.0 == tenant).count(),
            ),
            (
                "idempotency_keys",
                self.requests.keys().filter(|key| key.0 == tenant).count(),
            ),
            (
                "blobs",
                self.blobs.keys().filter(|key| key.0 == tenant).count(),
            ),
            (
                "blob_chunks",
                self.chunks
                    .keys()
                    .filter(|key| key.0.tenant == tenant)
                    .count(),
            ),
            (
                "lists",
                self.lists.keys().filter(|key| key.0 == tenant).count(),
            ),
            (
                "skills",
                self.skills.keys().filter(|key| key.0 == tenant).count(),
            ),
            (
                "skill_faults",
                self.broken_skills
                    .keys()
                    .filter(|key| key.0 == tenant)
                    .count(),
            ),
            (
                "memories",
                self.memories.keys().filter(|key| key.0 == tenant).count(),
            ),
            (
                "extractions",
                self.extractions
                    .keys()
                    .filter(|key| key.0 == tenant)
                    .count(),
            ),
            (
                "memory_erasures",
                self.memory_erasures
                    .keys()
                    .filter(|key| key.0 == tenant)
                    .count(),
            ),
            (
                "memory_usage",
                self.memory_usage
                    .keys()
                    .filter(|key| key.0 == tenant)
                    .count(),
            ),
            (
                "runs",
                self.runs.keys().filter(|key| key.tenant == tenant).count(),
            ),
            (
                "timers",
                self.timers.keys().filter(|key| key.0 == tenant).count(),
            ),
            (
                "agents_named",
                self.agents
                    .keys()
                    .filter(|key| key.tenant == tenant)
                    .count(),
            ),
            (
                "api_keys",
                self.api_keys
                    .values()
                    .filter(|key| key.tenant == tenant)
                    .count(),
            ),
            (
                "webhooks",
                self.webhooks.keys().filter(|key| key.0 == tenant).count(),
            ),
            (
                "webhook_events",
                self.events
                    .iter()
                    .filter(|news| news.tenant == tenant)
                    .count(),
            ),
            (
                "webhook_deliveries",
                self.deliveries.keys().filter(|key| key.0 == tenant).count(),
            ),
            (
                "pauses",
                self.pauses
                    .keys()
                    .filter(|key| key.tenant == tenant)
                    .count(),
            ),
            (
                "pause_waits",
                self.pause_waits
                    .keys()
                    .filter(|key| key.0 == tenant)
                    .count(),
            ),
            (
                "open_sends",
                self.open_sends.keys().filter(|key| key.0 == tenant).count(),
            ),
            (
                "seats",
                self.seats.keys().filter(|key| key.tenant == tenant).count(),
            ),
        ];
        let found = counts.into_iter().filter(|(_, count)| *count > 0);
        found
            .map(|(table, count)| (table.to_owned(), count as u64))
            .collect()
    }

    fn blobs_of(&self, tenant: TenantId) -> u64 {
        let rows = self.rows_of(tenant);
        ["blobs", "blob_chunks"]
            .into_iter()
            .filter_map(|table| rows.get(table))
            .sum()
    }

    /// Removes everything of a tenant but its blobs, which it lets go.
    fn erase(&mut self, tenant: TenantId) -> Vec<(String, u64)> {
        let events = self.events.len();
        self.events.retain(|news| news.tenant != tenant);
        let events = (events - self.events.len()) as u64;
        let keys = self.api_keys.len();
        self.api_keys.retain(|_, key| key.tenant != tenant);
        let keys = (keys - self.api_keys.len()) as u64;
        let mine = |key: &TenantId| *key == tenant;
        let removed = vec![
            ("webhook_events", events),
            ("api_keys", keys),
            (
                "session_hot",
                drop_from(&mut self.sessions, |key| mine(&key.tenant)),
            ),
            ("sends", drop_from(&mut self.homes, |key| mine(&key.0))),
            (
                "idempotency_keys",
                drop_from(&mut self.requests, |key| mine(&key.0)),
            ),
            ("lists", drop_from(&mut self.lists, |key| mine(&key.0))),
            ("skills", drop_from(&mut self.skills, |key| mine(&key.0))),
            (
                "skill_faults",
                drop_from(&mut self.broken_skills, |key| mine(&key.0)),
            ),
            (
                "memories",
                drop_from(&mut self.memories, |key| mine(&key.0)),
            ),
            (
                "extractions",
                drop_from(&mut self.extractions, |key| mine(&key.0)),
            ),
            (
                "memory_erasures",
                drop_from(&mut self.memory_erasures, |key| mine(&key.0)),
            ),
            (
                "memory_usage",
                drop_from(&mut self.memory_usage, |key| mine(&key.0)),
            ),
            ("runs", drop_from(&mut self.runs, |key| mine(&key.tenant))),
            ("timers", drop_from(&mut self.timers, |key| mine(&key.0))),
            (
                "agents_named",
                drop_from(&mut self.agents, |key| mine(&key.tenant)),
            ),
            (
                "webhooks",
                drop_from(&mut self.webhooks, |key| mine(&key.0)),
            ),
            (
                "webhook_deliveries",
                drop_from(&mut self.deliveries, |key| mine(&key.0)),
            ),
            (
                "pauses",
                drop_from(&mut self.pauses, |key| mine(&key.tenant)),
            ),
            (
                "pause_waits",
                drop_from(&mut self.pause_waits, |key| mine(&key.0)),
            ),
            (
                "open_sends",
                drop_from(&mut self.open_sends, |key| mine(&key.0)),
            ),
            ("seats", drop_from(&mut self.seats, |key| mine(&key.tenant))),
        ];
        for (_, blob) in self.blobs.iter_mut().filter(|((of, _), _)| mine(of)) {
            blob.let_go();
        }
        removed
            .into_iter()
            .map(|(table, count)| (table.to_owned(), count))
            .collect()
    }
}
