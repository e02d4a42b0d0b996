//! What a provider's answer cost, and what is to be said of it.

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

/// Where a provider enters the model calls that an answer takes. Its copies are one account: whoever
/// stops waiting for the answer still finds what was entered by then.
#[derive(Debug, Clone, Default)]
pub struct Account(Arc<Mutex<Entered>>);

#[derive(Debug, Default)]
struct Entered {
    calls: Vec<Option<PaidCall>>,
    note: Option<String>,
}

/// A call under way.
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

    /// Enters a call that begins. Unless it is closed, it counts as `expected`.
    pub fn open(&self, expected: PaidCall) -> OpenCall<'_> {
        let calls = &mut self.entered().calls;
        calls.push(Some(expected));
        OpenCall {
            account: self,
            place: calls.len() - 1,
        }
    }

    /// Says what went wrong, to whoever is shown the answer. Without any text of the conversation.
    pub fn note(&self, why: impl Into<String>) {
        self.entered().note = Some(why.into());
    }

    /// What was said, once.
    pub fn take_note(&self) -> Option<String> {
        self.entered().note.take()
    }

    /// The calls to pay for, each once.
    pub fn take(&self) -> Vec<PaidCall> {
        let calls = std::mem::take(&mut self.entered().calls);
        calls.into_iter().flatten().collect()
    }
}

impl OpenCall<'_> {
    /// The call is over, and cost this; nothing where nobody answered.
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
