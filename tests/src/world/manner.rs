//! How the scripted model counts and what it has room for, where a test wants it to be like a real one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::model::expect_request_tokens;
use mainspring_shared::usage::{Purpose, Usage};
use mainspring_worker::llm::{Error, Request};

/// What a model does beside its script.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Manner {
    /// It says how many tokens it read and said: the estimate of what is expected, times this.
    pub counts: Option<f64>,
    /// It refuses requests with more tokens.
    pub window: Option<u64>,
    /// So long it takes to answer.
    pub answer_takes: Duration,
    /// So long are its summaries, in characters.
    pub summary_chars: usize,
    /// So long it takes to write one.
    pub summary_takes: Duration,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            counts: None,
            window: None,
            answer_takes: Duration::ZERO,
            summary_chars: 0,
            summary_takes: Duration::ZERO,
        }
    }
}

impl Manner {
    /// How many tokens a request has by this model's count.
    pub fn count(&self, request: &Request) -> u64 {
        (expect_request_tokens(request) as f64 * self.counts.unwrap_or(1.0)).ceil() as u64
    }

    /// An error where the request exceeds the window.
    pub(super) fn admit(&self, request: &Request) -> Result<(), Error> {
        let tokens = self.count(request);
        match self.window {
            Some(window) if tokens > window => Err(Error::ContextOverflow {
                message: format!("prompt is too long: {tokens} tokens > {window} maximum"),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// A summary that begins like this.
    pub(super) fn summary(&self, text: &str) -> String {
        let missing = self.summary_chars.saturating_sub(text.len());
        format!("{text}{}", " and so on".repeat(missing / 10))
    }
}

/// An answer that a provider gave and bills.
#[derive(Debug, Clone, PartialEq)]
pub struct Bill {
    /// The worker that asked.
    pub by: String,
    /// What for.
    pub purpose: Purpose,
    /// What it costs.
    pub usage: Usage,
}

/// What a provider wrote down of the answers that it gave, all of which it bills.
#[derive(Debug, Default)]
pub struct Bills(Mutex<Vec<Bill>>);

impl Bills {
    fn written(&self) -> MutexGuard<'_, Vec<Bill>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down an answer.
    pub fn add(&self, bill: Bill) {
        self.written().push(bill);
    }

    /// All of them, in order.
    pub fn all(&self) -> Vec<Bill> {
        self.written().clone()
    }

    pub(super) fn sum(&self) -> (usize, Usage) {
        let all = self.all();
        let mut sum = Usage::default();
        for bill in &all {
            sum.add(&bill.usage);
        }
        (all.len(), sum)
    }
}
