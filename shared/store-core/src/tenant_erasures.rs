//! Erasing tenants.

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::store;
use mainspring_shared::store::{BeginErasureOutcome, ERASED_MS_MIN, TenantErasures};
use mainspring_shared::tenant::{ErasureProgress, TenantErasure};

use crate::db::{Conn, parts, sql};
use crate::fault::Result;
use crate::query::{query_scalar, statement};
use crate::reads::count;
use crate::rows::{Cells, json};
use crate::store::{SqlStore, Tx};
use crate::tenants;

/// For each table, a statement that removes at most `$2` rows of the tenant `$1`.
macro_rules! removals {
    ($($table:literal by $key:literal),+ $(,)?) => {
        [$((
            $table,
            parts!((
                "",
                concat!(
                    "DELETE FROM ", $table, " WHERE (", $key, ") IN (\n",
                    "    SELECT ", $key, " FROM ", $table, " WHERE tenant = $1 LIMIT $2\n);\n",
                )
            )),
        )),+]
    };
}

#[async_trait]
impl TenantErasures for SqlStore {
    async fn begin_tenant_erasure(&self, tenant: TenantId) -> store::Result<BeginErasureOutcome> {
        self.write(tenant, |tx, tenant| Box::pin(begin(tx, tenant)))
            .await
    }

    async fn tenant_erasure(&self, tenant: TenantId) -> store::Result<Option<TenantErasure>> {
        self.read(move |conn| Box::pin(read(conn, tenant))).await
    }

    async fn erasing_tenants(&self) -> store::Result<Vec<TenantId>> {
        self.read(|conn| {
            Box::pin(async move {
                let found: Vec<i32> = query_scalar(sql!("tenants/erasing"))
                    .fetch_all(conn)
                    .await?;
                Ok(found.into_iter().map(TenantId).collect())
            })
        })
        .await
    }

    async fn erase_tenant_rows(
        &self,
        tenant: TenantId,
        limit: u32,
    ) -> store::Result<Option<TenantErasure>> {
        self.write((tenant, limit), |tx, (tenant, limit)| {
            Box::pin(erase(tx, tenant, limit))
        })
        .await
    }

    async fn note_tenant_erasure(
        &self,
        tenant: TenantId,
        failed: Option<String>,
    ) -> store::Result<()> {
        self.write((tenant, failed), |tx, (tenant, failed)| {
            Box::pin(async move {
                tenants::lock(tx).await?;
                let found = read(tx.conn(), tenant).await?;
                match found.filter(|found| found.ended_at.is_none()) {
                    Some(mut found) => {
                        found.progress.failed = failed;
                        note(tx, &found).await
                    }
                    None => Ok(()),
                }
            })
        })
        .await
    }
}

async fn begin(tx: &mut Tx, tenant: TenantId) -> Result<BeginErasureOutcome> {
    tenants::lock(tx).await?;
    let Some(found) = tenants::get(tx.conn(), tenant).await? else {
        return Ok(BeginErasureOutcome::NotFound);
    };
    if found.retention.hold {
        return Ok(BeginErasureOutcome::Held);
    }
    let now = tx.now;
    statement(sql!("tenants/begin_erasure"))
        .bind(tenant.0)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    let begun = read(tx.conn(), tenant).await?;
    Ok(begun.map_or(BeginErasureOutcome::NotFound, BeginErasureOutcome::Begun))
}

async fn read(conn: &mut Conn, tenant: TenantId) -> Result<Option<TenantErasure>> {
    let row = statement(sql!("tenants/erasure")).bind(tenant.0);
    let Some(row) = row.fetch_optional(conn).await? else {
        return Ok(None);
    };
    let mut cells = Cells::new(&row, "tenants");
    let progress: Option<ErasureProgress> = cells.json_opt("erasure")?;
    Ok(Some(TenantErasure {
        tenant,
        begun_at: cells.time("erasing_at")?,
        ended_at: cells.time_opt("erased_at")?,
        progress: progress.unwrap_or_default(),
    }))
}

async fn note(tx: &mut Tx, erasure: &TenantErasure) -> Result<()> {
    let noted = statement(sql!("tenants/note_erasure"))
        .bind(erasure.tenant.0)
        .bind(json(&erasure.progress)?)
        .execute(tx.conn())
        .await;
    noted.map(drop)
}

async fn erase(tx: &mut Tx, tenant: TenantId, limit: u32) -> Result<Option<TenantErasure>> {
    tenants::lock(tx).await?;
    let found = read(tx.conn(), tenant).await?;
    let Some(mut found) = found.filter(|found| found.ended_at.is_none()) else {
        return Ok(None);
    };
    let mut removed = Vec::new();
    for (table, sql) in mainspring_shared::tenant_tables!(removals) {
        let done = statement(sql)
            .bind(tenant.0)
            .bind(i64::from(limit))
            .execute(tx.conn())
            .await?;
        removed.push((table.to_owned(), done.rows_affected()));
    }
    statement(sql!("tenants/age_blobs"))
        .bind(tenant.0)
        .execute(tx.conn())
        .await?;
    let row = statement(sql!("tenants/blobs_left")).bind(tenant.0);
    let row = row.fetch_one(tx.conn()).await?;
    let left = count(&mut Cells::new(&row, "blobs"), "blobs")?;
    let now = tx.now;
    let is_over = found.progress.step(removed, left, now, ERASED_MS_MIN);
    if is_over {
        found.progress.failed = None;
        found.ended_at = Some(now);
    }
    note(tx, &found).await?;
    if is_over {
        // Also removes what is stored under the tenant's number in other tables.
        statement(sql!("tenants/delete"))
            .bind(tenant.0)
            .bind(now.0)
            .execute(tx.conn())
            .await?;
        statement(sql!("tenants/end_erasure"))
            .bind(tenant.0)
            .bind(now.0)
            .execute(tx.conn())
            .await?;
    }
    Ok(Some(found))
}
