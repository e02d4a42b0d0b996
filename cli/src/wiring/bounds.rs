//! The limits of schedulers and workers, with the settings that they share with other components.

use mainspring_scheduler::SchedulerConfig;
use mainspring_worker::WorkerConfig;

use super::label;
use crate::config::Config;

pub(crate) fn scheduler_config(config: &Config) -> SchedulerConfig {
    SchedulerConfig {
        name: label(config),
        readers: config.database_readers as usize,
        lease_ttl: config.lease_ttl,
        propagation: config.telemetry.queue_propagation,
        journal: config.telemetry.journal(),
        trace_content: config.telemetry.content,
        ..config.scheduler.clone()
    }
}

pub(crate) fn worker_config(config: &Config) -> WorkerConfig {
    WorkerConfig {
        name: label(config),
        lease_ttl: config.lease_ttl,
        retry: config.retry.policy(),
        propagation: config.telemetry.queue_propagation,
        trace_content: config.telemetry.content,
        ..config.worker.clone()
    }
}
