//! An erased tenant must leave nothing behind.

use std::collections::BTreeSet;

use sqlx::Row;

use crate::sqlite::file::beside;
use crate::sqlite::opened::{Opened, open};

/// Tables that are handled differently: bytes are erased with their blobs, the rest with the
/// tenant's name; and the table that says where a tenant is stays with its number.
const OTHERWISE: [&str; 6] = [
    "blobs",
    "blob_chunks",
    "placements",
    "seat_limits",
    "tenants",
    "tenants_away",
];

macro_rules! names {
    ($($table:literal by $key:literal),+ $(,)?) => {
        [$($table),+]
    };
}

#[tokio::test]
async fn every_table_with_rows_of_tenants_is_among_those_that_are_erased() {
    let Opened {
        store: _store,
        place: dir,
    } = open().await;
    let mut conn = beside(&dir).await;
    let query = "SELECT m.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c
                 WHERE m.type = 'table' AND c.name = 'tenant'";
    let rows = sqlx::query(query)
        .fetch_all(&mut conn)
        .await
        .expect("lists");
    let stored: BTreeSet<String> = rows.iter().map(|row| row.get("name")).collect();
    let erased = mainspring_shared::tenant_tables!(names);
    let known = erased.into_iter().chain(OTHERWISE).map(str::to_owned);
    assert_eq!(stored, known.collect());
}
