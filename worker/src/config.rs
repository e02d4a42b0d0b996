//! What a worker may use.

use std::time::Duration;

use mainspring_shared::agent::DEFAULT_POOL;
use mainspring_shared::retry;

/// A worker's bounds. Each has a default that the whole system is tested with.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerConfig {
    /// A label for people; the identity is drawn at each boot.
    pub name: String,
    /// The pool whose sends it runs.
    pub pool: String,
    /// Sends in flight at once.
    pub concurrency: u32,
    /// How long its lease runs without a renewal. Renewed every third of it.
    pub lease_ttl: Duration,
    /// How long a stop waits for answers that are under way.
    pub drain_timeout: Duration,
    /// How often the database is asked for work while the queue is away.
    pub poll_interval: Duration,
    /// When a failed model call is tried again.
    pub retry: retry::Policy,
    /// Waits longer than this park the send as a row.
    pub hold_max: Duration,
    /// Deaths of workers under one send, without a durable step between, that end it.
    pub crashes_max: u32,
    /// Model calls that may be begun in one round before an interruption ends its send.
    pub attempts_max: u32,
    /// Sends of one session in a row before others get their turn.
    pub sends_in_a_row_max: u32,
    /// Bytes of messages that share one transaction; a larger step has its own.
    pub group_bytes_max: usize,
    /// How long a question or a permission waits for a person, unless the question says so; for ever
    /// when absent.
    pub answer_within: Option<Duration>,
    /// How long one hook may take at one point.
    pub hook_timeout: Duration,
    /// Bytes of windows that are kept for sessions between their sends.
    pub cache_bytes_max: usize,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            name: "worker".into(),
            pool: DEFAULT_POOL.into(),
            concurrency: 256,
            lease_ttl: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(25),
            poll_interval: Duration::from_millis(250),
            retry: retry::Policy::default(),
            hold_max: Duration::from_secs(5),
            crashes_max: 5,
            attempts_max: 100,
            sends_in_a_row_max: 16,
            group_bytes_max: 8 << 20,
            answer_within: None,
            hook_timeout: Duration::from_secs(20),
            cache_bytes_max: 64 << 20,
        }
    }
}
