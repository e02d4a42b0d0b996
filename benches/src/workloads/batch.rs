//! Sends accepted per second in batches of 1000, with no worker running.

use anyhow::{Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::Client;
use crate::cluster::{Cluster, Options, sessions};
use crate::load::now;
use crate::stats::measurement;

/// Connections that post batches concurrently.
const CLIENTS: usize = 4;
const BATCH: usize = 1000;

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let cluster = Cluster::start(options, 0, &[])?;
    let count = options.size(10_000, 2_000);
    let ids = sessions(&mut cluster.client().await?, count, &json!({})).await?;
    let batches = options.size(100, 4);
    let mut rates = Vec::new();
    for _ in 0..options.runs {
        let bodies = bodies(&ids, batches)?;
        let start = now();
        let mut tasks = Vec::new();
        for mine in bodies.chunks(batches.div_ceil(CLIENTS)) {
            let (mine, base) = (mine.to_vec(), cluster.scheduler.url());
            tasks.push(tokio::spawn(async move {
                let mut client = Client::connect(&base).await?;
                for body in mine {
                    let answer = client.request("POST", "/v1/sends:batch", body).await?;
                    ensure!(answer.status == 200, "{} {:?}", answer.status, answer.body);
                    let results = answer.json()?;
                    let all = results["results"].as_array().is_some_and(|all| {
                        all.len() == BATCH && all.iter().all(|item| item["status"] == 202)
                    });
                    ensure!(all, "a send of a batch was refused");
                }
                anyhow::Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        rates.push((batches * BATCH) as f64 / start.elapsed().as_secs_f64());
    }
    let stored = cluster.number("SELECT count(*) FROM sends WHERE status = 'queued'")?;
    ensure!(
        stored as usize == options.runs * batches * BATCH,
        "{stored} sends are stored"
    );
    cluster.audit()?;
    emit(measurement("batch.accepted", "sends/s", &rates, ">= 20000"));
    Ok(())
}

fn bodies(ids: &[String], batches: usize) -> Result<Vec<Bytes>> {
    let input = "b".repeat(100);
    let mut next = ids.iter().cycle();
    (0..batches)
        .map(|_| {
            let sends: Vec<Value> = next
                .by_ref()
                .take(BATCH)
                .map(|id| json!({ "session_id": id, "input": input }))
                .collect();
            Ok(Bytes::from(serde_json::to_vec(&json!({ "sends": sends }))?))
        })
        .collect()
}
