//! Latency from POST to the final state with `?wait`, one client, otherwise idle.

use anyhow::Result;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::Client;
use crate::cluster::{Cluster, Options, sessions};
use crate::load::send_and_wait;
use crate::process::Program;
use crate::stats::{measurement, millis, percentile};

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    {
        let cluster = Cluster::start(options, 1, &[])?;
        measure(options, &cluster.scheduler.url(), "latency.postgres", emit).await?;
        cluster.audit()?;
    }
    let dir = tempfile::Builder::new()
        .prefix("mainspring-bench-")
        .tempdir()?;
    let program = Program {
        binary: options.binary.clone(),
        logs: dir.path().join("logs"),
        environment: vec![("MAINSPRING_LOG".into(), "warn".into())],
    };
    let dev = program.dev("dev", &dir.path().join("data"))?;
    dev.wait_until_ready()?;
    measure(options, &dev.url(), "latency.sqlite", emit).await
}

async fn measure(
    options: &Options,
    base: &str,
    name: &str,
    emit: &mut dyn FnMut(Value),
) -> Result<()> {
    let mut client = Client::connect(base).await?;
    let ids = sessions(&mut client, 16, &json!({})).await?;
    let body = Bytes::from_static(b"{\"input\":\"hello\"}");
    for id in &ids {
        send_and_wait(&mut client, id, body.clone()).await?;
    }
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        let mut samples = Vec::new();
        for n in 0..options.size(1000, 50) {
            samples.push(send_and_wait(&mut client, &ids[n % ids.len()], body.clone()).await?);
        }
        p50.push(millis(percentile(&mut samples, 50.0)));
        p99.push(millis(percentile(&mut samples, 99.0)));
    }
    emit(measurement(&format!("{name}.p50"), "ms", &p50, "<= 5"));
    emit(measurement(&format!("{name}.p99"), "ms", &p99, "<= 15"));
    Ok(())
}
