//! Notices a database that went back in time: a failover to a server that lacked the last commits,
//! or a backup that was restored.
//!
//! Such a database is a consistent one, so nothing in it tells. But each process renews its lease
//! several times in its term, and the end of the lease in the database never lies before the one
//! that the last renewal was told, unless that renewal is not there any more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::id::BootId;
use mainspring_shared::store::{DATABASE_WENT_BACK, WentBack};
use mainspring_shared::time::Timestamp;
use tokio::time::Instant;

/// Renewals that are missing for less time prove nothing: they commit without waiting for the disk,
/// so a crash of the server may lose the last ones although it loses no other commit.
const LOST_BY_CRASHES: i64 = 1_000;

/// How long a boot that has ended is kept at least, whatever the configuration says.
const KEPT: i64 = 3_600_000;

/// How long it is told that the database went back.
const TOLD: Duration = Duration::from_hours(1);

/// What the leases of this process's boots were when they were last renewed.
#[derive(Debug, Default)]
pub struct LeaseMarks {
    known: Mutex<BTreeMap<BootId, Known>>,
    /// How often the database went back.
    times: AtomicU64,
    last: Mutex<Option<(WentBack, Instant)>>,
}

/// A lease as it was last renewed.
#[derive(Debug, Clone, Copy)]
struct Known {
    at: Timestamp,
    until: Timestamp,
}

/// What a renewal found of its boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoundLease {
    /// The boot lives, with a lease until this time.
    Until(Timestamp),
    /// The boot was declared dead, or has ended; its lease lasted until this time.
    Dead(Timestamp),
    /// There is no such boot.
    Missing,
}

impl LeaseMarks {
    /// Compares what a renewal for `ttl` at `at` found with what is known, and notes what it left.
    pub fn renewed(&self, boot: BootId, found: FoundLease, at: Timestamp, ttl: Duration) {
        let until = at.after(ttl);
        let known = match found {
            FoundLease::Until(_) => lock(&self.known).insert(boot, Known { at, until }),
            FoundLease::Dead(_) | FoundLease::Missing => lock(&self.known).remove(&boot),
        };
        let Some(known) = known else {
            return;
        };
        let missing = match found {
            // Leases are shortened where the clock was set back by more than their duration.
            FoundLease::Until(before) | FoundLease::Dead(before) if until >= known.at => {
                known.until.0 - before.0
            }
            FoundLease::Missing if at.0 < known.until.0 + KEPT => known.until.0 - known.at.0,
            _ => 0,
        };
        if missing > LOST_BY_CRASHES {
            self.went_back(boot, at, missing);
        }
    }

    /// Forgets a boot that ends by itself.
    pub fn ended(&self, boot: BootId) {
        lock(&self.known).remove(&boot);
    }

    fn went_back(&self, boot: BootId, at: Timestamp, missing: i64) {
        self.times.fetch_add(1, Ordering::AcqRel);
        let by = Duration::from_millis(missing.unsigned_abs());
        *lock(&self.last) = Some((WentBack { at, by }, Instant::now()));
        metrics::counter!(DATABASE_WENT_BACK).increment(1);
        tracing::error!(
            boot.id = %boot,
            missing_ms = missing,
            "the database went back in time: it lacks commits that it had acknowledged, as after a \
             failover to a server without them or the restore of a backup"
        );
    }

    /// How often the database went back.
    pub fn times(&self) -> u64 {
        self.times.load(Ordering::Acquire)
    }

    /// When the database last went back, if that was not long ago.
    pub fn last(&self) -> Option<WentBack> {
        let last = *lock(&self.last);
        last.filter(|(_, told)| told.elapsed() < TOLD)
            .map(|(went_back, _)| went_back)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing under these locks can panic midway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const BOOT: BootId = BootId(Uuid::from_u128(1));
    const TTL: Duration = Duration::from_secs(4);

    fn renewed(marks: &LeaseMarks, found: FoundLease, at: i64) -> u64 {
        marks.renewed(BOOT, found, Timestamp(at), TTL);
        marks.times()
    }

    fn until(ms: i64) -> FoundLease {
        FoundLease::Until(Timestamp(ms))
    }

    #[tokio::test]
    async fn a_lease_that_ends_before_it_did_is_from_before() {
        let marks = LeaseMarks::default();
        assert_eq!(renewed(&marks, until(500), 10_000), 0, "nothing is known");
        assert_eq!(renewed(&marks, until(14_000), 10_700), 0);
        assert_eq!(renewed(&marks, until(14_700), 11_400), 0);
        assert_eq!(
            renewed(&marks, until(14_700), 12_100),
            0,
            "a crash lost one renewal"
        );
        assert_eq!(marks.last(), None);
        assert_eq!(renewed(&marks, until(14_000), 12_800), 1);
        let by = Duration::from_millis(2_100);
        let at = Timestamp(12_800);
        assert_eq!(marks.last(), Some(WentBack { at, by }));
        assert_eq!(renewed(&marks, until(16_800), 13_500), 1, "it is told once");
    }

    #[tokio::test]
    async fn a_boot_that_is_gone_was_registered_later() {
        let marks = LeaseMarks::default();
        assert_eq!(renewed(&marks, FoundLease::Missing, 9_000), 0, "never seen");
        assert_eq!(renewed(&marks, until(13_000), 10_000), 0);
        assert_eq!(renewed(&marks, FoundLease::Missing, 10_700), 1);
        assert_eq!(
            renewed(&marks, FoundLease::Missing, 10_800),
            1,
            "it is told once"
        );
    }

    #[tokio::test]
    async fn a_boot_that_was_declared_dead_after_a_shorter_lease_was_renewed_in_vain() {
        let marks = LeaseMarks::default();
        renewed(&marks, until(13_000), 10_000);
        renewed(&marks, until(14_000), 12_100);
        let dead = FoundLease::Dead(Timestamp(14_000));
        assert_eq!(renewed(&marks, dead, 16_800), 1);
    }

    #[tokio::test]
    async fn what_ends_by_itself_is_not_from_before() {
        let marks = LeaseMarks::default();
        renewed(&marks, until(13_000), 10_000);
        let dead = |ms| FoundLease::Dead(Timestamp(ms));
        assert_eq!(renewed(&marks, dead(14_000), 14_700), 0, "it was late");
        renewed(&marks, until(13_000), 10_000);
        let late = 14_000 + KEPT;
        assert_eq!(renewed(&marks, FoundLease::Missing, late), 0, "retired");
        // Set back by an hour, the clock makes others shorten the lease.
        renewed(&marks, until(3_614_000), 3_610_700);
        assert_eq!(renewed(&marks, until(14_600), 10_700), 0);
    }
}
