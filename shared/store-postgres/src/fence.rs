//! The fence: one of several databases refuses writes for tenants that are on another one.
//!
//! A process relies on its copy of the catalogue for a short time, and one that was suspended
//! relies on a stale copy when it resumes. So the database itself refuses such writes: after each
//! statement that changed rows of a table, a trigger checks whether they belong to a tenant that is
//! elsewhere. Statements change the rows of a whole group, so the check is paid once per group. A
//! single database has no such triggers.

use mainspring_shared::store::{Denial, Error, Result};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use crate::fault::Fault;
use crate::retry::sql;
use crate::settings::SchemaPolicy;

/// Tables that do not move with a tenant. Keys stay at home, since a tenant is found by them in the
/// first place and all processes look them up; pauses are on every database.
const ON_NO_PLACE: [&str; 3] = ["api_keys", "provider_keys", "pauses"];

/// Tables of a tenant that are not among those that an erasure removes table by table.
const BESIDES: [&str; 3] = ["blobs", "blob_chunks", "seat_limits"];

/// Idempotency keys: copied, and left to expire on the old database. Not fenced, since those of
/// requests for API keys are stored at home even for tenants that are elsewhere.
const UNFENCED: &str = "idempotency_keys";

macro_rules! names {
    ($($table:literal by $key:literal),+ $(,)?) => {
        [$($table),+]
    };
}

/// The tables whose rows move with their tenant.
pub(crate) fn moved_tables() -> impl Iterator<Item = &'static str> {
    let erased = mainspring_shared::tenant_tables!(names).into_iter();
    let moved = erased.filter(|table| !ON_NO_PLACE.contains(table));
    moved.chain(BESIDES)
}

/// The moved tables in which a database refuses writes for tenants that are elsewhere, and from
/// which a move removes the old rows.
pub(crate) fn fenced_tables() -> impl Iterator<Item = &'static str> {
    moved_tables().filter(|table| *table != UNFENCED)
}

/// The trigger events, with the transition table that holds the rows of each.
const EVENTS: [(&str, &str); 3] = [("insert", "NEW"), ("update", "NEW"), ("delete", "OLD")];

fn triggers() -> impl Iterator<Item = String> {
    fenced_tables().flat_map(|table| {
        EVENTS.into_iter().map(move |(event, rows)| {
            format!(
                "CREATE OR REPLACE TRIGGER mainspring_fence_{event} AFTER {event} ON {table} \
                 REFERENCING {rows} TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION mainspring_fence()"
            )
        })
    })
}

/// The statements to run after the schema's DDL on each of several databases, as the tables' owner.
pub fn ddl() -> String {
    let mut text = include_str!("../sql/placements/fence.sql").to_owned();
    for trigger in triggers() {
        text.push_str(";\n");
        text.push_str(&trigger);
    }
    text.push_str(";\n");
    text
}

/// Ensures that every fenced table has its triggers. Adds missing ones if the policy creates the
/// schema; otherwise fails with `Denied`.
pub(crate) async fn prepare(connection: &mut PgConnection, policy: SchemaPolicy) -> Result<()> {
    if is_complete(connection).await? {
        return Ok(());
    }
    if policy == SchemaPolicy::Verify {
        let source = "the installation has several databases, and a table of this one takes what is written for \
                      tenants of another: run `mainspring migrate` with the same `databases` as the tables' owner";
        return Err(Error::Denied {
            why: Denial::Rights,
            source: source.into(),
        });
    }
    add(connection).await.map_err(Fault::from)?;
    Ok(())
}

async fn is_complete(connection: &mut PgConnection) -> Result<bool> {
    let tables: Vec<String> = fenced_tables().map(str::to_owned).collect();
    let needed = tables.len() * EVENTS.len();
    let row = sql!("placements/fenced")
        .bind(tables)
        .fetch_one(connection)
        .await;
    let fences: i64 = row.and_then(|row| row.try_get(0)).map_err(Fault::from)?;
    Ok(usize::try_from(fences).unwrap_or_default() == needed)
}

async fn add(connection: &mut PgConnection) -> sqlx::Result<()> {
    let mut tx = connection.begin().await?;
    sql!("placements/fence_lock").execute(&mut *tx).await?;
    tx.execute(sqlx::raw_sql(include_str!("../sql/placements/fence.sql")))
        .await?;
    for trigger in triggers() {
        tx.execute(sqlx::raw_sql(AssertSqlSafe(trigger))).await?;
    }
    tx.commit().await
}
