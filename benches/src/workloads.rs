//! The workloads: each prints one JSON object per measurement.

mod batch;
mod dev;
mod fairness;
mod fanout;
mod features;
mod folded;
mod fresh;
mod history;
mod idle;
mod latency;
mod memory;
mod neighbours;
mod streams;
mod takeover;
mod throughput;
mod timers;
mod tools;
mod waits;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::cluster::Options;

/// Every workload's name and what it measures.
pub const WORKLOADS: &[(&str, &str)] = &[
    (
        "throughput",
        "one-round sends/s at 64 clients against the ceiling, transactions per send",
    ),
    (
        "throughput-many",
        "the same over 100 000 sessions, with four workers and idempotency keys",
    ),
    (
        "throughput-dev",
        "one-round sends/s at 64 clients in dev on SQLite, against Postgres + Redis",
    ),
    (
        "idle",
        "processor use with 100 000 sessions at rest, then with 10 000 readers of events",
    ),
    (
        "latency",
        "POST to final with ?wait, one client, on Postgres + Redis and on SQLite",
    ),
    (
        "batch",
        "sends accepted/s in batches of 1000, workers stopped",
    ),
    (
        "streams",
        "memory of sends that wait on a slow streamed model",
    ),
    (
        "history",
        "a send in a long session against one in a short session",
    ),
    (
        "folded",
        "the same with folds and digests, warm and cold; bytes read from the database",
    ),
    (
        "takeover",
        "from the death of a worker to another's takeover",
    ),
    (
        "redis-memory",
        "Redis' memory after many sends against after few",
    ),
    (
        "tools",
        "sends of three rounds with two calls against the ceiling; engine time; parallel calls",
    ),
    (
        "waits",
        "ten thousand suspended sends, going on after an answer, cancel during a stream",
    ),
    (
        "timers",
        "timers made/s; ten and a hundred thousand due at once; lateness at 500/s",
    ),
    (
        "fanout",
        "runs of a thousand and ten thousand instant leaves; leaf after leaf",
    ),
    (
        "features",
        "telemetry, keys with limits, and the auditor, each against without",
    ),
    (
        "fairness",
        "a tenant's sends while another one floods the workers, against alone",
    ),
    (
        "neighbours",
        "a tenant's sends while another one does harm of each kind, against alone",
    ),
    ("start", "start of dev to accepting"),
];

/// Runs one workload and emits each measurement as soon as it is available.
pub async fn run(name: &str, options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    match name {
        "throughput" => throughput::few(options, emit).await,
        "throughput-many" => throughput::many(options, emit).await,
        "throughput-dev" => dev::run(options, emit).await,
        "idle" => idle::run(options, emit).await,
        "latency" => latency::run(options, emit).await,
        "batch" => batch::run(options, emit).await,
        "streams" => streams::run(options, emit).await,
        "history" => history::run(options, emit).await,
        "folded" => folded::run(options, emit).await,
        "takeover" => takeover::run(options, emit).await,
        "redis-memory" => memory::run(options, emit).await,
        "tools" => tools::run(options, emit).await,
        "waits" => waits::run(options, emit).await,
        "timers" => timers::run(options, emit).await,
        "fanout" => fanout::run(options, emit).await,
        "features" => features::run(options, emit).await,
        "fairness" => fairness::run(options, emit).await,
        "neighbours" => neighbours::run(options, emit).await,
        "start" => fresh::run(options, emit).await,
        other => bail!("there is no workload {other}; see `mainspring bench --help`"),
    }
}
