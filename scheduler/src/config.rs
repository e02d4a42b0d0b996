//! The settings of one scheduler.

use std::num::NonZeroU32;
use std::time::Duration;

use mainspring_runtime::telemetry::JsonlSettings;
use mainspring_runtime::{Key, Propagation, settings};

const LOOK_MIN: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
const NINETY_DAYS: Duration = Duration::from_hours(90 * 24);
const YEAR: Duration = Duration::from_hours(24 * 365);
const TEN_YEARS: Duration = Duration::from_hours(10 * 24 * 365);

settings! {
    /// The intervals and limits of one scheduler. The defaults suit one process on a small machine.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SchedulerConfig {
        /// A name for logs and lists.
        name: String = "scheduler".to_owned();
        /// How the spans of runs are related to the traces that created them.
        propagation: Propagation = Propagation::Link;
        /// The file that every step is written to, if any; `trace_content` adds the content of
        /// messages.
        journal: Option<JsonlSettings> = None;
        trace_content: bool = false;
        /// How many lists the database reads at a time.
        readers: usize = 2;
        /// Time to live of this process's lease.
        lease_ttl: Duration = Duration::from_secs(4);
        /// Interval between sweeps for ready sessions that no worker has claimed.
        sweep_interval: Duration = Duration::from_millis(500)
            => Key::span("sweep_interval", LOOK_MIN, HOUR);
        /// Minimum age of a ready session to be swept: younger ones have just been enqueued.
        sweep_age: Duration = Duration::from_millis(1_500)
            => Key::span("scheduler.sweep_age", Duration::ZERO, HOUR);
        /// A lane with more jobs than this is not swept.
        sweep_depth_low: u64 = 32 => Key::integer("scheduler.sweep_depth_low", 0, 2_000);
        /// A sweep fills a lane up to this number of jobs.
        sweep_depth_high: u64 = 512 => Key::integer("scheduler.sweep_depth_high", 1, 2_000);
        /// Maximum interval between checks for due alarms.
        alarm_interval: Duration = Duration::from_millis(250)
            => Key::span("scheduler.alarm_interval", LOOK_MIN, HOUR);
        /// Maximum interval between checks for due timers.
        timer_interval: Duration = Duration::from_millis(250)
            => Key::span("scheduler.timer_interval", LOOK_MIN, HOUR);
        /// How long occurrences of timers and finished timers are kept.
        timer_keep: Duration = Duration::from_hours(30 * 24)
            => Key::span("scheduler.timer_keep", HOUR, TEN_YEARS);
        /// Interval between retention passes.
        retention_interval: Duration = Duration::from_mins(1)
            => Key::span("scheduler.retention_interval", SECOND, DAY);
        /// Percent of the time that this process has the database check invariants; 0 turns it off.
        audit_percent: u32 = 1 => Key::integer("scheduler.audit_percent", 0, 50);
        /// Maximum interval between checks for tenants to erase.
        erase_interval: Duration = Duration::from_secs(5)
            => Key::span("scheduler.erase_interval", LOOK_MIN, HOUR);
        /// Interval between passes that remove unreferenced blobs.
        blob_interval: Duration = Duration::from_hours(1)
            => Key::span("scheduler.blob_interval", SECOND, DAY);
        /// Maximum interval between checks for events to send to webhooks.
        webhook_interval: Duration = Duration::from_millis(500)
            => Key::span("scheduler.webhook_interval", LOOK_MIN, HOUR);
        /// How long an endpoint may take to respond to a webhook.
        webhook_timeout: Duration = Duration::from_secs(15)
            => Key::span("scheduler.webhook_timeout", SECOND, HOUR);
        /// Maximum number of webhook posts in flight.
        webhooks_in_flight_max: u32 = 64
            => Key::integer("scheduler.webhooks_in_flight_max", 1, 10_000);
        /// Maximum number of webhook posts in flight to one endpoint.
        webhooks_in_flight_each: u32 = 8
            => Key::integer("scheduler.webhooks_in_flight_each", 1, 1_000);
        /// Private addresses that webhooks may be sent to nevertheless.
        webhook_allow_private: Vec<String> = Vec::new()
            => Key::list("scheduler.webhook_allow_private");
        /// How long deliveries of webhooks are kept after their end.
        webhook_keep: Duration = Duration::from_hours(7 * 24)
            => Key::span("scheduler.webhook_keep", HOUR, YEAR);
        /// How long idempotency keys are kept.
        idempotency_keep: Duration = Duration::from_hours(48)
            => Key::span("scheduler.idempotency_keep", DAY, YEAR);
        /// How long sends are kept after their end, at least as long as idempotency keys; forever
        /// if none.
        send_keep: Option<Duration> = Some(NINETY_DAYS)
            => Key::keep("scheduler.send_keep", DAY, TEN_YEARS);
        /// How long runs are kept after their end, along with the sessions of their leaves, at
        /// least as long as idempotency keys; forever if none.
        run_keep: Option<Duration> = Some(NINETY_DAYS)
            => Key::keep("scheduler.run_keep", DAY, TEN_YEARS);
        /// How long idle sessions are kept; forever if none, because they contain what agents know
        /// about the people they talk to.
        session_keep: Option<Duration> = None
            => Key::keep("scheduler.session_keep", DAY, TEN_YEARS);
        /// Host names of this server, in addition to those that cannot be registered publicly (IP
        /// addresses, names without a dot or under a private suffix). A name with a leading dot
        /// stands for all names with that suffix, `*` for every name.
        allowed_hosts: Vec<String> = Vec::new() => Key::list("scheduler.allowed_hosts");
        /// Origins whose web pages may use this server, such as `https://app.example.com`; `*` for
        /// all.
        allowed_origins: Vec<String> = Vec::new() => Key::list("scheduler.allowed_origins");
        /// Maximum number of concurrent connections.
        connections_max: usize = 20_480 => Key::integer("scheduler.connections_max", 1, 10_000_000);
        /// How long a connection may take to send a request's head, counted from when it was
        /// opened or from its last response; then it is closed.
        head_timeout: Duration = Duration::from_secs(75)
            => Key::span("scheduler.head_timeout", SECOND, HOUR);
        /// Maximum size of a request's head in bytes.
        head_bytes_max: usize = 32 << 10
            => Key::integer("scheduler.head_bytes_max", 8_192, 1 << 20);
        /// How long a client may stop reading its response.
        write_timeout: Duration = Duration::from_secs(30)
            => Key::span("scheduler.write_timeout", SECOND, HOUR);
        /// Maximum total size in bytes of the bodies of all requests in flight.
        bodies_bytes_max: usize = 128 << 20
            => Key::integer("scheduler.bodies_bytes_max", 1_024, 1 << 31);
        /// Maximum size of a request's body in bytes.
        body_bytes_max: usize = 4 << 20 => Key::integer("scheduler.body_bytes_max", 1_024, 1 << 30);
        /// Maximum size of a batch's body in bytes.
        batch_bytes_max: usize = 32 << 20
            => Key::integer("scheduler.batch_bytes_max", 1_024, 1 << 30);
        /// How long a body may take to arrive.
        body_timeout: Duration = Duration::from_secs(30)
            => Key::span("scheduler.body_timeout", SECOND, HOUR);
        /// Size in bytes at which a page of a list ends; it always has at least one item.
        page_bytes_max: usize = 8 << 20 => Key::integer("scheduler.page_bytes_max", 1_024, 1 << 30);
        /// Maximum number of sends in a batch.
        batch_sends_max: usize = 1_000 => Key::integer("scheduler.batch_sends_max", 1, 1_000);
        /// Maximum number of sends of a batch per transaction: large enough that commits do not
        /// limit the rate, small enough that row locks are held for milliseconds only.
        batch_group_max: usize = 250 => Key::integer("scheduler.batch_group_max", 1, 1_000);
        /// Maximum size in bytes of the sends in one transaction; a larger send gets its own.
        group_bytes_max: usize = 8 << 20
            => Key::integer("scheduler.group_bytes_max", 1_024, 1 << 30);
        /// Maximum duration of `?wait`.
        wait_max: Duration = Duration::from_mins(1)
            => Key::span("scheduler.wait_max", SECOND, HOUR);
        /// Maximum number of requests in flight, except for those that wait or stream.
        requests_max: usize = 4_096 => Key::integer("scheduler.requests_max", 1, 1_000_000);
        /// Maximum number of requests that wait or stream.
        waiters_max: usize = 16_384 => Key::integer("scheduler.waiters_max", 1, 1_000_000);
        /// Maximum number of sends that are being accepted at the same time.
        accepting_max: usize = 16_384 => Key::integer("scheduler.accepting_max", 1, 1_000_000);
        /// How long a group of sends may take in the database before batches, archives and
        /// background work are refused; lists are refused at twice that, single sends at four
        /// times. Zero turns this off.
        shed_after: Duration = Duration::from_secs(5)
            => Key::span("scheduler.shed_after", Duration::ZERO, HOUR);
        /// Maximum number of queued sends per session.
        queued_max: i64 = 10_000 => Key::integer("scheduler.queued_max", 1, 1_000_000_000);
        /// Maximum number of leaves in flight in all runs of a tenant together.
        leaves_max: Option<NonZeroU32> => Key::integer("scheduler.leaves_max", 0, 1_000_000);
        /// Interval between keep-alive comments on an event stream.
        heartbeat: Duration = Duration::from_secs(15)
            => Key::span("scheduler.heartbeat", SECOND, HOUR);
        /// How long to wait at shutdown for requests and streams in flight.
        drain_timeout: Duration = Duration::from_secs(10)
            => Key::span("scheduler.drain_timeout", Duration::ZERO, HOUR);
    }
}
