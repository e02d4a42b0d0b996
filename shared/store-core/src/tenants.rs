//! Tenants.

use async_trait::async_trait;
use mainspring_shared::id::{KeyId, SendId, TenantId};
use mainspring_shared::store;
use mainspring_shared::store::{
    CalledSeats, CreateTenantOutcome, DeleteTenantOutcome, IdempotencyKey, ListTenants, NewTenant,
    Page, TenantPatch, TenantUsage, TenantUsageQuery, Tenants, UpdateTenantOutcome,
};
use mainspring_shared::tenant::{Pools, SeatLimits, Tenant, resource, tenant_of};

use crate::accept::{Seen, remember, seen};
use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::places::{self, Owner};
use crate::query::{query_scalar, statement};
use crate::reads::{count, page, sum};
use crate::row::Row;
use crate::rows::{Cells, json};
use crate::store::{SqlStore, Tx};
use crate::{money, seats};

#[async_trait]
impl Tenants for SqlStore {
    async fn create_tenant(
        &self,
        new: NewTenant,
        key: Option<IdempotencyKey>,
    ) -> store::Result<CreateTenantOutcome> {
        self.write((new, key), |tx, (new, key)| Box::pin(create(tx, new, key)))
            .await
    }

    async fn get_tenant(&self, id: TenantId) -> store::Result<Option<Tenant>> {
        self.read(move |conn| Box::pin(get(conn, id))).await
    }

    async fn named_tenant(&self, name: String) -> store::Result<Option<TenantId>> {
        self.read(move |conn| Box::pin(async move { named(conn, &name).await }))
            .await
    }

    async fn tenant_pools(&self) -> store::Result<Vec<(TenantId, Pools)>> {
        self.read(|conn| Box::pin(pools(conn))).await
    }

    async fn list_tenants(&self, query: ListTenants) -> store::Result<Page<Tenant>> {
        self.read(move |conn| Box::pin(list(conn, query))).await
    }

    async fn update_tenant(
        &self,
        id: TenantId,
        patch: TenantPatch,
    ) -> store::Result<UpdateTenantOutcome> {
        self.write((id, patch), |tx, (id, patch)| {
            Box::pin(update(tx, id, patch))
        })
        .await
    }

    async fn delete_tenant(&self, id: TenantId) -> store::Result<DeleteTenantOutcome> {
        self.write(id, |tx, id| Box::pin(delete(tx, id))).await
    }

    async fn reserve_sends(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        sends: Vec<SendId>,
        max: u32,
    ) -> store::Result<u32> {
        let of = Owner { tenant, key };
        self.write((of, sends, max), |tx, (of, sends, max)| {
            Box::pin(places::reserve(tx, of, sends, max))
        })
        .await
    }

    async fn release_sends(
        &self,
        tenant: TenantId,
        key: Option<KeyId>,
        sends: Vec<SendId>,
    ) -> store::Result<()> {
        self.write((sends, Owner { tenant, key }), |tx, (sends, of)| {
            Box::pin(places::release(tx, of, sends))
        })
        .await
    }

    async fn call_seats(&self, tenant: Option<TenantId>) -> store::Result<CalledSeats> {
        self.write(tenant, |tx, tenant| Box::pin(seats::call(tx, tenant)))
            .await
    }

    async fn tenant_usage(&self, query: TenantUsageQuery) -> store::Result<TenantUsage> {
        self.read(move |conn| Box::pin(usage(conn, query))).await
    }

    async fn first_open_send(
        &self,
        tenant: TenantId,
        from: SendId,
    ) -> store::Result<Option<SendId>> {
        self.read(move |conn| Box::pin(first_open(conn, tenant, from)))
            .await
    }

    async fn tenant_bytes(&self, tenant: TenantId) -> store::Result<u64> {
        self.read(move |conn| Box::pin(bytes(conn, tenant))).await
    }
}

fn tenant(row: &Row) -> Result<Tenant> {
    let mut cells = Cells::new(row, "tenants");
    Ok(Tenant {
        id: TenantId(cells.get("tenant")?),
        name: cells.get("name")?,
        limits: cells.json("limits")?,
        weight: u32::try_from(cells.get::<i32>("weight")?).unwrap_or(1),
        retention: cells.json_opt("retention")?.unwrap_or_default(),
        pools: cells.json_opt("pools")?.unwrap_or_default(),
        erasing_at: cells.time_opt("erasing_at")?,
        created_at: cells.time("created_at")?,
    })
}

async fn create(
    tx: &mut Tx,
    new: NewTenant,
    key: Option<IdempotencyKey>,
) -> Result<CreateTenantOutcome> {
    lock(tx).await?;
    if let Some(key) = &key {
        match seen(tx, key).await? {
            Seen::Never => {}
            Seen::OtherBody => return Ok(CreateTenantOutcome::Mismatch),
            Seen::Before(made) => {
                let id = tenant_of(made).unwrap_or(TenantId::DEFAULT);
                let found = get(tx.conn(), id).await?;
                return Ok(found.map_or(CreateTenantOutcome::Gone, CreateTenantOutcome::Replayed));
            }
        }
    }
    if named(tx.conn(), &new.name).await?.is_some() {
        return Ok(CreateTenantOutcome::NameTaken);
    }
    let last: i32 = query_scalar(sql!("tenants/last"))
        .fetch_one(tx.conn())
        .await?;
    let tenant = Tenant {
        id: TenantId(last + 1),
        name: new.name,
        limits: new.limits,
        weight: new.weight,
        retention: new.retention,
        pools: new.pools,
        erasing_at: None,
        created_at: tx.now,
    };
    statement(sql!("tenants/create"))
        .bind(tenant.id.0)
        .bind(&tenant.name)
        .bind(json(&tenant.limits)?)
        .bind(tenant.created_at.0)
        .bind(tenant.weight)
        .bind(json(&tenant.retention)?)
        .bind(tenant.pools.stored().map(json).transpose()?)
        .execute(tx.conn())
        .await?;
    if let Some(limits) = SeatLimits::of(&tenant.limits) {
        seats::apply_limits(tx, tenant.id, Some(limits)).await?;
    }
    if let Some(key) = &key {
        remember(tx, key, resource(tenant.id)).await?;
    }
    Ok(CreateTenantOutcome::Created(tenant))
}

