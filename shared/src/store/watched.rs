//! A store's cache of which tenants have webhooks.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::id::TenantId;

/// A cache of the tenants with endpoints, so that ending a send requires no query for them.
///
/// Its content is at most [`Watched::AGE_MAX`] old, so that a read that began before an endpoint
/// was committed is not trusted for longer. Creating an endpoint responds only after
/// [`Watched::KNOWN_IN`]. So every send accepted after that response is ended by a process that
/// knows of the endpoint.
#[derive(Debug)]
pub struct Watched {
    known: Mutex<Option<Known>>,
    /// How long a read is trusted; `None` for until it is forgotten.
    age_max: Option<Duration>,
}

#[derive(Debug)]
struct Known {
    asked: Moment,
    tenants: Arc<BTreeSet<TenantId>>,
}

/// A time on two clocks: the wall clock keeps running while the machine is suspended, and the
/// steady clock cannot be set.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    steady: Instant,
    wall: SystemTime,
}

impl Moment {
    /// Now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "how old a read is, is no time of the domain; nothing that is stored depends on it"
    )]
    pub fn now() -> Self {
        Self {
            steady: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// Whether less than `age` has passed since then, on both clocks.
    fn is_within(self, age: Duration, now: Self) -> bool {
        let wall = now.wall.duration_since(self.wall);
        now.steady.saturating_duration_since(self.steady) < age && wall.is_ok_and(|wall| wall < age)
    }
}

impl Watched {
    /// How long a read is trusted if other processes may create endpoints, too.
    pub const AGE_MAX: Duration = Duration::from_secs(1);

    /// Time after which every process knows of a committed endpoint: earlier reads are too old by
    /// then, with a margin for clock drift.
    pub const KNOWN_IN: Duration = Duration::from_millis(1_100);

    /// For a database where other processes create endpoints, too.
    #[must_use]
    pub fn among_others() -> Self {
        Self {
            known: Mutex::default(),
            age_max: Some(Self::AGE_MAX),
        }
    }

    /// For a database where only this process creates endpoints, and calls [`forget`](Self::forget)
    /// when it does.
    #[must_use]
    pub fn alone() -> Self {
        Self {
            known: Mutex::default(),
            age_max: None,
        }
    }

    /// How long to delay the response to creating an endpoint.
    #[must_use]
    pub fn known_in(&self) -> Duration {
        self.age_max.map_or(Duration::ZERO, |_| Self::KNOWN_IN)
    }

    /// The tenants with endpoints; `None` if they must be read.
    #[must_use]
    pub fn get(&self) -> Option<Arc<BTreeSet<TenantId>>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.as_ref()?;
        let fresh = |age| known.asked.is_within(age, Moment::now());
        self.age_max
            .is_none_or(fresh)
            .then(|| known.tenants.clone())
    }

    /// Stores the result of a read that began at `asked`.
    pub fn set(&self, asked: Moment, tenants: BTreeSet<TenantId>) -> Arc<BTreeSet<TenantId>> {
        let tenants = Arc::new(tenants);
        let known = Known {
            asked,
            tenants: tenants.clone(),
        };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
        tenants
    }

    /// Clears the cache.
    pub fn forget(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(moment: Moment, steady: u64, wall: u64) -> Moment {
        Moment {
            steady: moment.steady + Duration::from_millis(steady),
            wall: moment.wall + Duration::from_millis(wall),
        }
    }

    #[test]
    fn a_read_is_believed_for_a_second_on_both_clocks() {
        let asked = Moment::now();
        let believed = |now| asked.is_within(Watched::AGE_MAX, now);
        assert!(believed(later(asked, 999, 999)));
        assert!(!believed(later(asked, 1_000, 999)));
        // The machine was suspended, or its clock was set.
        assert!(!believed(later(asked, 5, 3_600_000)));
        let mut back = asked;
        back.wall -= Duration::from_secs(1);
        assert!(!believed(back));
        assert!(Watched::KNOWN_IN > Watched::AGE_MAX);
    }

    #[test]
    fn what_is_forgotten_is_read_again() {
        let watched = Watched::alone();
        assert_eq!(watched.get(), None);
        let tenants = BTreeSet::from([TenantId(2)]);
        watched.set(Moment::now(), tenants.clone());
        assert_eq!(watched.get().as_deref(), Some(&tenants));
        watched.forget();
        assert_eq!(watched.get(), None);
        assert_eq!(watched.known_in(), Duration::ZERO);
    }
}
