//! One of the databases, and whether it is there.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::store::placements::{Elsewhere, Placements};
use mainspring_shared::store::{Error, Result, Store};
use tokio::time::Instant;

use crate::PLACE_FAILURES;

/// So many failures without an answer in between are no chance: what one list took too long for, others did not.
const FAILURES: u32 = 3;

/// How often a database that is away is asked whether it is back.
const PROBE: Duration = Duration::from_millis(500);

/// How long after it is back sessions are not taken from boots whose leases ran out on it meanwhile: their owners live,
/// and renew them first.
const SETTLES: Duration = Duration::from_secs(2);

/// A database of an installation, with its name in the configuration.
#[derive(Debug, Clone)]
pub struct Database {
    /// Its name; [`HOME`](mainspring_shared::store::placements::HOME) for the one with the catalogue.
    pub name: String,
    /// The steps on it.
    pub store: Arc<dyn Store>,
    /// What is asked of it besides.
    pub placements: Arc<dyn Placements>,
}

/// A database with what is known of its health.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) placements: Arc<dyn Placements>,
    health: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    failures: u32,
    probed: Option<Instant>,
    back_since: Option<Instant>,
}

/// The database did not answer lately, and is not asked now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the database {0} is away")]
pub(crate) struct Away(pub(crate) String);

impl From<Away> for Error {
    fn from(away: Away) -> Self {
        Self::Unavailable {
            source: Box::new(away),
        }
    }
}

impl Place {
    pub(crate) fn new(database: Database) -> Self {
        Self {
            name: database.name,
            store: database.store,
            placements: database.placements,
            health: Mutex::default(),
        }
    }

    /// Asks the database, unless it is known to be away: then one caller in a while finds out whether it is back, and
    /// the others do not wait for that.
    pub(crate) async fn ask<T>(&self, call: impl Future<Output = Result<T>> + Send) -> Result<T> {
        if !self.is_asked() {
            return Err(Away(self.name.clone()).into());
        }
        let answer = call.await;
        match &answer {
            Err(error @ Error::Unavailable { .. }) if !Elsewhere::is_cause_of(error) => {
                self.failed();
            }
            Ok(_) | Err(_) => self.answered(),
        }
        answer
    }

    /// Notes that it did not answer in time.
    pub(crate) fn failed(&self) {
        metrics::counter!(PLACE_FAILURES, "place" => self.name.clone()).increment(1);
        let mut health = self.health();
        health.failures = health.failures.saturating_add(1);
        if health.failures == FAILURES {
            tracing::warn!(place = self.name, "a database is away; its tenants wait");
        }
        health.probed = Some(Instant::now());
    }

    /// Whether sessions may be taken here from boots whose leases ran out.
    pub(crate) fn is_settled(&self) -> bool {
        let health = self.health();
        let settled = |since: Instant| since.elapsed() >= SETTLES;
        health.failures == 0 && health.back_since.is_none_or(settled)
    }

    fn is_asked(&self) -> bool {
        let mut health = self.health();
        if health.failures < FAILURES {
            return true;
        }
        let is_due = health.probed.is_none_or(|at| at.elapsed() >= PROBE);
        if is_due {
            health.probed = Some(Instant::now());
        }
        is_due
    }

    fn answered(&self) {
        let mut health = self.health();
        if health.failures >= FAILURES {
            tracing::info!(place = self.name, "a database is back");
            health.back_since = Some(Instant::now());
        }
        health.failures = 0;
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
