//! Several Postgres databases, each with its own tenants.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainspring_shared::store::placements::HOME;
use mainspring_shared::store::{Error, Store};
use mainspring_store_placed::{Database, Mover, PlacedStore};
use mainspring_store_postgres::{PostgresStore, Settings};

use super::{postgres, store_failure};
use crate::config::{Config, Migrate};
use crate::failure::{Failure, causes};

/// The databases with their names, the home database first.
fn settings(config: &Config, migrate: Migrate) -> Vec<(String, Settings)> {
    let home = postgres(config, migrate);
    let mut all = vec![(HOME.to_owned(), home.clone())];
    all.extend(config.other_databases().into_iter().map(|database| {
        let url = database.url.reveal().to_owned();
        (
            database.name,
            Settings {
                url,
                ..home.clone()
            },
        )
    }));
    all
}

/// The store over all databases. An unavailable one does not keep a process from serving the
/// others, but the home database must be available.
pub(super) async fn store(config: &Config, migrate: Migrate) -> Result<Arc<dyn Store>, Failure> {
    let mut databases = Vec::new();
    for (name, settings) in settings(config, migrate) {
        if settings.trusts_any_server() {
            tracing::warn!(
                place = name,
                "the database's certificate and name are not verified: add ?sslmode=verify-full to its URL"
            );
        }
        let opened = match PostgresStore::open(&settings).await {
            Err(error @ Error::Unavailable { .. }) if name != HOME => {
                tracing::warn!(
                    place = name,
                    %error,
                    "a database is unavailable; its tenants wait until it is back"
                );
                PostgresStore::open_unseen(&settings)
            }
            opened => opened,
        };
        let opened = Arc::new(opened.map_err(|error| failure(config, &name, &error))?);
        databases.push(Database {
            name,
            store: opened.clone(),
            placements: opened,
        });
    }
    let home = databases.remove(0);
    Ok(Arc::new(PlacedStore::new(home, databases)))
}

/// Each database besides the home database, or why it cannot be used.
pub(crate) async fn others(
    config: &Config,
    migrate: Migrate,
) -> Vec<(String, Result<Arc<dyn Store>, Failure>)> {
    let mut others = Vec::new();
    for (name, settings) in settings(config, migrate).into_iter().skip(1) {
        let opened = PostgresStore::open(&settings).await;
        let store: Result<Arc<dyn Store>, Failure> = match opened {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(failure(config, &name, &error)),
        };
        others.push((name, store));
    }
    others
}

/// Moves tenants between the databases, all of which must be available.
pub(crate) async fn mover(config: &Config) -> Result<Mover, Failure> {
    let mut places = BTreeMap::new();
    for (name, settings) in settings(config, Migrate::Verify) {
        let opened = PostgresStore::open(&settings).await;
        let opened = opened.map_err(|error| failure(config, &name, &error))?;
        places.insert(name, opened);
    }
    Ok(Mover::new(places))
}

/// The failure of one database, with its name.
fn failure(config: &Config, name: &str, error: &Error) -> Failure {
    let mut failure = store_failure(config, error);
    if name != HOME {
        failure.message = format!("the database {name}: {}", causes(error));
    }
    failure
}
