//! Time from `kill -9` of a worker to another worker's takeover of each of its sends, with default
//! settings.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, sessions};
use crate::load::now;
use crate::stats::{measurement, millis, percentile};

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let mut cluster = Cluster::start(options, 1, &[])?;
    let per_kill = options.size(250, 20);
    let kills = options.size(4, 1);
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for run in 0..options.runs {
        let mut samples = Vec::new();
        for kill in 0..kills {
            samples.extend(one(&mut cluster, per_kill, run * kills + kill).await?);
        }
        p50.push(millis(percentile(&mut samples, 50.0)));
        p99.push(millis(percentile(&mut samples, 99.0)));
    }
    cluster.audit()?;
    emit(measurement("takeover.p50", "ms", &p50, "reference"));
    emit(measurement("takeover.p99", "ms", &p99, "<= 13000"));
    Ok(())
}

/// Lets the only worker take long sends, kills it, and starts another one.
async fn one(cluster: &mut Cluster, count: usize, round: usize) -> Result<Vec<Duration>> {
    let mut client = cluster.client().await?;
    let ids = sessions(&mut client, count, &json!({})).await?;
    for id in &ids {
        let body = json!({ "input": "!sleep 60s" });
        client
            .post(&format!("/v1/sessions/{id}/sends"), &body)
            .await?;
    }
    let list = ids.join("','").replace("ses_", "");
    let running =
        format!("SELECT count(*) FROM sends WHERE status = 'running' AND session_id IN ('{list}')");
    until(
        || Ok(cluster.number(&running)? == count as i64),
        "sends to run",
    )
    .await?;
    let heir = cluster.program.worker(&format!("heir-{round}"), &[])?;
    let killed_at = wall_millis()?;
    for worker in &mut cluster.workers {
        worker.kill();
    }
    cluster.workers = vec![heir];
    let taken =
        format!("SELECT count(*) FROM steps WHERE kind = 'resumed' AND session_id IN ('{list}')");
    until(
        || Ok(cluster.number(&taken)? == count as i64),
        "sends to be taken over",
    )
    .await?;
    let times = cluster.postgres.query(
        "mainspring",
        &format!("SELECT at FROM steps WHERE kind = 'resumed' AND session_id IN ('{list}')"),
    )?;
    for id in &ids {
        client
            .request("DELETE", &format!("/v1/sessions/{id}"), bytes::Bytes::new())
            .await?;
    }
    times
        .lines()
        .map(|at| {
            let at: u64 = at.parse().context("a time")?;
            Ok(Duration::from_millis(at.saturating_sub(killed_at)))
        })
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures true time")]
fn wall_millis() -> Result<u64> {
    Ok(u64::try_from(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis(),
    )?)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark runs in true time")]
async fn until(mut ready: impl FnMut() -> Result<bool>, what: &str) -> Result<()> {
    let start = now();
    while !ready()? {
        ensure!(
            start.elapsed() < Duration::from_mins(1),
            "waited a minute for {what}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
