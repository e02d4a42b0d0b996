//! Runs that this process cannot read, for the time being.

use std::collections::BTreeMap;
use std::time::Duration;

use mainspring_shared::id::RunKey;
use mainspring_shared::time::Timestamp;

use crate::metrics::RUNS_ASIDE;

/// How long a run is left to others, which may be of a later release.
const PAUSE: Duration = Duration::from_secs(10);

/// How long a run waits for a session that is locked before it is looked at again.
const LOCKED_PAUSE: Duration = Duration::from_millis(250);

/// Looks after which what cannot be read is taken for lost: by then every other scheduler has had
/// its turn several times.
const LOOKS: u32 = 3;

/// The longest pause between two looks at a run that cannot even be failed. It is looked at for ever:
/// a later release, or someone with a backup, may have made it readable.
const PAUSE_MAX: Duration = Duration::from_mins(10);

/// Runs that could not be read: while they are left to others, the rest goes on.
#[derive(Default)]
pub(super) struct Aside {
    now: Timestamp,
    runs: BTreeMap<RunKey, Look>,
    /// Runs that wait for a session which someone else has locked, and until when.
    paused: BTreeMap<RunKey, Timestamp>,
}

struct Look {
    until: Timestamp,
    looks: u32,
}

impl Look {
    /// How long it is left alone: the longer the less hope there is.
    fn pause(&self) -> Duration {
        let more = self.looks.saturating_sub(LOOKS).min(16);
        PAUSE.saturating_mul(1 << more).min(PAUSE_MAX)
    }
}

impl Aside {
    /// Notes the database's clock. What nobody brought for long is another scheduler's, or has ended.
    pub(super) fn look(&mut self, now: Timestamp) {
        self.now = now;
        self.runs
            .retain(|_, look| now <= look.until.after(PAUSE_MAX));
        // A clock that was set back must not keep them out.
        self.paused
            .retain(|_, until| now < *until && *until <= now.after(LOCKED_PAUSE));
    }

    /// Those that are to be left out now.
    pub(super) fn keys(&self) -> Vec<RunKey> {
        let left = self.runs.iter().filter(|(_, look)| {
            // A clock that was set back must not keep them out.
            self.now < look.until && look.until <= self.now.after(look.pause())
        });
        let left = left.map(|(key, _)| *key);
        left.chain(self.paused.keys().copied()).collect()
    }

    /// Leaves runs alone for a moment: others come first.
    pub(super) fn pause(&mut self, keys: impl IntoIterator<Item = RunKey>) {
        let until = self.now.after(LOCKED_PAUSE);
        self.paused.extend(keys.into_iter().map(|key| (key, until)));
    }

    /// Leaves a run to others for a while.
    pub(super) fn put(&mut self, key: RunKey, why: &str) {
        metrics::counter!(RUNS_ASIDE).increment(1);
        let look = self.runs.entry(key).or_insert(Look {
            until: self.now,
            looks: 0,
        });
        if look.looks == 0 {
            tracing::error!(run.id = %key.run, why, "a run cannot be read and is set aside");
        }
        look.looks = look.looks.saturating_add(1);
        look.until = self.now.after(look.pause());
    }

    /// Whether nobody else could read it either.
    pub(super) fn is_for_good(&self, key: RunKey) -> bool {
        self.runs.get(&key).is_some_and(|look| look.looks >= LOOKS)
    }

    /// It can be read, or goes on without what cannot be.
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
        let mut aside = Aside::default();
        for looked in 0..LOOKS {
            assert_eq!(aside.keys(), []);
            assert!(!aside.is_for_good(key), "after {looked}");
            aside.put(key, "a test");
            assert_eq!(aside.keys(), [key]);
            aside.look(aside.now.after(PAUSE));
        }
        assert!(aside.is_for_good(key));
        aside.forget(key);
        assert!(!aside.is_for_good(key));
    }

    #[test]
    fn a_run_that_waits_for_a_lock_is_left_out_for_a_moment_and_never_given_up() {
        let key = RunKey {
            tenant: TenantId::DEFAULT,
            run: RunId(Uuid::from_u128(1)),
        };
        let mut aside = Aside::default();
        for _ in 0..=LOOKS {
            aside.pause([key]);
            assert_eq!(aside.keys(), [key]);
            aside.look(aside.now.after(LOCKED_PAUSE / 2));
            assert_eq!(aside.keys(), [key]);
            aside.look(aside.now.after(LOCKED_PAUSE));
            assert_eq!(aside.keys(), []);
        }
        assert!(!aside.is_for_good(key));
        aside.look(Timestamp(10_000_000));
        aside.pause([key]);
        aside.look(Timestamp(6_400_000));
        assert_eq!(aside.keys(), [], "a clock that was set back");
    }

    #[test]
    fn a_run_that_cannot_even_be_failed_is_looked_at_more_and_more_rarely_and_for_ever() {
        let key = RunKey {
            tenant: TenantId::DEFAULT,
            run: RunId(Uuid::from_u128(1)),
        };
        let mut aside = Aside::default();
        let mut pauses = Vec::new();
        for _ in 0..40 {
            aside.put(key, "a test");
            let since = aside.now;
            while aside.keys() == [key] {
                aside.look(aside.now.after(PAUSE));
            }
            pauses.push(aside.now.since(since).as_secs() / PAUSE.as_secs());
        }
        assert_eq!(pauses[..9], [1, 1, 1, 2, 4, 8, 16, 32, 60]);
        assert!(pauses[9..].iter().all(|pause| *pause == 60), "{pauses:?}");
        assert!(aside.is_for_good(key));
        // Another scheduler has it now.
        aside.look(aside.now.after(PAUSE_MAX).after(PAUSE));
        assert!(aside.runs.is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_nothing_out_for_longer() {
        let key = RunKey {
            tenant: TenantId::DEFAULT,
            run: RunId(Uuid::from_u128(1)),
        };
        let mut aside = Aside::default();
        aside.look(Timestamp(10_000_000));
        aside.put(key, "a test");
        aside.look(Timestamp(6_400_000));
        assert_eq!(aside.keys(), []);
    }
}
