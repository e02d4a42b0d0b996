//! The cost of optional features: throughput of one-round sends over HTTP with each, as a share of
//! that without.
//!
//! An installation's processes are restarted with and without the feature in turns, on the same
//! servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::client::with_key;
use crate::cluster::{Cluster, Options, ROOT_KEY, many_sessions, new_tenant};
use crate::load::closed_loop;
use crate::process::Process;
use crate::stats::measurement;

const CLIENTS: usize = 64;
const SESSIONS: usize = 256;

/// An optional feature.
struct Feature {
    name: &'static str,
    bar: &'static str,
    /// Settings of every process when the feature is on.
    environment: Vec<(String, String)>,
    /// Whether the load uses a key of a tenant that has every limit.
    limited: bool,
}

pub(super) async fn run(options: &Options, emit: &mut dyn FnMut(Value)) -> Result<()> {
    // Without the auditor, which is itself a feature under test.
    let mut bench = Bench::start(options).await?;
    let collector = Collector::start().await?;
    let journal = bench.journal.join("steps.jsonl");
    let journal = journal.to_str().context("a UTF-8 path")?.to_owned();
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let features = [
        Feature {
            name: "telemetry",
            bar: ">= 0.95",
            environment: vec![
                set("MAINSPRING_OTLP_ENDPOINT", &collector.url),
                set("MAINSPRING_TELEMETRY_OTLP_METRICS", "true"),
                set("MAINSPRING_TELEMETRY_JSONL_PATH", &journal),
            ],
            limited: false,
        },
        Feature {
            name: "spans",
            bar: "reference",
            environment: vec![set("MAINSPRING_OTLP_ENDPOINT", &collector.url)],
            limited: false,
        },
        Feature {
            name: "journal",
            bar: "reference",
            environment: vec![set("MAINSPRING_TELEMETRY_JSONL_PATH", &journal)],
            limited: false,
        },
        Feature {
            name: "limits",
            bar: ">= 0.97",
            environment: vec![set("MAINSPRING_ROOT_KEY", ROOT_KEY)],
            limited: true,
        },
        Feature {
            name: "money",
            bar: "reference",
            environment: vec![
                set("MAINSPRING_ROOT_KEY", ROOT_KEY),
                // With a price, an amount is reserved before each call is made.
                set("MAINSPRING_PRICES", "demo=1/1"),
            ],
            limited: true,
        },
        Feature {
            name: "auditor",
            bar: ">= 0.98",
            environment: vec![set("MAINSPRING_SCHEDULER_AUDIT_PERCENT", "1")],
            limited: false,
        },
    ];
    for feature in &features {
        let (mut with, mut without, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for run in 0..options.runs {
            // The order alternates, because the servers may still be busy with the previous
            // measurement.
            let is_first_off = run % 2 == 0;
            let first = bench
                .rate(options, (!is_first_off).then_some(feature))
                .await?;
            let second = bench.rate(options, is_first_off.then_some(feature)).await?;
            let (off, on) = if is_first_off {
                (first, second)
            } else {
                (second, first)
            };
            with.push(on);
            without.push(off);
            shares.push(on / off);
        }
        let name = |what: &str| format!("features.{}.{what}", feature.name);
        emit(measurement(
            &name("without"),
            "sends/s",
            &without,
            "reference",
        ));
        emit(measurement(&name("with"), "sends/s", &with, "reference"));
        emit(measurement(&name("share"), "ratio", &shares, feature.bar));
    }
    let spans = collector.received.load(Ordering::Relaxed);
    ensure!(spans > 0, "the collector got nothing");
    emit(json!({ "measure": "features.received", "unit": "MiB", "median": spans >> 20 }));
    bench.cluster.audit()
}

/// The servers, and the sessions of two tenants.
struct Bench {
    cluster: Cluster,
    open: Vec<String>,
    limited: Vec<String>,
    /// A key of the tenant with limits.
    key: String,
    /// The folder for the journal.
    journal: PathBuf,
}

impl Bench {
    async fn start(options: &Options) -> Result<Self> {
        let environment = [
            ("MAINSPRING_SCHEDULER_AUDIT_PERCENT", "0"),
            ("MAINSPRING_ROOT_KEY", ROOT_KEY),
        ];
        let mut cluster = Cluster::start(options, 1, &environment)?;
        let agent = json!({ "context": { "last_messages": 50 } });
        let root = with_key(&cluster.scheduler.url(), ROOT_KEY);
        // Higher than the load, so that every limit is counted and none of them blocks.
        let limits = json!({ "requests_per_second": 100_000, "sends_open": 100_000, "tokens_per_minute": 1_000_000_000_u64,
            "usd_per_minute": 100_000, "usd_per_day": 100_000, "usd_per_month": 1_000_000, "bytes": 1_u64 << 40 });
        let key = new_tenant(&cluster.scheduler.url(), "limited", limits).await?;
        let theirs = with_key(&cluster.scheduler.url(), &key);
        let open = many_sessions(&root, SESSIONS, CLIENTS, &agent).await?;
        let limited = many_sessions(&theirs, SESSIONS, CLIENTS, &agent).await?;
        cluster
            .program
            .environment
            .retain(|(name, _)| name != "MAINSPRING_ROOT_KEY");
        Ok(Self {
            journal: cluster.dir.path().join("journal"),
            cluster,
            open,
            limited,
            key,
        })
    }

    /// Sends per second with freshly started processes and an empty journal: a process whose
    /// journal was off would first write what happened meanwhile.
    async fn rate(&mut self, options: &Options, feature: Option<&Feature>) -> Result<f64> {
        let cluster = &mut self.cluster;
        // Kill the other processes first.
        cluster.workers.iter_mut().for_each(Process::kill);
        cluster.scheduler.kill();
        if self.journal.exists() {
            std::fs::remove_dir_all(&self.journal)?;
        }
        cluster.postgres.query("mainspring", "CHECKPOINT")?;
        cluster.postgres.query("mainspring", "VACUUM")?;
        let mut program = cluster.program.clone();
        for (name, value) in feature.into_iter().flat_map(|feature| &feature.environment) {
            program.environment.retain(|(known, _)| known != name);
            program.environment.push((name.clone(), value.clone()));
        }
        cluster.scheduler = program.scheduler("scheduler")?;
        cluster.workers = vec![program.worker("worker", &[])?];
        let (base, sessions) = if feature.is_some_and(|feature| feature.limited) {
            (with_key(&cluster.scheduler.url(), &self.key), &self.limited)
        } else {
            (cluster.scheduler.url(), &self.open)
        };
        closed_loop(&base, sessions, CLIENTS, options.seconds(5, 1), false).await?;
        let done = closed_loop(&base, sessions, CLIENTS, options.seconds(15, 2), false).await?;
        Ok(done.rate())
    }
}

/// A telemetry collector that accepts everything and keeps nothing.
struct Collector {
    url: String,
    /// Bytes received.
    received: Arc<AtomicU64>,
}

impl Collector {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let received = Arc::new(AtomicU64::new(0));
        let counter = received.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let counter = counter.clone();
                tokio::spawn(async move {
                    // Ends when the peer closes the connection.
                    let _ = take(stream, &counter).await;
                });
            }
        });
        Ok(Self { url, received })
    }
}

/// Responds to each request of a connection.
async fn take(stream: TcpStream, received: &AtomicU64) -> Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        received.fetch_add(length as u64, Ordering::Relaxed);
        let answer =
            "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        stream.get_mut().write_all(answer.as_bytes()).await?;
    }
}
