//! Tenants' own keys for model providers.

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::provider_key::ProviderKeyRecord;
use mainspring_shared::store::{ListProviderKeys, Page, ProviderKeys, Result, SetProviderKey};
use sqlx::postgres::PgRow;

use crate::columns::text;
use crate::reads::page;
use crate::retry::{fetch, sql};
use crate::rows::{Fields, no_row};
use crate::store::PostgresStore;

#[async_trait]
impl ProviderKeys for PostgresStore {
    async fn set_provider_key(&self, item: SetProviderKey) -> Result<ProviderKeyRecord> {
        let at = self.at;
        let rows = fetch(&self.pools.writers, || {
            sql!("provider_keys/save")
                .bind(at.map(|at| at.0))
                .bind(item.tenant.0)
                .bind(text(&item.provider).into_owned())
                .bind(&item.sealed)
                .bind(text(&item.hint).into_owned())
        });
        let rows = rows.await?;
        rows.first()
            .map_or_else(|| Err(no_row("provider_keys", "provider")), record)
    }

    async fn find_provider_key(
        &self,
        tenant: TenantId,
        provider: String,
    ) -> Result<Option<ProviderKeyRecord>> {
        let rows = fetch(&self.pools.claimers, || {
            sql!("provider_keys/get")
                .bind(tenant.0)
                .bind(text(&provider).into_owned())
        });
        rows.await?.first().map(record).transpose()
    }

    async fn list_provider_keys(&self, query: ListProviderKeys) -> Result<Page<ProviderKeyRecord>> {
        let after = query.after.as_deref().unwrap_or_default();
        let rows = fetch(&self.pools.claimers, || {
            sql!("provider_keys/list")
                .bind(query.tenant.0)
                .bind(text(after).into_owned())
                .bind(i64::from(query.limit) + 1)
        });
        Ok(page(&rows.await?, query.limit, record))
    }

    async fn delete_provider_key(&self, tenant: TenantId, provider: String) -> Result<bool> {
        let rows = fetch(&self.pools.writers, || {
            sql!("provider_keys/delete")
                .bind(tenant.0)
                .bind(text(&provider).into_owned())
        });
        Ok(!rows.await?.is_empty())
    }
}

fn record(row: &PgRow) -> Result<ProviderKeyRecord> {
    let mut fields = Fields::new(row, "provider_keys");
    Ok(ProviderKeyRecord {
        tenant: TenantId(fields.take("tenant")?),
        provider: fields.take("provider")?,
        sealed: fields.take("sealed")?,
        hint: fields.take("hint")?,
        set_at: fields.time("set_at")?,
    })
}
