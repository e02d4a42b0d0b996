//! The gate in front of a provider: a circuit breaker, which is local to this process, and rate
//! limits, of which this process has its share.
//!
//! A call that may not be made yet waits here if the wait is short. Otherwise it fails with
//! [`Error::Held`], which does not count as an attempt: the send is parked instead of waiting in
//! memory.

mod breaker;
mod headers;
mod rate;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::time::Clock;
use mainspring_worker::llm::estimate_request_tokens;
use mainspring_worker::llm::{Chunk, Error, Hold, Keyed, Model, Reply, Request, Secret, Share};
use reqwest::header::HeaderMap;

use self::breaker::{Breaker, Turn};
use self::rate::Rates;
use crate::settings::{Limits, ProviderSettings};
use crate::{metrics, open};

/// A provider's gate.
#[derive(Debug)]
pub(super) struct Gate {
    provider: String,
    limits: Limits,
    share: Share,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    rates: Rates,
}

impl Gate {
    pub(super) fn new(settings: &ProviderSettings, share: Share, clock: Arc<dyn Clock>) -> Self {
        let limits = settings.limits;
        if limits.requests_per_minute.is_some() || limits.tokens_per_minute.is_some() {
            share.want();
        }
        let now = clock.monotonic();
        Self {
            provider: settings.name.clone(),
            limits,
            share,
            clock,
            state: Mutex::new(State {
                breaker: Breaker::new(limits.breaker_failures, limits.breaker_pause),
                rates: Rates::new(limits.requests_per_minute, limits.tokens_per_minute, now),
            }),
        }
    }

    /// Waits until a request of about `tokens` tokens may be made.
    async fn admit(&self, model: &str, tokens: u64) -> Result<Permit<'_>, Error> {
        let mut waited = Duration::ZERO;
        loop {
            let (why, wait) = match self.decide(model, tokens) {
                Ok(permit) => return Ok(permit),
                Err(held) => held,
            };
            if waited.is_zero() {
                metrics::held(&self.provider, why);
            }
            if waited + wait > self.limits.wait_max {
                return Err(Error::Held { why, wait });
            }
            waited += wait;
            self.clock.sleep(wait).await;
        }
    }

    fn decide(&self, model: &str, tokens: u64) -> Result<Permit<'_>, (Hold, Duration)> {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        state.rates.divide(self.share.get(), now);
        // If the rates make this call wait, the probe is left to another call.
        if let Some(wait) = state.rates.wait(model, tokens, now) {
            return Err((Hold::Rate, wait));
        }
        let is_probe = match state.breaker.ask(now) {
            Turn::Go => false,
            Turn::Probe => true,
            Turn::Wait(wait) => return Err((Hold::Outage, wait)),
        };
        state.rates.take(model, tokens, now);
        metrics::circuit(&self.provider, state.breaker.level());
        Ok(Permit {
            gate: self,
            tokens,
            is_probe,
            is_open: true,
        })
    }

    /// Records what a response says about the provider's limits.
    pub(super) fn learn(&self, model: &str, headers: &HeaderMap) {
        let windows = headers::windows(headers, self.clock.now());
        if !windows.is_empty() {
            let now = self.clock.monotonic();
            self.share.want();
            let mut state = self.lock();
            state.rates.divide(self.share.get(), now);
            state.rates.learn(model, windows, now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can panic midway, so the value is never half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permission to make one call.
#[derive(Debug)]
struct Permit<'a> {
    gate: &'a Gate,
    tokens: u64,
    is_probe: bool,
    /// Whether its outcome is still unknown.
    is_open: bool,
}

impl Permit<'_> {
    /// Records the outcome of the call.
    fn ended(mut self, model: &str, outcome: &Result<Reply, Error>) {
        self.is_open = false;
        let now = self.gate.clock.monotonic();
        let mut state = self.gate.lock();
        match outcome {
            Ok(reply) => {
                state.breaker.succeeded(self.is_probe);
                state.rates.correct(self.tokens, reply.usage.input_tokens);
            }
            Err(Error::Unreached { .. } | Error::Unavailable { .. } | Error::Timeout { .. }) => {
                state.breaker.failed(self.is_probe, now);
            }
            // The request may never have been sent, so nothing is known about the provider.
            Err(Error::InvalidRequest { .. }) => {
                if self.is_probe {
                    state.breaker.gave_up();
                }
            }
            Err(error) => {
                if let Error::RateLimited {
                    retry_after: Some(wait),
                    ..
                } = error
                {
                    state.rates.close(model, now + *wait);
                }
                // A provider that refuses a request is up.
                state.breaker.succeeded(self.is_probe);
            }
        }
        metrics::circuit(&self.gate.provider, state.breaker.level());
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.is_open && self.is_probe {
            self.gate.lock().breaker.gave_up();
        }
    }
}

/// A provider behind its gate.
#[derive(Debug)]
pub(super) struct Guarded<M> {
    pub(super) model: M,
    pub(super) gate: Arc<Gate>,
    /// The settings that it was made from, for clients with other keys.
    pub(super) settings: ProviderSettings,
}

impl<M: Model> Keyed for Guarded<M> {
    fn with_key(&self, key: &Secret) -> Result<Arc<dyn Model>, Error> {
        let mut settings = self.settings.clone();
        settings.api_key = key.clone();
        let made = open::made(&settings, &self.gate.share, &self.gate.clock);
        // An error during setup never contains a key.
        made.map_err(|error| Error::Auth {
            message: error.to_string(),
        })
    }
}

#[async_trait]
impl<M: Model> Model for Guarded<M> {
    async fn complete(
        &self,
        request: &Request,
        on_chunk: &mut (dyn for<'c> FnMut(Chunk<'c>) + Send),
    ) -> Result<Reply, Error> {
        // Counting the tokens of a long window takes time, so it is only done if tokens are
        // limited.
        let counts = self.gate.lock().rates.counts_tokens(&request.model);
        let tokens = if counts {
            estimate_request_tokens(request)
        } else {
            0
        };
        let permit = self.gate.admit(&request.model, tokens).await?;
        let outcome = self.model.complete(request, on_chunk).await;
        permit.ended(&request.model, &outcome);
        outcome
    }

    fn wire(&self, request: &Request) -> Option<Result<Vec<u8>, Error>> {
        self.model.wire(request)
    }

    async fn abandon(&self, background: &str) -> Result<(), Error> {
        self.model.abandon(background).await
    }

    fn held(&self, request: &Request) -> Option<(Hold, Duration)> {
        let now = self.gate.clock.monotonic();
        let mut state = self.gate.lock();
        state.rates.divide(self.gate.share.get(), now);
        let tokens = if state.rates.counts_tokens(&request.model) {
            estimate_request_tokens(request)
        } else {
            0
        };
        if let Some(wait) = state.rates.wait(&request.model, tokens, now) {
            return Some((Hold::Rate, wait));
        }
        let wait = state.breaker.wait(now)?;
        Some((Hold::Outage, wait))
    }

    fn keyed(&self) -> Option<&dyn Keyed> {
        Some(self)
    }

    fn keeps_prompts(&self) -> bool {
        self.model.keeps_prompts()
    }

    fn native_schema(&self, model: &str, tools: bool) -> bool {
        self.model.native_schema(model, tools)
    }

    fn sounds(&self) -> &'static [&'static str] {
        self.model.sounds()
    }
}

#[cfg(test)]
mod tests;
