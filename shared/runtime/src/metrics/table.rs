//! All metrics of the program, in one table: the source of the descriptions on `/metrics`, of the
//! buckets of histograms and of docs/METRICS.md.
//!
//! No label has an unbounded set of values that callers choose: labels are names of routes, codes,
//! models, providers, pools and outcomes, never ids, tenants, sessions or tools of agents.

use metrics::Unit;

/// Bucket bounds for seconds: from a commit on a local disk to a long model response.
pub(super) const SECONDS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0,
    600.0,
];

/// Bucket bounds for the number of items in a batch, up to the largest batch.
pub(super) const COUNTS: [f64; 11] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_000.0,
];

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only grows, until the process ends.
    Counter,
    /// The value at the moment.
    Gauge,
    /// Samples, counted in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

impl Kind {
    /// The name of the type in Prometheus.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Its name, the same in every export.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The unit of its value.
    pub unit: Unit,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// Its description.
    pub help: &'static str,
}

impl Metric {
    /// Passes its unit and description to the installed recorder.
    pub(super) fn describe(&self) {
        match self.kind {
            Kind::Counter => metrics::describe_counter!(self.name, self.unit, self.help),
            Kind::Gauge => metrics::describe_gauge!(self.name, self.unit, self.help),
            Kind::Histogram(_) => metrics::describe_histogram!(self.name, self.unit, self.help),
        }
    }
}

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        unit,
        labels,
        help,
    }
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    metric(name, Kind::Counter, Unit::Count, labels, help)
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    metric(name, Kind::Gauge, Unit::Count, labels, help)
}

/// A gauge of seconds.
const fn lasting(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    metric(name, Kind::Gauge, Unit::Seconds, labels, help)
}

const fn seconds(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    metric(name, Kind::Histogram(&SECONDS), Unit::Seconds, labels, help)
}

const fn counts(name: &'static str, help: &'static str) -> Metric {
    metric(name, Kind::Histogram(&COUNTS), Unit::Count, &[], help)
}

