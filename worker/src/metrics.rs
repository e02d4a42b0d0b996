//! The metrics of the worker.

use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::send::SendStatus;
use mainspring_shared::store::{DATABASE_WENT_BACK, UsageRow};
use mainspring_shared::time::{Clock, Timestamp};
use metrics::SharedString;

/// Claims, by `outcome`: `claimed`, `granted` with a send, `busy` or `failed`.
const CLAIMS: &str = "mainspring_worker_claims_total";
/// Sessions that were taken over from a crashed worker.
const TAKEOVERS: &str = "mainspring_worker_takeovers_total";
/// Writes that the database refused because the lease belonged to another worker, by `write`.
const FENCED: &str = "mainspring_worker_fenced_writes_total";
/// Model calls that follow one that failed or was held, by its `code`.
const RETRIES: &str = "mainspring_worker_model_retries_total";
/// Time from accepting a send to its end, by `status`.
const SEND_SECONDS: &str = "mainspring_worker_send_seconds";
/// Time from accepting a send to its start.
const SEND_WAIT_SECONDS: &str = "mainspring_worker_send_wait_seconds";
/// Duration of tool calls that this worker made, by `kind` and `outcome`.
const TOOL_SECONDS: &str = "mainspring_worker_tool_call_seconds";
const SENDS_ENDED: &str = "mainspring_worker_sends_ended_total";
const MODEL_CALLS: &str = "mainspring_worker_model_calls_total";
/// Tokens of model calls, by model, purpose and kind: `input`, of which `cache_read` and
/// `cache_write`; and `output`, of which `reasoning`.
const MODEL_TOKENS: &str = "mainspring_worker_model_tokens_total";
/// Cost of model calls in millionths of a US dollar, if the price is known: counters are integers.
const MODEL_COST: &str = "mainspring_worker_model_cost_microdollars_total";
/// Time from a round's model call to the end of its answer, by model and outcome.
const MODEL_SECONDS: &str = "mainspring_worker_model_call_seconds";
/// Time from a round's model call to the first chunk of its answer, by model.
const FIRST_PIECE_SECONDS: &str = "mainspring_worker_model_first_piece_seconds";
const MODEL_CALLS_FAILED: &str = "mainspring_worker_model_calls_failed_total";
/// Calls that waited because other calls had reserved what was left of their tenant's money.
const MONEY_WAITS: &str = "mainspring_worker_money_waits_total";
/// What went wrong with models and was put right, by `code`.
const MODEL_WARNINGS: &str = "mainspring_worker_model_warnings_total";
/// Calls of models that were repaired, by `kind`: `name`, `encoded` or `null`.
const CALLS_REPAIRED: &str = "mainspring_worker_calls_repaired_total";
const RECALLS_FAILED: &str = "mainspring_worker_recalls_failed_total";
const EMBEDDINGS: &str = "mainspring_worker_embeddings_total";
const BLOBS_CORRUPT: &str = "mainspring_worker_blobs_corrupt_total";
const IN_FLIGHT: &str = "mainspring_worker_sends_in_flight";

pub(crate) fn send_ended(status: SendStatus) {
    metrics::counter!(SENDS_ENDED, "status" => status.as_str()).increment(1);
}

/// The database lacks messages that were stored.
pub(crate) fn went_back() {
    metrics::counter!(DATABASE_WENT_BACK).increment(1);
}

/// The outcome of a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Claim {
    /// This worker has the session; `taken_over` if the previous worker crashed with it.
    Claimed { taken_over: bool },
    /// It was granted with a send, without a claim.
    Granted,
    /// Another worker has it, or it has no work.
    Busy,
    /// The outcome is unknown.
    Failed,
}

impl Claim {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Claimed { .. } => "claimed",
            Self::Granted => "granted",
            Self::Busy => "busy",
            Self::Failed => "failed",
        }
    }
}

pub(crate) fn claim(claim: Claim) {
    if matches!(claim, Claim::Claimed { taken_over: true }) {
        metrics::counter!(TAKEOVERS).increment(1);
    }
    metrics::counter!(CLAIMS, "outcome" => claim.as_str()).increment(1);
}

/// Counts fenced writes: `write` is `round`, `end` or `park`.
pub(crate) fn fenced<T, E>(
    write: &'static str,
    answers: &[Result<T, E>],
    is_lost: impl Fn(&T) -> bool,
) {
    let lost = answers.iter().flatten().filter(|answer| is_lost(answer));
    let count = lost.count() as u64;
    if count > 0 {
        metrics::counter!(FENCED, "write" => write).increment(count);
    }
}

pub(crate) fn model_call_retried(code: Code) {
    metrics::counter!(RETRIES, "code" => code.as_str()).increment(1);
}

/// Records the durations of an ended send.
pub(crate) fn send_lasted(
    status: SendStatus,
    accepted: Timestamp,
    begun: Option<Timestamp>,
    ended: Timestamp,
) {
    metrics::histogram!(SEND_SECONDS, "status" => status.as_str()).record(ended.since(accepted));
    if let Some(begun) = begun {
        metrics::histogram!(SEND_WAIT_SECONDS).record(begun.since(accepted));
    }
}

/// Records the duration of a tool call.
pub(crate) fn tool_called(kind: &'static str, outcome: &'static str, took: Duration) {
    metrics::histogram!(TOOL_SECONDS, "kind" => kind, "outcome" => outcome).record(took);
}

pub(crate) fn model_call_started() {
    metrics::counter!(MODEL_CALLS).increment(1);
}

/// Counts the tokens and cost of a model call.
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

    /// Records the first chunk of the answer.
    pub(crate) fn piece(&mut self) {
        if !std::mem::replace(&mut self.heard, true) {
            let passed = self.clock.monotonic().saturating_sub(self.begun);
            let model = self.model.clone();
            metrics::histogram!(FIRST_PIECE_SECONDS, "model" => model).record(passed);
        }
    }

    /// The call has ended, with or without an answer.
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

/// Counts something that went wrong with a model and was put right.
pub(crate) fn model_warned(code: &'static str) {
    metrics::counter!(MODEL_WARNINGS, "code" => code).increment(1);
}

/// Counts a call that was written wrongly and repaired.
pub(crate) fn call_repaired(kind: &'static str) {
    metrics::counter!(CALLS_REPAIRED, "kind" => kind).increment(1);
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

#[cfg(test)]
mod tests {
    use mainspring_runtime::Metrics;

    use super::*;

    #[test]
    fn claims_takeovers_and_fenced_writes_are_told_apart() {
        let ((), text) = Metrics::of(|| {
            claim(Claim::Claimed { taken_over: false });
            claim(Claim::Claimed { taken_over: true });
            claim(Claim::Busy);
            let answers: [Result<bool, ()>; 4] = [Ok(true), Ok(false), Err(()), Ok(true)];
            fenced("round", &answers, |lost| *lost);
            fenced("end", &answers[1..3], |lost| *lost);
            let at = Timestamp;
            send_lasted(SendStatus::Completed, at(1_000), Some(at(1_004)), at(4_000));
        })
        .expect("measured");
        for line in [
            "mainspring_worker_claims_total{outcome=\"claimed\"} 2",
            "mainspring_worker_claims_total{outcome=\"busy\"} 1",
            "mainspring_worker_takeovers_total 1",
            "mainspring_worker_fenced_writes_total{write=\"round\"} 2",
            "mainspring_worker_send_seconds_sum{status=\"completed\"} 3",
            "mainspring_worker_send_wait_seconds_bucket{le=\"0.005\"} 1",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("write=\"end\""), "{text}");
    }
}
