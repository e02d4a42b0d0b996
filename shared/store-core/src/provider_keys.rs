//! Tenants' own keys for model providers.

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::provider_key::ProviderKeyRecord;
use mainspring_shared::store;
use mainspring_shared::store::{ListProviderKeys, Page, ProviderKeys, SetProviderKey};

use crate::db::{Conn, sql};
use crate::fault::{Fault, Result};
use crate::query::statement;
use crate::reads::page;
use crate::row::Row;
use crate::rows::Cells;
use crate::store::{SqlStore, Tx};

#[async_trait]
impl ProviderKeys for SqlStore {
    async fn set_provider_key(&self, item: SetProviderKey) -> store::Result<ProviderKeyRecord> {
        self.write(item, |tx, item| Box::pin(set(tx, item))).await
    }

    async fn find_provider_key(
        &self,
        tenant: TenantId,
        provider: String,
    ) -> store::Result<Option<ProviderKeyRecord>> {
        self.read(move |conn| Box::pin(find(conn, tenant, provider)))
            .await
    }

    async fn list_provider_keys(
        &self,
        query: ListProviderKeys,
    ) -> store::Result<Page<ProviderKeyRecord>> {
        self.read(move |conn| Box::pin(list(conn, query))).await
    }

    async fn delete_provider_key(&self, tenant: TenantId, provider: String) -> store::Result<bool> {
        self.write((tenant, provider), |tx, item| Box::pin(delete(tx, item)))
            .await
    }
}

fn record(row: &Row) -> Result<ProviderKeyRecord> {
    let mut cells = Cells::new(row, "provider_keys");
    Ok(ProviderKeyRecord {
        tenant: TenantId(cells.get("tenant")?),
        provider: cells.get("provider")?,
        sealed: cells.get("sealed")?,
        hint: cells.get("hint")?,
        set_at: cells.time("set_at")?,
    })
}

async fn set(tx: &mut Tx, item: SetProviderKey) -> Result<ProviderKeyRecord> {
    let now = tx.now;
    statement(sql!("provider_keys/save"))
        .bind(item.tenant.0)
        .bind(&item.provider)
        .bind(&item.sealed)
        .bind(&item.hint)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    let found = find(tx.conn(), item.tenant, item.provider).await?;
    found.ok_or(Fault::NoRow)
}

async fn find(
    conn: &mut Conn,
    tenant: TenantId,
    provider: String,
) -> Result<Option<ProviderKeyRecord>> {
    let row = statement(sql!("provider_keys/get"))
        .bind(tenant.0)
        .bind(&provider)
        .fetch_optional(conn)
        .await?;
    row.as_ref().map(record).transpose()
}

async fn list(conn: &mut Conn, query: ListProviderKeys) -> Result<Page<ProviderKeyRecord>> {
    let rows = statement(sql!("provider_keys/list"))
        .bind(query.tenant.0)
        .bind(query.after.as_deref().unwrap_or_default())
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, record))
}

async fn delete(tx: &mut Tx, (tenant, provider): (TenantId, String)) -> Result<bool> {
    let gone = statement(sql!("provider_keys/delete"))
        .bind(tenant.0)
        .bind(&provider)
        .execute(tx.conn())
        .await?;
    Ok(gone.rows_affected() > 0)
}
