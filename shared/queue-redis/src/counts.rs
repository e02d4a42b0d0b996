//! Counters of the queue.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the queue was opened; they never decrease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Jobs that were pushed.
    pub pushed: u64,
    /// Jobs that were rejected because their lane was full.
    pub full: u64,
    /// Jobs that were not pushed because Redis was unavailable, failed or was too slow.
    pub failed: u64,
    /// Jobs that were passed to a handler.
    pub handled: u64,
    /// Jobs that a stopping worker put back.
    pub returned: u64,
    /// Workers that were started. Each one after a lane's first follows a failure.
    pub lives: u64,
    /// Finished jobs that the janitor deleted.
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
