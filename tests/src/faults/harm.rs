//! What was done to the system, and what that excuses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_shared::time::Timestamp;

use super::now;

/// What a fault excuses in the model's ledger. Whatever happens to the system, a send that a
/// client was told of is neither lost nor changed; but a model may be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing at all: no answer may be lost by it.
    None,
    /// One answer of one send may be lost before it is stored, and asked for again.
    One,
    /// One answer per send under way may be lost before it is stored, and asked for again.
    Repeats,
    /// The same, and the process that went to sleep may finish a step when it wakes up: it asks
    /// once more before it knows that the send is not its own, even after the send's end.
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
    /// When it was over; none while it goes on.
    pub to: Option<Timestamp>,
}

/// A book of faults. Clones write into the same book.
#[derive(Debug, Clone, Default)]
pub struct Harm(Arc<Mutex<Vec<Fault>>>);

impl Harm {
    /// Notes a fault while `work` does it.
    pub fn during<T>(&self, what: &'static str, effect: Effect, work: impl FnOnce() -> T) -> T {
        let place = self.begin(what, effect);
        let done = work();
        self.end(place);
        done
    }

    /// Notes that a fault begins.
    pub fn begin(&self, what: &'static str, effect: Effect) -> usize {
        let mut book = self.book();
        book.push(Fault {
            what,
            effect,
            from: now(),
            to: None,
        });
        book.len() - 1
    }

    /// Notes that it is over.
    pub fn end(&self, place: usize) {
        self.book()[place].to = Some(now());
    }

    /// All of them.
    pub fn faults(&self) -> Vec<Fault> {
        self.book().clone()
    }

    fn book(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
