//! API keys.

use async_trait::async_trait;
use mainspring_shared::id::{KeyId, TenantId};
use mainspring_shared::store::{
    CreateKeyOutcome, Error, IdempotencyKey, Keys, ListKeys, NewKey, Page, Result, RotateKey,
};
use mainspring_shared::tenant::KeyRecord;
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::accept::{Taken, take};
use crate::columns::{json, text};
use crate::fault::Fault;
use crate::reads::page;
use crate::retry::{execute, fetch, repeatable, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;
use crate::tenants::one;

#[async_trait]
impl Keys for PostgresStore {
    async fn create_key(
        &self,
        new: NewKey,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<CreateKeyOutcome> {
        let (at, pool) = (self.at, &self.pools.writers);
        repeatable!(pool, |connection| create_key(
            connection,
            at,
            &new,
            idempotency.as_ref()
        ))
    }

    async fn find_key(&self, id: KeyId) -> Result<Option<KeyRecord>> {
        let find = || sql!("keys/find").bind(id.0);
        let rows = fetch(&self.pools.claimers, find).await?;
        rows.first().map(key_record).transpose()
    }

    async fn had_keys(&self) -> Result<bool> {
        let rows = fetch(&self.pools.readers, || sql!("keys/ever")).await?;
        Ok(!rows.is_empty())
    }

    async fn list_keys(&self, query: ListKeys) -> Result<Page<KeyRecord>> {
        let rows = fetch(&self.pools.readers, || {
            sql!("keys/list")
                .bind(query.tenant.0)
                .bind(query.before.map(|before| before.0))
                .bind(i64::from(query.limit) + 1)
        });
        Ok(page(&rows.await?, query.limit, key_record))
    }

    async fn rotate_key(&self, item: RotateKey) -> Result<Option<KeyRecord>> {
        let at = self.at;
        let rows = fetch(&self.pools.writers, || {
            sql!("keys/rotate")
                .bind(at.map(|at| at.0))
                .bind(item.tenant.0)
                .bind(item.id.0)
                .bind(item.hash.to_vec())
                .bind(item.overlap_ms)
        });
        rows.await?.first().map(key_record).transpose()
    }

    async fn revoke_key(&self, tenant: TenantId, id: KeyId) -> Result<bool> {
        let at = self.at;
        let revoked = execute(&self.pools.writers, || {
            sql!("keys/revoke")
                .bind(at.map(|at| at.0))
                .bind(tenant.0)
                .bind(id.0)
        });
        Ok(revoked.await? > 0)
    }

    async fn touch_keys(&self, ids: Vec<KeyId>) -> Result<()> {
        let at = self.at;
        let ids: Vec<Uuid> = ids.into_iter().map(|id| id.0).collect();
        let touch = || {
            let query = sql!("keys/touch").bind(at.map(|at| at.0));
            query.bind(ids.clone())
        };
        execute(&self.pools.claimers, touch).await.map(drop)
    }
}

fn key_record(row: &PgRow) -> Result<KeyRecord> {
    let mut fields = Fields::new(row, "api_keys");
    let tenant = TenantId(fields.take("tenant")?);
    let id = KeyId(fields.take("key_id")?);
    fields.name_row(id.to_string());
    let name = fields.take("name")?;
    let scopes: &str = fields.take("scopes")?;
    let binding = fields.maybe_json("binding")?;
    let hash = hash(fields.take("hash")?)?;
    let previous: Option<&[u8]> = fields.take("previous_hash")?;
    let until = fields.maybe_time("previous_until")?;
    let previous = previous.map(self::hash).transpose()?;
    Ok(KeyRecord {
        id,
        tenant,
        name,
        scopes: KeyRecord::read_scopes(scopes, binding.as_ref()),
        binding,
        limits: fields.maybe_json("limits")?.unwrap_or_default(),
        hash,
        previous: until.zip(previous),
        created_at: fields.time("created_at")?,
        expires_at: fields.maybe_time("expires_at")?,
        revoked_at: fields.maybe_time("revoked_at")?,
        last_used_at: fields.maybe_time("last_used_at")?,
    })
}

fn hash(bytes: &[u8]) -> Result<[u8; 32]> {
    bytes.try_into().map_err(|_| Error::Corrupt {
        table: "api_keys",
        column: "hash",
        row: String::new(),
        detail: format!("expected 32 bytes, found {}", bytes.len()),
    })
}

async fn create_key(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    new: &NewKey,
    idempotency: Option<&IdempotencyKey>,
) -> std::result::Result<CreateKeyOutcome, Fault> {
    let mut tx = connection.begin().await?;
    if let Some(key) = idempotency {
        // First of all: concurrent repeats of a request wait for each other here.
        match take(&mut tx, at, key, new.id.0).await? {
            Taken::Now => {}
            Taken::ByAnother => return Ok(CreateKeyOutcome::Mismatch),
            Taken::Before(made) => {
                let found = one(&mut tx, sql!("keys/find").bind(made), key_record).await?;
                return Ok(found.map_or(CreateKeyOutcome::NoTenant, CreateKeyOutcome::Replayed));
            }
        }
    }
    let insert = sql!("keys/create")
        .bind(at.map(|at| at.0))
        .bind(new.tenant.0)
        .bind(new.id.0)
        .bind(text(&new.name).into_owned())
        .bind(KeyRecord::stored_scopes(&new.scopes, new.binding.as_ref()))
        .bind(new.hash.to_vec())
        .bind(new.expires_at.map(|at| at.0))
        .bind(new.binding.as_ref().map(json))
        .bind(new.limits.stored().map(json));
    let Some(created) = one(&mut tx, insert, key_record).await? else {
        return Ok(CreateKeyOutcome::NoTenant);
    };
    sql!("keys/began")
        .bind(at.map(|at| at.0))
        .bind(new.tenant.0)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(CreateKeyOutcome::Created(created))
}
