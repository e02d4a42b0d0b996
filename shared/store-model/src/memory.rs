//! The store itself: its content behind a lock.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_shared::time::{Clock, Timestamp};

use crate::state::State;

/// The store port in memory. Its clock takes the place of the database's; what it holds is gone
/// when it is dropped. No method ever fails.
pub struct ModelStore {
    pub(crate) clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl ModelStore {
    /// An empty store whose now is that of `clock`.
    pub fn open(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// The content, and the time at which a step on it runs. A step is short and does not wait, so
    /// holding the lock throughout makes it one transaction.
    pub(crate) fn begin(&self, at: Option<Timestamp>) -> (MutexGuard<'_, State>, Timestamp) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state, at.unwrap_or_else(|| self.clock.now()))
    }
}

impl fmt::Debug for ModelStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelStore").finish_non_exhaustive()
    }
}
