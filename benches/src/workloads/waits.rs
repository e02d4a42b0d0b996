//! Sends that wait for people: what ten thousand of them cost, how soon one resumes, and how soon a
//! cancel ends a stream.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::Client;
use crate::cluster::{Cluster, Options, sessions};
use crate::load::{now, pause};
use crate::stats::{measurement, millis, percentile};

const QUESTION: &str = r#"!tool ask_person {"question": "go on?"}"#;

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    suspended(options, emit).await?;
    let cluster = Cluster::start(options, 1, &[])?;
    resumed(options, &cluster, emit).await?;
    cancelled(options, &cluster, emit).await?;
    cluster.audit()
}

/// Measures ten thousand waiting sends.
async fn suspended(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let count = options.size(10_000, 300);
    let (mut growth, mut leases, mut slots) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.runs {
        // Nothing is cached between sends, so the growth is due to those that wait.
        let cluster = Cluster::start(options, 1, &[("MAINSPRING_WORKER_CACHE_BYTES_MAX", "0")])?;
        let mut client = cluster.client().await?;
        let agent = json!({ "tools": ["ask_person"] });
        // Park the same number first, so that the allocator already has what they need.
        park(&cluster, &mut client, count, &agent, 0).await?;
        let before = settled(&cluster).await?;
        park(&cluster, &mut client, count, &agent, count).await?;
        let after = settled(&cluster).await?;
        growth.push(after.saturating_sub(before) as f64 / f64::from(1 << 20));
        let held = "SELECT count(*) FROM session_hot WHERE owner_boot IS NOT NULL";
        leases.push(cluster.number(held)? as f64);
        let workers = client.get("/v1/workers").await?;
        let busy = workers["data"][0]["in_flight"].as_i64();
        slots.push(busy.context("a worker is listed")? as f64);
        cluster.audit()?;
    }
    emit(measurement("suspended.leases", "leases", &leases, "0"));
    emit(measurement("suspended.slots", "slots", &slots, "0"));
    emit(measurement("suspended.memory", "MiB", &growth, "<= 5"));
    Ok(())
}

async fn park(
    cluster: &Cluster,
    client: &mut Client,
    count: usize,
    agent: &Value,
    waiting: usize,
) -> Result<()> {
    let ids = sessions(client, count, agent).await?;
    for ids in ids.chunks(1_000) {
        let sends: Vec<Value> = ids
            .iter()
            .map(|id| json!({ "session_id": id, "input": QUESTION }))
            .collect();
        client
            .post("/v1/sends:batch", &json!({ "sends": sends }))
            .await?;
    }
    let start = now();
    let wanted = (waiting + count) as i64;
    while cluster.number("SELECT count(*) FROM sends WHERE status = 'waiting'")? < wanted {
        ensure!(
            start.elapsed() < Duration::from_mins(3),
            "only some sends wait"
        );
        pause(100).await;
    }
    Ok(())
}

/// The worker's memory once it has had time to report to the schedulers that it runs nothing.
async fn settled(cluster: &Cluster) -> Result<u64> {
    pause(5_000).await;
    cluster.workers[0].resident_memory()
}

/// Time from the post of an answer to the end of the send, which includes a model call, a commit
/// and the response.
async fn resumed(options: &Options, cluster: &Cluster, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let mut client = cluster.client().await?;
    let ids = sessions(&mut client, 16, &json!({ "tools": ["ask_person"] })).await?;
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        let mut samples = Vec::new();
        for n in 0..options.size(1_000, 30) {
            samples.push(ask(&mut client, &ids[n % ids.len()]).await?);
        }
        p50.push(millis(percentile(&mut samples, 50.0)));
        p99.push(millis(percentile(&mut samples, 99.0)));
    }
    emit(measurement("resumed.p50", "ms", &p50, "<= 8"));
    emit(measurement("resumed.p99", "ms", &p99, "<= 25"));
    Ok(())
}

async fn ask(client: &mut Client, session: &str) -> Result<Duration> {
    let path = format!("/v1/sessions/{session}/sends?wait=30s");
    let send = client.post(&path, &json!({ "input": QUESTION })).await?;
    ensure!(send["waiting_on"] == "human", "{send}");
    let id = send["id"].as_str().context("an id")?;
    let call = format!("call_{}_0_0", id.trim_start_matches("snd_"));
    let body = json!({ "results": [{ "call_id": call, "output": "yes" }] });
    let start = now();
    client
        .post(&format!("/v1/sessions/{session}/tool-results"), &body)
        .await?;
    let ended = client.get(&format!("/v1/sends/{id}?wait=30s")).await?;
    let took = start.elapsed();
    ensure!(ended["status"] == "completed", "{ended}");
    Ok(took)
}

/// Time from a cancel to the end of a send whose model is streaming.
async fn cancelled(
    options: &Options,
    cluster: &Cluster,
    emit: &mut dyn FnMut(Value),
) -> Result<()> {
    let mut client = cluster.client().await?;
    let ids = sessions(&mut client, 16, &json!({})).await?;
    let mut p99 = Vec::new();
    for _ in 0..options.runs {
        let mut samples = Vec::new();
        for n in 0..options.size(200, 10) {
            let path = format!("/v1/sessions/{}/sends", ids[n % ids.len()]);
            let body = json!({ "input": "!stream 6000x10ms" });
            let send = client.post(&path, &body).await?;
            let id = send["id"].as_str().context("an id")?.to_owned();
            while client.get(&format!("/v1/sends/{id}")).await?["status"] != "running" {
                pause(2).await;
            }
            let start = now();
            let path = format!("/v1/sends/{id}/cancel?wait=30s");
            let answer = client.request("POST", &path, Bytes::new()).await?;
            samples.push(start.elapsed());
            ensure!(answer.json()?["status"] == "cancelled", "{answer:?}");
        }
        p99.push(millis(percentile(&mut samples, 99.0)));
    }
    emit(measurement("cancel.p99", "ms", &p99, "<= 250"));
    Ok(())
}
