//! API keys.

use async_trait::async_trait;
use mainspring_shared::id::{KeyId, TenantId};
use mainspring_shared::store::{
    CreateKeyOutcome, IdempotencyKey, Keys, ListKeys, NewKey, Page, Result, RotateKey,
};
use mainspring_shared::tenant::KeyRecord;
use mainspring_shared::time::Timestamp;

use crate::memory::ModelStore;
use crate::reads::page;
use crate::state::{Seen, State};

#[async_trait]
impl Keys for ModelStore {
    async fn create_key(
        &self,
        new: NewKey,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<CreateKeyOutcome> {
        let (mut state, now) = self.begin();
        match state.seen(idempotency.as_ref()) {
            Seen::Mismatch => return Ok(CreateKeyOutcome::Mismatch),
            Seen::Before(made) => {
                let found = state.tenants.api_keys.get(&KeyId(made));
                let found = found.filter(|key| state.tenants.rows.get(key.tenant).is_some());
                let found = found.cloned();
                return Ok(found.map_or(CreateKeyOutcome::NoTenant, CreateKeyOutcome::Replayed));
            }
            Seen::Never => {}
        }
        let tenant = state.tenants.rows.get(new.tenant);
        if tenant.is_none_or(|tenant| tenant.erasing_at.is_some()) {
            return Ok(CreateKeyOutcome::NoTenant);
        }
        let record = new.created(now);
        state.tenants.api_keys.insert(record.id, record.clone());
        state.tenants.had_keys = true;
        state.remember(idempotency.as_ref(), record.id.0, now);
        Ok(CreateKeyOutcome::Created(record))
    }

    async fn find_key(&self, id: KeyId) -> Result<Option<KeyRecord>> {
        let (state, _) = self.begin();
        let found = state.tenants.api_keys.get(&id);
        let found = found.filter(|key| state.tenants.rows.get(key.tenant).is_some());
        Ok(found.cloned())
    }

    async fn had_keys(&self) -> Result<bool> {
        let (state, _) = self.begin();
        Ok(state.tenants.had_keys)
    }

    async fn list_keys(&self, query: ListKeys) -> Result<Page<KeyRecord>> {
        let (state, _) = self.begin();
        let mine = state.tenants.api_keys.values().rev();
        let mine = mine.filter(|key| key.tenant == query.tenant);
        let rest = mine.filter(|key| query.before.is_none_or(|before| key.id < before));
        Ok(page(rest.cloned(), query.limit))
    }

    async fn rotate_key(&self, item: RotateKey) -> Result<Option<KeyRecord>> {
        let (mut state, now) = self.begin();
        let found = live_key(&mut state, item.tenant, item.id, now);
        Ok(found.map(|key| {
            // A repeat finds the new secret and changes nothing.
            if key.hash != item.hash {
                key.previous = Some((Timestamp(now.0 + item.overlap_ms), key.hash));
                key.hash = item.hash;
            }
            key.clone()
        }))
    }

    async fn revoke_key(&self, tenant: TenantId, id: KeyId) -> Result<bool> {
        let (mut state, now) = self.begin();
        let found = state.tenants.api_keys.get_mut(&id);
        let Some(key) = found.filter(|key| key.tenant == tenant) else {
            return Ok(false);
        };
        key.revoked_at.get_or_insert(now);
        Ok(true)
    }

    async fn touch_keys(&self, ids: Vec<KeyId>) -> Result<()> {
        let (mut state, now) = self.begin();
        for id in ids {
            if let Some(key) = state.tenants.api_keys.get_mut(&id) {
                key.last_used_at = Some(now);
            }
        }
        Ok(())
    }
}

fn live_key(
    state: &mut State,
    tenant: TenantId,
    id: KeyId,
    now: Timestamp,
) -> Option<&mut KeyRecord> {
    let found = state.tenants.api_keys.get_mut(&id);
    found.filter(|key| key.tenant == tenant && key.is_live(now))
}
