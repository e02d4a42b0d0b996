//! The store itself: its content behind a lock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{Dump, Inspect, Result};
use mainspring_shared::time::{Clock, Timestamp};

use crate::state::State;

/// The store port in memory. Its clock replaces the database's, and its content is lost when it is
/// dropped. No method ever fails.
pub struct ModelStore {
    clock: Arc<dyn Clock>,
    /// Replaces the clock.
    at: Option<Timestamp>,
    state: Arc<Mutex<State>>,
}

impl ModelStore {
    /// An empty store that takes its time from `clock`.
    pub fn open(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            at: None,
            state: Arc::default(),
        }
    }

    /// The content, and the time for a step on it. Steps are short and do not wait, so holding the
    /// lock for a whole step makes it a transaction.
    pub(crate) fn begin(&self) -> (MutexGuard<'_, State>, Timestamp) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The previous step's news: no endpoint has changed since that step.
        state.take_news();
        (state, self.time())
    }

    /// The store's time.
    pub(crate) fn time(&self) -> Timestamp {
        self.at.unwrap_or_else(|| self.clock.now())
    }
}

#[async_trait]
impl Inspect for ModelStore {
    fn at(&self, now: Timestamp) -> Arc<dyn Inspect> {
        Arc::new(Self {
            clock: self.clock.clone(),
            at: Some(now),
            state: self.state.clone(),
        })
    }

    async fn dump(&self) -> Result<Dump> {
        Ok(self.begin().0.dump())
    }

    async fn rows_of(&self, tenant: TenantId) -> Result<BTreeMap<String, u64>> {
        Ok(self.begin().0.rows_of(tenant))
    }
}

impl fmt::Debug for ModelStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelStore").finish_non_exhaustive()
    }
}
