//! Every text of every table is spoilt in turn; each loop goes on.

use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqliteConnection};

use crate::spoilt::{Two, loops_go_on};
use crate::sqlite::file::beside;
use crate::sqlite::opened::{open, open_in};

/// The columns that hold text, of the tables that have rows of tenants, or of processes.
async fn texts(conn: &mut SqliteConnection) -> Vec<(String, String)> {
    let columns = sqlx::query(
        "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c
         WHERE t.type = 'table' AND c.type = 'TEXT' AND c.pk = 0
           AND EXISTS (SELECT 1 FROM pragma_table_info(t.name) o
                       WHERE o.name = 'tenant' OR t.name = 'boots')
         ORDER BY 1, 2",
    );
    let columns = columns.fetch_all(conn).await.expect("a schema");
    let named = columns.iter().map(|row| (row.get(0), row.get(1)));
    named.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_row_that_cannot_be_read_stops_no_loop() {
    let opened = open().await;
    let two = Two::furnished(&opened.store).await;
    drop(opened.store);
    let mut conn = beside(&opened.place).await;
    let texts = texts(&mut conn).await;
    conn.close().await.expect("closes");
    let mut spoilt = 0;
    for (table, column) in texts {
        let place = tempfile::tempdir().expect("a directory");
        let file = "mainspring.db";
        std::fs::copy(opened.place.path().join(file), place.path().join(file)).expect("copies");
        let mut conn = beside(&place).await;
        let of = match table.as_str() {
            "boots" => "name = (SELECT min(name) FROM boots)".to_owned(),
            _ => format!("tenant = {}", two.sick.0),
        };
        let sql = format!(
            "UPDATE \"{table}\" SET \"{column}\" = 'not {{readable' WHERE {of} AND \"{column}\" IS NOT NULL"
        );
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await;
        conn.close().await.expect("closes");
        // A row that no store would take is none to be read either; nor is a table without rows.
        if done.is_ok_and(|done| done.rows_affected() > 0) {
            spoilt += 1;
            let store = open_in(&place).await;
            loops_go_on(&store, &two, &format!("{table}.{column}")).await;
        }
    }
    assert!(spoilt > 20, "only {spoilt} columns were spoilt");
}
