//! Load shedding: when the database is slow, large or deferrable work is refused first, so that
//! single sends still succeed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::time::Clock;

/// How long the duration of the last group counts. After that, some work is let in again to see
/// whether the database has recovered.
const RECENT: Duration = Duration::from_secs(5);

/// The kinds of work that may be refused. The first is refused last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// A send or a run.
    Single,
    /// A page of a list.
    List,
    /// A batch, an archive, or background work of this process.
    Bulk,
}

impl Work {
    /// The multiple of the bound on a group's duration at which this work is refused.
    const fn times(self) -> u32 {
        match self {
            Self::Bulk => 1,
            Self::List => 2,
            Self::Single => 4,
        }
    }

    /// How full the accept capacity may get, in eighths, before this work is refused.
    const fn eighths(self) -> usize {
        match self {
            Self::Bulk => 6,
            Self::List => 7,
            // A single send is refused only when it finds no capacity.
            Self::Single => usize::MAX,
        }
    }

    /// When a retry is worthwhile.
    pub const fn retry_after(self) -> Duration {
        match self {
            Self::Bulk => Duration::from_secs(10),
            Self::List => Duration::from_secs(5),
            Self::Single => Duration::from_secs(2),
        }
    }

    /// The name for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::List => "list",
            Self::Single => "single",
        }
    }
}

/// How much of the capacity for accepting sends is in use.
#[derive(Debug, Clone, Copy)]
pub struct Filled {
    /// Sends being accepted.
    pub now: usize,
    /// Maximum number of sends being accepted.
    pub max: usize,
}

/// Tracks how long groups of accepted sends take.
#[derive(Debug)]
pub struct Pressure {
    /// The duration from which a group counts as late; zero turns load shedding off.
    bound: Duration,
    groups: Mutex<Groups>,
}

#[derive(Debug, Default)]
struct Groups {
    /// When each group in flight began.
    running: BTreeMap<u64, Duration>,
    began: u64,
    /// When the last one ended, and how long it took.
    last: Option<(Duration, Duration)>,
}

impl Pressure {
    /// Refuses nothing until a group takes longer than `bound`.
    pub fn new(bound: Duration) -> Self {
        Self {
            bound,
            groups: Mutex::default(),
        }
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures the duration of a group.
    pub async fn timed<T>(&self, clock: &dyn Clock, group: impl Future<Output = T>) -> T {
        let running = self.enter(clock.monotonic());
        let done = group.await;
        running.ended(clock.monotonic());
        done
    }

    fn enter(&self, now: Duration) -> Running<'_> {
        let mut groups = self.groups();
        groups.began += 1;
        let id = groups.began;
        groups.running.insert(id, now);
        Running { of: self, id }
    }

    /// The longest duration so far among the groups in flight and the last one.
    fn late(&self, now: Duration) -> Duration {
        let groups = self.groups();
        let running = groups.running.values().min();
        let running = running.map(|began| now.saturating_sub(*began));
        let last = groups
            .last
            .filter(|(at, _)| now.saturating_sub(*at) < RECENT);
        running.max(last.map(|(_, took)| took)).unwrap_or_default()
    }

    /// Whether this kind of work is to be refused.
    pub fn refuses(&self, work: Work, filled: Filled, now: Duration) -> bool {
        if self.bound.is_zero() {
            return false;
        }
        let is_full = filled.now.saturating_mul(8) >= filled.max.saturating_mul(work.eighths());
        is_full || self.late(now) >= self.bound.saturating_mul(work.times())
    }
}

/// A group in flight. If it is dropped, it was abandoned and says nothing about the database.
struct Running<'a> {
    of: &'a Pressure,
    id: u64,
}

impl Running<'_> {
    fn ended(self, now: Duration) {
        let mut groups = self.of.groups();
        if let Some(began) = groups.running.get(&self.id) {
            groups.last = Some((now, now.saturating_sub(*began)));
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.of.groups().running.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Work; 3] = [Work::Bulk, Work::List, Work::Single];
    const NONE: [Work; 0] = [];
    const FREE: Filled = Filled { now: 0, max: 8 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn refused(pressure: &Pressure, filled: Filled, now: u64) -> Vec<Work> {
        let refused = ALL.into_iter();
        let refused = refused.filter(|work| pressure.refuses(*work, filled, ms(now)));
        refused.collect()
    }

    #[test]
    fn bulk_is_refused_first_then_lists_then_single_sends() {
        let pressure = Pressure::new(ms(100));
        let running = pressure.enter(ms(1_000));
        assert_eq!(refused(&pressure, FREE, 1_099), NONE);
        assert_eq!(refused(&pressure, FREE, 1_100), [Work::Bulk]);
        assert_eq!(refused(&pressure, FREE, 1_200), [Work::Bulk, Work::List]);
        assert_eq!(refused(&pressure, FREE, 1_400), ALL);
        running.ended(ms(1_250));
        assert_eq!(refused(&pressure, FREE, 1_300), [Work::Bulk, Work::List]);
        // Nothing has been accepted since, so it may be over.
        assert_eq!(refused(&pressure, FREE, 6_250), NONE);
        pressure.enter(ms(7_000)).ended(ms(7_001));
        assert_eq!(refused(&pressure, FREE, 7_002), NONE);
    }

    #[test]
    fn a_group_that_was_given_up_says_nothing() {
        let pressure = Pressure::new(ms(100));
        drop(pressure.enter(ms(0)));
        assert_eq!(refused(&pressure, FREE, 1_000), NONE);
    }

    #[test]
    fn what_waits_to_be_accepted_counts() {
        let pressure = Pressure::new(ms(100));
        let filled = |now| Filled { now, max: 8 };
        assert_eq!(refused(&pressure, filled(5), 0), NONE);
        assert_eq!(refused(&pressure, filled(6), 0), [Work::Bulk]);
        assert_eq!(refused(&pressure, filled(8), 0), [Work::Bulk, Work::List]);
    }

    #[test]
    fn without_a_bound_nothing_is_refused() {
        let pressure = Pressure::new(Duration::ZERO);
        let _running = pressure.enter(ms(0));
        assert_eq!(refused(&pressure, Filled { now: 8, max: 8 }, 90_000), NONE);
    }
}
