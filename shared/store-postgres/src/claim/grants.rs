//! Grants to be released, and sessions that are not to be claimed for a while.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::id::SessionKey;
use mainspring_shared::store::placements::Elsewhere;
use mainspring_shared::store::{ReleaseLoss, Result};
use tokio::time::Instant;
use uuid::Uuid;

use crate::retry::{Pool, execute, sql};
use crate::rows::key_columns;

/// Grants that nobody works on: they may have been made although their claim failed, or were kept
/// for a next send that could not be read. They would last as long as the boot lives, so they are
/// released with its next renewal.
#[derive(Debug, Default)]
pub(crate) struct GrantsToRelease {
    grants: Mutex<Vec<(SessionKey, Uuid)>>,
    /// Sessions that could not be read: claiming them again at once would end in the same way, and
    /// each claim is a durable step.
    unreadable: Mutex<BTreeMap<SessionKey, Unreadable>>,
}

/// A session that could not be read.
#[derive(Debug, Clone, Copy)]
struct Unreadable {
    pause: Duration,
    until: Instant,
}

/// For how long a session that could not be read is not claimed: first, and at most. Another
/// release may read it, or somebody may mend it.
const UNREADABLE_FIRST: Duration = Duration::from_secs(5);
const UNREADABLE_MAX: Duration = Duration::from_mins(10);
/// Maximum number of them that are remembered.
const UNREADABLE_COUNT: usize = 4_096;

/// More than a process can claim during an outage that its own lease survives.
const TO_RELEASE_MAX: usize = 16_384;

impl GrantsToRelease {
    fn unreadable(&self) -> MutexGuard<'_, BTreeMap<SessionKey, Unreadable>> {
        self.unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a session could not be read.
    pub(super) fn note_unreadable(&self, key: SessionKey) {
        let mut unreadable = self.unreadable();
        if unreadable.len() >= UNREADABLE_COUNT {
            unreadable.clear();
        }
        let known = unreadable.get(&key).map(|known| known.pause * 2);
        let pause = known.unwrap_or(UNREADABLE_FIRST).min(UNREADABLE_MAX);
        let until = Instant::now() + pause;
        unreadable.insert(key, Unreadable { pause, until });
    }

    /// Whether a session could not be read a while ago.
    pub(super) fn is_unreadable(&self, key: SessionKey) -> bool {
        let known = self.unreadable().get(&key).copied();
        known.is_some_and(|known| Instant::now() < known.until)
    }

    /// Forgets sessions that could be read.
    pub(super) fn note_read(&self, keys: impl Iterator<Item = SessionKey>) {
        let mut unreadable = self.unreadable();
        if !unreadable.is_empty() {
            for key in keys {
                unreadable.remove(&key);
            }
        }
    }

    pub(crate) fn remember(&self, given: impl IntoIterator<Item = (SessionKey, Uuid)>) {
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        let room = TO_RELEASE_MAX.saturating_sub(grants.len());
        grants.extend(given.into_iter().take(room));
    }

    /// Releases the grants. Those that cannot be released now are kept for the next time.
    pub(crate) async fn give_back(&self, pool: &Pool) -> Result<()> {
        let grants = {
            let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *grants)
        };
        if grants.is_empty() {
            return Ok(());
        }
        let (tenants, sessions) = key_columns(grants.iter().map(|(key, _)| *key));
        let tokens: Vec<Uuid> = grants.iter().map(|(_, token)| *token).collect();
        let given = execute(pool, || {
            sql!("leases/release")
                .bind(tenants.clone())
                .bind(sessions.clone())
                .bind(tokens.clone())
                .bind(vec![ReleaseLoss::Nothing.number(); tokens.len()])
        })
        .await;
        // Grants of a tenant that moved to another database moved with it: their owner finds and
        // releases them there.
        if given
            .as_ref()
            .is_err_and(|error| !Elsewhere::is_cause_of(error))
        {
            let mut kept = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(grants);
            kept.truncate(TO_RELEASE_MAX);
        }
        given.map(|_| ())
    }
}
