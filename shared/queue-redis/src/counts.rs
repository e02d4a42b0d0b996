//! What the queue has been through.

use std::sync::atomic::{AtomicU64, Ordering};

/// How often things happened since the queue was opened. Never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Jobs that were put into a lane.
    pub pushed: u64,
    /// Jobs that found their lane full.
    pub full: u64,
    /// Jobs that were not pushed because Redis was away, failed or was too slow.
    pub failed: u64,
    /// Jobs that a handler was called for.
    pub handled: u64,
    /// Jobs that a stopping worker gave back.
    pub returned: u64,
    /// Workers that were started; beyond the first per lane each followed a failure.
    pub lives: u64,
    /// Finished jobs that the janitor forgot.
    pub tidied: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) pushed: Counter,
    pub(crate) full: Counter,
    pub(crate) failed: Counter,
    pub(crate) handled: Counter,
    pub(crate) returned: Counter,
    pub(crate) lives: Counter,
    pub(crate) tidied: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn read(&self) -> Counts {
        Counts {
            pushed: self.pushed.get(),
            full: self.full.get(),
            failed: self.failed.get(),
            handled: self.handled.get(),
            returned: self.returned.get(),
            lives: self.lives.get(),
            tidied: self.tidied.get(),
        }
    }
}
