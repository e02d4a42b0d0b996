//! Every text of every table is spoilt in turn; each loop goes on.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqliteConnection};

use crate::spoilt::{Found, Two, stopped};
use crate::sqlite::file::beside;
use crate::sqlite::opened::{open, open_in};

/// The columns that hold texts.
async fn texts(conn: &mut SqliteConnection) -> Vec<(String, String)> {
    let columns = sqlx::query(
        r"SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c
         WHERE t.type = 'table' AND c.type = 'TEXT' AND t.name NOT LIKE 'sqlite%'
           AND t.sql NOT LIKE 'CREATE VIRTUAL%' AND t.name NOT LIKE '%\_fts\_%' ESCAPE '\'
         ORDER BY 1, 2",
    );
    let columns = columns.fetch_all(conn).await.expect("a schema");
    let named = columns.iter().map(|row| (row.get(0), row.get(1)));
    named.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_row_that_cannot_be_read_stops_no_loop() {
    let opened = open().await;
    let two = Two::furnished(&opened.store, 0).await;
    drop(opened.store);
    let mut conn = beside(&opened.place).await;
    let texts = texts(&mut conn).await;
    conn.close().await.expect("closes");
    let mut found = Found::default();
    let mut tables = BTreeSet::new();
    for (table, column) in texts {
        tables.insert(table.clone());
        let place = tempfile::tempdir().expect("a directory");
        let file = "mainspring.db";
        std::fs::copy(opened.place.path().join(file), place.path().join(file)).expect("copies");
        let mut conn = beside(&place).await;
        let of = two.rows_of(&table, |id| format!("x'{}'", id.simple()));
        let sql = format!(
            "UPDATE \"{table}\" SET \"{column}\" = 'not {{readable' WHERE {of} AND \"{column}\" IS NOT NULL"
        );
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await;
        conn.close().await.expect("closes");
        // Several rows of a tenant cannot have one name.
        if done.is_ok_and(|done| done.rows_affected() > 0) {
            let store = open_in(&place).await;
            found.note((&table, &column), stopped(&store, &two).await);
        }
    }
    found.assert_nothing_stopped(&tables);
}
