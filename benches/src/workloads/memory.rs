//! Redis memory after a million sends compared with after a thousand.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, sessions};
use crate::load::{closed_loop, now, pause};
use crate::stats::round;

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let cluster = Cluster::start(options, 1, &[])?;
    let agent = json!({ "context": { "last_messages": 50 } });
    let ids = sessions(&mut cluster.client().await?, 256, &agent).await?;
    let few = sends(&cluster, &ids, 1_000).await?;
    let after_few = drained(&cluster).await?;
    let many = few + sends(&cluster, &ids, options.size(1_000_000, 20_000) as u64).await?;
    let after_many = drained(&cluster).await?;
    let grown = (after_many as f64 - after_few as f64) / f64::from(1 << 20);
    cluster.audit()?;
    emit(json!({
        "measure": "redis.growth", "unit": "MiB", "median": round(grown), "bar": "within 2 MiB",
        "after": { "sends": [few, many], "used_memory": [after_few, after_many] },
    }));
    Ok(())
}

/// Runs at least this many sends to their end.
async fn sends(cluster: &Cluster, ids: &[String], count: u64) -> Result<u64> {
    let mut done = 0;
    while done < count {
        let time = if count > 10_000 { 20 } else { 1 };
        let base = cluster.scheduler.url();
        done += closed_loop(&base, ids, 64, Duration::from_secs(time), false)
            .await?
            .sends;
    }
    Ok(done)
}

/// The memory after the janitors have run: the minimum over half a minute.
async fn drained(cluster: &Cluster) -> Result<u64> {
    let (start, mut least) = (now(), u64::MAX);
    while start.elapsed() < Duration::from_secs(30) {
        least = least.min(cluster.redis.used_memory()?);
        pause(1_000).await;
    }
    ensure!(least < u64::MAX, "redis tells its memory");
    Ok(least)
}
