//! A schema that a later release changed, and one that somebody tampered with.

use std::path::Path;

use mainspring_shared::store::{Error, Reads as _, SchemaWrong};
use mainspring_store_mysql::{SchemaPolicy, Settings};

use sqlx::{Connection, MySqlConnection};

use crate::mysql::opened::{Opened, execute, open_unshared};

#[tokio::test]
async fn a_newer_schema_that_took_something_away_is_refused() {
    let Some(Opened { store, place }) = open_unshared().await else {
        return;
    };
    execute(
        &place,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'later', TRUE, X'00', 0)",
    )
    .await;
    let policies = [SchemaPolicy::Create, SchemaPolicy::Verify];
    // The later migration removed nothing that this program needs.
    assert_eq!(store.check().await.expect("is sound").schema, 9999);
    for schema in policies {
        let settings = Settings {
            schema,
            ..Settings::new(place.url().to_owned())
        };
        let store = mainspring_store_mysql::open(&settings)
            .await
            .expect("opens");
        assert_eq!(store.check().await.expect("is sound").schema, 9999);
    }
    execute(&place, "UPDATE schema_compatibility SET protocol = 99").await;
    let checked = store.check().await;
    assert!(
        matches!(checked, Err(Error::ProtocolOlder { demanded: 99, .. })),
        "{checked:?}"
    );
    execute(&place, "UPDATE schema_compatibility SET oldest = 9999").await;
    let checked = store.check().await;
    assert!(
        matches!(checked, Err(Error::SchemaNewer { found: 9999, .. })),
        "{checked:?}"
    );
    for schema in policies {
        let settings = Settings {
            schema,
            ..Settings::new(place.url().to_owned())
        };
        let opened = mainspring_store_mysql::open(&settings).await;
        assert!(
            matches!(opened, Err(Error::SchemaNewer { found: 9999, .. })),
            "{:?}",
            opened.err()
        );
    }
}

#[tokio::test]
async fn the_list_of_what_is_needed_is_what_the_migrations_make() {
    let Some(Opened { store, place }) = open_unshared().await else {
        return;
    };
    let mut conn = MySqlConnection::connect(place.url())
        .await
        .expect("connects");
    let rows: Vec<(String, String, String)> = sqlx::query_as(include_str!(
        "../../../../shared/store-mysql/schema/objects.sql"
    ))
    .fetch_all(&mut conn)
    .await
    .expect("is listed");
    let line = |(kind, name, definition)| format!("{kind}\t{name}\t{definition}\n");
    let listed: String = rows.into_iter().map(line).collect();
    let kept =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/store-mysql/schema/needed.tsv");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&kept, &listed).expect("is written");
    }
    let kept = std::fs::read_to_string(kept).expect("can be read");
    let server = store.check().await.expect("is sound").server;
    if server.starts_with("MariaDB 10.11") {
        assert!(
            kept == listed,
            "schema/needed.tsv is old: UPDATE_DOCS=1 writes it"
        );
    }
    assert_eq!(
        store.schema_faults().await.expect("reads"),
        [],
        "on {server}"
    );
}

#[tokio::test]
async fn what_a_schema_lacks_is_told() {
    let Some(Opened { store, place }) = open_unshared().await else {
        return;
    };
    execute(&place, "DROP TABLE pauses").await;
    execute(&place, "ALTER TABLE runs DROP COLUMN result").await;
    execute(&place, "DROP INDEX memories_expires ON memories").await;
    execute(
        &place,
        "ALTER TABLE boots MODIFY in_flight BIGINT NOT NULL DEFAULT 0",
    )
    .await;
    let faults = store.schema_faults().await.expect("reads");
    let told: Vec<_> = faults
        .iter()
        .map(|fault| {
            let ddl = match &fault.wrong {
                SchemaWrong::Missing(ddl) => &**ddl,
                SchemaWrong::Differs(_) => "",
            };
            (&*fault.needed.name, ddl)
        })
        .collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(
        told[0].0 == "pauses" && told[0].1.starts_with("CREATE TABLE pauses ("),
        "{told:?}"
    );
    assert!(
        told.contains(&("runs.result", "ALTER TABLE runs ADD COLUMN result longtext")),
        "{told:?}"
    );
    let index = "CREATE INDEX memories_expires ON memories (expires_at)";
    assert!(
        told.contains(&("memories.memories_expires", index)),
        "{told:?}"
    );
    assert!(told.contains(&("boots.in_flight", "")), "{told:?}");
}
