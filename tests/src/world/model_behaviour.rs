//! How the scripted model counts tokens and how large its window is, for tests that need a
//! realistic model.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::model::expect_request_tokens;
use mainspring_shared::usage::{Purpose, Usage};
use mainspring_worker::llm::{Error, Request};

/// What a model does besides following its script.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelBehaviour {
    /// Reports as usage the estimated token counts times this factor.
    pub counts: Option<f64>,
    /// Refuses requests with more tokens than this.
    pub window: Option<u64>,
    /// Does not say why it refuses such requests.
    pub is_wordless: bool,
    /// How many tokens of its input it reads from a cache, and how many it writes to one.
    pub caches: Option<(u64, u64)>,
    /// Refuses every temperature but 1.
    pub is_tempered: bool,
    /// How long it takes to answer.
    pub answer_takes: Duration,
    /// Length of its summaries, in characters.
    pub summary_chars: usize,
    /// How long it takes to write a summary.
    pub summary_takes: Duration,
}

impl Default for ModelBehaviour {
    fn default() -> Self {
        Self {
            counts: None,
            window: None,
            is_wordless: false,
            caches: None,
            is_tempered: false,
            answer_takes: Duration::ZERO,
            summary_chars: 0,
            summary_takes: Duration::ZERO,
        }
    }
}

impl ModelBehaviour {
    /// Tokens of a request, as this model counts them.
    pub fn count(&self, request: &Request) -> u64 {
        (expect_request_tokens(request) as f64 * self.counts.unwrap_or(1.0)).ceil() as u64
    }

    /// Fails if the request exceeds the window, or has a temperature that the model refuses.
    pub(super) fn admit(&self, request: &Request) -> Result<(), Error> {
        if self.is_tempered
            && request
                .temperature
                .is_some_and(|heat| (heat - 1.0).abs() > f64::EPSILON)
        {
            return Err(Error::InvalidRequest {
                message: "temperature: only the default (1) is supported".to_owned(),
            });
        }
        let tokens = self.count(request);
        match self.window {
            Some(window) if tokens > window && self.is_wordless => Err(Error::InvalidRequest {
                message: "HTTP 400".to_owned(),
            }),
            Some(window) if tokens > window => Err(Error::ContextOverflow {
                message: format!("prompt is too long: {tokens} tokens > {window} maximum"),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// A summary that starts with this text, padded to the configured length.
    pub(super) fn summary(&self, text: &str) -> String {
        let missing = self.summary_chars.saturating_sub(text.len());
        format!("{text}{}", " and so on".repeat(missing / 10))
    }
}

/// An answer that a provider gave and charges for.
#[derive(Debug, Clone, PartialEq)]
pub struct Bill {
    /// The worker that asked.
    pub by: String,
    /// What the request was for.
    pub purpose: Purpose,
    /// The usage charged.
    pub usage: Usage,
}

/// A provider's own record of the answers it gave, all of which it charges for.
#[derive(Debug, Default)]
pub struct Bills(Mutex<Vec<Bill>>);

impl Bills {
    fn written(&self) -> MutexGuard<'_, Vec<Bill>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an answer.
    pub fn add(&self, bill: Bill) {
        self.written().push(bill);
    }

    /// All bills, in order.
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
