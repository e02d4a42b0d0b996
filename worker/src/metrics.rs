//! Names of what the worker counts.

use mainspring_shared::error::Code;
use mainspring_shared::send::SendStatus;

const SENDS_ENDED: &str = "mainspring_worker_sends_ended_total";
const MODEL_CALLS: &str = "mainspring_worker_model_calls_total";
const MODEL_CALLS_FAILED: &str = "mainspring_worker_model_calls_failed_total";
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

pub(crate) fn model_call_failed(code: Code) {
    metrics::counter!(MODEL_CALLS_FAILED, "code" => code.as_str()).increment(1);
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
