//! One-round sends through HTTP at 64 clients, as a share of what Postgres alone can do.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, many_sessions};
use crate::load::closed_loop;
use crate::process::{cpu_of, cpu_of_tree};
use crate::servers::find_program;
use crate::stats::{measurement, median, round};

const CLIENTS: usize = 64;
const SESSIONS: usize = 256;
const MANY_SESSIONS: usize = 100_000;

/// One worker, and sessions that all fit into its memory.
pub(super) async fn few(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let load = Load {
        name: "throughput",
        workers: 1,
        sessions: SESSIONS,
        keyed: false,
        bar: ">= 0.35",
    };
    run(&load, options, emit).await
}

/// Four workers, more sessions than they cache, and an idempotency key on each request.
pub(super) async fn many(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let load = Load {
        name: "throughput-many",
        workers: 4,
        sessions: options.size(MANY_SESSIONS, 500),
        keyed: true,
        bar: "reference",
    };
    run(&load, options, emit).await
}

struct Load {
    name: &'static str,
    workers: usize,
    sessions: usize,
    keyed: bool,
    bar: &'static str,
}

async fn run(load: &Load, options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let cluster = Cluster::start(options, load.workers, &[])?;
    let ceiling_dir = cluster.dir.path().join("ceiling");
    prepare_ceiling(&cluster, &ceiling_dir)?;
    // Bounded, or else each run would send the model more than the previous one, and measure how
    // long that takes to read.
    let agent = json!({ "context": { "last_messages": 50 } });
    let base = cluster.scheduler.url();
    let ids = many_sessions(&base, load.sessions, CLIENTS, &agent).await?;
    closed_loop(&base, &ids, CLIENTS, options.seconds(5, 1), load.keyed).await?;
    let (mut rates, mut ceilings, mut shares, mut writes) = (vec![], vec![], vec![], vec![]);
    let (mut cpu, mut wal) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        settle(&cluster)?;
        let ceiling = ceiling(&cluster, &ceiling_dir, "send.sql", options.seconds(30, 2))?;
        settle(&cluster)?;
        let before = Counters::read(&cluster)?;
        let time = options.seconds(15, 2);
        let done = closed_loop(&base, &ids, CLIENTS, time, load.keyed).await?;
        let after = Counters::read(&cluster)?;
        let sends = done.sends as f64;
        rates.push(done.rate());
        ceilings.push(ceiling);
        shares.push(done.rate() / ceiling);
        // Reading the counter does not itself use a transaction id.
        writes.push((after.transactions - before.transactions) as f64 / sends);
        wal.push((after.wal - before.wal) as f64 / sends);
        cpu.push(after.cpu_per_send(&before, sends));
    }
    cluster.audit()?;
    let mut emit_as = |what: &str, unit: &str, figures: &[f64], bar: &str| {
        emit(measurement(
            &format!("{}.{what}", load.name),
            unit,
            figures,
            bar,
        ));
    };
    emit_as("ceiling", "sends/s", &ceilings, "reference");
    emit_as("sends", "sends/s", &rates, "reference");
    emit_as("share_of_ceiling", "ratio", &shares, load.bar);
    emit_as("write_transactions", "per send", &writes, "<= 2.2");
    emit_as("wal", "bytes/send", &wal, "reference");
    for (index, name) in ["scheduler", "worker", "postgres", "redis", "load"]
        .iter()
        .enumerate()
    {
        let runs: Vec<f64> = cpu.iter().map(|run: &[f64; 5]| run[index]).collect();
        let name = format!("{}.cpu.{name}", load.name);
        emit(json!({ "measure": name, "unit": "ms/send", "median": round(median(&runs)) }));
    }
    Ok(())
}

/// Cleans up, so that the next measurement does not pay for it.
pub(super) fn settle(cluster: &Cluster) -> Result<()> {
    cluster.postgres.query("mainspring", "CHECKPOINT")?;
    cluster.postgres.query("mainspring", "VACUUM")?;
    cluster.postgres.query("ceiling", "VACUUM")?;
    Ok(())
}

struct Counters {
    transactions: i64,
    /// Bytes written to the write-ahead log so far.
    wal: i64,
    cpu: [Duration; 5],
}

impl Counters {
    fn read(cluster: &Cluster) -> Result<Self> {
        let postmaster = cluster.postgres.postmaster().context("postgres runs")?;
        Ok(Self {
            transactions: transactions(cluster)?,
            wal: cluster.number("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")?,
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

/// Write transactions so far: those that were assigned a transaction id.
pub(super) fn transactions(cluster: &Cluster) -> Result<i64> {
    cluster.number("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
}

/// Creates the schema that the ceilings are measured on.
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

/// Transactions per second that pgbench reaches with the minimum that a send has to write.
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
