//! Erasing tenants.

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{BeginErasureOutcome, ERASED_MS_MIN, Result, TenantErasures};
use mainspring_shared::tenant::{ErasureProgress, TenantErasure};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection};

use crate::columns::json;
use crate::fault::Fault;
use crate::retry::{fetch, repeatable, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;
use crate::tenants::{self, one};

macro_rules! removals {
    ($($table:literal by $key:literal),+ $(,)?) => {
        concat!(
            "WITH ",
            $("d_", $table, " AS (DELETE FROM ", $table, " d WHERE d.ctid = ANY (ARRAY(",
            "SELECT r.ctid FROM ", $table, " r WHERE r.tenant = $1::integer LIMIT $2::bigint",
            ")) RETURNING 1),\n",)+
            "x AS (SELECT '' AS kind, 0::bigint AS count",
            $("\nUNION ALL SELECT '", $table, "', (SELECT count(*) FROM d_", $table, ")",)+
            ") SELECT x.kind, x.count FROM x WHERE x.count > 0"
        )
    };
}

/// Removes rows of a tenant that is being erased, at most `$2` of each table, and returns how many.
/// Reads only its own rows: the primary keys start with the tenant, except those of memories and
/// asks, which have an index that does.
const ERASE_ROWS: &str = mainspring_shared::tenant_tables!(removals);

#[async_trait]
impl TenantErasures for PostgresStore {
    async fn begin_tenant_erasure(&self, tenant: TenantId) -> Result<BeginErasureOutcome> {
        let (at, pool) = (self.at, &self.pools.writers);
        repeatable!(pool, |connection| begin(connection, at, tenant))
    }

    async fn tenant_erasure(&self, tenant: TenantId) -> Result<Option<TenantErasure>> {
        let read = || sql!("tenants/erasure").bind(tenant.0);
        let rows = fetch(&self.pools.readers, read).await?;
        rows.first().map(erasure).transpose()
    }

    async fn erasing_tenants(&self) -> Result<Vec<TenantId>> {
        let rows = fetch(&self.pools.readers, || sql!("tenants/erasing")).await?;
        let read = |row| Fields::new(row, "tenants").take("tenant").map(TenantId);
        rows.iter().map(read).collect()
    }

    async fn erase_tenant_rows(
        &self,
        tenant: TenantId,
        limit: u32,
    ) -> Result<Option<TenantErasure>> {
        let (at, pool) = (self.at, &self.pools.writers);
        repeatable!(pool, |connection| erase(connection, at, tenant, limit))
    }

    async fn note_tenant_erasure(&self, tenant: TenantId, failed: Option<String>) -> Result<()> {
        let pool = &self.pools.writers;
        repeatable!(pool, |connection| note_failure(
            connection,
            tenant,
            failed.as_deref()
        ))
    }
}

fn erasure(row: &PgRow) -> Result<TenantErasure> {
    let mut fields = Fields::new(row, "tenants");
    let progress: Option<ErasureProgress> = fields.maybe_json("erasure")?;
    Ok(TenantErasure {
        tenant: TenantId(fields.take("tenant")?),
        begun_at: fields.time("erasing_at")?,
        ended_at: fields.maybe_time("erased_at")?,
        progress: progress.unwrap_or_default(),
    })
}

async fn begin(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
) -> std::result::Result<BeginErasureOutcome, Fault> {
    let mut tx = connection.begin().await?;
    sql!("tenants/lock").execute(&mut *tx).await?;
    let found = one(&mut tx, sql!("tenants/get").bind(tenant.0), tenants::tenant).await?;
    match found {
        None => return Ok(BeginErasureOutcome::NotFound),
        Some(found) if found.retention.hold => return Ok(BeginErasureOutcome::Held),
        Some(_) => {}
    }
    let begin = sql!("tenants/begin_erasure")
        .bind(at.map(|at| at.0))
        .bind(tenant.0);
    let begun = one(&mut tx, begin, erasure).await?;
    tx.commit().await?;
    Ok(begun.map_or(BeginErasureOutcome::NotFound, BeginErasureOutcome::Begun))
}

/// The erasure, if it is in progress. Locks it until the transaction ends.
async fn load(
    tx: &mut PgConnection,
    tenant: TenantId,
) -> std::result::Result<Option<TenantErasure>, Fault> {
    sql!("tenants/lock").execute(&mut *tx).await?;
    let found = one(&mut *tx, sql!("tenants/erasure").bind(tenant.0), erasure).await?;
    Ok(found.filter(|found| found.ended_at.is_none()))
}

async fn note(tx: &mut PgConnection, erasure: &TenantErasure) -> std::result::Result<(), Fault> {
    let note = sql!("tenants/note_erasure").bind(erasure.tenant.0);
    note.bind(json(&erasure.progress)).execute(&mut *tx).await?;
    Ok(())
}

async fn note_failure(
    connection: &mut PgConnection,
    tenant: TenantId,
    failed: Option<&str>,
) -> std::result::Result<(), Fault> {
    let mut tx = connection.begin().await?;
    if let Some(mut found) = load(&mut tx, tenant).await? {
        found.progress.failed = failed.map(str::to_owned);
        note(&mut tx, &found).await?;
    }
    tx.commit().await?;
    Ok(())
}

async fn erase(
    connection: &mut PgConnection,
    at: Option<Timestamp>,
    tenant: TenantId,
    limit: u32,
) -> std::result::Result<Option<TenantErasure>, Fault> {
    let mut tx = connection.begin().await?;
    let Some(mut found) = load(&mut tx, tenant).await? else {
        return Ok(None);
    };
    let erase = sqlx::query(ERASE_ROWS)
        .bind(tenant.0)
        .bind(i64::from(limit));
    let rows = erase.fetch_all(&mut *tx).await?;
    let mut removed = Vec::with_capacity(rows.len());
    for row in &rows {
        let mut fields = Fields::new(row, "tenants");
        let (kind, count): (String, i64) = (fields.take("kind")?, fields.take("count")?);
        removed.push((kind, count.unsigned_abs()));
    }
    let age = sql!("tenants/age_blobs")
        .bind(tenant.0)
        .bind(at.map(|at| at.0));
    let row = age.fetch_one(&mut *tx).await?;
    let mut fields = Fields::new(&row, "blobs");
    let (blobs, now): (i64, i64) = (fields.take("blobs")?, fields.take("now")?);
    let (left, now) = (blobs.unsigned_abs(), Timestamp(now));
    let is_over = found.progress.step(removed, left, now, ERASED_MS_MIN);
    if is_over {
        found.progress.failed = None;
        found.ended_at = Some(now);
    }
    note(&mut tx, &found).await?;
    if is_over {
        // Also deletes what is stored under the tenant's number.
        let delete = sql!("tenants/delete").bind(Some(now.0)).bind(tenant.0);
        delete.execute(&mut *tx).await?;
        let end = sql!("tenants/end_erasure").bind(tenant.0).bind(now.0);
        end.execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(Some(found))
}
