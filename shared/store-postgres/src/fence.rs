//! What keeps a database of several from writes for tenants that are on another one.
//!
//! A process believes for a moment what it has read of the catalogue, and one that was stopped believes it for as long as
//! that took. So the database itself refuses: behind each statement that changed rows of a table, a trigger looks whether
//! they are of a tenant that is away. Statements change the rows of a whole group, so that this costs once per group.
//! A database that stands alone has no such triggers.

use mainspring_shared::store::{Denial, Error, Result};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use crate::retry::{Fault, sql};
use crate::settings::SchemaPolicy;

/// What is kept at home for tenants on all databases: keys, by which a tenant is found in the first place, and what is
/// looked up by all processes. Pauses are on every database.
const ON_NO_PLACE: [&str; 3] = ["api_keys", "provider_keys", "pauses"];

/// Kept for each tenant besides what an erasure removes table by table.
const BESIDES: [&str; 3] = ["blobs", "blob_chunks", "seat_limits"];

/// Keys of requests that were answered long ago: copied, and left to age where they were. Keys of requests for keys stay
/// at home with these, so that they are written there for tenants that are not.
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

/// Those of them that are refused where the tenant is away, and removed there.
pub(crate) fn fenced_tables() -> impl Iterator<Item = &'static str> {
    moved_tables().filter(|table| *table != UNFENCED)
}

/// The events that a trigger tells rows of, with what it calls them.
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

/// What is executed behind the schema's own statements for each database of several, by whoever owns the tables.
pub fn ddl() -> String {
    let mut text = include_str!("../sql/placements/fence.sql").to_owned();
    for trigger in triggers() {
        text.push_str(";\n");
        text.push_str(&trigger);
    }
    text.push_str(";\n");
    text
}

/// Sees to it that every table refuses what it should. Adds what lacks where the schema is created; else fails with
/// `Denied`.
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
