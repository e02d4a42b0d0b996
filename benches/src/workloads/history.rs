//! A send in a session of 10 000 messages against one in a session of 100, both with a window of
//! the last 50 messages.

use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::Client;
use crate::cluster::{Cluster, Options, sessions};
use crate::load::{now, pause, send_and_wait};
use crate::stats::{measurement, millis, percentile, round};

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let cluster = Cluster::start(options, 1, &[])?;
    let mut client = cluster.client().await?;
    let agent = json!({ "context": { "last_messages": 50 } });
    // Several of each, so that the short ones stay short during sampling.
    let short = sessions(&mut client, 40, &agent).await?;
    let long = sessions(&mut client, 4, &agent).await?;
    fill(&mut client, &short, 100).await?;
    fill(&mut client, &long, options.size(10_000, 400)).await?;
    let body = Bytes::from_static(b"{\"input\":\"hello\"}");
    let (mut ratios, mut longs, mut shorts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.runs {
        let (mut in_long, mut in_short) = (Vec::new(), Vec::new());
        for n in 0..options.size(1000, 40) {
            in_long.push(send_and_wait(&mut client, &long[n % long.len()], body.clone()).await?);
            in_short.push(send_and_wait(&mut client, &short[n % short.len()], body.clone()).await?);
        }
        let (a, b) = (
            percentile(&mut in_long, 50.0),
            percentile(&mut in_short, 50.0),
        );
        longs.push(millis(a));
        shorts.push(millis(b));
        ratios.push(round(a.as_secs_f64() / b.as_secs_f64()));
    }
    emit(measurement("history.long.p50", "ms", &longs, "reference"));
    emit(measurement("history.short.p50", "ms", &shorts, "reference"));
    emit(measurement("history.ratio", "ratio", &ratios, "<= 1.25"));
    Ok(())
}

/// Fills each session to `messages` messages with its own sends.
pub(super) async fn fill(client: &mut Client, ids: &[String], messages: usize) -> Result<()> {
    for id in ids {
        let mut left = messages / 2;
        while left > 0 {
            let count = left.min(1000);
            left -= count;
            let sends: Vec<Value> = (0..count)
                .map(|_| json!({ "session_id": id, "input": "fill" }))
                .collect();
            client
                .post("/v1/sends:batch", &json!({ "sends": sends }))
                .await?;
        }
    }
    let start = now();
    for id in ids {
        while client.get(&format!("/v1/sessions/{id}")).await?["status"] != "idle" {
            ensure!(
                start.elapsed() < Duration::from_mins(5),
                "{id} does not come to rest"
            );
            pause(100).await;
        }
    }
    Ok(())
}
