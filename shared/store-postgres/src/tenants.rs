//! Tenants.

use async_trait::async_trait;
use mainspring_shared::id::{SendId, TenantId};
use mainspring_shared::store::{
    CalledSeats, CreateTenantOutcome, DeleteTenantOutcome, Error, IdempotencyKey, ListTenants,
    NewTenant, PLACE_KEPT_MS, Page, Result, TenantPatch, TenantUsage, TenantUsageQuery, Tenants,
    UpdateTenantOutcome, frees_places,
};
use mainspring_shared::tenant::{SeatLimits, Tenant, resource, tenant_of};
use mainspring_shared::time::Timestamp;
use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::accept::{lookup, take};
use crate::columns::{json, maybe_text, text};
use crate::reads::{page, sum};
use crate::retry::{Fault, PgQuery, execute, fetch, repeatable, sql};
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
            connection, at, id, &patch
        ))
    }

    async fn delete_tenant(&self, id: TenantId) -> Result<DeleteTenantOutcome> {
        let (at, pool) = (self.at, &self.pools.writers);
        repeatable!(pool, |connection, lost| delete(connection, at, id, lost))
    }

    async fn reserve_sends(&self, tenant: TenantId, sends: Vec<SendId>, max: u32) -> Result<u32> {
        let (at, pool) = (self.at, &self.pools.writers);
        let sends: Vec<Uuid> = sends.into_iter().map(|send| send.0).collect();
        repeatable!(pool, |connection| reserve_sends(
            connection, at, tenant, &sends, max
        ))
    }

    async fn release_sends(&self, tenant: TenantId, sends: Vec<SendId>) -> Result<()> {
        let sends: Vec<Uuid> = sends.into_iter().map(|send| send.0).collect();
        let release = || {
            let query = sql!("tenants/release").bind(tenant.0);
            query.bind(sends.clone())
        };
        execute(&self.pools.writers, release).await.map(drop)
    }

    async fn call_seats(&self, tenant: Option<TenantId>) -> Result<CalledSeats> {
        seats::call(self, tenant).await
    }

    async fn tenant_usage(&self, query: TenantUsageQuery) -> Result<TenantUsage> {
        // It may go through many sends: others do not wait for it.
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
        erasing_at: fields.maybe_time("erasing_at")?,
        created_at: fields.time("created_at")?,
    })
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
        // An attempt whose answer was lost may have been the one that took the name.
        let own = found.filter(|found| lost && found.limits == new.limits);
        return Ok(own.map_or(CreateTenantOutcome::NameTaken, CreateTenantOutcome::Created));
    }
    let insert = sql!("tenants/create")
        .bind(at.map(|at| at.0))
        .bind(text(&new.name).into_owned())
        .bind(json(&new.limits))
        .bind(weight(new.weight))
        .bind(json(&new.retention));
    let created = tenant(&insert.fetch_one(&mut *tx).await?)?;
    if let Some(limits) = SeatLimits::of(&new.limits) {
        seats::follow(&mut tx, at, created.id, Some(limits)).await?;
    }
    if let Some(key) = key {
        // The lock keeps others from taking the key for a tenant.
        take(&mut tx, at, key, resource(created.id)).await?;
    }
    tx.commit().await?;
    Ok(CreateTenantOutcome::Created(created))
}

/// The row of a statement that has one at most.
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

async fn update(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    id: TenantId,
    patch: &TenantPatch,
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
        .bind(patch.retention.as_ref().map(json));
    let changed = one(&mut tx, change, tenant).await?;
    if let Some(limits) = &patch.limits {
        seats::follow(&mut tx, at, id, SeatLimits::of(limits)).await?;
        money::follow(&mut tx, id, limits).await?;
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
        // An attempt whose answer was lost may have been the one that deleted it.
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

async fn reserve_sends(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    sends: &[Uuid],
    max: u32,
) -> std::result::Result<u32, Fault> {
    let at = at.map(|at| at.0);
    let mut tx = connection.begin().await?;
    let lock = sql!("tenants/lock_one").bind(tenant.0);
    lock.execute(&mut *tx).await?;
    let (mut taken, had) = places(&mut tx, tenant, sends).await?;
    // A repeat has the first ones already.
    let new = &sends[had.min(sends.len())..];
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    if max.saturating_sub(taken) < new.len() || frees_places(new.iter().copied()) {
        let free = sql!("tenants/free")
            .bind(at)
            .bind(tenant.0)
            .bind(PLACE_KEPT_MS);
        free.execute(&mut *tx).await?;
        taken = places(&mut tx, tenant, sends).await?.0;
    }
    let more = max.saturating_sub(taken).min(new.len());
    if more > 0 {
        let reserve = sql!("tenants/reserve").bind(at).bind(tenant.0);
        let reserve = reserve.bind(new[..more].to_vec());
        reserve.execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(u32::try_from(had + more).unwrap_or(u32::MAX))
}

/// Places taken, and those of them that these sends have.
async fn places(
    connection: &mut PgConnection,
    tenant: TenantId,
    sends: &[Uuid],
) -> std::result::Result<(usize, usize), Fault> {
    let query = sql!("tenants/places").bind(tenant.0).bind(sends.to_vec());
    let row = query.fetch_one(connection).await?;
    let mut fields = Fields::new(&row, "open_sends");
    let mut count = |column| {
        let total = fields.total(column)?;
        Ok::<_, Error>(usize::try_from(total).unwrap_or(usize::MAX))
    };
    Ok((count("taken")?, count("had")?))
}
