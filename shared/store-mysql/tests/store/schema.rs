//! A schema that a later release has changed.

use mainspring_shared::store::{Error, Reads as _};
use mainspring_store_mysql::{SchemaPolicy, Settings};

use crate::opened::{Opened, execute, open};

#[tokio::test]
async fn a_newer_schema_that_took_something_away_is_refused() {
    let Opened { store, place } = open().await;
    execute(
        &place,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'later', TRUE, X'00', 0)",
    )
    .await;
    let policies = [SchemaPolicy::Create, SchemaPolicy::Verify];
    // It took nothing away that this program needs.
    assert_eq!(store.check().await.expect("is sound").schema, 9999);
    for schema in policies {
        let settings = Settings {
            schema,
            ..Settings::new(place.url())
        };
        let store = mainspring_store_mysql::open(&settings).await.expect("opens");
        assert_eq!(store.check().await.expect("is sound").schema, 9999);
    }
    execute(&place, "UPDATE schema_compatibility SET oldest = 9999").await;
    let checked = store.check().await;
    assert!(
        matches!(checked, Err(Error::SchemaNewer { found: 9999, .. })),
        "{checked:?}"
    );
    for schema in policies {
        let settings = Settings {
            schema,
            ..Settings::new(place.url())
        };
        let opened = mainspring_store_mysql::open(&settings).await;
        assert!(
            matches!(opened, Err(Error::SchemaNewer { found: 9999, .. })),
            "{:?}",
            opened.err()
        );
    }
}
