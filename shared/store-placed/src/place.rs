//! One of the databases, and its health.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::id::BootId;
use mainspring_shared::store::placements::{Elsewhere, Placements};
use mainspring_shared::store::{Error, Result, ServerInfo, Store};
use tokio::time::{Instant, timeout};

use crate::PLACE_FAILURES;

/// Consecutive failures after which a database counts as unavailable. A single slow list is not
/// enough, since other calls succeed in between.
const FAILURES: u32 = 3;

/// How often to probe whether an unavailable database is back.
const PROBE: Duration = Duration::from_millis(500);

/// How long the answer to a probe may take.
const PROBE_MAX: Duration = Duration::from_secs(3);

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
    /// Until when the leases of this process's boots last here, as far as it may rely on them.
    leases: Mutex<BTreeMap<BootId, Instant>>,
}

#[derive(Debug, Default)]
struct Health {
    failures: u32,
    probed: Option<Instant>,
    /// Whether it is being found out whether the database is back.
    is_probed: bool,
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
            leases: Mutex::default(),
        }
    }

    /// Notes that a boot has a lease here that may be relied on until then.
    pub(crate) fn holds(&self, boot: BootId, until: Instant) {
        self.leases().insert(boot, until);
    }

    /// Forgets a boot.
    pub(crate) fn forgets(&self, boot: BootId) {
        self.leases().remove(&boot);
    }

    /// Whether a boot had a lease here that may not be relied on any more.
    pub(crate) fn has_lapsed(&self, boot: BootId) -> bool {
        let until = self.leases().get(&boot).copied();
        until.is_some_and(|until| until <= Instant::now())
    }

    fn leases(&self) -> MutexGuard<'_, BTreeMap<BootId, Instant>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the database, unless it is known to be unavailable: then callers fail immediately, and
    /// a task of its own finds out whether it is back. No caller does: behind it, others would wait.
    pub(crate) async fn ask<T>(
        self: &Arc<Self>,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if self.is_away() {
            self.probe();
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

    fn is_away(&self) -> bool {
        self.health().failures >= FAILURES
    }

    /// Starts to find out whether the database is back, unless that was done a moment ago or is
    /// under way.
    fn probe(self: &Arc<Self>) {
        {
            let mut health = self.health();
            let is_due = health.probed.is_none_or(|at| at.elapsed() >= PROBE);
            if !is_due || health.is_probed {
                return;
            }
            health.is_probed = true;
            health.probed = Some(Instant::now());
        }
        let place = self.clone();
        tokio::spawn(async move {
            let answer = timeout(PROBE_MAX, place.store.check()).await;
            let works = answer.is_ok_and(|answer| answer.and_then(ServerInfo::writable).is_ok());
            place.health().is_probed = false;
            if works {
                place.answered();
            }
        });
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