pub(crate) async fn lock(tx: &mut Tx) -> Result<()> {
    let locked = statement(sql!("tenants/lock")).execute(tx.conn()).await;
    locked.map(drop)
}

/// The tenant with this name.
async fn named(conn: &mut Conn, name: &str) -> Result<Option<TenantId>> {
    let found = query_scalar(sql!("tenants/named")).bind(name);
    let found: Option<i32> = found.fetch_optional(conn).await?;
    Ok(found.map(TenantId))
}

pub(crate) async fn get(conn: &mut Conn, id: TenantId) -> Result<Option<Tenant>> {
    let row = statement(sql!("tenants/get")).bind(id.0);
    let row = row.fetch_optional(conn).await?;
    row.as_ref().map(tenant).transpose()
}

async fn pools(conn: &mut Conn) -> Result<Vec<(TenantId, Pools)>> {
    let rows = statement(sql!("tenants/pools")).fetch_all(conn).await?;
    let pools = rows.iter().map(|row| {
        let mut cells = Cells::new(row, "tenants");
        Ok((TenantId(cells.get("tenant")?), cells.json("pools")?))
    });
    pools.collect()
}

async fn list(conn: &mut Conn, query: ListTenants) -> Result<Page<Tenant>> {
    let rows = statement(sql!("tenants/list"))
        .bind(query.after.map_or(0, |after| after.0))
        .bind(i64::from(query.limit) + 1)
        .fetch_all(conn)
        .await?;
    Ok(page(&rows, query.limit, tenant))
}

async fn update(tx: &mut Tx, id: TenantId, patch: TenantPatch) -> Result<UpdateTenantOutcome> {
    lock(tx).await?;
    if get(tx.conn(), id).await?.is_none() {
        return Ok(UpdateTenantOutcome::NotFound);
    }
    if let Some(name) = &patch.name
        && named(tx.conn(), name)
            .await?
            .is_some_and(|other| other != id)
    {
        return Ok(UpdateTenantOutcome::NameTaken);
    }
    statement(sql!("tenants/update"))
        .bind(id.0)
        .bind(patch.name)
        .bind(patch.limits.as_ref().map(json).transpose()?)
        .bind(patch.weight)
        .bind(patch.retention.as_ref().map(json).transpose()?)
        .bind(patch.pools.as_ref().map(stored_pools).transpose()?)
        .execute(tx.conn())
        .await?;
    // Lock order, as everywhere: the tenant's row before that of its seats.
    if let Some(limits) = &patch.limits {
        seats::apply_limits(tx, id, SeatLimits::of(limits)).await?;
        money::apply_limits(tx, id, limits).await?;
    }
    let changed = get(tx.conn(), id).await?;
    let changed = changed.map(Box::new);
    Ok(changed.map_or(UpdateTenantOutcome::NotFound, UpdateTenantOutcome::Updated))
}

/// Pools as a patch stores them.
fn stored_pools(pools: &Pools) -> Result<String> {
    pools.stored().map_or_else(|| Ok(String::new()), json)
}

async fn delete(tx: &mut Tx, id: TenantId) -> Result<DeleteTenantOutcome> {
    lock(tx).await?;
    if get(tx.conn(), id).await?.is_none() {
        return Ok(DeleteTenantOutcome::NotFound);
    }
    let used = query_scalar(sql!("tenants/used")).bind(id.0);
    let used: bool = used.fetch_one(tx.conn()).await?;
    if used {
        return Ok(DeleteTenantOutcome::NotEmpty);
    }
    let now = tx.now;
    statement(sql!("tenants/delete"))
        .bind(id.0)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(DeleteTenantOutcome::Deleted)
}

pub(crate) async fn usage(conn: &mut Conn, query: TenantUsageQuery) -> Result<TenantUsage> {
    let row = statement(sql!("tenants/usage"))
        .bind(query.tenant.0)
        .bind(query.from)
        .bind(query.until)
        .fetch_one(conn)
        .await?;
    let mut cells = Cells::new(&row, "usage_rows");
    Ok(TenantUsage {
        sends: count(&mut cells, "sends")?,
        calls: count(&mut cells, "calls")?,
        usage: sum(&mut cells)?,
    })
}

async fn first_open(conn: &mut Conn, tenant: TenantId, from: SendId) -> Result<Option<SendId>> {
    let row = statement(sql!("tenants/first_open"))
        .bind(tenant.0)
        .bind(from.0)
        .fetch_optional(conn)
        .await?;
    row.map(|row| Cells::new(&row, "sends").get("send_id").map(SendId))
        .transpose()
}

async fn bytes(conn: &mut Conn, tenant: TenantId) -> Result<u64> {
    let row = statement(sql!("tenants/bytes"))
        .bind(tenant.0)
        .fetch_one(conn)
        .await?;
    count(&mut Cells::new(&row, "blobs"), "bytes")
}

/// All tenants that are not deleted, except the first one.
pub(crate) async fn dump(conn: &mut Conn) -> Result<Vec<TenantId>> {
    let found = query_scalar(sql!("tenants/dump")).fetch_all(conn);
    let found: Vec<i32> = found.await?;
    Ok(found.into_iter().map(TenantId).collect())
}
