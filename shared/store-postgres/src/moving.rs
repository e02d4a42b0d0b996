//! The steps of moving a tenant from one database to another. Each may be repeated; their order,
//! and resuming after a crash, are up to the mover.

use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt as _;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::placements::Elsewhere;
use mainspring_shared::store::{Error, Result};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Executor as _, Row as _};
use tokio::time::Instant;

use crate::fault::{Fault, refused};
use crate::fence::{fenced_tables, moved_tables};
use crate::retry::{execute, fetch, repeatable, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

/// The table whose rows may already exist in the target: idempotency keys of requests for API keys
/// stay at home.
const MERGED: &str = "idempotency_keys";

/// The column that exists only with pgvector; the vectors are also in another column.
const VECTORS: &str = "\"embedding_vector\"";

/// How often to check whether older transactions have ended.
const LOOK: Duration = Duration::from_millis(20);

/// The result of copying a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copied {
    /// Per table; tables without rows are left out.
    pub tables: Vec<MovedTable>,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Copied {
    /// The total number of rows.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }
}

/// A table of which rows were copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovedTable {
    /// The table.
    pub table: &'static str,
    /// The number of the tenant's rows in it.
    pub rows: u64,
}

impl PostgresStore {
    /// Makes this database refuse writes for a tenant from now on, for the move with this version.
    /// Transactions that started before may still be in flight: see [`drained`](Self::drained).
    pub async fn leave(&self, tenant: TenantId, version: i64, arriving: bool) -> Result<()> {
        let leave = || {
            let leave = sql!("placements/leave").bind(tenant.0).bind(version);
            leave.bind(arriving)
        };
        execute(&self.pools.writers, leave).await.map(drop)
    }

    /// Waits until all transactions that were writing at the time of the call have ended; false if
    /// one has not within the time. Steps take milliseconds, and the server ends stuck ones within
    /// seconds.
    pub async fn drained(&self, within: Duration) -> Result<bool> {
        let (next, mut oldest) = self.horizon().await?;
        let mut left = within;
        while oldest < next {
            let Some(less) = left.checked_sub(LOOK) else {
                return Ok(false);
            };
            left = less;
            tokio::time::sleep_until(Instant::now() + LOOK).await;
            oldest = self.horizon().await?.1;
        }
        Ok(true)
    }

    async fn horizon(&self) -> Result<(i64, i64)> {
        let rows = fetch(&self.pools.claimers, || sql!("placements/horizon")).await?;
        let row = rows
            .first()
            .ok_or_else(|| refused(sqlx::Error::RowNotFound))?;
        let mut fields = Fields::new(row, "pg_snapshot");
        Ok((fields.take("next")?, fields.take("oldest")?))
    }

    /// Makes this database accept writes for a tenant again, unless a later move than the one with
    /// this version has closed it.
    pub async fn arrive(&self, tenant: TenantId, version: i64) -> Result<()> {
        let arrive = || sql!("placements/arrive").bind(tenant.0).bind(version);
        execute(&self.pools.writers, arrive).await.map(drop)
    }

    /// Copies a tenant's rows from another database, which must refuse its writes, in one
    /// transaction here. Rows of an earlier attempt are removed first, and each copied table is
    /// compared: number of rows and a checksum of their contents. Fails with [`Elsewhere`] if the
    /// move with this version no longer decides on the tenant here, or is not the one in the
    /// catalogue of `home`.
    pub async fn copy_tenant(
        &self,
        source: &Self,
        home: &Self,
        tenant: TenantId,
        version: i64,
    ) -> Result<Copied> {
        let mut from = source.line().await?;
        let mut to = self.line().await?;
        let copied = copy(&mut from, &mut to, home, tenant, version).await;
        // The outcome is decided: a failure to close the connections does not change it.
        let _ = from.close().await;
        let _ = to.close().await;
        Ok(copied?)
    }

    /// Copies the home's row of a tenant to this database. False if the home has none.
    pub async fn put_tenant(&self, home: &Self, tenant: TenantId) -> Result<bool> {
        let read = || sql!("placements/tenant").bind(tenant.0);
        let rows = fetch(&home.pools.claimers, read).await?;
        let Some(row) = rows.first() else {
            return Ok(false);
        };
        let mut fields = Fields::new(row, "tenants");
        let limits: String = fields.take("limits")?;
        let weight: i32 = fields.take("weight")?;
        let retention: Option<String> = fields.take("retention")?;
        let pools: Option<String> = fields.take("pools")?;
        let created_at: i64 = fields.take("created_at")?;
        let erasing_at: Option<i64> = fields.take("erasing_at")?;
        let erased_at: Option<i64> = fields.take("erased_at")?;
        let erasure: Option<String> = fields.take("erasure")?;
        let put = || {
            sql!("placements/put_tenant")
                .bind(tenant.0)
                .bind(tenant.to_string())
                .bind(limits.clone())
                .bind(weight)
                .bind(retention.clone())
                .bind(pools.clone())
                .bind(created_at)
                .bind(erasing_at)
                .bind(erased_at)
                .bind(erasure.clone())
        };
        execute(&self.pools.writers, put).await?;
        Ok(true)
    }

