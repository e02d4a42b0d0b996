//! Processor use of an idle installation: sessions at rest, and readers of their events.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::cluster::{Cluster, Options, many_sessions};
use crate::load::{now, pause};
use crate::process::{cpu_of, cpu_of_tree};
use crate::stats::measurement;

const WORKERS: usize = 4;

/// Connections that prepare the sessions.
const CLIENTS: usize = 32;
const BATCH: usize = 1_000;

/// The measured processes, each in cores.
const PROCESSES: [&str; 4] = ["scheduler", "workers", "postgres", "redis"];

/// Measures four workers and a scheduler, without readers and then with them. Each session has had
/// one send.
pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let cluster = Cluster::start(options, WORKERS, &[])?;
    let base = cluster.scheduler.url();
    let count = options.size(100_000, 500);
    let ids = many_sessions(&base, count, CLIENTS, &json!({})).await?;
    one_send_each(&cluster, &ids).await?;
    let alone = measure(&cluster, options).await?;
    let mut readers = JoinSet::new();
    for id in ids.iter().take(options.size(10_000, 50)) {
        let path = format!("/v1/sessions/{id}/events");
        let mut stream = Client::connect(&base).await?.stream(&path, &[]).await?;
        ensure!(stream.status == 200, "{path}: {}", stream.status);
        readers.spawn(async move {
            while stream.next().await?.is_some() {}
            anyhow::Ok(())
        });
    }
    let read = measure(&cluster, options).await?;
    if let Some(ended) = readers.try_join_next() {
        ended?.context("a stream broke")?;
        anyhow::bail!("a stream ended");
    }
    readers.shutdown().await;
    cluster.audit()?;
    for (name, runs) in [("idle", alone), ("idle.readers", read)] {
        let total: Vec<f64> = runs.iter().map(|run| run.iter().sum()).collect();
        emit(measurement(name, "cores", &total, "<= 0.05"));
        for (index, process) in PROCESSES.iter().enumerate() {
            let of: Vec<f64> = runs.iter().map(|run| run[index]).collect();
            emit(measurement(
                &format!("{name}.{process}"),
                "cores",
                &of,
                "reference",
            ));
        }
    }
    Ok(())
}

/// Gives every session one send and waits until all have completed.
async fn one_send_each(cluster: &Cluster, ids: &[String]) -> Result<()> {
    let mut client = cluster.client().await?;
    for ids in ids.chunks(BATCH) {
        let sends: Vec<Value> = ids
            .iter()
            .map(|id| json!({ "session_id": id, "input": "hello" }))
            .collect();
        let body = json!({ "sends": sends });
        client.post("/v1/sends:batch", &body).await?;
    }
    let start = now();
    let completed = "SELECT count(*) FROM sends WHERE status = 'completed'";
    while cluster.number(completed)? < ids.len() as i64 {
        ensure!(start.elapsed() < Duration::from_mins(5), "sends do not end");
        pause(500).await;
    }
    cluster.postgres.query("mainspring", "VACUUM ANALYZE")?;
    cluster.postgres.query("mainspring", "CHECKPOINT")?;
    Ok(())
}

/// Cores used by each process, over a minute per run, once the workers have released their
/// sessions.
async fn measure(cluster: &Cluster, options: &Options) -> Result<Vec<[f64; PROCESSES.len()]>> {
    pause(options.size(45_000, 1_000) as u64).await;
    let mut runs = Vec::new();
    for _ in 0..options.runs {
        let (start, before) = (now(), used(cluster)?);
        pause(options.size(60_000, 1_000) as u64).await;
        let (took, after) = (start.elapsed(), used(cluster)?);
        runs.push(std::array::from_fn(|n| {
            after[n].saturating_sub(before[n]).as_secs_f64() / took.as_secs_f64()
        }));
    }
    Ok(runs)
}

fn used(cluster: &Cluster) -> Result<[Duration; PROCESSES.len()]> {
    let postmaster = cluster.postgres.postmaster().context("postgres runs")?;
    let mut workers = Duration::ZERO;
    for worker in &cluster.workers {
        workers += worker.cpu()?;
    }
    Ok([
        cluster.scheduler.cpu()?,
        workers,
        cpu_of_tree(postmaster)?,
        cpu_of(cluster.redis.pid().context("redis runs")?)?,
    ])
}
