//! Remembers sessions that someone keeps locked.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::id::SessionKey;

/// Maximum number of sessions remembered as locked; beyond that the set is cleared and
/// rediscovered.
const CONTENDED_MAX: usize = 4_096;

/// Sessions whose locks were found to be held for long. Until a session is found free again, no
/// step waits for its lock.
#[derive(Debug, Default)]
pub struct Contended(Mutex<BTreeSet<SessionKey>>);

impl Contended {
    /// Remembers sessions as locked.
    pub fn note(&self, locked: &BTreeSet<SessionKey>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= CONTENDED_MAX {
            known.clear();
        }
        known.extend(locked);
    }

    /// Forgets sessions that were found free.
    pub fn free(&self, keys: impl Iterator<Item = SessionKey>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return;
        }
        for key in keys {
            known.remove(&key);
        }
    }

    /// Those of these sessions that are remembered as locked.
    #[must_use]
    pub fn among(&self, keys: impl Iterator<Item = SessionKey>) -> BTreeSet<SessionKey> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return BTreeSet::new();
        }
        keys.filter(|key| known.contains(key)).collect()
    }
}
