//! A process's copy of the catalogue, and for how long it relies on it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::id::TenantId;
use mainspring_shared::store::placements::{CATALOGUE_TTL, CATALOGUE_TTL_MOVING, Phase, Placement};
use mainspring_shared::store::{Error, Result};
use tokio::time::{Instant, timeout};

use crate::place::{Away, Place};

/// Time limit for reading changes from the home.
const ANSWERS_IN: Duration = Duration::from_secs(2);

/// Where a tenant is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    /// The index of the database.
    pub(crate) place: usize,
    /// The phase of its move.
    pub(crate) phase: Phase,
}

impl Known {
    const AT_HOME: Self = Self {
        place: 0,
        phase: Phase::Settled,
    };
}

/// The tenant is on a database that this process does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{tenant} is on the database {name}, which is not in this process's configuration")]
struct UnknownPlace {
    tenant: TenantId,
    name: String,
}

/// The catalogue as it was read last.
#[derive(Debug)]
pub(crate) struct Catalogue {
    home: Arc<Place>,
    names: Vec<String>,
    state: Mutex<State>,
    /// Held while reading, so that one caller reads for all.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<TenantId, Placement>,
    /// The version of the last change that was read.
    version: i64,
    moving: usize,
    /// Until when the copy is relied on; `None` before the first read.
    until: Option<Instant>,
}

impl State {
    fn add(&mut self, rows: Vec<Placement>) {
        for row in rows {
            self.version = self.version.max(row.version);
            self.rows.insert(row.tenant, row);
        }
        let moving = self.rows.values().filter(|row| row.phase.is_frozen());
        self.moving = moving.count();
    }

    fn ttl(&self) -> Duration {
        if self.moving > 0 {
            CATALOGUE_TTL_MOVING
        } else {
            CATALOGUE_TTL
        }
    }
}

impl Catalogue {
    /// The catalogue of these databases, of which the first is the home.
    pub(crate) fn new(places: &[Arc<Place>]) -> Self {
        Self {
            home: places[0].clone(),
            names: places.iter().map(|place| place.name.clone()).collect(),
            state: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// Where a tenant is.
    pub(crate) async fn find(&self, tenant: TenantId) -> Result<Known> {
        if !self.is_fresh() {
            self.read(false).await?;
        }
        self.known(tenant)
    }

    /// Where a tenant is, after reading the catalogue again, because a database has refused it.
    pub(crate) async fn find_again(&self, tenant: TenantId) -> Result<Known> {
        self.read(true).await?;
        self.known(tenant)
    }

    /// Where a tenant is according to the current copy, without reading.
    pub(crate) fn known(&self, tenant: TenantId) -> Result<Known> {
        let state = self.state();
        let Some(row) = state.rows.get(&tenant) else {
            return Ok(Known::AT_HOME);
        };
        let place = self.names.iter().position(|name| *name == row.place);
        let place = place.ok_or_else(|| Error::Unavailable {
            source: Box::new(UnknownPlace {
                tenant,
                name: row.place.clone(),
            }),
        })?;
        let phase = row.phase;
        Ok(Known { place, phase })
    }

    /// The rows that were read.
    pub(crate) fn rows(&self) -> Vec<Placement> {
        self.state().rows.values().cloned().collect()
    }

    /// Reads the changes. An error of the home is only returned before the first successful read.
    /// With `anew`, reads even if the copy is still relied on.
    pub(crate) async fn read(&self, anew: bool) -> Result<()> {
        let _reading = self.reading.lock().await;
        // Another caller has read it while this one waited.
        if !anew && self.is_fresh() {
            return Ok(());
        }
        let after = self.state().version;
        let begin = Instant::now();
        let read = self.home.ask(self.changed(after)).await;
        let mut state = self.state();
        match read {
            Ok(rows) => {
                state.add(rows);
                state.until = Some(begin + state.ttl());
                Ok(())
            }
            // Keep using the old copy: writes for a tenant that has moved away are refused by its
            // old database.
            Err(error) if state.until.is_some() => {
                tracing::debug!(%error, "could not read the catalogue; using the old copy");
                // Counted from the end of the attempt, which may have taken longer than that:
                // otherwise every caller would read again at once.
                state.until = Some(Instant::now() + state.ttl());
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the rows that changed after a version.
    async fn changed(&self, after: i64) -> Result<Vec<Placement>> {
        let placements = self.home.placements.clone();
        // In a separate task, without a tenant scope: a caller that acts for one tenant would see
        // only that tenant's row.
        let rows = tokio::spawn(async move { placements.placements(after).await });
        match timeout(ANSWERS_IN, rows).await {
            Ok(Ok(rows)) => rows,
            Ok(Err(_)) | Err(_) => Err(Away(self.home.name.clone()).into()),
        }
    }

    /// Whether the copy is still relied on.
    pub(crate) fn is_fresh(&self) -> bool {
        let until = self.state().until;
        until.is_some_and(|until| Instant::now() < until)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
