//! One-round sends through HTTP at 64 clients, as a share of what Postgres alone can do.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, sessions};
use crate::load::closed_loop;
use crate::process::{cpu_of, cpu_of_tree};
use crate::servers::find_program;
use crate::stats::{measurement, median, round};

const CLIENTS: usize = 64;
const SESSIONS: usize = 256;

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let cluster = Cluster::start(options, 1, &[])?;
    let ceiling_dir = cluster.dir.path().join("ceiling");
    prepare_ceiling(&cluster, &ceiling_dir)?;
    // Bounded, as a long conversation would be: else each run would ask the model more than the
    // one before, and measure its reading.
    let agent = json!({ "context": { "last_messages": 50 } });
    let ids = sessions(&mut cluster.client().await?, SESSIONS, &agent).await?;
    let base = cluster.scheduler.url();
    closed_loop(&base, &ids, CLIENTS, options.seconds(5, 1)).await?;
    let (mut rates, mut ceilings, mut shares, mut writes) = (vec![], vec![], vec![], vec![]);
    let mut cpu = Vec::new();
    for _ in 0..options.runs {
        let ceiling = ceiling(&cluster, &ceiling_dir, "send.sql", options.seconds(30, 2))?;
        let before = Counters::read(&cluster)?;
        let done = closed_loop(&base, &ids, CLIENTS, options.seconds(15, 2)).await?;
        let after = Counters::read(&cluster)?;
        let sends = done.sends as f64;
        rates.push(done.rate());
        ceilings.push(ceiling);
        shares.push(done.rate() / ceiling);
        // Reading the counter takes no transaction id of its own.
        writes.push((after.transactions - before.transactions) as f64 / sends);
        cpu.push(after.cpu_per_send(&before, sends));
    }
    cluster.audit()?;
    emit(measurement(
        "throughput.ceiling",
        "sends/s",
        &ceilings,
        "reference",
    ));
    emit(measurement(
        "throughput.sends",
        "sends/s",
        &rates,
        "reference",
    ));
    emit(measurement(
        "throughput.share_of_ceiling",
        "ratio",
        &shares,
        ">= 0.35",
    ));
    emit(measurement(
        "throughput.write_transactions",
        "per send",
        &writes,
        "<= 2.2",
    ));
    for (index, name) in ["scheduler", "worker", "postgres", "redis", "load"]
        .iter()
        .enumerate()
    {
        let runs: Vec<f64> = cpu.iter().map(|run: &[f64; 5]| run[index]).collect();
        let name = format!("throughput.cpu.{name}");
        emit(json!({ "measure": name, "unit": "ms/send", "median": round(median(&runs)) }));
    }
    Ok(())
}

struct Counters {
    transactions: i64,
    cpu: [Duration; 5],
}

impl Counters {
    fn read(cluster: &Cluster) -> Result<Self> {
        let postmaster = cluster.postgres.postmaster().context("postgres runs")?;
        Ok(Self {
            transactions: transactions(cluster)?,
            cpu: [
                cluster.scheduler.cpu()?,
                cluster
                    .workers
                    .iter()
                    .map(|w| w.cpu().unwrap_or_default())
                    .sum(),
                cpu_of_tree(postmaster)?,
                cpu_of(cluster.redis.pid().context("redis runs")?)?,
                cpu_of(std::process::id())?,
            ],
        })
    }

    fn cpu_per_send(&self, before: &Self, sends: f64) -> [f64; 5] {
        let used = |n: usize| self.cpu[n].saturating_sub(before.cpu[n]).as_secs_f64();
        std::array::from_fn(|n| used(n) * 1e3 / sends)
    }
}

/// Write transactions so far: those that got a transaction id.
pub(super) fn transactions(cluster: &Cluster) -> Result<i64> {
    cluster.number("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
}

/// Makes the schema that the ceilings are measured on.
pub(super) fn prepare_ceiling(cluster: &Cluster, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join("send.sql"), include_str!("../../ceiling/send.sql"))?;
    let tools = include_str!("../../ceiling/tools.sql");
    std::fs::write(dir.join("tools.sql"), tools)?;
    cluster.postgres.create_database("ceiling")?;
    cluster
        .postgres
        .query("ceiling", include_str!("../../ceiling/schema.sql"))?;
    cluster.postgres.query("ceiling", "VACUUM ANALYZE")?;
    Ok(())
}

/// Transactions per second that pgbench reaches with the least that a send could write.
pub(super) fn ceiling(cluster: &Cluster, dir: &Path, script: &str, time: Duration) -> Result<f64> {
    let port = cluster.postgres.port().to_string();
    let seconds = time.as_secs().to_string();
    let output = Command::new(find_program("pgbench")?)
        .args([
            "-n", "-M", "prepared", "-c", "64", "-j", "2", "-T", &seconds,
        ])
        .args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-f"])
        .arg(dir.join(script))
        .arg("ceiling")
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("pgbench: {}", String::from_utf8_lossy(&output.stderr));
    }
    let line = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let tps = line.and_then(|line| line.split_whitespace().next());
    tps.context("pgbench printed no tps")?
        .parse()
        .context("a number")
}