/// All metrics, by the part of the program that measures them.
pub const METRICS: &[Metric] = &[
    // The API.
    counter(
        "mainspring_http_requests_total",
        &["method", "route", "status"],
        "Requests that were answered.",
    ),
    seconds(
        "mainspring_http_request_seconds",
        &["route"],
        "Time from a request's head to its answer's head.",
    ),
    gauge(
        "mainspring_http_waiters",
        &[],
        "Requests that wait or stream.",
    ),
    counter(
        "mainspring_http_overloaded_total",
        &["kind"],
        "Requests rejected because this process is overloaded.",
    ),
    counter(
        "mainspring_limits_hit_total",
        &["limit"],
        "Requests refused because of a limit of a tenant, a session or this process, by the limit's code.",
    ),
    // The database and the bus.
    gauge(
        "mainspring_database_connections",
        &["pool", "state"],
        "Open connections to the database: busy or idle.",
    ),
    gauge(
        "mainspring_database_connection_waiters",
        &["pool"],
        "Callers waiting for a connection to the database.",
    ),
    counter(
        "mainspring_place_failures_total",
        &["place"],
        "Calls to one of several databases that failed because it was unavailable.",
    ),
    counter(
        "mainspring_bus_dropped_total",
        &[],
        "Notifications dropped because Redis was unavailable or the buffer was full; listeners learn of the gap.",
    ),
    counter(
        "mainspring_bus_gaps_total",
        &[],
        "Times that a listener was told to read the database because notifications may have been lost.",
    ),
    // Accepting sends.
    counter(
        "mainspring_sends_accepted_total",
        &[],
        "Sends that became durable.",
    ),
    counts(
        "mainspring_accept_group_sends",
        "Sends that shared one accept transaction.",
    ),
    // The queue.
    counter(
        "mainspring_sessions_rung_total",
        &[],
        "Sessions enqueued after a commit.",
    ),
    counter(
        "mainspring_sessions_dispatched_total",
        &[],
        "Sessions granted with their sends to the workers that keep them.",
    ),
    counter(
        "mainspring_sessions_undispatched_total",
        &[],
        "Sessions granted to workers that did not respond, and taken back.",
    ),
    counter(
        "mainspring_rings_dropped_total",
        &[],
        "Sessions not enqueued because a buffer or the queue was full; the sweep enqueues them later.",
    ),
    counter(
        "mainspring_sessions_swept_total",
        &[],
        "Sessions that a sweep enqueued.",
    ),
    gauge(
        "mainspring_queue_ready_sessions",
        &["pool"],
        "Sessions with work that no worker holds.",
    ),
    gauge(
        "mainspring_queue_running_sessions",
        &["pool"],
        "Sessions that a worker holds.",
    ),
    lasting(
        "mainspring_queue_oldest_ready_age_seconds",
        &["pool"],
        "How long the oldest ready session has waited.",
    ),
    counter(
        "mainspring_fair_held_total",
        &[],
        "Sessions that had to wait for their tenant's turn.",
    ),
    gauge(
        "mainspring_fair_waiting_sessions",
        &[],
        "Sessions waiting in this process for their tenant's turn.",
    ),
    gauge(
        "mainspring_seats_waiting_sessions",
        &[],
        "Sessions waiting because their tenant has reached its limit of sends in flight.",
    ),
    // Timers and runs.
    counter(
        "mainspring_alarms_served_total",
        &[],
        "Alarms that were handled.",
    ),
    counter(
        "mainspring_timers_fired_total",
        &["fate"],
        "Timer occurrences: fired, merged, skipped, or failed because the send was refused.",
    ),
    seconds(
        "mainspring_timer_lateness_seconds",
        &[],
        "Time from when an occurrence was due to when its send was accepted.",
    ),
    counter(
        "mainspring_run_advances_total",
        &[],
        "Advances of runs that became durable.",
    ),
    counter(
        "mainspring_run_advances_lost_total",
        &[],
        "Advances that were not committed because another scheduler owns the run.",
    ),
    counts(
        "mainspring_run_advance_leaves",
        "Ended leaves that shared one advance.",
    ),
    counter(
        "mainspring_runs_aside_total",
        &[],
        "Unreadable runs that were temporarily left to other schedulers.",
    ),
    // Retention, deletions, damage.
    counter(
        "mainspring_retention_rows_total",
        &[],
        "Rows that retention removed.",
    ),
    gauge(
        "mainspring_retention_skipped",
        &["kind"],
        "Old sends and runs that the last retention pass kept.",
    ),
    counter(
        "mainspring_blobs_removed_total",
        &[],
        "Unreferenced blobs that were removed.",
    ),
    counter(
        "mainspring_deleted_rows_total",
        &[],
        "Rows of deleted sessions that were removed.",
    ),
    lasting(
        "mainspring_deleted_waiting_seconds",
        &[],
        "How long the oldest deleted session has been waiting for the removal of its rows.",
    ),
    counter(
        "mainspring_tenant_rows_erased_total",
        &[],
        "Rows of erased tenants, counted once nothing of a tenant is left.",
    ),
    counter(
        "mainspring_rows_unreadable_total",
        &["table"],
        "Unreadable rows that were skipped among others.",
    ),
    counter(
        "mainspring_database_went_back_total",
        &[],
        "How often a process found that the database had gone back in time, as after a failover that lost commits: its lease was older than it had left it, or a session lacked messages that it had stored.",
    ),
    counter(
        "mainspring_audited_total",
        &["kind"],
        "What the live audit has checked.",
    ),
    counter(
        "mainspring_audit_violations_total",
        &["invariant"],
        "Violations that the live audit found, each once.",
    ),
    lasting(
        "mainspring_audit_pass_seconds",
        &[],
        "How long the live audit's last pass over everything took.",
    ),
    counter(
        "mainspring_loop_failures_total",
        &["loop"],
        "Failures of background loops.",
    ),
    // Webhooks and the journal.
    counter(
        "mainspring_webhook_attempts_total",
        &["outcome"],
        "Webhook posts: delivered, failed, or dead if there will be no retry.",
    ),
    lasting(
        "mainspring_webhook_oldest_due_seconds",
        &[],
        "How long the oldest due delivery has been due.",
    ),
    counter(
        "mainspring_webhooks_disabled_total",
        &[],
        "Endpoints that were disabled because they answered 410.",
    ),
    counter(
        "mainspring_journal_lines_total",
        &[],
        "Lines that were written to the journal.",
    ),
    lasting(
        "mainspring_journal_behind_seconds",
        &[],
        "Time since the journal was complete.",
    ),
    // Workers.
    gauge(
        "mainspring_worker_sends_in_flight",
        &[],
        "Sends in flight on the worker.",
    ),
    counter(
        "mainspring_worker_sends_ended_total",
        &["status"],
        "Sends that ended.",
    ),
    seconds(
        "mainspring_worker_send_seconds",
        &["status"],
        "Time from accepting a send to its end, including all waits.",
    ),
    seconds(
        "mainspring_worker_send_wait_seconds",
        &[],
        "Time from accepting a send to its first start on a worker; recorded at its end.",
    ),
    counter(
        "mainspring_worker_claims_total",
        &["outcome"],
        "Sessions that the worker tried to claim: claimed, busy or failed; or that were granted with a send: granted.",
    ),
    counter(
        "mainspring_worker_takeovers_total",
        &[],
        "Sessions claimed with a send whose worker, or its tool sandbox, has crashed since the send's last stored round.",
    ),
    counter(
        "mainspring_worker_fenced_writes_total",
        &["write"],
        "Writes of a round, an end or a park that were refused because another worker held the session by then.",
    ),
    seconds(
        "mainspring_worker_tool_call_seconds",
        &["kind", "outcome"],
        "Duration of a tool call: built_in, http, mcp or isolated; done, failed, aborted or lost.",
    ),
    counter(
        "mainspring_worker_recalls_failed_total",
        &[],
        "Failed recalls of memories; their sends continued without.",
    ),
    counter(
        "mainspring_worker_embeddings_total",
        &["outcome"],
        "Vectors that were to be computed for memories.",
    ),
    counter(
        "mainspring_worker_blobs_corrupt_total",
        &[],
        "Blobs whose content did not match their digest.",
    ),
    // Models and their providers.
    counter(
        "mainspring_worker_model_calls_total",
        &[],
        "Model calls that began.",
    ),
    counter(
        "mainspring_worker_model_calls_failed_total",
        &["code"],
        "Model calls that failed.",
    ),
    counter(
        "mainspring_worker_model_retries_total",
        &["code"],
        "Model calls that retry one that failed or was held back, by the code of that one.",
    ),
    seconds(
        "mainspring_worker_model_call_seconds",
        &["model", "outcome"],
        "Time from a round's model call to the end of its answer.",
    ),
    seconds(
        "mainspring_worker_model_first_piece_seconds",
        &["model"],
        "Time from a round's model call to the first piece of its answer.",
    ),
    counter(
        "mainspring_worker_model_tokens_total",
        &["model", "purpose", "kind"],
        "Tokens of model calls: input, and of that cache_read and cache_write; output, and of that reasoning.",
    ),
    counter(
        "mainspring_worker_model_cost_microdollars_total",
        &["model", "purpose"],
        "Cost of model calls in millionths of a US dollar, if prices are known.",
    ),
    counter(
        "mainspring_worker_money_waits_total",
        &[],
        "Model calls that waited because calls in flight had reserved the rest of their tenant's or agent's money or tokens.",
    ),
    counter(
        "mainspring_worker_model_warnings_total",
        &["code"],
        "What went wrong with models and was put right, as told in `model.warning`.",
    ),
    counter(
        "mainspring_worker_calls_repaired_total",
        &["kind"],
        "Tool calls that a model wrote wrongly and that were repaired: name, encoded or null.",
    ),
    counter(
        "mainspring_money_left_behind_total",
        &[],
        "Model calls of workers that died; the money reserved for them counts as spent.",
    ),
    gauge(
        "mainspring_provider_circuit",
        &["provider"],
        "The circuit breaker: 0 closed, 1 half-open, 2 open.",
    ),
    counter(
        "mainspring_provider_tools_left_out_total",
        &["dialect"],
        "Tools left out of requests because their schema cannot be expressed in a dialect.",
    ),
    counter(
        "mainspring_provider_waits_total",
        &["provider", "reason"],
        "Model calls that waited for their provider.",
    ),
    counter(
        "mainspring_model_amendments_total",
        &["provider", "part"],
        "Parts of requests that a provider refused and that are left out or written otherwise since.",
    ),
];
