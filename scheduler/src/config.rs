//! The bounds of one scheduler.

use std::num::NonZeroU32;
use std::time::Duration;

use mainspring_runtime::{Key, settings};

const LOOK_MIN: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
const YEAR: Duration = Duration::from_hours(24 * 365);
const TEN_YEARS: Duration = Duration::from_hours(10 * 24 * 365);

settings! {
    /// How one scheduler behaves. Every bound has a default that suits one process on a small
    /// machine.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SchedulerConfig {
        /// A label for people.
        name: String = "scheduler".to_owned();
        /// How long this process counts as alive after its last renewal.
        lease_ttl: Duration = Duration::from_secs(10);
        /// Pause between two sweeps over ready sessions.
        sweep_interval: Duration = Duration::from_secs(1)
            => Key::span("sweep_interval", LOOK_MIN, HOUR);
        /// Sessions that became ready more recently were just rung for, and are not swept.
        sweep_age: Duration = Duration::from_millis(1_500)
            => Key::span("scheduler.sweep_age", Duration::ZERO, HOUR);
        /// Jobs in a lane above which it is not swept: what waits in it is enough for now.
        sweep_depth_low: u64 = 32 => Key::integer("scheduler.sweep_depth_low", 0, 2_000);
        /// Jobs in a lane at which a sweep stops feeding it.
        sweep_depth_high: u64 = 512 => Key::integer("scheduler.sweep_depth_high", 1, 2_000);
        /// The longest pause between two looks at the alarms.
        alarm_interval: Duration = Duration::from_millis(250)
            => Key::span("scheduler.alarm_interval", LOOK_MIN, HOUR);
        /// The longest pause between two looks at the timers.
        timer_interval: Duration = Duration::from_millis(250)
            => Key::span("scheduler.timer_interval", LOOK_MIN, HOUR);
        /// How long the occurrences of timers, and timers that ended, are kept.
        timer_keep: Duration = Duration::from_hours(30 * 24)
            => Key::span("scheduler.timer_keep", HOUR, TEN_YEARS);
        /// Pause between two rounds of retention.
        retention_interval: Duration = Duration::from_mins(1)
            => Key::span("scheduler.retention_interval", SECOND, DAY);
        /// How long an idempotency key is remembered.
        idempotency_keep: Duration = Duration::from_hours(48)
            => Key::span("scheduler.idempotency_keep", DAY, YEAR);
        /// How long sends are kept after their end, at least as long as idempotency keys; for ever
        /// when none.
        send_keep: Option<Duration> => Key::span("scheduler.send_keep", DAY, TEN_YEARS);
        /// How long runs are kept after their end, at least as long as idempotency keys, with the
        /// sessions of their leaves; for ever when none.
        run_keep: Option<Duration> => Key::span("scheduler.run_keep", DAY, TEN_YEARS);
        /// Names of this server beyond those that no stranger can own (addresses, names without a
        /// dot or of a private end): what clients call it. One with a dot at its begin stands for
        /// all names that end so, `*` for every name.
        allowed_hosts: Vec<String> = Vec::new() => Key::list("scheduler.allowed_hosts");
        /// Origins whose web pages may use this server, such as `https://app.example.com`; `*` for
        /// all.
        allowed_origins: Vec<String> = Vec::new() => Key::list("scheduler.allowed_origins");
        /// Connections at once.
        connections_max: usize = 20_480 => Key::integer("scheduler.connections_max", 1, 10_000_000);
        /// How long a connection may take to bring the head of a request, from when it was made or
        /// from its last answer: an idle one is closed then.
        head_timeout: Duration = Duration::from_secs(75)
            => Key::span("scheduler.head_timeout", SECOND, HOUR);
        /// Bytes that a request's head may have.
        head_bytes_max: usize = 32 << 10
            => Key::integer("scheduler.head_bytes_max", 8_192, 1 << 20);
        /// How long a client may take nothing of its answer.
        write_timeout: Duration = Duration::from_secs(30)
            => Key::span("scheduler.write_timeout", SECOND, HOUR);
        /// Bytes that the bodies of all requests under way may have together.
        bodies_bytes_max: usize = 128 << 20
            => Key::integer("scheduler.bodies_bytes_max", 1_024, 1 << 31);
        /// Bytes that a request's body may have.
        body_bytes_max: usize = 4 << 20 => Key::integer("scheduler.body_bytes_max", 1_024, 1 << 30);
        /// Bytes that a batch's body may have.
        batch_bytes_max: usize = 32 << 20
            => Key::integer("scheduler.batch_bytes_max", 1_024, 1 << 30);
        /// How long a body may take to arrive.
        body_timeout: Duration = Duration::from_secs(30)
            => Key::span("scheduler.body_timeout", SECOND, HOUR);
        /// Bytes at which a page of a list ends, unless that is its first item.
        page_bytes_max: usize = 8 << 20 => Key::integer("scheduler.page_bytes_max", 1_024, 1 << 30);
        /// Sends that a batch may have.
        batch_sends_max: usize = 1_000 => Key::integer("scheduler.batch_sends_max", 1, 1_000);
        /// Sends of a batch that share one transaction: large enough that commits do not bound the
        /// rate, small enough that their row locks are held for milliseconds.
        batch_group_max: usize = 250 => Key::integer("scheduler.batch_group_max", 1, 1_000);
        /// Bytes of sends that share one transaction; a larger one has its own.
        group_bytes_max: usize = 8 << 20
            => Key::integer("scheduler.group_bytes_max", 1_024, 1 << 30);
        /// The longest that `?wait` may wait.
        wait_max: Duration = Duration::from_mins(1)
            => Key::span("scheduler.wait_max", SECOND, HOUR);
        /// Requests under way at once, but for those that wait or stream.
        requests_max: usize = 4_096 => Key::integer("scheduler.requests_max", 1, 1_000_000);
        /// Requests that wait or stream at once.
        waiters_max: usize = 16_384 => Key::integer("scheduler.waiters_max", 1, 1_000_000);
        /// Sends that may be on their way into the database at once.
        accepting_max: usize = 16_384 => Key::integer("scheduler.accepting_max", 1, 1_000_000);
        /// Sends of one session that may be queued at once.
        queued_max: i64 = 10_000 => Key::integer("scheduler.queued_max", 1, 1_000_000_000);
        /// Leaves that all runs of a tenant may have under way together; none for no limit.
        leaves_max: Option<NonZeroU32> => Key::integer("scheduler.leaves_max", 0, 1_000_000);
        /// Pause between two comments on an event stream.
        heartbeat: Duration = Duration::from_secs(15)
            => Key::span("scheduler.heartbeat", SECOND, HOUR);
        /// How long a stop waits for requests and streams under way.
        drain_timeout: Duration = Duration::from_secs(10)
            => Key::span("scheduler.drain_timeout", Duration::ZERO, HOUR);
    }
}
