//! One-round sends at 64 clients: `dev` on SQLite against a scheduler and a worker on Postgres and
//! Redis.

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options, many_sessions};
use crate::load::closed_loop;
use crate::process::{Program, cpu_of};
use crate::stats::measurement;

const CLIENTS: usize = 64;
const SESSIONS: usize = 256;

/// Both stay up and are measured in turns, so that they see the same machine conditions.
pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    let cluster = Cluster::start(options, 1, &[])?;
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
    // Bounded as in `throughput`, or else each run would read longer conversations than the
    // previous one.
    let agent = json!({ "context": { "last_messages": 50 } });
    let bases = [cluster.scheduler.url(), dev.url()];
    let mut ids = Vec::new();
    for base in &bases {
        let of = many_sessions(base, SESSIONS, CLIENTS, &agent).await?;
        closed_loop(base, &of, CLIENTS, options.seconds(5, 1), false).await?;
        ids.push(of);
    }
    let (mut rates, mut cpu) = ([vec![], vec![]], Vec::new());
    for _ in 0..options.runs {
        for (n, base) in bases.iter().enumerate() {
            cluster.postgres.query("mainspring", "CHECKPOINT")?;
            cluster.postgres.query("mainspring", "VACUUM")?;
            let before = cpu_of(dev.pid())?;
            let time = options.seconds(15, 2);
            let done = closed_loop(base, &ids[n], CLIENTS, time, false).await?;
            rates[n].push(done.rate());
            if n == 1 {
                let used = cpu_of(dev.pid())?.saturating_sub(before);
                cpu.push(used.as_secs_f64() * 1e3 / done.sends as f64);
            }
        }
    }
    cluster.audit()?;
    let [postgres, sqlite] = rates;
    let pairs = sqlite.iter().zip(&postgres);
    let ratios: Vec<f64> = pairs.map(|(sqlite, postgres)| sqlite / postgres).collect();
    emit(measurement("dev.sends", "sends/s", &sqlite, "reference"));
    emit(measurement(
        "dev.sends.postgres",
        "sends/s",
        &postgres,
        "reference",
    ));
    emit(measurement(
        "dev.against_postgres",
        "ratio",
        &ratios,
        ">= 1.5",
    ));
    emit(measurement("dev.cpu", "ms/send", &cpu, "reference"));
    Ok(())
}
