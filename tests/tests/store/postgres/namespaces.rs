//! Several installations in one database, each in a schema of its own.

use mainspring_shared::store::{Error, Inspect as _};
use mainspring_store_postgres::{PostgresStore, SchemaPolicy, Settings};
use sqlx::{Connection, Executor, PgConnection, Row};

use crate::postgres::world::{World, to, with_database};

fn within(url: &str, namespace: &str) -> Settings {
    Settings {
        namespace: Some(namespace.to_owned()),
        row_security: true,
        ..Settings::new(url)
    }
}

/// The schemas that have a `sends` table.
async fn with_tables(url: &str) -> Vec<String> {
    let mut admin = PgConnection::connect(url).await.expect("connects");
    let sql = "SELECT schemaname::text FROM pg_tables WHERE tablename = 'sends' ORDER BY 1";
    let rows = admin.fetch_all(sql).await.expect("reads");
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn two_installations_share_a_database_and_see_nothing_of_each_other() {
    with_database("namespaces", async |url| {
        let (one, two) = (within(&url, "one"), within(&url, "two"));
        // Several processes of each installation start at once, in a database that has neither
        // schema.
        let all = [&one, &two, &one, &two, &one, &two];
        let worlds = all.map(|settings| World::open(settings.clone()));
        let worlds = futures::future::join_all(worlds).await;
        assert_eq!(with_tables(&url).await, ["one", "two"]);
        let (first, second) = (&worlds[0], &worlds[1]);
        let worker = first.boot(0).await;
        let key = first.session().await;
        first.send(1, to(key)).await;
        first.claim(2, worker, key).await;
        let own = first.store.dump().await.expect("reads");
        assert_eq!((own.sessions.len(), own.boots.len()), (1, 1));
        let other = second.store.dump().await.expect("reads");
        assert_eq!((other.sessions.len(), other.boots.len()), (0, 0));
        first.assert_sound(3).await;
        second.assert_sound(3).await;
        for world in worlds {
            world.store.close().await;
        }
        let verify = Settings {
            schema: SchemaPolicy::Verify,
            ..within(&url, "one")
        };
        let store = PostgresStore::open(&verify).await.expect("is complete");
        store.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_schema_that_is_missing_does_not_fall_back_to_another_one() {
    with_database("no_namespace", async |url| {
        let public = PostgresStore::open(&Settings::new(&*url)).await;
        public.expect("opens").close().await;
        let verify = Settings {
            schema: SchemaPolicy::Verify,
            ..within(&url, "other")
        };
        let refused = PostgresStore::open(&verify)
            .await
            .expect_err("has no tables");
        let is_missing = matches!(refused, Error::SchemaMissing { found: 0, .. });
        assert!(is_missing, "{refused:?}");
        assert_eq!(with_tables(&url).await, ["public"]);
        // A role that may not create a schema uses an existing one.
        let mut admin = PgConnection::connect(&url).await.expect("connects");
        admin.execute("CREATE SCHEMA other").await.expect("creates");
        let store = PostgresStore::open(&within(&url, "other"))
            .await
            .expect("opens");
        store.close().await;
        assert_eq!(with_tables(&url).await, ["other", "public"]);
    })
    .await;
}
