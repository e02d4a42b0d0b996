//! Every text of every table is spoilt in turn; each loop goes on.

use std::collections::BTreeSet;

use mainspring_store_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use crate::postgres::world::{at_server, with_world};
use crate::spoilt::{Found, Two, stopped};

/// Removes what keeps statements from spoiling rows.
const UNGUARD: &str = "DO $$
    DECLARE c record;
    BEGIN
        FOR c IN SELECT conrelid::regclass AS t, conname FROM pg_constraint WHERE contype = 'c'
            AND connamespace = current_schema()::regnamespace
        LOOP
            EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', c.t, c.conname);
        END LOOP;
    END $$";

const TEXTS: &str = "SELECT c.table_name::text, c.column_name::text, c.data_type::text
    FROM information_schema.columns c
    WHERE c.table_schema = current_schema() AND c.data_type IN ('text', 'jsonb', 'json', 'bytea')
    ORDER BY 1, 2";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_row_that_cannot_be_read_stops_no_loop() {
    with_world("spoilt", async |world| {
        let two = Two::furnished(&world.store, 0).await;
        let mut connection = world.connection().await;
        connection.execute(UNGUARD).await.expect("it is unguarded");
        let texts = sqlx::query(TEXTS).fetch_all(&mut connection).await;
        let texts = texts.expect("a schema");
        drop(connection);
        world.store.close().await;
        let (base, template) = world.settings.url.rsplit_once('/').expect("it names a database");
        let mut found = Found::default();
        let mut tables = BTreeSet::new();
        for row in texts {
            let (table, column, kind): (String, String, String) = (row.get(0), row.get(1), row.get(2));
            tables.insert(table.clone());
            let name = format!("{template}_c");
            at_server(format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
            let settings = mainspring_store_postgres::Settings {
                url: format!("{base}/{name}"),
                ..world.settings.clone()
            };
            let of = two.rows_of(&table, |id| format!("'{id}'"));
            let what = if kind == "bytea" { "'\\x01'" } else { "'\"not readable\"'" };
            let sql = format!(
                "UPDATE \"{table}\" SET \"{column}\" = {what} WHERE {of} AND \"{column}\" IS NOT NULL"
            );
            let mut connection = <sqlx::PgConnection as sqlx::Connection>::connect(&settings.url)
                .await
                .expect("connects");
            let done = connection.execute(AssertSqlSafe(sql)).await;
            drop(connection);
            if done.is_ok_and(|done| done.rows_affected() > 0) {
                let store = PostgresStore::open(&settings).await.expect("opens");
                found.note((&table, &column), stopped(&store, &two).await);
                store.close().await;
            }
            at_server(format!("DROP DATABASE {name} WITH (FORCE)")).await;
        }
        found.assert_nothing_stopped(&tables);
    })
    .await;
}
