//! The log of injected faults, and which model requests each fault excuses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_shared::time::Timestamp;

use super::now;

/// What a fault excuses in the model's ledger. No fault may lose or change a send that a client was
/// told of, but some may cause the model to be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: it must not lose any answer.
    None,
    /// One answer of one send may be lost before it is stored, and be asked for again.
    One,
    /// One answer of each send in flight may be lost before it is stored, and be asked for again.
    Repeats,
    /// The same; in addition, the stopped process may finish a step when it resumes. It then asks
    /// once more before it learns that it lost the send, even after the send's end.
    Sleeps,
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What was done.
    pub what: &'static str,
    /// What it excuses.
    pub effect: Effect,
    /// When it began.
    pub from: Timestamp,
    /// When it was over; `None` while it lasts.
    pub to: Option<Timestamp>,
}

/// A log of faults. Clones share the same log.
#[derive(Debug, Clone, Default)]
pub struct FaultLog(Arc<Mutex<Vec<Fault>>>);

impl FaultLog {
    /// Records a fault that lasts as long as `work` runs.
    pub fn during<T>(&self, what: &'static str, effect: Effect, work: impl FnOnce() -> T) -> T {
        let index = self.begin(what, effect);
        let done = work();
        self.end(index);
        done
    }

    /// Records the start of a fault, and returns its index for [`FaultLog::end`].
    pub fn begin(&self, what: &'static str, effect: Effect) -> usize {
        let mut log = self.log();
        log.push(Fault {
            what,
            effect,
            from: now(),
            to: None,
        });
        log.len() - 1
    }

    /// Records the end of a fault.
    pub fn end(&self, index: usize) {
        self.log()[index].to = Some(now());
    }

    /// All faults so far.
    pub fn faults(&self) -> Vec<Fault> {
        self.log().clone()
    }

    fn log(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
