//! Tenants' own keys for model providers.

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::provider_key::ProviderKeyRecord;
use mainspring_shared::store::{ListProviderKeys, Page, ProviderKeys, Result, SetProviderKey};

use crate::memory::ModelStore;
use crate::reads::page;

#[async_trait]
impl ProviderKeys for ModelStore {
    async fn set_provider_key(&self, item: SetProviderKey) -> Result<ProviderKeyRecord> {
        let (mut state, now) = self.begin();
        let record = ProviderKeyRecord {
            tenant: item.tenant,
            provider: item.provider.clone(),
            sealed: item.sealed,
            hint: item.hint,
            set_at: now,
        };
        let key = (item.tenant, item.provider);
        state.tenants.provider_keys.insert(key, record.clone());
        Ok(record)
    }

    async fn find_provider_key(
        &self,
        tenant: TenantId,
        provider: String,
    ) -> Result<Option<ProviderKeyRecord>> {
        let (state, _) = self.begin();
        Ok(state
            .tenants
            .provider_keys
            .get(&(tenant, provider))
            .cloned())
    }

    async fn list_provider_keys(&self, query: ListProviderKeys) -> Result<Page<ProviderKeyRecord>> {
        let (state, _) = self.begin();
        let keys = state.tenants.provider_keys.values();
        let keys = keys.filter(|key| {
            let is_behind = query
                .after
                .as_ref()
                .is_none_or(|after| key.provider > *after);
            key.tenant == query.tenant && is_behind
        });
        Ok(page(keys.cloned(), query.limit))
    }

    async fn delete_provider_key(&self, tenant: TenantId, provider: String) -> Result<bool> {
        let (mut state, _) = self.begin();
        Ok(state
            .tenants
            .provider_keys
            .remove(&(tenant, provider))
            .is_some())
    }
}
