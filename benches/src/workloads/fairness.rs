//! How soon a tenant is served while another one floods the workers, compared with being alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Client, with_key};
use crate::cluster::{Cluster, Options, ROOT_KEY, many_sessions, new_tenant};
use crate::load::{closed_loop_of, pause};
use crate::stats::{measurement, millis, percentile};

/// The number of workers, and the slots of each. Each tenant's share is half of all slots.
const WORKERS: usize = 2;
const SLOTS: usize = 32;

/// The quiet tenant's clients, each with one send at a time.
const CLIENTS: usize = 4;

/// Sends that the other tenant keeps open: a hundred times its share.
const FLOOD: usize = 100 * WORKERS * SLOTS / 2;

const OPEN: &str = "SELECT count(*) FROM sends WHERE finished_at IS NULL";

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let slots = SLOTS.to_string();
    let environment = [
        ("MAINSPRING_ROOT_KEY", ROOT_KEY),
        ("MAINSPRING_WORKER_CONCURRENCY", slots.as_str()),
    ];
    let cluster = Cluster::start(options, WORKERS, &environment)?;
    let base = cluster.scheduler.url();
    let quiet = with_key(&base, &new_tenant(&base, "quiet", json!({})).await?);
    let loud = with_key(&base, &new_tenant(&base, "loud", json!({})).await?);
    let agent = json!({ "tools": [], "context": { "last_messages": 4 } });
    let quiet_ids = many_sessions(&quiet, CLIENTS * 4, CLIENTS, &agent).await?;
    let loud_ids = many_sessions(&loud, options.size(FLOOD, 600), 16, &agent).await?;
    // As long as a model takes, so that slots are scarce and not this machine's processor.
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
        // Wait until every slot is taken and nearly every session has a send.
        while cluster.number(OPEN)? < loud_ids.len() as i64 * 9 / 10 {
            ensure!(!flood.is_finished(), "the flood has ended");
            pause(100).await;
        }
        beside.push(p95().await?);
        let open = cluster.number(OPEN)?;
        stop.store(true, Ordering::Relaxed);
        flood.await??;
        ensure!(
            open > loud_ids.len() as i64 * 8 / 10,
            "only {open} sends were open"
        );
        ratios.push(beside[beside.len() - 1] / alone[alone.len() - 1]);
        while cluster.number(OPEN)? > 0 {
            pause(500).await;
        }
    }
    emit(measurement("fairness.alone", "ms", &alone, "reference"));
    emit(measurement("fairness.beside", "ms", &beside, "reference"));
    emit(measurement("fairness.ratio", "ratio", &ratios, "<= 1.25"));
    cluster.audit()
}

/// Keeps a send open in every session.
async fn flood(base: String, sessions: Vec<String>, stop: Arc<AtomicBool>) -> Result<()> {
    let mut client = Client::connect(&base).await?;
    loop {
        for ids in sessions.chunks(500) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let send = |id| json!({ "session_id": id, "input": "!sleep 1s loud", "options": { "on_busy": "reject" } });
            // A session that still has one rejects the next, which is expected.
            let sends: Vec<Value> = ids.iter().map(send).collect();
            client
                .post("/v1/sends:batch", &json!({ "sends": sends }))
                .await?;
        }
        pause(500).await;
    }
}
