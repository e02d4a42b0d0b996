//! Tenants.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainspring_shared::id::{KeyId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::provider_key::ProviderKeyRecord;
use mainspring_shared::store::{
    CalledSeats, CreateTenantOutcome, DeleteTenantOutcome, IdempotencyKey, ListTenants, NewTenant,
    PLACE_KEPT_MS, Page, Result, TenantPatch, TenantUsage, TenantUsageQuery, Tenants,
    UpdateTenantOutcome, frees_places,
};
use mainspring_shared::tenant::{
    KeyRecord, LedgerLimits, Limits, Pools, Retention, SeatLimits, Tenant, TenantErasure, resource,
    tenant_of,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::webhook::DeliveryRecord;

use crate::memory::ModelStore;
use crate::money::Accounts;
use crate::reads::page;
use crate::seats::Seat;
use crate::state::{Request, Seen, State};

/// Tenants, their keys and requests, and what limits their work.
#[derive(Debug, Default)]
pub(crate) struct TenantTables {
    pub(crate) rows: StoredTenants,
    /// Including those that have ended.
    pub(crate) erasures: BTreeMap<TenantId, TenantErasure>,
    pub(crate) api_keys: BTreeMap<KeyId, KeyRecord>,
    /// Whether there ever was a key.
    pub(crate) had_keys: bool,
    /// Requests under idempotency keys, by tenant, route and key.
    pub(crate) requests: BTreeMap<(TenantId, String, String), Request>,
    /// Sessions by the names that callers gave to them.
    pub(crate) names: BTreeMap<(TenantId, String), SessionId>,
    /// By tenant and provider.
    pub(crate) provider_keys: BTreeMap<(TenantId, String), ProviderKeyRecord>,
    /// Limits of tenants' seats, and since when they apply.
    pub(crate) seat_limits: BTreeMap<TenantId, (SeatLimits, Timestamp)>,
    pub(crate) seats: BTreeMap<SessionKey, Seat>,
    /// The reservations and spending of calls under limits of money or tokens.
    pub(crate) money: Accounts,
}

/// Tenants by number. A deleted tenant's number stays taken and has no value.
#[derive(Debug)]
pub(crate) struct StoredTenants(BTreeMap<TenantId, Option<Tenant>>);

impl Default for StoredTenants {
    fn default() -> Self {
        let default = Tenant {
            id: TenantId::DEFAULT,
            name: "default".to_owned(),
            limits: Limits::default(),
            weight: 1,
            retention: Retention::default(),
            pools: Pools::default(),
            erasing_at: None,
            created_at: Timestamp(0),
        };
        Self(BTreeMap::from([(default.id, Some(default))]))
    }
}

impl StoredTenants {
    /// The tenants that are not deleted, except the first one.
    pub(crate) fn dump(&self) -> Vec<TenantId> {
        let kept = self.0.values().flatten().map(|tenant| tenant.id);
        kept.filter(|id| *id != TenantId::DEFAULT).collect()
    }

    pub(crate) fn get(&self, id: TenantId) -> Option<&Tenant> {
        self.0.get(&id)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: TenantId) -> Option<&mut Tenant> {
        self.0.get_mut(&id)?.as_mut()
    }

    /// The tenants with limits on money, or on tokens over more than a minute.
    pub(crate) fn with_money(&self) -> Vec<TenantId> {
        let kept = self.0.values().flatten();
        let limited = kept.filter(|tenant| LedgerLimits::of(&tenant.limits).is_some());
        limited.map(|tenant| tenant.id).collect()
    }

    /// The tenants that restrict pools.
    fn with_pools(&self) -> Vec<(TenantId, Pools)> {
        let kept = self.0.values().flatten();
        let said = kept.filter(|tenant| tenant.pools.stored().is_some());
        said.map(|tenant| (tenant.id, tenant.pools.clone()))
            .collect()
    }

    /// Removes everything of a tenant but its number.
    pub(crate) fn forget(&mut self, id: TenantId) {
        self.0.insert(id, None);
    }

    /// Whether another tenant than `id` has this name.
    fn is_taken(&self, name: &str, id: Option<TenantId>) -> bool {
        let mut live = self.0.values().flatten();
        live.any(|tenant| tenant.name == name && Some(tenant.id) != id)
    }
}

#[async_trait]
impl Tenants for ModelStore {
    async fn create_tenant(
        &self,
        new: NewTenant,
        key: Option<IdempotencyKey>,
    ) -> Result<CreateTenantOutcome> {
        let (mut state, now) = self.begin();
        match state.seen(key.as_ref()) {
            Seen::Mismatch => return Ok(CreateTenantOutcome::Mismatch),
            Seen::Before(made) => {
                let found = tenant_of(made).and_then(|id| state.tenants.rows.get(id));
                return Ok(match found {
                    Some(tenant) => CreateTenantOutcome::Replayed(tenant.clone()),
                    None => CreateTenantOutcome::Gone,
                });
            }
            Seen::Never => {}
        }
        if state.tenants.rows.is_taken(&new.name, None) {
            return Ok(CreateTenantOutcome::NameTaken);
        }
        let last = state.tenants.rows.0.keys().next_back().map_or(0, |id| id.0);
        let tenant = Tenant {
            id: TenantId(last + 1),
            name: new.name,
            limits: new.limits,
            weight: new.weight,
            retention: new.retention,
            pools: new.pools,
            erasing_at: None,
            created_at: now,
        };
        state.tenants.rows.0.insert(tenant.id, Some(tenant.clone()));
        state.apply_limits(tenant.id, &tenant.limits, now);
        state.remember(key.as_ref(), resource(tenant.id), now);
        Ok(CreateTenantOutcome::Created(tenant))
    }

    async fn get_tenant(&self, id: TenantId) -> Result<Option<Tenant>> {
        Ok(self.begin().0.tenants.rows.get(id).cloned())
    }

    async fn named_tenant(&self, name: String) -> Result<Option<TenantId>> {
        let (state, _) = self.begin();
        let mut live = state.tenants.rows.0.values().flatten();
        Ok(live
            .find(|tenant| tenant.name == name && tenant.erasing_at.is_none())
            .map(|tenant| tenant.id))
    }

    async fn tenant_pools(&self) -> Result<Vec<(TenantId, Pools)>> {
        Ok(self.begin().0.tenants.rows.with_pools())
    }

    async fn list_tenants(&self, query: ListTenants) -> Result<Page<Tenant>> {
        let (state, _) = self.begin();
        let all = state.tenants.rows.0.values().flatten();
        let rest = all.filter(|tenant| query.after.is_none_or(|after| tenant.id > after));
        Ok(page(rest.cloned(), query.limit))
    }

    async fn update_tenant(&self, id: TenantId, patch: TenantPatch) -> Result<UpdateTenantOutcome> {
        let (mut state, now) = self.begin();
        if let Some(name) = &patch.name
            && state.tenants.rows.get(id).is_some()
            && state.tenants.rows.is_taken(name, Some(id))
        {
            return Ok(UpdateTenantOutcome::NameTaken);
        }
        let Some(Some(tenant)) = state.tenants.rows.0.get_mut(&id) else {
            return Ok(UpdateTenantOutcome::NotFound);
        };
        if let Some(name) = patch.name {
            tenant.name = name;
        }
        if let Some(limits) = patch.limits {
            tenant.limits = limits;
        }
        tenant.weight = patch.weight.unwrap_or(tenant.weight);
        if let Some(retention) = patch.retention {
            tenant.retention = retention;
        }
        if let Some(pools) = patch.pools {
            tenant.pools = pools;
        }
        let tenant = tenant.clone();
        state.apply_limits(id, &tenant.limits, now);
        Ok(UpdateTenantOutcome::Updated(Box::new(tenant)))
    }

    async fn delete_tenant(&self, id: TenantId) -> Result<DeleteTenantOutcome> {
        let (mut state, now) = self.begin();
        if state.tenants.rows.get(id).is_none() {
            return Ok(DeleteTenantOutcome::NotFound);
        }
        let mut sessions = state.sessions.values();
        let has_sessions =
            sessions.any(|session| session.key.tenant == id && session.cold.is_some());
        let has_runs = state.runs.rows.keys().any(|key| key.tenant == id);
        let mut timers = state.timers.iter().filter(|((tenant, _), _)| *tenant == id);
        let has_timers = timers.any(|(_, timer)| timer.record.state.ended_at.is_none());
        if has_sessions || has_runs || has_timers {
            return Ok(DeleteTenantOutcome::NotEmpty);
        }
        state.tenants.rows.0.insert(id, None);
        let memory = &mut state.memory;
        memory.entries.retain(|(tenant, _), _| *tenant != id);
        memory.usage.retain(|(tenant, _), _| *tenant != id);
        let erasures = memory.erasures.iter_mut();
        for (_, erasure) in erasures.filter(|((tenant, _), _)| *tenant == id) {
            erasure.by = None;
        }
        memory.extractions.retain(|(tenant, _), _| *tenant != id);
        let agents = &mut state.agents;
        agents.named.retain(|key, _| key.tenant != id);
        agents.skills.retain(|(tenant, _), _| *tenant != id);
        agents.broken_skills.retain(|(tenant, _), _| *tenant != id);
        let sends = &mut state.sends;
        sends.places.retain(|(tenant, _), _| *tenant != id);
        sends.key_places.retain(|(tenant, _), _| *tenant != id);
        sends.pauses.retain(|key, _| key.tenant != id);
        sends.pause_waits.retain(|(tenant, _), _| *tenant != id);
        state.apply_limits(id, &Limits::default(), now);
        state.forget_money(id);
        let webhooks = &mut state.webhooks;
        webhooks.endpoints.retain(|(tenant, _), _| *tenant != id);
        webhooks.events.retain(|news| news.tenant != id);
        let pending = |it: &DeliveryRecord| it.due_at.is_some();
        webhooks
            .deliveries
            .retain(|(tenant, ..), it| *tenant != id || !pending(it));
        let tenants = &mut state.tenants;
        tenants.provider_keys.retain(|(tenant, _), _| *tenant != id);
        let keys = tenants.api_keys.values_mut().filter(|key| key.tenant == id);
        for key in keys {
            key.revoked_at.get_or_insert(now);
        }
        Ok(DeleteTenantOutcome::Deleted)
    }

    async fn reserve_sends(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        sends: Vec<SendId>,
        max: u32,
    ) -> Result<u32> {
        let (mut state, now) = self.begin();
        let mut places = state.places(tenant, key);
        let have = sends
            .iter()
            .take_while(|send| places.contains_key(send))
            .count();
        let new = &sends[have..];
        let room = |places: &Places| (max as usize).saturating_sub(places.len());
        if room(&places) < new.len() || frees_places(new.iter().map(|send| send.0)) {
            places.retain(|send, since| state.is_open(tenant, *send, *since, now));
        }
        let more = room(&places).min(new.len());
        places.extend(new[..more].iter().map(|send| (*send, now)));
        state.keep_places(tenant, key, places);
        Ok(u32::try_from(have + more).unwrap_or(u32::MAX))
    }

    async fn release_sends(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        sends: Vec<SendId>,
    ) -> Result<()> {
        let (mut state, _) = self.begin();
        let mut places = state.places(tenant, key);
        places.retain(|send, _| !sends.contains(send));
        state.keep_places(tenant, key, places);
        Ok(())
    }

    async fn call_seats(&self, tenant: Option<TenantId>) -> Result<CalledSeats> {
        let (mut state, now) = self.begin();
        Ok(state.call_seats(tenant, now))
    }

    async fn tenant_usage(&self, query: TenantUsageQuery) -> Result<TenantUsage> {
        let (state, _) = self.begin();
        let mut found = TenantUsage::default();
        let range = query.from..query.until;
        for session in state.sessions.values() {
            if session.key.tenant != query.tenant {
                continue;
            }
            let sends = session.sends.keys().filter(|id| range.contains(&id.0));
            found.sends += sends.count() as u64;
            for ((send, ..), row) in &session.usage {
                if range.contains(&send.0) {
                    found.calls += 1;
                    found.usage.add(&row.usage);
                }
            }
        }
        for ((tenant, call), paid) in &state.memory.usage {
            if *tenant == query.tenant && range.contains(call) {
                found.calls += 1;
                found.usage.add(&paid.usage);
            }
        }
        Ok(found)
    }

    async fn first_open_send(&self, tenant: TenantId, from: SendId) -> Result<Option<SendId>> {
        let (state, _) = self.begin();
        let sessions = state.sessions.values();
        let mine = sessions.filter(|session| session.key.tenant == tenant);
        let sends = mine.flat_map(|session| session.sends.iter());
        let open = sends.filter(|(id, send)| **id >= from && send.finished_at.is_none());
        Ok(open.map(|(id, _)| *id).min())
    }

    async fn tenant_bytes(&self, tenant: TenantId) -> Result<u64> {
        let (state, _) = self.begin();
        let mine = state.blobs.rows.iter().filter(|((of, _), _)| *of == tenant);
        Ok(mine.map(|(_, blob)| blob.stored_bytes()).sum())
    }
}

/// Sends that have a place, with the time at which it was taken.
type Places = BTreeMap<SendId, Timestamp>;

impl State {
    /// The places of a tenant, or of one of its keys.
    fn places(&self, tenant: TenantId, key: Option<KeyId>) -> Places {
        if let Some(key) = key {
            let all = self.sends.key_places.iter();
            let mine = all.filter(|((of, its), _)| *of == tenant && its.0 == key);
            mine.map(|((_, its), since)| (its.1, *since)).collect()
        } else {
            let all = self.sends.places.iter();
            let mine = all.filter(|((of, _), _)| *of == tenant);
            mine.map(|((_, send), since)| (*send, *since)).collect()
        }
    }

    fn keep_places(&mut self, tenant: TenantId, key: Option<KeyId>, places: Places) {
        let places = places.into_iter();
        if let Some(key) = key {
            self.sends
                .key_places
                .retain(|(of, its), _| *of != tenant || its.0 != key);
            self.sends
                .key_places
                .extend(places.map(|(send, since)| ((tenant, (key, send)), since)));
        } else {
            self.sends.places.retain(|(of, _), _| *of != tenant);
            self.sends
                .places
                .extend(places.map(|(send, since)| ((tenant, send), since)));
        }
    }

    /// Whether a send has not ended, or may still be created under the place that it took at
    /// `since`.
    fn is_open(&self, tenant: TenantId, send: SendId, since: Timestamp, now: Timestamp) -> bool {
        match self.send(tenant, send) {
            Some(record) => !record.status.is_final(),
            None => since.0 >= now.0 - PLACE_KEPT_MS,
        }
    }
}
