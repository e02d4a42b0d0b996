//! One of the databases, and its health.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::store::placements::{Elsewhere, Placements};
use mainspring_shared::store::{Error, Result, Store};
use tokio::time::Instant;

use crate::PLACE_FAILURES;

/// Consecutive failures after which a database counts as unavailable. A single slow list is not
/// enough, since other calls succeed in between.
const FAILURES: u32 = 3;

/// How often to probe whether an unavailable database is back.
const PROBE: Duration = Duration::from_millis(500);

/// How long after the end of an outage no session is taken from a boot whose lease expired on this
/// database meanwhile: its owner may be alive and gets the time to renew it.
const SETTLES: Duration = Duration::from_secs(2);

/// A database of an installation, with its name in the configuration.
#[derive(Debug, Clone)]
pub struct Database {
    /// The name; [`HOME`](mainspring_shared::store::placements::HOME) for the database with the
    /// catalogue.
    pub name: String,
    /// Its store.
    pub store: Arc<dyn Store>,
    /// The catalogue, and what moves and outages need on this database.
    pub placements: Arc<dyn Placements>,
}

/// A database with its health.
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

/// The database has not responded recently and is not called now.
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

    /// Calls the database, unless it is known to be unavailable: then one caller at a time probes
    /// whether it is back, at intervals, and the others fail immediately.
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

    /// Records a call that failed because the database is unavailable or did not respond in time.
    pub(crate) fn failed(&self) {
        metrics::counter!(PLACE_FAILURES, "place" => self.name.clone()).increment(1);
        let mut health = self.health();
        health.failures = health.failures.saturating_add(1);
        if health.failures == FAILURES {
            tracing::warn!(
                place = self.name,
                "a database is unavailable; its tenants wait until it is back"
            );
        }
        health.probed = Some(Instant::now());
    }

    /// Whether sessions may be taken from boots whose leases expired on this database.
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
