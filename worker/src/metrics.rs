//! Names of what the worker counts.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::UsageRow;
use mainspring_shared::time::Clock;
use metrics::SharedString;

const SENDS_ENDED: &str = "mainspring_worker_sends_ended_total";
const MODEL_CALLS: &str = "mainspring_worker_model_calls_total";
/// What models took, by model, purpose and kind: `input`, and of that `cache_read` and `cache_write`; `output`, and of
/// that `reasoning`.
const MODEL_TOKENS: &str = "mainspring_worker_model_tokens_total";
/// What that cost, in millionths of a US dollar, where the price is known: counters are whole numbers.
const MODEL_COST: &str = "mainspring_worker_model_cost_microdollars_total";
/// From a model call of a round to the end of its answer, by model and outcome.
const MODEL_SECONDS: &str = "mainspring_worker_model_call_seconds";
/// From a model call of a round to the first piece of its answer, by model.
const FIRST_PIECE_SECONDS: &str = "mainspring_worker_model_first_piece_seconds";
const MODEL_CALLS_FAILED: &str = "mainspring_worker_model_calls_failed_total";
/// Calls that waited because other calls had set aside what was left of their tenant's money.
const MONEY_WAITS: &str = "mainspring_worker_money_waits_total";
const RECALLS_FAILED: &str = "mainspring_worker_recalls_failed_total";
const EMBEDDINGS: &str = "mainspring_worker_embeddings_total";
const BLOBS_CORRUPT: &str = "mainspring_worker_blobs_corrupt_total";
const IN_FLIGHT: &str = "mainspring_worker_sends_in_flight";

pub(crate) fn send_ended(status: SendStatus) {
    metrics::counter!(SENDS_ENDED, "status" => status.as_str()).increment(1);
}

pub(crate) fn model_call_started() {
    metrics::counter!(MODEL_CALLS).increment(1);
}

/// A model call was paid for.
pub(crate) fn model_used(row: &UsageRow) {
    let model = SharedString::from(row.model.clone());
    let purpose = row.purpose().as_str();
    let usage = &row.usage;
    for (kind, tokens) in [
        ("input", usage.input_tokens),
        ("output", usage.output_tokens),
        ("cache_read", usage.cache_read_tokens),
        ("cache_write", usage.cache_write_tokens),
        ("reasoning", usage.reasoning_tokens),
    ] {
        if tokens > 0 {
            metrics::counter!(
                MODEL_TOKENS, "model" => model.clone(), "purpose" => purpose, "kind" => kind
            )
            .increment(tokens);
        }
    }
    if let Some(dollars) = usage.cost_usd {
        let cost = metrics::counter!(MODEL_COST, "model" => model, "purpose" => purpose);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a call costs neither less than nothing nor more than there is"
        )]
        cost.increment((dollars * 1e6).round() as u64);
    }
}

/// Times one model call.
#[derive(Debug)]
pub(crate) struct Timing {
    clock: Arc<dyn Clock>,
    begun: Duration,
    model: SharedString,
    heard: bool,
}

impl Timing {
    pub(crate) fn begin(clock: &Arc<dyn Clock>, model: &str) -> Self {
        Self {
            clock: clock.clone(),
            begun: clock.monotonic(),
            model: SharedString::from(model.to_owned()),
            heard: false,
        }
    }

    /// A piece of the answer came.
    pub(crate) fn piece(&mut self) {
        if !std::mem::replace(&mut self.heard, true) {
            let passed = self.clock.monotonic().saturating_sub(self.begun);
            let model = self.model.clone();
            metrics::histogram!(FIRST_PIECE_SECONDS, "model" => model).record(passed);
        }
    }

    /// The answer is here, or there will be none.
    pub(crate) fn end(self, answered: bool) {
        let passed = self.clock.monotonic().saturating_sub(self.begun);
        let outcome = if answered { "answered" } else { "failed" };
        metrics::histogram!(MODEL_SECONDS, "model" => self.model, "outcome" => outcome)
            .record(passed);
    }
}

pub(crate) fn model_call_failed(code: Code) {
    metrics::counter!(MODEL_CALLS_FAILED, "code" => code.as_str()).increment(1);
}

pub(crate) fn waited_for_money() {
    metrics::counter!(MONEY_WAITS).increment(1);
}

pub(crate) fn recall_failed() {
    metrics::counter!(RECALLS_FAILED).increment(1);
}

pub(crate) fn embedded(done: bool) {
    let outcome = if done { "done" } else { "failed" };
    metrics::counter!(EMBEDDINGS, "outcome" => outcome).increment(1);
}

pub(crate) fn blob_corrupt() {
    metrics::counter!(BLOBS_CORRUPT).increment(1);
}

pub(crate) fn in_flight(count: u32) {
    metrics::gauge!(IN_FLIGHT).set(f64::from(count));
}
