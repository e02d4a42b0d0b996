//! API keys.

use async_trait::async_trait;
use mainspring_shared::id::{KeyId, TenantId};
use mainspring_shared::store;
use mainspring_shared::store::{
    CreateKeyOutcome, IdempotencyKey, Keys, ListKeys, NewKey, Page, RotateKey,
};
use mainspring_shared::tenant::KeyRecord;
use mainspring_shared::time::Timestamp;

use crate::accept::{Seen, remember, seen};
use crate::db::{Conn, sql};
use crate::fault::{Fault, Result};
use crate::query::statement;
use crate::reads::page;
use crate::row::Row;
use crate::rows::{Cells, json};
use crate::store::{SqlStore, Tx};
use crate::tenants;

#[async_trait]
impl Keys for SqlStore {
    async fn create_key(
        &self,
        new: NewKey,
        idempotency: Option<IdempotencyKey>,
    ) -> store::Result<CreateKeyOutcome> {
        self.write((new, idempotency), |tx, (new, key)| {
            Box::pin(create_key(tx, new, key))
        })
        .await
    }

    async fn find_key(&self, id: KeyId) -> store::Result<Option<KeyRecord>> {
        self.read(move |conn| Box::pin(find_key(conn, id))).await
    }

    async fn had_keys(&self) -> store::Result<bool> {
        self.read(move |conn| Box::pin(had_keys(conn))).await
    }

    async fn list_keys(&self, query: ListKeys) -> store::Result<Page<KeyRecord>> {
        self.read(move |conn| Box::pin(list_keys(conn, query)))
            .await
    }

    async fn rotate_key(&self, item: RotateKey) -> store::Result<Option<KeyRecord>> {
        self.write(item, |tx, item| Box::pin(rotate_key(tx, item)))
            .await
    }

    async fn revoke_key(&self, tenant: TenantId, id: KeyId) -> store::Result<bool> {
        self.write((tenant, id), |tx, (tenant, id)| {
            Box::pin(revoke_key(tx, tenant, id))
        })
        .await
    }

    async fn touch_keys(&self, ids: Vec<KeyId>) -> store::Result<()> {
        self.write(ids, |tx, ids| Box::pin(touch_keys(tx, ids)))
            .await
    }
}

fn key_record(row: &Row) -> Result<KeyRecord> {
    let mut cells = Cells::new(row, "api_keys");
    let tenant = TenantId(cells.get("tenant")?);
    let id = KeyId(cells.get("key_id")?);
    let name = cells.get("name")?;
    let scopes: &str = cells.get("scopes")?;
    let binding = cells.json_opt("binding")?;
    let stored: Vec<u8> = cells.get("hash")?;
    let previous: Option<Vec<u8>> = cells.get("previous_hash")?;
    let until = cells.time_opt("previous_until")?;
    let previous = previous.map(hash).transpose()?;
    Ok(KeyRecord {
        id,
        tenant,
        name,
        scopes: KeyRecord::read_scopes(scopes, binding.as_ref()),
        binding,
        limits: cells.json_opt("limits")?.unwrap_or_default(),
        hash: hash(stored)?,
        previous: until.zip(previous),
        created_at: cells.time("created_at")?,
        expires_at: cells.time_opt("expires_at")?,
        revoked_at: cells.time_opt("revoked_at")?,
        last_used_at: cells.time_opt("last_used_at")?,
    })
}

fn hash(bytes: Vec<u8>) -> Result<[u8; 32]> {
    let hash = bytes.try_into();
    hash.map_err(|bytes: Vec<u8>| {
        let detail = format!("expected 32 bytes, found {}", bytes.len());
        Fault::unreadable("api_keys", "hash", detail)
    })
}

async fn create_key(
    tx: &mut Tx,
    new: NewKey,
    idempotency: Option<IdempotencyKey>,
) -> Result<CreateKeyOutcome> {
    if let Some(key) = &idempotency {
        match seen(tx, key).await? {
            Seen::Never => {}
            Seen::OtherBody => return Ok(CreateKeyOutcome::Mismatch),
            Seen::Before(made) => {
                let found = find_key(tx.conn(), KeyId(made)).await?;
                return Ok(found.map_or(CreateKeyOutcome::NoTenant, CreateKeyOutcome::Replayed));
            }
        }
    }
    let tenant = tenants::get(tx.conn(), new.tenant).await?;
    if tenant.is_none_or(|tenant| tenant.erasing_at.is_some()) {
        return Ok(CreateKeyOutcome::NoTenant);
    }
    let record = new.created(tx.now);
    statement(sql!("keys/create"))
        .bind(record.tenant.0)
        .bind(record.id.0)
        .bind(&record.name)
        .bind(KeyRecord::stored_scopes(
            &record.scopes,
            record.binding.as_ref(),
        ))
        .bind(record.hash.to_vec())
        .bind(record.created_at.0)
        .bind(record.expires_at.map(|at| at.0))
        .bind(record.binding.as_ref().map(json).transpose()?)
        .bind(record.limits.stored().map(json).transpose()?)
        .execute(tx.conn())
        .await?;
    statement(sql!("keys/began"))
        .bind(record.tenant.0)
        .bind(record.created_at.0)
        .execute(tx.conn())
        .await?;
    if let Some(key) = &idempotency {
        remember(tx, key, record.id.0).await?;
    }
    Ok(CreateKeyOutcome::Created(record))
}

async fn find_key(conn: &mut Conn, id: KeyId) -> Result<Option<KeyRecord>> {
    let row = statement(sql!("keys/find")).bind(id.0);
    let row = row.fetch_optional(conn).await?;
    row.as_ref().map(key_record).transpose()
}

async fn had_keys(conn: &mut Conn) -> Result<bool> {
    let row = statement(sql!("keys/ever")).fetch_optional(conn).await?;
    Ok(row.is_some())
}

async fn list_keys(conn: &mut Conn, query: ListKeys) -> Result<Page<KeyRecord>> {
    let rows = statement(sql!("keys/list"))
        .bind(query.tenant.0)
        .bind(query.before.map(|before| before.0))
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, key_record))
}

async fn rotate_key(tx: &mut Tx, item: RotateKey) -> Result<Option<KeyRecord>> {
    let now = tx.now;
    let done = statement(sql!("keys/rotate"))
        .bind(item.tenant.0)
        .bind(item.id.0)
        .bind(item.hash.to_vec())
        .bind(now.0)
        .bind(Timestamp(now.0 + item.overlap_ms).0)
        .execute(tx.conn())
        .await?;
    if done.rows_affected() == 0 {
        return Ok(None);
    }
    find_key(tx.conn(), item.id).await
}

async fn revoke_key(tx: &mut Tx, tenant: TenantId, id: KeyId) -> Result<bool> {
    let now = tx.now;
    let done = statement(sql!("keys/revoke"))
        .bind(tenant.0)
        .bind(id.0)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(done.rows_affected() > 0)
}

async fn touch_keys(tx: &mut Tx, mut ids: Vec<KeyId>) -> Result<()> {
    // A fixed order, so that two concurrent calls cannot deadlock.
    ids.sort_unstable();
    let now = tx.now;
    for id in ids {
        statement(sql!("keys/touch"))
            .bind(id.0)
            .bind(now.0)
            .execute(tx.conn())
            .await?;
    }
    Ok(())
}
