//! Tenants.

use async_trait::async_trait;
use mainspring_shared::id::{KeyId, SendId, TenantId};
use mainspring_shared::store::{
    CalledSeats, CreateTenantOutcome, DeleteTenantOutcome, IdempotencyKey, ListTenants, NewTenant,
    Page, Result, TenantPatch, TenantUsage, TenantUsageQuery, Tenants, UpdateTenantOutcome,
};
use mainspring_shared::tenant::{Pools, SeatLimits, Tenant, resource, tenant_of};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};

use crate::accept::{lookup, take};
use crate::columns::{json, maybe_text, text};
use crate::fault::Fault;
use crate::places::{self, Owner};
use crate::reads::{page, sum};
use crate::retry::{PgQuery, fetch, repeatable, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;
use crate::{money, seats};

#[async_trait]
impl Tenants for PostgresStore {
    async fn create_tenant(
        &self,
        new: NewTenant,
        key: Option<IdempotencyKey>,
    ) -> Result<CreateTenantOutcome> {
        let (at, pool) = (self.at, &self.pools.writers);
        repeatable!(pool, |connection, lost| create(
            connection,
            at,
            &new,
            key.as_ref(),
            lost
        ))
    }

    async fn get_tenant(&self, id: TenantId) -> Result<Option<Tenant>> {
        let get = || sql!("tenants/get").bind(id.0);
        let rows = fetch(&self.pools.claimers, get).await?;
        rows.first().map(tenant).transpose()
    }

    async fn named_tenant(&self, name: String) -> Result<Option<TenantId>> {
        let find = || sql!("tenants/named").bind(text(&name).into_owned());
        let rows = fetch(&self.pools.claimers, find).await?;
        let found = rows
            .first()
            .map(|row| Fields::new(row, "tenants").take("tenant"));
        Ok(found.transpose()?.map(TenantId))
    }

    async fn tenant_pools(&self) -> Result<Vec<(TenantId, Pools)>> {
        let rows = fetch(&self.pools.claimers, || sql!("tenants/pools")).await?;
        let pools = rows.iter().map(|row| {
            let mut fields = Fields::new(row, "tenants");
            Ok((TenantId(fields.take("tenant")?), fields.json("pools")?))
        });
        pools.collect()
    }

    async fn list_tenants(&self, query: ListTenants) -> Result<Page<Tenant>> {
        let rows = fetch(&self.pools.readers, || {
            sql!("tenants/list")
                .bind(query.after.map_or(0, |after| after.0))
                .bind(i64::from(query.limit) + 1)
        });
        Ok(page(&rows.await?, query.limit, tenant))
    }

    async fn update_tenant(&self, id: TenantId, patch: TenantPatch) -> Result<UpdateTenantOutcome> {
        let at = self.at;
        repeatable!(&self.pools.writers, |connection| update(
            connection, at, id, &patch, true
        ))
    }

    async fn delete_tenant(&self, id: TenantId) -> Result<DeleteTenantOutcome> {
        let (at, pool) = (self.at, &self.pools.writers);
        repeatable!(pool, |connection, lost| delete(connection, at, id, lost))
    }

    async fn reserve_sends(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        sends: Vec<SendId>,
        max: u32,
    ) -> Result<u32> {
        places::reserve(self, Owner { tenant, key }, sends, max).await
    }

    async fn release_sends(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        sends: Vec<SendId>,
    ) -> Result<()> {
        places::release(self, Owner { tenant, key }, sends).await
    }

    async fn call_seats(&self, tenant: Option<TenantId>) -> Result<CalledSeats> {
        seats::call(self, tenant).await
    }

    async fn tenant_usage(&self, query: TenantUsageQuery) -> Result<TenantUsage> {
        // It may read many sends, so it uses the pool of the streamers, where no step waits for it.
        let rows = fetch(&self.pools.streamers, || {
            sql!("tenants/usage")
                .bind(query.tenant.0)
                .bind(query.from)
                .bind(query.until)
        });
        let rows = rows.await?;
        let Some(row) = rows.first() else {
            return Ok(TenantUsage::default());
        };
        let mut fields = Fields::new(row, "usage_rows");
        Ok(TenantUsage {
            sends: fields.total("sends")?,
            calls: fields.total("calls")?,
            usage: sum(&mut fields)?,
        })
    }

    async fn first_open_send(&self, tenant: TenantId, from: SendId) -> Result<Option<SendId>> {
        let first = || sql!("tenants/first_open").bind(tenant.0).bind(from.0);
        let rows = fetch(&self.pools.streamers, first).await?;
        let first = rows
            .first()
            .map(|row| Fields::new(row, "sends").take("send_id"));
        Ok(first.transpose()?.map(SendId))
    }

    async fn tenant_bytes(&self, tenant: TenantId) -> Result<u64> {
        let bytes = || sql!("tenants/bytes").bind(tenant.0);
        let rows = fetch(&self.pools.streamers, bytes).await?;
        let row = rows
            .first()
            .map(|row| Fields::new(row, "blobs").total("bytes"));
        row.unwrap_or(Ok(0))
    }
}

pub(crate) fn tenant(row: &PgRow) -> Result<Tenant> {
    let mut fields = Fields::new(row, "tenants");
    Ok(Tenant {
        id: TenantId(fields.take("tenant")?),
        name: fields.take("name")?,
        limits: fields.json("limits")?,
        weight: u32::try_from(fields.take::<i32>("weight")?).unwrap_or(1),
        retention: fields.maybe_json("retention")?.unwrap_or_default(),
        pools: fields.maybe_json("pools")?.unwrap_or_default(),
        erasing_at: fields.maybe_time("erasing_at")?,
        created_at: fields.time("created_at")?,
    })
}

/// Pools as they are stored.
fn stored_pools(pools: &Pools) -> String {
    pools.stored().map(json).unwrap_or_default()
}

fn weight(weight: u32) -> i32 {
    i32::try_from(weight).unwrap_or(i32::MAX)
}

async fn create(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    new: &NewTenant,
    key: Option<&IdempotencyKey>,
    lost: bool,
) -> std::result::Result<CreateTenantOutcome, Fault> {
    let mut tx = connection.begin().await?;
    sql!("tenants/lock").execute(&mut *tx).await?;
    if let Some(key) = key
        && let Some((_, known)) = lookup(&mut tx, vec![(0, key)]).await?.pop()
    {
        if !known.same_request {
            return Ok(CreateTenantOutcome::Mismatch);
        }
        let id = tenant_of(known.resource).unwrap_or(TenantId::DEFAULT);
        let found = one(&mut tx, sql!("tenants/get").bind(id.0), tenant).await?;
        return Ok(found.map_or(CreateTenantOutcome::Gone, CreateTenantOutcome::Replayed));
    }
    if let Some(other) = named(&mut tx, &new.name).await? {
        let found = one(&mut tx, sql!("tenants/get").bind(other.0), tenant).await?;
        // An attempt whose response was lost may have taken the name.
        let own = found.filter(|found| lost && found.limits == new.limits);
        return Ok(own.map_or(CreateTenantOutcome::NameTaken, CreateTenantOutcome::Created));
    }
    let insert = sql!("tenants/create")
        .bind(at.map(|at| at.0))
        .bind(text(&new.name).into_owned())
        .bind(json(&new.limits))
        .bind(weight(new.weight))
        .bind(json(&new.retention))
        .bind(new.pools.stored().map(json));
    let created = tenant(&insert.fetch_one(&mut *tx).await?)?;
    if let Some(limits) = SeatLimits::of(&new.limits) {
        seats::apply_limits(&mut tx, at, created.id, Some(limits)).await?;
    }
    if let Some(key) = key {
        // The lock keeps others from taking the key for another tenant.
        take(&mut tx, at, key, resource(created.id)).await?;
    }
    tx.commit().await?;
    Ok(CreateTenantOutcome::Created(created))
}

/// The row of a statement that returns at most one.
pub(crate) async fn one<T>(
    connection: &mut PgConnection,
    query: PgQuery,
    read: impl Fn(&PgRow) -> Result<T>,
) -> std::result::Result<Option<T>, Fault> {
    let row = query.fetch_optional(connection).await?;
    Ok(row.as_ref().map(read).transpose()?)
}

async fn named(
    connection: &mut PgConnection,
    name: &str,
) -> std::result::Result<Option<TenantId>, Fault> {
    let query = sql!("tenants/named").bind(text(name).into_owned());
    let number = |row: &PgRow| Fields::new(row, "tenants").take("tenant");
    let found: Option<i32> = one(connection, query, number).await?;
    Ok(found.map(TenantId))
}

/// Changes a tenant, and applies its limits unless its sends are on another database.
pub(crate) async fn update(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    id: TenantId,
    patch: &TenantPatch,
    is_here: bool,
) -> std::result::Result<UpdateTenantOutcome, Fault> {
    let mut tx = connection.begin().await?;
    sql!("tenants/lock").execute(&mut *tx).await?;
    let found = one(&mut tx, sql!("tenants/get").bind(id.0), tenant).await?;
    if found.is_none() {
        return Ok(UpdateTenantOutcome::NotFound);
    }
    if let Some(name) = &patch.name
        && named(&mut tx, name).await?.is_some_and(|other| other != id)
    {
        return Ok(UpdateTenantOutcome::NameTaken);
    }
    let change = sql!("tenants/update")
        .bind(id.0)
        .bind(maybe_text(patch.name.as_deref()))
        .bind(patch.limits.as_ref().map(json))
        .bind(patch.weight.map(weight))
        .bind(patch.retention.as_ref().map(json))
        .bind(patch.pools.as_ref().map(stored_pools));
    let changed = one(&mut tx, change, tenant).await?;
    if let Some(limits) = patch.limits.as_ref().filter(|_| is_here) {
        seats::apply_limits(&mut tx, at, id, SeatLimits::of(limits)).await?;
        money::apply_limits(&mut tx, id, limits).await?;
    }
    tx.commit().await?;
    let changed = changed.map(Box::new);
    Ok(changed.map_or(UpdateTenantOutcome::NotFound, UpdateTenantOutcome::Updated))
}

async fn delete(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    id: TenantId,
    lost: bool,
) -> std::result::Result<DeleteTenantOutcome, Fault> {
    let mut tx = connection.begin().await?;
    sql!("tenants/lock").execute(&mut *tx).await?;
    let found = one(&mut tx, sql!("tenants/get").bind(id.0), tenant).await?;
    if found.is_none() {
        // An attempt whose response was lost may have deleted it.
        return Ok(if lost {
            DeleteTenantOutcome::Deleted
        } else {
            DeleteTenantOutcome::NotFound
        });
    }
    let row = sql!("tenants/used").bind(id.0).fetch_one(&mut *tx).await?;
    if Fields::new(&row, "tenants").take("used")? {
        return Ok(DeleteTenantOutcome::NotEmpty);
    }
    let delete = sql!("tenants/delete").bind(at.map(|at| at.0)).bind(id.0);
    delete.execute(&mut *tx).await?;
    let drop_pending = sql!("webhooks/drop_tenant").bind(id.0);
    drop_pending.execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(DeleteTenantOutcome::Deleted)
}
