//! Runs that this process skips because it cannot read them or because their sessions are locked.

use std::collections::BTreeMap;
use std::time::Duration;

use mainspring_shared::id::RunKey;
use mainspring_shared::time::Timestamp;

use crate::metrics::RUNS_ASIDE;

/// How long an unreadable run is left to other schedulers, which may run a later release.
const PAUSE: Duration = Duration::from_secs(10);

/// How long a run with a locked session is skipped.
const LOCKED_PAUSE: Duration = Duration::from_millis(250);

/// Attempts after which an unreadable run is failed. By then every other scheduler has tried
/// several times.
const ATTEMPTS: u32 = 3;

/// Maximum backoff for a run that cannot even be failed. It is retried forever: a later release or
/// a restored backup may make it readable.
const PAUSE_MAX: Duration = Duration::from_mins(10);

/// Skipped runs. Other runs are not affected.
#[derive(Default)]
pub(super) struct SkippedRuns {
    now: Timestamp,
    runs: BTreeMap<RunKey, Skipped>,
    /// Runs with a locked session, and until when they are skipped.
    paused: BTreeMap<RunKey, Timestamp>,
}

struct Skipped {
    until: Timestamp,
    attempts: u32,
}

impl Skipped {
    /// The backoff for the number of attempts so far.
    fn pause(&self) -> Duration {
        let more = self.attempts.saturating_sub(ATTEMPTS).min(16);
        PAUSE.saturating_mul(1 << more).min(PAUSE_MAX)
    }
}

impl SkippedRuns {
    /// Sets the current time, as told by the database. Forgets runs that have not been claimed for
    /// long: another scheduler has them, or they have ended.
    pub(super) fn tick(&mut self, now: Timestamp) {
        self.now = now;
        self.runs
            .retain(|_, entry| now <= entry.until.after(PAUSE_MAX));
        // Skipping must end even if the clock was set back.
        self.paused
            .retain(|_, until| now < *until && *until <= now.after(LOCKED_PAUSE));
    }

    /// The runs to skip now.
    pub(super) fn keys(&self) -> Vec<RunKey> {
        let left = self.runs.iter().filter(|(_, entry)| {
            // Skipping must end even if the clock was set back.
            self.now < entry.until && entry.until <= self.now.after(entry.pause())
        });
        let left = left.map(|(key, _)| *key);
        left.chain(self.paused.keys().copied()).collect()
    }

    /// Skips runs with locked sessions for [`LOCKED_PAUSE`].
    pub(super) fn pause(&mut self, keys: impl IntoIterator<Item = RunKey>) {
        let until = self.now.after(LOCKED_PAUSE);
        self.paused.extend(keys.into_iter().map(|key| (key, until)));
    }

    /// Skips an unreadable run for a while.
    pub(super) fn skip(&mut self, key: RunKey, why: &str) {
        metrics::counter!(RUNS_ASIDE).increment(1);
        let entry = self.runs.entry(key).or_insert(Skipped {
            until: self.now,
            attempts: 0,
        });
        if entry.attempts == 0 {
            tracing::error!(
                run.id = %key.run,
                why,
                "could not process a run; skipping it for a while"
            );
        }
        entry.attempts = entry.attempts.saturating_add(1);
        entry.until = self.now.after(entry.pause());
    }

    /// Whether other schedulers have had enough attempts to read it.
    pub(super) fn is_exhausted(&self, key: RunKey) -> bool {
        self.runs
            .get(&key)
            .is_some_and(|entry| entry.attempts >= ATTEMPTS)
    }

    /// Forgets a run that has been advanced.
    pub(super) fn forget(&mut self, key: RunKey) {
        self.runs.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use mainspring_shared::id::{RunId, TenantId};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_run_is_left_out_for_a_while_and_given_up_after_some_looks() {
        let key = RunKey {
            tenant: TenantId::DEFAULT,
            run: RunId(Uuid::from_u128(1)),
        };
        let mut skipped = SkippedRuns::default();
        for looked in 0..ATTEMPTS {
            assert_eq!(skipped.keys(), []);
            assert!(!skipped.is_exhausted(key), "after {looked}");
            skipped.skip(key, "a test");
            assert_eq!(skipped.keys(), [key]);
            skipped.tick(skipped.now.after(PAUSE));
        }
        assert!(skipped.is_exhausted(key));
        skipped.forget(key);
        assert!(!skipped.is_exhausted(key));
    }

    #[test]
    fn a_run_that_waits_for_a_lock_is_left_out_for_a_moment_and_never_given_up() {
        let key = RunKey {
            tenant: TenantId::DEFAULT,
            run: RunId(Uuid::from_u128(1)),
        };
        let mut skipped = SkippedRuns::default();
        for _ in 0..=ATTEMPTS {
            skipped.pause([key]);
            assert_eq!(skipped.keys(), [key]);
            skipped.tick(skipped.now.after(LOCKED_PAUSE / 2));
            assert_eq!(skipped.keys(), [key]);
            skipped.tick(skipped.now.after(LOCKED_PAUSE));
            assert_eq!(skipped.keys(), []);
        }
        assert!(!skipped.is_exhausted(key));
        skipped.tick(Timestamp(10_000_000));
        skipped.pause([key]);
        skipped.tick(Timestamp(6_400_000));
        assert_eq!(skipped.keys(), [], "a clock that was set back");
    }

    #[test]
    fn a_run_that_cannot_even_be_failed_is_looked_at_more_and_more_rarely_and_for_ever() {
        let key = RunKey {
            tenant: TenantId::DEFAULT,
            run: RunId(Uuid::from_u128(1)),
        };
        let mut skipped = SkippedRuns::default();
        let mut pauses = Vec::new();
        for _ in 0..40 {
            skipped.skip(key, "a test");
            let since = skipped.now;
            while skipped.keys() == [key] {
                skipped.tick(skipped.now.after(PAUSE));
            }
            pauses.push(skipped.now.since(since).as_secs() / PAUSE.as_secs());
        }
        assert_eq!(pauses[..9], [1, 1, 1, 2, 4, 8, 16, 32, 60]);
        assert!(pauses[9..].iter().all(|pause| *pause == 60), "{pauses:?}");
        assert!(skipped.is_exhausted(key));
        // Another scheduler has claimed it.
        skipped.tick(skipped.now.after(PAUSE_MAX).after(PAUSE));
        assert!(skipped.runs.is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_nothing_out_for_longer() {
        let key = RunKey {
            tenant: TenantId::DEFAULT,
            run: RunId(Uuid::from_u128(1)),
        };
        let mut skipped = SkippedRuns::default();
        skipped.tick(Timestamp(10_000_000));
        skipped.skip(key, "a test");
        skipped.tick(Timestamp(6_400_000));
        assert_eq!(skipped.keys(), []);
    }
}
