//! The account of a memory provider's answer: the cost of its model calls, and a note about it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::usage::Usage;

/// A model call that was paid for.
#[derive(Debug, Clone, PartialEq)]
pub struct PaidCall {
    /// The model.
    pub model: String,
    /// What it cost.
    pub usage: Usage,
}

/// The account to which a provider charges model calls for an answer. Clones share the account, so
/// a caller that stops waiting still sees what was charged by then.
#[derive(Debug, Clone, Default)]
pub struct Account(Arc<Mutex<Entered>>);

#[derive(Debug, Default)]
struct Entered {
    calls: Vec<Option<PaidCall>>,
    note: Option<String>,
}

/// A call in flight.
#[derive(Debug)]
#[must_use = "a call that is never closed counts as it was expected to"]
pub struct OpenCall<'a> {
    account: &'a Account,
    place: usize,
}

impl Account {
    fn entered(&self) -> MutexGuard<'_, Entered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the start of a call. Until it is closed, it counts with the `expected` cost.
    pub fn open(&self, expected: PaidCall) -> OpenCall<'_> {
        let calls = &mut self.entered().calls;
        calls.push(Some(expected));
        OpenCall {
            account: self,
            place: calls.len() - 1,
        }
    }

    /// Sets a note on what went wrong, shown with the answer. It must not contain any text of the
    /// conversation.
    pub fn note(&self, why: impl Into<String>) {
        self.entered().note = Some(why.into());
    }

    /// Takes the note.
    pub fn take_note(&self) -> Option<String> {
        self.entered().note.take()
    }

    /// Takes the calls to pay for, each once.
    pub fn take(&self) -> Vec<PaidCall> {
        let calls = std::mem::take(&mut self.entered().calls);
        calls.into_iter().flatten().collect()
    }
}

impl OpenCall<'_> {
    /// Records the end of the call and its cost; `None` if there was no response.
    pub fn close(self, paid: Option<PaidCall>) {
        if let Some(call) = self.account.entered().calls.get_mut(self.place) {
            *call = paid;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paid(input_tokens: u64) -> PaidCall {
        PaidCall {
            model: "m".to_owned(),
            usage: Usage {
                input_tokens,
                ..Usage::default()
            },
        }
    }

    #[test]
    fn a_call_that_nobody_closes_counts_as_expected() {
        let account = Account::default();
        let copy = account.clone();
        let (first, second) = (copy.open(paid(1)), copy.open(paid(2)));
        first.close(Some(paid(10)));
        second.close(None);
        let _left = copy.open(paid(3));
        assert_eq!(account.take(), [paid(10), paid(3)]);
        assert_eq!(account.take(), []);
        copy.note("slow");
        assert_eq!(account.take_note().as_deref(), Some("slow"));
        assert_eq!(copy.take_note(), None);
    }
}
