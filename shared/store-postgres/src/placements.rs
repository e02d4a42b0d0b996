//! The catalogue, and each database's record of tenants that are elsewhere.

use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::id::{BootId, TenantId};
use mainspring_shared::store::placements::{ChangePlacement, Phase, Placement, Placements};
use mainspring_shared::store::{Boots as _, Error, Result, TenantPatch, UpdateTenantOutcome};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};

use crate::fault::Fault;
use crate::retry::{execute, fetch, repeatable, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;
use crate::tenants::{one, update};

#[async_trait]
impl Placements for PostgresStore {
    async fn placements(&self, after: i64) -> Result<Vec<Placement>> {
        let list = || sql!("placements/list").bind(after);
        let rows = fetch(&self.pools.claimers, list).await?;
        rows.iter().map(placement).collect()
    }

    async fn change_placement(&self, change: ChangePlacement) -> Result<Option<Placement>> {
        let (at, pool) = (self.at, &self.pools.writers);
        repeatable!(pool, |connection, lost| put(connection, at, &change, lost))
    }

    async fn tenants_away(&self) -> Result<Vec<TenantId>> {
        let rows = fetch(&self.pools.claimers, || sql!("placements/away")).await?;
        let read = |row| {
            Fields::new(row, "tenants_away")
                .take("tenant")
                .map(TenantId)
        };
        rows.iter().map(read).collect()
    }

    async fn update_tenant_at_home(
        &self,
        id: TenantId,
        patch: TenantPatch,
    ) -> Result<UpdateTenantOutcome> {
        let (at, pool) = (self.at, &self.pools.writers);
        repeatable!(pool, |connection| update(connection, at, id, &patch, false))
    }

    async fn revive_boot(&self, boot: BootId, ttl: Duration) -> Result<bool> {
        // End its grants before it lives again.
        self.stop_boot(boot).await?;
        let at = self.at;
        let revived = execute(&self.pools.writers, || {
            sql!("placements/revive")
                .bind(at.map(|at| at.0))
                .bind(boot.0)
                .bind(ttl.as_millis() as i64)
        });
        Ok(revived.await? > 0)
    }
}

impl PostgresStore {
    /// A tenant's row in the catalogue. Only the home has it.
    pub async fn placement_of(&self, tenant: TenantId) -> Result<Option<Placement>> {
        let get = || sql!("placements/get").bind(tenant.0);
        let rows = fetch(&self.pools.claimers, get).await?;
        rows.first().map(placement).transpose()
    }
}

fn placement(row: &PgRow) -> Result<Placement> {
    let mut fields = Fields::new(row, "placements");
    let tenant = TenantId(fields.take("tenant")?);
    let phase: &str = fields.take("phase")?;
    let phase = Phase::parse(phase).ok_or_else(|| Error::Corrupt {
        table: "placements",
        column: "phase",
        row: tenant.to_string(),
        detail: format!("{phase} is no phase of a move"),
    })?;
    Ok(Placement {
        tenant,
        place: fields.take("place")?,
        other: fields.take("other")?,
        phase,
        version: fields.take("version")?,
        began: fields.take("began")?,
        changed_at: fields.time("changed_at")?,
    })
}

async fn put(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    change: &ChangePlacement,
    lost: bool,
) -> std::result::Result<Option<Placement>, Fault> {
    let mut tx = connection.begin().await?;
    sql!("placements/lock").execute(&mut *tx).await?;
    let get = sql!("placements/get").bind(change.tenant.0);
    let found = one(&mut tx, get, placement).await?;
    if found.as_ref().map(|found| found.version) != change.from {
        // It may have been changed by an attempt whose response was lost.
        let made = found.filter(|found| {
            lost && found.place == change.place
                && found.other == change.other
                && found.phase == change.phase
        });
        return Ok(made);
    }
    let put = sql!("placements/put")
        .bind(at.map(|at| at.0))
        .bind(change.tenant.0)
        .bind(change.place.clone())
        .bind(change.other.clone())
        .bind(change.phase.as_str());
    let written = one(&mut tx, put, placement).await?;
    tx.commit().await?;
    Ok(written)
}
