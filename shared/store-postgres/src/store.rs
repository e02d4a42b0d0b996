//! The port: each method is one function of a noun.

use std::fmt;
use std::sync::Arc;

use mainspring_shared::store::{Result, Watched};
use mainspring_shared::time::Timestamp;
use sqlx::postgres::PgConnectOptions;

use crate::claim::Doubtful;
use crate::migrate;
use crate::settings::{Pools, Settings, pools};

/// The store port on Postgres. Its futures are to be polled to completion: one that is dropped may
/// have taken effect.
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) pools: Pools,
    pub(crate) doubtful: Arc<Doubtful>,
    pub(crate) watched: Arc<Watched>,
    /// Whether the database compares vectors by itself.
    pub(crate) pgvector: bool,
    /// For connections of a move's own.
    pub(crate) server: PgConnectOptions,
    /// In place of the database's clock.
    pub(crate) at: Option<Timestamp>,
}

impl PostgresStore {
    /// Reaches the database, does with the schema what the settings say, and opens the store.
    ///
    /// Fails with `SchemaMissing`, `SchemaNewer`, `Unavailable`, `Denied`, or `Refused` for an address that
    /// cannot be read or a migration that was changed after it was applied.
    pub async fn open(settings: &Settings) -> Result<Self> {
        let pgvector = migrate::prepare(settings).await?;
        Ok(Self {
            pgvector,
            pools: pools(settings)?,
            server: settings.server()?,
            doubtful: Arc::default(),
            watched: Arc::new(Watched::among_others()),
            at: None,
        })
    }

    /// Opens the store without a look at the database, which may be away: of what it has, nothing is known. For one of
    /// several whose others are there.
    pub fn open_unseen(settings: &Settings) -> Result<Self> {
        Ok(Self {
            pgvector: false,
            pools: pools(settings)?,
            server: settings.server()?,
            doubtful: Arc::default(),
            watched: Arc::new(Watched::among_others()),
            at: None,
        })
    }

    /// Whether the server's extension pgvector compares the vectors of the memory.
    pub fn has_pgvector(&self) -> bool {
        self.pgvector
    }

    /// Closes every connection, once those in use are done.
    pub async fn close(&self) {
        for (_, pool) in self.pools.named() {
            pool.kept.close();
            pool.connections.close().await;
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}
