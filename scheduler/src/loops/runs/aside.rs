//! Runs that this process cannot read, for the time being.

use std::collections::BTreeMap;
use std::time::Duration;

use mainspring_shared::id::RunKey;
use mainspring_shared::time::Timestamp;

use crate::metrics::RUNS_ASIDE;

/// How long a run is left to others, which may be of a later release.
const PAUSE: Duration = Duration::from_secs(10);

/// Looks after which what cannot be read is taken for lost: by then every other scheduler has had
/// its turn several times.
const LOOKS: u32 = 3;

/// Runs that could not be read: while they are left to others, the rest goes on.
#[derive(Default)]
pub(super) struct Aside {
    now: Timestamp,
    runs: BTreeMap<RunKey, Look>,
}

struct Look {
    until: Timestamp,
    looks: u32,
}

impl Aside {
    /// Notes the database's clock.
    pub(super) fn look(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Those that are to be left out now.
    pub(super) fn keys(&self) -> Vec<RunKey> {
        let left = self.runs.iter().filter(|(_, look)| {
            // A clock that was set back must not keep them out.
            self.now < look.until && look.until <= self.now.after(PAUSE)
        });
        left.map(|(key, _)| *key).collect()
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
        look.looks += 1;
        look.until = self.now.after(PAUSE);
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
