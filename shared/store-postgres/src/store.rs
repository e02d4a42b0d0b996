//! The store type: each method of the port calls one function of its noun's module.

use std::fmt;
use std::sync::Arc;

use mainspring_shared::store::{Result, Watched};
use mainspring_shared::time::Timestamp;
use mainspring_store_core::LeaseMarks;

use crate::claim::GrantsToRelease;
use crate::migrate;
use crate::server::Server;
use crate::settings::{Pools, Settings, pools};

/// The store port on Postgres. Poll its futures to completion: one that is dropped may still have
/// taken effect.
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) pools: Pools,
    pub(crate) grants_to_release: Arc<GrantsToRelease>,
    pub(crate) watched: Arc<Watched>,
    pub(crate) lease_marks: Arc<LeaseMarks>,
    /// Whether pgvector compares vectors in the database.
    pub(crate) pgvector: bool,
    /// For the dedicated connections of tenant moves.
    pub(crate) server: Server,
    /// Overrides the database's clock, if set.
    pub(crate) at: Option<Timestamp>,
}

impl PostgresStore {
    /// Connects to the database, creates or verifies the schema as configured, and opens the store.
    ///
    /// Fails with `SchemaMissing`, `SchemaNewer`, `Unavailable`, `Denied`, or `Refused` for a URL
    /// that cannot be parsed or a migration that was changed after it was applied.
    pub async fn open(settings: &Settings) -> Result<Self> {
        let pgvector = migrate::prepare(settings).await?;
        Ok(Self {
            pgvector,
            pools: pools(settings)?,
            server: settings.server()?,
            grants_to_release: Arc::default(),
            watched: Arc::new(Watched::among_others()),
            lease_marks: Arc::default(),
            at: None,
        })
    }

    /// Opens the store without connecting to the database, which may be down. Assumes no pgvector
    /// and does not check the schema. For one of several databases while the others are up.
    pub fn open_unseen(settings: &Settings) -> Result<Self> {
        Ok(Self {
            pgvector: false,
            pools: pools(settings)?,
            server: settings.server()?,
            grants_to_release: Arc::default(),
            watched: Arc::new(Watched::among_others()),
            lease_marks: Arc::default(),
            at: None,
        })
    }

    /// Whether the server's extension pgvector compares memory vectors.
    pub fn has_pgvector(&self) -> bool {
        self.pgvector
    }

    /// Closes all connections; waits for those in use.
    pub async fn close(&self) {
        for (_, pool) in self.pools.named() {
            pool.recent.close();
            pool.connections.close().await;
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}