    /// Removes the rows of a tenant that has moved away, table by table, at most `limit` per
    /// transaction. Returns how many: 0 once nothing is left, or if the move with this version no
    /// longer decides on the tenant here or is not the latest one in the catalogue of `home`.
    pub async fn erase_moved(
        &self,
        home: &Self,
        tenant: TenantId,
        version: i64,
        limit: u32,
    ) -> Result<u64> {
        let pool = &self.pools.writers;
        let mut removed = 0;
        for table in fenced_tables() {
            loop {
                let page = repeatable!(pool, |connection| erase_page(
                    connection, home, table, tenant, version, limit
                ))?;
                removed += page;
                if page < u64::from(limit.max(1)) {
                    break;
                }
            }
        }
        Ok(removed)
    }

    /// A dedicated connection for a move, whose statements take longer than steps.
    async fn line(&self) -> Result<PgConnection> {
        let server = self.server.clone();
        let server = server.with([
            ("idle_in_transaction_session_timeout", "10min"),
            // The copy must survive a crash, since the original rows are removed.
            ("synchronous_commit", "on"),
        ]);
        server.connect().await
    }
}

async fn erase_page(
    connection: &mut PgConnection,
    home: &PostgresStore,
    table: &str,
    tenant: TenantId,
    version: i64,
    limit: u32,
) -> std::result::Result<u64, Fault> {
    let mut tx = connection.begin().await?;
    if !holds(&mut tx, tenant, version).await? {
        return Ok(0);
    }
    // Check under the lock: a move to this database must take it before it copies anything.
    let now = home.placement_of(tenant).await?;
    if now.is_none_or(|now| now.began != version) {
        return Ok(0);
    }
    let delete = format!(
        "DELETE FROM {table} d WHERE d.ctid = ANY (ARRAY(\
         SELECT r.ctid FROM {table} r WHERE r.tenant = $1::integer LIMIT $2::bigint))"
    );
    let delete = sqlx::query(AssertSqlSafe(delete));
    let delete = delete.bind(tenant.0).bind(i64::from(limit));
    let done = delete.execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(done.rows_affected())
}

/// Whether this move still decides on the tenant here. Locks that decision until the transaction
/// ends, and lets the transaction write for the tenant.
async fn holds(
    tx: &mut PgConnection,
    tenant: TenantId,
    version: i64,
) -> std::result::Result<bool, Fault> {
    let hold = sql!("placements/hold").bind(tenant.0).bind(version);
    let held = hold.fetch_optional(&mut *tx).await?;
    sql!("placements/pass").execute(&mut *tx).await?;
    Ok(held.is_some())
}

async fn copy(
    from: &mut PgConnection,
    to: &mut PgConnection,
    home: &PostgresStore,
    tenant: TenantId,
    version: i64,
) -> std::result::Result<Copied, Fault> {
    let mut to = to.begin().await?;
    if !holds(&mut to, tenant, version).await? {
        return Err(Fault::Row(Elsewhere.into()));
    }
    // Check under the lock: another process that continues the move must take it before this
    // database accepts the tenant's writes, and before anything is removed from the source.
    let now = home.placement_of(tenant).await?;
    if now.is_none_or(|now| now.version != version) {
        return Err(Fault::Row(Elsewhere.into()));
    }
    let mut from = from.begin().await?;
    // One snapshot for all tables.
    let state = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";
    from.execute(state).await?;
    let mut copied = Copied::default();
    for table in moved_tables() {
        let columns = columns(&mut from, &mut to, table).await?;
        let (rows, bytes) = if table == MERGED {
            merge_table(&mut from, &mut to, table, &columns, tenant).await?
        } else {
            copy_table(&mut from, &mut to, table, &columns, tenant).await?
        };
        copied.bytes += bytes;
        if rows > 0 {
            copied.tables.push(MovedTable { table, rows });
        }
    }
    to.commit().await?;
    from.rollback().await?;
    Ok(copied)
}

/// The columns of a table, which are the same in both databases except for [`VECTORS`].
#[derive(Debug)]
struct Columns {
    names: Vec<String>,
    /// The identity column, if there is one.
    numbered: Option<String>,
}

impl Columns {
    fn list(&self) -> String {
        self.names.join(", ")
    }
}

async fn columns(
    from: &mut PgConnection,
    to: &mut PgConnection,
    table: &str,
) -> std::result::Result<Columns, Fault> {
    let mut numbered = None;
    let mut lists = Vec::with_capacity(2);
    for connection in [from, to] {
        let rows = sql!("placements/columns").bind(table.to_owned());
        let rows = rows.fetch_all(connection).await?;
        let mut names = Vec::with_capacity(rows.len());
        for row in &rows {
            let (name, identity): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let name = format!("\"{name}\"");
            if !identity.is_empty() {
                numbered = Some(name.clone());
            }
            names.push(name);
        }
        lists.push(names);
    }
    let other = lists.pop().unwrap_or_default();
    let mut names = lists.pop().unwrap_or_default();
    let only_there = names.iter().filter(|name| !other.contains(name));
    let only_here = other.iter().filter(|name| !names.contains(name));
    let differ = only_there.chain(only_here).map(String::as_str);
    let differ: Vec<&str> = differ.filter(|name| *name != VECTORS).collect();
    if !differ.is_empty() {
        return Err(Fault::Row(lacks(table, &differ)));
    }
    names.retain(|name| other.contains(name));
    Ok(Columns { names, numbered })
}

