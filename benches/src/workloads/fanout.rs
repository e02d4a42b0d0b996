//! Workflow runs: how fast one fans out over instant leaves, what a leaf costs in a large run, and
//! how soon a leaf follows the previous one.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use super::throughput::transactions;
use crate::client::Client;
use crate::cluster::{Cluster, Options};
use crate::load::{now, pause};
use crate::stats::{measurement, millis, percentile};

/// Leaves of the smaller run; the larger has ten times as many.
const LEAVES: usize = 1_000;

/// Leaves in flight at once.
const IN_FLIGHT: usize = 64;

/// The number of lists that the larger run's leaves are spread over, since one may not hold them
/// all.
const LISTS: usize = 4;

/// Number of leaves in the chain.
const CHAIN: usize = 100;

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let (mut small, mut ratio, mut writes, mut large_writes) = (vec![], vec![], vec![], vec![]);
    let (mut large, mut memory) = (vec![], vec![]);
    let leaves = options.size(LEAVES, LEAVES / 10);
    for _ in 0..options.runs {
        // Each pair on its own servers, so that neither sees leftovers of earlier ones.
        let cluster = Cluster::start(options, 1, &[])?;
        let mut client = cluster.client().await?;
        // A warm-up run, which is not counted, sets up connections, plans and pages.
        fan(&mut client, wide(leaves, 1), leaves).await?;
        let before = transactions(&cluster)?;
        let one = fan(&mut client, wide(leaves, 1), leaves).await?;
        let between = transactions(&cluster)?;
        let resident = cluster.scheduler.resident_memory()?;
        let all = fan(&mut client, wide(leaves * 10, LISTS), leaves * 10);
        let (many, peak) = watched(&cluster, all).await?;
        let after = transactions(&cluster)?;
        small.push(one.as_secs_f64());
        large.push(many.as_secs_f64());
        ratio.push(many.as_secs_f64() / 10.0 / one.as_secs_f64());
        writes.push((between - before) as f64 / leaves as f64);
        large_writes.push((after - between) as f64 / (leaves * 10) as f64);
        memory.push(peak.saturating_sub(resident) as f64 / f64::from(1 << 20));
        cluster.audit()?;
    }
    emit(measurement("fanout.1k", "s", &small, "<= 1.0"));
    emit(measurement("fanout.10k", "s", &large, "reference"));
    emit(measurement(
        "fanout.cost_per_leaf",
        "ratio",
        &ratio,
        "<= 1.2",
    ));
    let name = "fanout.write_transactions";
    emit(measurement(name, "per leaf", &writes, "<= 2.5"));
    let name = "fanout.write_transactions_10k";
    emit(measurement(name, "per leaf", &large_writes, "<= 2.5"));
    emit(measurement("fanout.memory", "MiB", &memory, "<= 64"));
    chain(options, emit).await
}

fn leaf(input: &str) -> Value {
    let spec = json!({ "name": "a", "system_prompt": "Do it.", "tools": [] });
    json!({ "type": "agent", "id": "leaf", "spec": spec, "input": input })
}

/// A run over instant leaves in one list, or in several parallel ones.
fn wide(leaves: usize, lists: usize) -> Value {
    let each = leaves / lists;
    let list = |n: usize| {
        let items: Vec<usize> = (0..each).collect();
        let mut body = leaf("item {{n}}");
        body["id"] = json!(format!("leaf_{n}"));
        json!({
            "type": "foreach", "id": format!("all_{n}"), "as": "n", "items": items,
            "max_concurrency": IN_FLIGHT / lists, "body": body,
        })
    };
    let branches: Vec<Value> = (0..lists).map(list).collect();
    let root = json!({ "type": "parallel", "branches": branches, "max_concurrency": lists });
    json!({ "name": "wide", "root": root })
}

/// Time from the post of a run to its end.
async fn fan(client: &mut Client, spec: Value, leaves: usize) -> Result<Duration> {
    let body = Bytes::from(json!({ "spec": spec }).to_string());
    let start = now();
    let answer = client.request("POST", "/v1/runs", body).await?;
    let id = answer.json()?["id"].as_str().context("an id")?.to_owned();
    let path = format!("/v1/runs/{id}?wait=30s");
    let run = loop {
        let run = client.get(&path).await?;
        if run["status"] != "pending" && run["status"] != "running" {
            break run;
        }
        ensure!(start.elapsed() < Duration::from_mins(5), "{run}");
    };
    let took = start.elapsed();
    ensure!(run["status"] == "completed", "{run}");
    let done = run["counts"]["completed"].as_u64();
    ensure!(done == Some(leaves as u64), "{done:?} of {leaves} leaves");
    Ok(took)
}

/// Runs some work, and samples the scheduler's peak resident memory meanwhile.
async fn watched(
    cluster: &Cluster,
    work: impl Future<Output = Result<Duration>>,
) -> Result<(Duration, u64)> {
    let mut work = std::pin::pin!(work);
    let mut peak = 0;
    loop {
        tokio::select! {
            took = &mut work => return Ok((took?, peak)),
            () = pause(20) => peak = peak.max(cluster.scheduler.resident_memory()?),
        }
    }
}

/// A chain of leaves, each waiting for the previous one. Measures from the end of one to the end of
/// the next in whole milliseconds, which includes a model call and its commit.
async fn chain(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let cluster = Cluster::start(options, 1, &[])?;
    let mut client = cluster.client().await?;
    let steps: Vec<Value> = (0..options.size(CHAIN, 10))
        .map(|n| {
            let mut leaf = leaf("go on");
            leaf["id"] = json!(format!("leaf_{n}"));
            leaf
        })
        .collect();
    let count = steps.len();
    let spec = json!({ "name": "chain", "root": { "type": "sequence", "steps": steps } });
    fan(&mut client, spec.clone(), count).await?;
    let mut p50 = Vec::new();
    for _ in 0..options.runs {
        fan(&mut client, spec.clone(), count).await?;
        let gaps = cluster.postgres.query(
            "mainspring",
            "SELECT finished_at - lag(finished_at) OVER (ORDER BY finished_at)
             FROM (SELECT finished_at FROM sends ORDER BY finished_at DESC LIMIT 100) last",
        )?;
        let gaps = gaps.lines().filter_map(|gap| gap.trim().parse().ok());
        let mut samples: Vec<Duration> = gaps.map(Duration::from_millis).collect();
        p50.push(millis(percentile(&mut samples, 50.0)));
    }
    cluster.audit()?;
    emit(measurement("fanout.next_leaf_p50", "ms", &p50, "<= 10"));
    Ok(())
}
