//! How soon a tenant is served while another one floods the workers, against alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Client, with_key};
use crate::cluster::{Cluster, Options, many_sessions};
use crate::load::closed_loop_of;
use crate::stats::{measurement, millis, percentile};

const ROOT: &str = "an-operators-key-of-a-benchmark";

/// Slots of the workers together. Each tenant's share is a half.
const WORKERS: usize = 2;
const SLOTS: usize = 32;

/// The quiet tenant's clients, each with one send at a time.
const CLIENTS: usize = 4;

/// Sends that the other tenant has open all the time: a hundred times its share.
const FLOOD: usize = 100 * WORKERS * SLOTS / 2;

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let slots = SLOTS.to_string();
    let environment = [
        ("MAINSPRING_ROOT_KEY", ROOT),
        ("MAINSPRING_WORKER_CONCURRENCY", slots.as_str()),
    ];
    let cluster = Cluster::start(options, WORKERS, &environment)?;
    let base = cluster.scheduler.url();
    let quiet = with_key(&base, &tenant(&base, "quiet").await?);
    let loud = with_key(&base, &tenant(&base, "loud").await?);
    let agent = json!({ "tools": [], "context": { "last_messages": 4 } });
    let quiet_ids = many_sessions(&quiet, CLIENTS * 4, CLIENTS, &agent).await?;
    let loud_ids = many_sessions(&loud, options.size(FLOOD, 200), 16, &agent).await?;
    // As long as a model takes: slots are what is scarce, not this machine's processor.
    let body = Bytes::from_static(br#"{"input":"!sleep 1s hello"}"#);
    let time = options.seconds(30, 3);
    let (mut alone, mut beside, mut ratios) = (vec![], vec![], vec![]);
    for _ in 0..options.runs {
        let p95 = async || {
            let done = closed_loop_of(&quiet, &quiet_ids, CLIENTS, time, &body, false).await;
            anyhow::Ok(millis(percentile(&mut done?.latencies, 95.0)))
        };
        alone.push(p95().await?);
        let stop = Arc::new(AtomicBool::new(false));
        let flood = tokio::spawn(flood(loud.clone(), loud_ids.clone(), stop.clone()));
        // Until every slot is taken and the queue is full.
        pause(5_000).await;
        beside.push(p95().await?);
        stop.store(true, Ordering::Relaxed);
        flood.await??;
        ratios.push(beside[beside.len() - 1] / alone[alone.len() - 1]);
        let open = "SELECT count(*) FROM sends WHERE finished_at IS NULL";
        while cluster.number(open)? > 0 {
            pause(500).await;
        }
    }
    emit(measurement("fairness.alone", "ms", &alone, "reference"));
    emit(measurement("fairness.beside", "ms", &beside, "reference"));
    emit(measurement("fairness.ratio", "ratio", &ratios, "<= 1.25"));
    cluster.audit()
}

async fn tenant(base: &str, name: &str) -> Result<String> {
    let mut client = Client::connect(&with_key(base, ROOT)).await?;
    let tenant = client.post("/v1/tenants", &json!({ "name": name })).await?;
    let key = json!({ "name": name, "scopes": ["admin"], "tenant": tenant["id"] });
    let key = client.post("/v1/keys", &key).await?;
    Ok(key["key"].as_str().context("a key")?.to_owned())
}

/// Keeps a send open in every session.
async fn flood(base: String, sessions: Vec<String>, stop: Arc<AtomicBool>) -> Result<()> {
    let mut client = Client::connect(&base).await?;
    for round in 0.. {
        for ids in sessions.chunks(500) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let sends: Vec<Value> = ids
                .iter()
                .map(|id| json!({ "session_id": id, "input": "!sleep 1s loud", "on_busy": "reject" }))
                .collect();
            // Those that are still busy say so.
            let body = serde_json::to_vec(&json!({ "sends": sends }))?;
            client
                .request("POST", "/v1/sends:batch", body.into())
                .await?;
        }
        if round > 0 {
            pause(1_000).await;
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a benchmark runs in true time")]
async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
