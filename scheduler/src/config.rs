//! The bounds of one scheduler.

use std::time::Duration;

/// How one scheduler behaves. Every bound has a default that suits one process on a small machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// A label for people.
    pub name: String,
    /// How long this process counts as alive after its last renewal.
    pub lease_ttl: Duration,
    /// Pause between two sweeps over ready sessions.
    pub sweep_interval: Duration,
    /// Sessions that became ready more recently were just rung for, and are not swept.
    pub sweep_age: Duration,
    /// Jobs in a lane above which it is not swept: what waits in it is enough for now.
    pub sweep_depth_low: u64,
    /// Jobs in a lane at which a sweep stops feeding it.
    pub sweep_depth_high: u64,
    /// The longest pause between two looks at the alarms.
    pub alarm_interval: Duration,
    /// The longest pause between two looks at the timers.
    pub timer_interval: Duration,
    /// How long the occurrences of timers, and timers that ended, are kept.
    pub timer_keep: Duration,
    /// Pause between two rounds of retention.
    pub retention_interval: Duration,
    /// How long an idempotency key is remembered.
    pub idempotency_keep: Duration,
    /// How long sends are kept after their end, at least as long as idempotency keys; for ever when
    /// none.
    pub send_keep: Option<Duration>,
    /// How long runs are kept after their end, at least as long as idempotency keys, with the sessions
    /// of their leaves; for ever when none.
    pub run_keep: Option<Duration>,
    /// Names of this server beyond those that no stranger can own (addresses, names without a dot
    /// or of a private end): what clients call it. One with a dot at its begin stands for all names
    /// that end so, `*` for every name.
    pub allowed_hosts: Vec<String>,
    /// Origins whose web pages may use this server, such as `https://app.example.com`; `*` for all.
    pub allowed_origins: Vec<String>,
    /// Connections at once.
    pub connections_max: usize,
    /// How long a connection may take to bring the head of a request, from when it was made or from
    /// its last answer: an idle one is closed then.
    pub head_timeout: Duration,
    /// Bytes that a request's head may have.
    pub head_bytes_max: usize,
    /// How long a client may take nothing of its answer.
    pub write_timeout: Duration,
    /// Bytes that the bodies of all requests under way may have together.
    pub bodies_bytes_max: usize,
    /// Bytes that a request's body may have.
    pub body_bytes_max: usize,
    /// Bytes that a batch's body may have.
    pub batch_bytes_max: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Bytes at which a page of a list ends, unless that is its first item.
    pub page_bytes_max: usize,
    /// Sends that a batch may have.
    pub batch_sends_max: usize,
    /// Sends of a batch that share one transaction: large enough that commits do not bound the
    /// rate, small enough that their row locks are held for milliseconds.
    pub batch_group_max: usize,
    /// Bytes of sends that share one transaction; a larger one has its own.
    pub group_bytes_max: usize,
    /// The longest that `?wait` may wait.
    pub wait_max: Duration,
    /// Requests under way at once, but for those that wait or stream.
    pub requests_max: usize,
    /// Requests that wait or stream at once.
    pub waiters_max: usize,
    /// Sends that may be on their way into the database at once.
    pub accepting_max: usize,
    /// Sends of one session that may be queued at once.
    pub queued_max: i64,
    /// Leaves that all runs of a tenant may have under way together; none for no limit.
    pub leaves_max: Option<u32>,
    /// Pause between two comments on an event stream.
    pub heartbeat: Duration,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            name: "scheduler".to_owned(),
            lease_ttl: Duration::from_secs(10),
            sweep_interval: Duration::from_secs(1),
            sweep_age: Duration::from_millis(1_500),
            sweep_depth_low: 32,
            sweep_depth_high: 512,
            alarm_interval: Duration::from_millis(250),
            timer_interval: Duration::from_millis(250),
            timer_keep: Duration::from_hours(30 * 24),
            retention_interval: Duration::from_mins(1),
            idempotency_keep: Duration::from_hours(48),
            send_keep: None,
            run_keep: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            connections_max: 20_480,
            head_timeout: Duration::from_secs(75),
            head_bytes_max: 32 << 10,
            write_timeout: Duration::from_secs(30),
            bodies_bytes_max: 128 << 20,
            body_bytes_max: 4 << 20,
            batch_bytes_max: 32 << 20,
            body_timeout: Duration::from_secs(30),
            page_bytes_max: 8 << 20,
            batch_sends_max: 1_000,
            batch_group_max: 250,
            group_bytes_max: 8 << 20,
            wait_max: Duration::from_mins(1),
            requests_max: 4_096,
            waiters_max: 16_384,
            accepting_max: 16_384,
            queued_max: 10_000,
            leaves_max: None,
            heartbeat: Duration::from_secs(15),
        }
    }
}
