//! The configuration of a worker.

use std::time::Duration;

use mainspring_runtime::{Key, Propagation, settings};
use mainspring_shared::agent::DEFAULT_POOL;
use mainspring_shared::retry::Policy;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
const YEAR: Duration = Duration::from_hours(24 * 365);

settings! {
    /// A worker's bounds. Each has a default that the whole system is tested with.
    #[derive(Debug, Clone, PartialEq)]
    pub struct WorkerConfig {
        /// A label for people; the identity is drawn at each boot.
        name: String = "worker".into();
        /// The pool whose sends it runs.
        pool: String = DEFAULT_POOL.into() => Key::text("worker.pool");
        /// Sends in flight at once.
        concurrency: u32 = 256 => Key::integer("worker.concurrency", 1, 100_000);
        /// How the span of a send's work is joined to the one that accepted it.
        propagation: Propagation = Propagation::Link;
        /// Whether spans hold content.
        trace_content: bool = false;
        /// How long its lease runs without a renewal. Renewed every sixth of it.
        lease_ttl: Duration = Duration::from_secs(4);
        /// How long a stop waits for answers that are under way.
        drain_timeout: Duration = Duration::from_secs(25)
            => Key::span("worker.drain_timeout", Duration::ZERO, HOUR);
        /// How often the database is asked for work while the queue is away.
        poll_interval: Duration = Duration::from_millis(250)
            => Key::span("worker.poll_interval", Duration::from_millis(10), HOUR);
        /// How often pauses are read again; whoever pauses or resumes also notifies workers at
        /// once.
        pause_interval: Duration = Duration::from_secs(1)
            => Key::span("worker.pause_interval", Duration::from_millis(10), HOUR);
        /// When a failed model call is tried again.
        retry: Policy = Policy::default();
        /// How long the model calls of one round may take, with the waits between them; for ever when
        /// absent.
        answer_timeout: Option<Duration> => Key::span("retry.total_timeout", MS, YEAR);
        /// Waits longer than this park the send as a row.
        hold_max: Duration = Duration::from_secs(5)
            => Key::span("worker.hold_max", Duration::ZERO, HOUR);
        /// Deaths of workers under one send, without a durable step between, that end it.
        crashes_max: u32 = 5 => Key::integer("worker.crashes_max", 1, 1_000);
        /// Model calls that may be begun in one round before an interruption ends its send.
        attempts_max: u32 = 100 => Key::integer("worker.attempts_max", 1, 1_000_000);
        /// Sends of one session in a row before others get their turn.
        sends_in_a_row_max: u32 = 16 => Key::integer("worker.sends_in_a_row_max", 1, 1_000_000);
        /// Bytes of memory that each process of an isolated agent may have.
        isolation_memory: u64 = 1 << 30 => Key::integer("worker.isolation_memory", 64 << 20, 1 << 40);
        /// Processes of isolated agents at once, one for each of their sends.
        isolated_max: usize = 64 => Key::integer("worker.isolated_max", 1, 100_000);
        /// The API server that is told how many sends its pod has in flight.
        kubernetes_api: Option<String> => Key::text("worker.kubernetes_api");
        /// The folder with the pod's credentials for that server: `token`, `namespace` and
        /// `ca.crt`.
        kubernetes_account: String = "/var/run/secrets/kubernetes.io/serviceaccount".into()
            => Key::text("worker.kubernetes_account");
        /// The share of its slots, in percent, up to which it takes the next sends of the sessions that it ran last
        /// without a claim; with 0 each is claimed.
        direct_percent: u32 = 75 => Key::integer("worker.direct_percent", 0, 100);
        /// Bytes of messages that share one transaction; a larger step has its own.
        group_bytes_max: usize = 8 << 20 => Key::integer("worker.group_bytes_max", 1_024, 1 << 30);
        /// How long a question or a permission waits for a person, unless the question says so; for
        /// ever when absent.
        answer_within: Option<Duration> => Key::span("tools.answer_within", MS, YEAR);
        /// How long one hook may take at one point.
        hook_timeout: Duration = Duration::from_secs(20) => Key::span("hooks.limit", MS, DAY);
        /// Times that hooks may have one send go on that is about to end.
        continues_max: u32 = 4 => Key::integer("hooks.continues_max", 0, 1_000);
        /// Rounds in all that hooks may give one send beyond its limit of rounds or its budget.
        extra_rounds_max: u32 = 8 => Key::integer("hooks.extra_rounds_max", 0, 10_000);
        /// How long a provider of memory may take when a send begins; the send goes on without it.
        recall_timeout: Duration = Duration::from_secs(1)
            => Key::span("memory.recall_timeout", MS, HOUR);
        /// The model that finds what is worth remembering of a send; the send's own when absent.
        extract_model: Option<String> => Key::text("memory.extract_model");
        /// Extractions at once.
        extractions_max: u32 = 4 => Key::integer("memory.extractions_max", 1, 10_000);
        /// How often to look for extractions whose workers died.
        extract_interval: Duration = Duration::from_secs(10)
            => Key::span("memory.extract_interval", Duration::from_millis(100), DAY);
        /// How long an extraction may take.
        extract_timeout: Duration = Duration::from_mins(1)
            => Key::span("memory.extract_timeout", MS, HOUR);
        /// Attempts at one extraction.
        extract_attempts_max: u32 = 3 => Key::integer("memory.extract_attempts_max", 1, 100);
        /// How often to look for entries that have no vector yet.
        embed_interval: Duration = Duration::from_secs(10)
            => Key::span("memory.embed_interval", Duration::from_millis(100), DAY);
        /// Bytes of windows that are kept for sessions between their sends.
        cache_bytes_max: usize = 64 << 20 => Key::integer("worker.cache_bytes_max", 0, 1 << 40);
        /// Bytes of blobs that are kept for further model calls.
        blob_cache_bytes_max: usize = 32 << 20
            => Key::integer("worker.blob_cache_bytes_max", 0, 1 << 40);
    }
}

settings! {
    /// How a failed model call is tried again.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct RetrySettings {
        /// Calls in all, the first included.
        attempts_max: u32 = Policy::default().attempts_max
            => Key::integer("retry.attempts_max", 1, 100);
        /// The upper bound of the first wait; it doubles with each failure.
        base: Duration = Policy::default().base => Key::span("retry.base", MS, HOUR);
        /// No drawn wait is longer.
        cap: Duration = Policy::default().cap => Key::span("retry.cap", MS, HOUR);
        /// No wait that a provider asks for is longer.
        after_max: Duration = Policy::default().retry_after_max
            => Key::span("retry.after_max", MS, DAY);
    }
}

impl RetrySettings {
    /// The retry policy with these settings.
    pub fn policy(&self) -> Policy {
        Policy {
            attempts_max: self.attempts_max,
            base: self.base,
            cap: self.cap,
            retry_after_max: self.after_max,
        }
    }
}
