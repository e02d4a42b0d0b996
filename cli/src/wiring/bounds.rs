//! The bounds of a scheduler and of a worker, as they are configured.

use mainspring_runtime::Config;
use mainspring_scheduler::SchedulerConfig;
use mainspring_worker::WorkerConfig;

use super::label;

pub(crate) fn scheduler_config(config: &Config) -> SchedulerConfig {
    let bounds = &config.scheduler;
    SchedulerConfig {
        name: label(config),
        lease_ttl: config.lease_ttl.0,
        sweep_interval: config.sweep_interval.0,
        sweep_age: bounds.sweep_age.0,
        sweep_depth_low: bounds.sweep_depth_low,
        sweep_depth_high: bounds.sweep_depth_high,
        alarm_interval: bounds.alarm_interval.0,
        timer_interval: bounds.timer_interval.0,
        timer_keep: bounds.timer_keep.0,
        retention_interval: bounds.retention_interval.0,
        idempotency_keep: bounds.idempotency_keep.0,
        send_keep: bounds.send_keep.map(|keep| keep.0),
        run_keep: bounds.run_keep.map(|keep| keep.0),
        allowed_hosts: bounds.allowed_hosts.clone(),
        allowed_origins: bounds.allowed_origins.clone(),
        connections_max: bounds.connections_max,
        head_timeout: bounds.head_timeout.0,
        head_bytes_max: bounds.head_bytes_max,
        write_timeout: bounds.write_timeout.0,
        bodies_bytes_max: bounds.bodies_bytes_max,
        body_bytes_max: bounds.body_bytes_max,
        batch_bytes_max: bounds.batch_bytes_max,
        body_timeout: bounds.body_timeout.0,
        page_bytes_max: bounds.page_bytes_max,
        batch_sends_max: bounds.batch_sends_max,
        batch_group_max: bounds.batch_group_max,
        group_bytes_max: bounds.group_bytes_max,
        wait_max: bounds.wait_max.0,
        requests_max: bounds.requests_max,
        waiters_max: bounds.waiters_max,
        accepting_max: bounds.accepting_max,
        queued_max: bounds.queued_max,
        leaves_max: Some(bounds.leaves_max).filter(|max| *max > 0),
        heartbeat: bounds.heartbeat.0,
    }
}

pub(crate) fn worker_config(config: &Config) -> WorkerConfig {
    let bounds = &config.worker;
    WorkerConfig {
        name: label(config),
        pool: bounds.pool.clone(),
        concurrency: bounds.concurrency,
        lease_ttl: config.lease_ttl.0,
        drain_timeout: bounds.drain_timeout.0,
        poll_interval: bounds.poll_interval.0,
        retry: config.retry.policy(),
        hold_max: bounds.hold_max.0,
        crashes_max: bounds.crashes_max,
        attempts_max: bounds.attempts_max,
        sends_in_a_row_max: bounds.sends_in_a_row_max,
        group_bytes_max: bounds.group_bytes_max,
        answer_within: config.tools.answer_within.map(|span| span.0),
        hook_timeout: config.hooks.limit.0,
        cache_bytes_max: bounds.cache_bytes_max,
    }
}
