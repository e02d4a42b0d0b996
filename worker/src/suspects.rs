//! Suspects: sends during which workers crashed. A send that kills the process must take few others
//! with it.
//!
//! A suspect is on probation for a while after it was taken. How many may be on probation at once
//! grows with each that passes, so that after a crash under load many of them are soon running
//! again. A suspect whose next crash would be its last is on probation alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::time::Clock;

/// Number of worker crashes from which on a send is a suspect.
pub(crate) const SUSPECT_FROM: i32 = 2;

/// The longest probation, as a multiple of the first one.
const PROBATIONS_MAX: u32 = 8;

/// The suspects of this process.
#[derive(Debug)]
pub(crate) struct Suspects {
    clock: Arc<dyn Clock>,
    /// The duration of the first probation; each further crash doubles it.
    probation: Duration,
    crashes_max: i32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// The number of suspects that have passed.
    passed: u32,
    trial: BTreeMap<u64, Trial>,
}

#[derive(Debug, Clone, Copy)]
struct Trial {
    /// When it has passed; `None` while it is being claimed.
    until: Option<Duration>,
    /// Whether it must be on probation alone.
    alone: bool,
}

impl Suspects {
    pub(crate) fn new(clock: Arc<dyn Clock>, probation: Duration, crashes_max: u32) -> Self {
        Self {
            clock,
            probation,
            crashes_max: i32::try_from(crashes_max).unwrap_or(i32::MAX),
            state: Mutex::default(),
        }
    }

    /// Admits one more suspect if there is room; must be called before the claim.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Admitted> {
        let mut state = self.lock();
        let now = self.clock.monotonic();
        let before = state.trial.len();
        state
            .trial
            .retain(|_, trial| trial.until.is_none_or(|until| until > now));
        state.passed += (before - state.trial.len()) as u32;
        let is_first = state.trial.is_empty();
        // One at first, and two more for each that has passed.
        let room = state.trial.len() <= 2 * state.passed as usize;
        if !room || state.trial.values().any(|trial| trial.alone) {
            return None;
        }
        let id = state.next;
        state.next += 1;
        let trial = Trial {
            until: None,
            alone: is_first,
        };
        state.trial.insert(id, trial);
        Some(Admitted {
            crashes_below: if is_first {
                i32::MAX
            } else {
                self.crashes_max - 1
            },
            suspects: self.clone(),
            id,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can panic midway, so the value is never half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the suspects; dropped when its send is left, or turns out to be no suspect.
#[derive(Debug)]
pub(crate) struct Admitted {
    suspects: Arc<Suspects>,
    id: u64,
    /// The send may be claimed if it has fewer crashes than this.
    pub(crate) crashes_below: i32,
}

impl Admitted {
    /// Begins the probation of a send with this many crashes.
    pub(crate) fn begin(&self, crashes: i32) {
        let doublings = crashes.saturating_sub(SUSPECT_FROM).clamp(0, 16);
        let times = (1_u32 << doublings).min(PROBATIONS_MAX);
        let trial = Trial {
            until: Some(self.suspects.clock.monotonic() + self.suspects.probation * times),
            alone: crashes + 1 >= self.suspects.crashes_max,
        };
        self.suspects.lock().trial.insert(self.id, trial);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut state = self.suspects.lock();
        let trial = state.trial.remove(&self.id);
        // It ran, and the process survived.
        state.passed += u32::from(trial.is_some_and(|trial| trial.until.is_some()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manual_clock::ManualClock;

    fn suspects() -> (Arc<ManualClock>, Arc<Suspects>) {
        let clock = Arc::new(ManualClock::default());
        let suspects = Suspects::new(clock.clone(), Duration::from_secs(10), 5);
        (clock, Arc::new(suspects))
    }

    fn taken(suspects: &Arc<Suspects>, crashes: i32) -> Option<Admitted> {
        let admitted = suspects
            .admit()
            .filter(|admitted| crashes < admitted.crashes_below)?;
        admitted.begin(crashes);
        Some(admitted)
    }

    #[test]
    fn they_are_let_in_one_at_first_and_ever_more_as_they_pass() {
        let (clock, suspects) = suspects();
        let mut held = Vec::new();
        let mut counts = Vec::new();
        for _ in 0..5 {
            let before = held.len();
            while let Some(admitted) = taken(&suspects, 2) {
                held.push(admitted);
            }
            counts.push(held.len() - before);
            clock.pass(Duration::from_secs(10));
        }
        assert_eq!(counts, [1, 3, 9, 27, 81]);
    }

    #[test]
    fn one_whose_next_death_is_its_last_is_alone() {
        let (clock, suspects) = suspects();
        let last = taken(&suspects, 4).expect("nobody else is there");
        assert!(taken(&suspects, 2).is_none());
        clock.at(Duration::from_secs(39));
        assert!(taken(&suspects, 2).is_none(), "its probation is longer");
        drop(last);
        let other = taken(&suspects, 3).expect("it was left");
        assert!(taken(&suspects, 4).is_none(), "it would not be alone");
        assert!(taken(&suspects, 2).is_some(), "one has passed");
        drop(other);
    }

    #[test]
    fn a_place_that_was_not_needed_teaches_nothing() {
        let (_, suspects) = suspects();
        for _ in 0..10 {
            drop(suspects.admit().expect("there is room"));
        }
        let _one = taken(&suspects, 2).expect("there is room");
        assert!(suspects.admit().is_none());
    }
}
