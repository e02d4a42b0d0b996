//! The schema and the statements.

use std::fs;
use std::path::{Path, PathBuf};

use mainspring_shared::store::{Error, Store};
use mainspring_store_postgres::{PostgresStore, SchemaPolicy, Settings, ddl};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqlSafeStr};

use crate::world::{with_database, with_world};

fn statements(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("can be listed").path();
        if path.is_dir() {
            statements(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[tokio::test]
async fn every_statement_prepares() {
    with_world("prepares", async |world| {
        let mut connection = PgConnection::connect(&world.settings.url)
            .await
            .expect("connects");
        let mut found = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
        statements(&root, &mut found);
        assert!(found.len() > 50, "only {} statements", found.len());
        for path in found {
            let text = fs::read_to_string(&path).expect("can be read");
            assert!(text.starts_with("-- "), "{} has no head", path.display());
            let prepared = connection.prepare(AssertSqlSafe(text).into_sql_str()).await;
            if let Err(error) = prepared {
                panic!("{}: {error}", path.display());
            }
        }
    })
    .await;
}

#[tokio::test]
async fn many_processes_may_create_the_schema_at_once() {
    with_database("at_once", async |url| {
        let settings = Settings::new(url);
        let opened = (0..6).map(|_| PostgresStore::open(&settings));
        for store in futures::future::join_all(opened).await {
            let info = store.expect("opens").check().await.expect("is sound");
            assert_eq!(info.schema, 1);
            assert!(info.server.starts_with("postgres "), "{}", info.server);
        }
    })
    .await;
}

#[tokio::test]
async fn verify_changes_nothing_and_says_what_is_missing() {
    with_database("verify", async |url| {
        let verify = Settings {
            schema: SchemaPolicy::Verify,
            ..Settings::new(url.clone())
        };
        for _ in 0..2 {
            let refused = PostgresStore::open(&verify).await;
            assert!(
                matches!(
                    refused,
                    Err(Error::SchemaMissing {
                        found: 0,
                        needed: 1
                    })
                ),
                "{refused:?}"
            );
        }
        let created = PostgresStore::open(&Settings::new(url)).await;
        created.expect("creates the schema");
        PostgresStore::open(&verify).await.expect("finds it");
    })
    .await;
}

#[tokio::test]
async fn a_newer_or_a_changed_schema_is_refused() {
    with_world("newer", async |world| {
        let mut connection = PgConnection::connect(&world.settings.url)
            .await
            .expect("connects");
        connection
            .execute(
                "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (9, 'later', TRUE, '\\x00', 0)",
            )
            .await
            .expect("plants a migration");
        let checked = world.store.check().await;
        assert!(
            matches!(checked, Err(Error::SchemaNewer { found: 9, known: 1 })),
            "{checked:?}"
        );
        let opened = PostgresStore::open(&world.settings).await;
        assert!(
            matches!(opened, Err(Error::SchemaNewer { found: 9, known: 1 })),
            "{opened:?}"
        );
        connection
            .execute("DELETE FROM _sqlx_migrations WHERE version = 9")
            .await
            .expect("removes it");
        connection
            .execute("UPDATE _sqlx_migrations SET checksum = '\\x00'")
            .await
            .expect("changes a checksum");
        let opened = PostgresStore::open(&world.settings).await;
        assert!(matches!(opened, Err(Error::Refused { .. })), "{opened:?}");
    })
    .await;
}

#[tokio::test]
async fn a_database_made_with_the_printed_ddl_passes_verify() {
    with_database("ddl", async |url| {
        let mut connection = PgConnection::connect(&url).await.expect("connects");
        connection
            .execute(sqlx::raw_sql(AssertSqlSafe(ddl())))
            .await
            .expect("the DDL runs");
        let verify = Settings {
            schema: SchemaPolicy::Verify,
            ..Settings::new(url)
        };
        let store = PostgresStore::open(&verify).await.expect("passes");
        assert_eq!(store.check().await.expect("is sound").schema, 1);
        store.close().await;
    })
    .await;
}
