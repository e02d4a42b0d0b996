//! The metrics of the transports.

use mainspring_worker::llm::Hold;

const CIRCUIT: &str = "mainspring_provider_circuit";
const AMENDMENTS: &str = "mainspring_model_amendments_total";
const HELD: &str = "mainspring_provider_waits_total";
const TOOLS_LEFT_OUT: &str = "mainspring_provider_tools_left_out_total";

/// 0 when closed, 1 when half-open, 2 when open.
pub(super) fn circuit(provider: &str, level: u8) {
    metrics::gauge!(CIRCUIT, "provider" => provider.to_owned()).set(f64::from(level));
}

pub(super) fn held(provider: &str, why: Hold) {
    metrics::counter!(HELD, "provider" => provider.to_owned(), "reason" => why.as_str())
        .increment(1);
}

/// A tool whose schema cannot be expressed in a dialect.
pub(super) fn tool_left_out(dialect: &'static str) {
    metrics::counter!(TOOLS_LEFT_OUT, "dialect" => dialect).increment(1);
}

/// A part of requests that a provider refused is left out or written otherwise from now on.
pub(super) fn amended(provider: &str, part: &'static str) {
    metrics::counter!(AMENDMENTS, "provider" => provider.to_owned(), "part" => part).increment(1);
}
