//! Every text of every table is spoilt in turn; each loop goes on.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Row as _};

use crate::mysql::opened::open_unshared;
use crate::spoilt::{Found, Two, stopped};

const TEXTS: &str = "SELECT c.table_name, c.column_name, c.data_type
    FROM information_schema.columns c
    WHERE c.table_schema = database() AND c.extra NOT LIKE '%GENERATED%'
      AND c.data_type IN ('char', 'varchar', 'text', 'mediumtext', 'longtext', 'json')
    ORDER BY 1, 2";

/// No reference is in the way. Checks are: a row that no store would take is none to be read either,
/// nor could it be changed.
const UNGUARD: &str = "SET SESSION foreign_key_checks = OFF";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_row_that_cannot_be_read_stops_no_loop() {
    let Some(opened) = open_unshared().await else {
        return;
    };
    let conn = MySqlConnection::connect(opened.place.url()).await;
    let mut conn = conn.expect("connects");
    sqlx::raw_sql(UNGUARD)
        .execute(&mut conn)
        .await
        .expect("it is unguarded");
    let texts = sqlx::query(TEXTS)
        .fetch_all(&mut conn)
        .await
        .expect("a schema");
    let of_tenants = "SELECT table_name FROM information_schema.columns
        WHERE table_schema = database() AND column_name = 'tenant'";
    let of_tenants = sqlx::query(of_tenants).fetch_all(&mut conn).await;
    let of_tenants: Vec<String> = of_tenants
        .expect("a schema")
        .iter()
        .map(|row| row.get(0))
        .collect();
    let mut found = Found::default();
    let mut tables = BTreeSet::new();
    // A copy of the database would take longer than everything else, so each column has tenants of
    // its own, which go when it was tried.
    for (n, row) in (0..).zip(texts) {
        let (table, column): (String, String) = (row.get(0), row.get(1));
        tables.insert(table.clone());
        let two = Two::furnished(&opened.store, 1_000 * n).await;
        let of = two.rows_of(&table, |id| format!("x'{}'", id.simple()));
        let sql = format!(
            "UPDATE `{table}` SET `{column}` = '\"not readable\"' WHERE {of} AND `{column}` IS NOT NULL"
        );
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await;
        match done {
            Ok(done) if done.rows_affected() > 0 => {
                found.note((&table, &column), stopped(&opened.store, &two).await);
            }
            Ok(_) => {}
            Err(_) => found.guarded(&table),
        }
        let (sick, well) = (two.sick.0, two.well.0);
        for table in &of_tenants {
            let gone = format!("DELETE FROM `{table}` WHERE tenant IN ({sick}, {well})");
            let gone = sqlx::raw_sql(AssertSqlSafe(gone)).execute(&mut conn).await;
            gone.expect("deletes");
        }
        for table in ["boots", "calibrations", "mcp_lists"] {
            let gone = format!("DELETE FROM `{table}`");
            let gone = sqlx::raw_sql(AssertSqlSafe(gone)).execute(&mut conn).await;
            gone.expect("deletes");
        }
    }
    found.assert_nothing_stopped(&tables);
}