fn lacks(table: &str, columns: &[&str]) -> Error {
    let detail = format!(
        "only one of the two databases has the columns {} of {table}: migrate both with the \
         same release",
        columns.join(", ")
    );
    Error::Refused {
        source: detail.into(),
    }
}

/// Copies a table; returns the number of rows and of bytes.
async fn copy_table(
    from: &mut PgConnection,
    to: &mut PgConnection,
    table: &str,
    columns: &Columns,
    tenant: TenantId,
) -> std::result::Result<(u64, u64), Fault> {
    let clear = format!("DELETE FROM {table} d WHERE d.tenant = $1::integer");
    let clear = sqlx::query(AssertSqlSafe(clear)).bind(tenant.0);
    clear.execute(&mut *to).await?;
    let (rows, bytes) = pour(from, to, table, table, columns, tenant).await?;
    if rows == 0 {
        return Ok((0, bytes));
    }
    if let Some(numbered) = &columns.numbered {
        // Advance the sequence past the copied numbers.
        let follow = format!(
            "SELECT setval(pg_get_serial_sequence('{table}', '{}'), greatest(\
             (SELECT max(t.{numbered}) FROM {table} t), nextval(pg_get_serial_sequence('{table}', '{}'))))",
            numbered.trim_matches('"'),
            numbered.trim_matches('"'),
        );
        to.execute(AssertSqlSafe(follow)).await?;
    }
    let there = digest(from, table, columns, tenant);
    let here = digest(to, table, columns, tenant);
    let (there, here) = futures::try_join!(there, here)?;
    if there != here {
        return Err(Fault::Row(differs(table, tenant, &there, &here)));
    }
    Ok((rows, bytes))
}

/// Copies those rows of a table that the target does not have.
async fn merge_table(
    from: &mut PgConnection,
    to: &mut PgConnection,
    table: &str,
    columns: &Columns,
    tenant: TenantId,
) -> std::result::Result<(u64, u64), Fault> {
    let aside =
        format!("CREATE TEMPORARY TABLE moved ON COMMIT DROP AS SELECT * FROM {table} LIMIT 0");
    to.execute(AssertSqlSafe(aside)).await?;
    let poured = pour(from, to, table, "moved", columns, tenant).await?;
    let list = columns.list();
    let merge =
        format!("INSERT INTO {table} ({list}) SELECT {list} FROM moved ON CONFLICT DO NOTHING");
    to.execute(AssertSqlSafe(merge)).await?;
    Ok(poured)
}

async fn pour(
    from: &mut PgConnection,
    to: &mut PgConnection,
    table: &str,
    into: &str,
    columns: &Columns,
    tenant: TenantId,
) -> std::result::Result<(u64, u64), Fault> {
    let list = columns.list();
    let read = format!(
        "COPY (SELECT {list} FROM {table} WHERE tenant = {}) TO STDOUT (FORMAT binary)",
        tenant.0
    );
    let write = format!("COPY {into} ({list}) FROM STDIN (FORMAT binary)");
    let mut rows = from.copy_out_raw(&read).await?;
    let mut sink = to.copy_in_raw(&write).await?;
    let mut bytes = 0_u64;
    loop {
        match rows.try_next().await {
            Ok(None) => break,
            Ok(Some(chunk)) => {
                let chunk: Bytes = chunk;
                bytes += chunk.len() as u64;
                sink.send(chunk).await?;
            }
            Err(error) => {
                sink.abort("the other database failed").await?;
                return Err(error.into());
            }
        }
    }
    Ok((sink.finish().await?, bytes))
}

/// The number of a tenant's rows in a table, and a checksum of their contents.
async fn digest(
    connection: &mut PgConnection,
    table: &str,
    columns: &Columns,
    tenant: TenantId,
) -> std::result::Result<(i64, String), Fault> {
    let list = columns.list();
    let query = format!(
        "SELECT count(*), coalesce(sum(hashtextextended(ROW({list})::text, 0)::numeric), 0)::text \
         FROM {table} WHERE tenant = $1::integer"
    );
    let query = sqlx::query(AssertSqlSafe(query)).bind(tenant.0);
    let row = query.fetch_one(connection).await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

fn differs(table: &str, tenant: TenantId, there: &(i64, String), here: &(i64, String)) -> Error {
    let detail = format!(
        "{tenant} has {} rows with the sum {} in {table}, and {} with {} in their copy",
        there.0, there.1, here.0, here.1
    );
    Error::Refused {
        source: detail.into(),
    }
}
