//! What a file consists of, and what it should consist of.

use mainspring_shared::store::{SchemaFault, SchemaObject, schema_faults};
use mainspring_store_core::fault::Result;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};

use crate::fault::fault;
use crate::migrate;

const OBJECTS: &str = include_str!("../sql/transaction/schema_objects.sql");

/// What a file lacks of the schema that this program brings, by a schema that is made in memory.
pub(crate) async fn faults(conn: &mut SqliteConnection) -> Result<Vec<SchemaFault>> {
    let mut fresh = SqliteConnection::connect("sqlite::memory:")
        .await
        .map_err(fault)?;
    sqlx::raw_sql(AssertSqlSafe(migrate::ddl()))
        .execute(&mut fresh)
        .await
        .map_err(fault)?;
    let needed = objects(&mut fresh).await?;
    let _ = fresh.close().await;
    let found = objects(conn).await?;
    Ok(schema_faults(&needed, &found))
}

async fn objects(conn: &mut SqliteConnection) -> Result<Vec<SchemaObject>> {
    let rows: Vec<(String, String, String)> = sqlx::query_as(OBJECTS)
        .fetch_all(conn)
        .await
        .map_err(fault)?;
    Ok(rows.into_iter().map(SchemaObject::from).collect())
}
