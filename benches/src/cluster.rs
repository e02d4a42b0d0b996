//! The cluster that a workload runs on: servers, a scheduler, workers.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::client::{Client, with_key};
use crate::process::{Process, Program};
use crate::servers::{Postgres, Redis};

/// The operator's key, for `MAINSPRING_ROOT_KEY`.
pub const ROOT_KEY: &str = "an-operators-key-of-a-benchmark";

/// How a workload is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The `mainspring` binary.
    pub binary: PathBuf,
    /// Runs of each measurement; the median is reported.
    pub runs: usize,
    /// A short version that only shows that the workload works; its figures are meaningless.
    pub short: bool,
}

impl Options {
    /// The size for a full or a short run.
    pub fn size(&self, full: usize, short: usize) -> usize {
        if self.short { short } else { full }
    }

    /// The duration for a full or a short run, given in seconds.
    pub fn seconds(&self, full: u64, short: u64) -> Duration {
        Duration::from_secs(if self.short { short } else { full })
    }
}

/// Postgres, Redis, a scheduler and workers. Fields drop in order: processes before servers.
#[derive(Debug)]
pub struct Cluster {
    /// The workers.
    pub workers: Vec<Process>,
    /// The scheduler.
    pub scheduler: Process,
    /// Starts further processes.
    pub program: Program,
    /// The queue.
    pub redis: Redis,
    /// The database.
    pub postgres: Postgres,
    /// Logs and data.
    pub dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts everything, with an instant model inside the workers.
    pub fn start(options: &Options, workers: usize, environment: &[(&str, &str)]) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("mainspring-bench-")
            .tempdir()?;
        let postgres = Postgres::start()?;
        let redis = Redis::start()?;
        let url = postgres.create_database("mainspring")?;
        let mut all = vec![
            ("MAINSPRING_DATABASE_URL".to_owned(), url),
            ("MAINSPRING_REDIS_URL".to_owned(), redis.url()),
            ("MAINSPRING_LLM_PROVIDER".to_owned(), "demo".to_owned()),
            ("MAINSPRING_LOG".to_owned(), "warn".to_owned()),
        ];
        all.extend(
            environment
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        );
        let program = Program {
            binary: options.binary.clone(),
            logs: dir.path().join("logs"),
            environment: all,
        };
        let scheduler = program.scheduler("scheduler")?;
        let workers: Result<Vec<_>> = (0..workers)
            .map(|n| program.worker(&format!("worker-{n}"), &[]))
            .collect();
        Ok(Self {
            workers: workers?,
            scheduler,
            program,
            redis,
            postgres,
            dir,
        })
    }

    /// A connection to the scheduler.
    pub async fn client(&self) -> Result<Client> {
        Client::connect(&self.scheduler.url()).await
    }

    /// A number queried from the database.
    pub fn number(&self, sql: &str) -> Result<i64> {
        let text = self.postgres.query("mainspring", sql)?;
        text.parse()
            .with_context(|| format!("{sql} answered {text:?}"))
    }

    /// Runs the `audit` command; an error unless every invariant holds.
    pub fn audit(&self) -> Result<()> {
        let (code, out, err) = self.program.run(&["audit"])?;
        anyhow::ensure!(code == 0, "audit exited with {code}:\n{out}\n{err}");
        Ok(())
    }
}

/// Creates a tenant with these limits, and returns a key of it with every scope. The server must
/// use the operator's key.
pub async fn new_tenant(base: &str, name: &str, limits: Value) -> Result<String> {
    let mut client = Client::connect(&with_key(base, ROOT_KEY)).await?;
    let tenant = json!({ "name": name, "limits": limits });
    let tenant = client.post("/v1/tenants", &tenant).await?;
    let key = json!({ "name": name, "scopes": ["admin"], "tenant": tenant["id"] });
    let key = client.post("/v1/keys", &key).await?;
    Ok(key["key"].as_str().context("a key")?.to_owned())
}

/// Creates many sessions over several connections and returns their ids.
pub async fn many_sessions(
    base: &str,
    count: usize,
    clients: usize,
    agent: &Value,
) -> Result<Vec<String>> {
    let mut tasks = Vec::new();
    for index in 0..clients {
        let mine = (count + clients - 1 - index) / clients;
        let (base, agent) = (base.to_owned(), agent.clone());
        tasks.push(tokio::spawn(async move {
            sessions(&mut Client::connect(&base).await?, mine, &agent).await
        }));
    }
    let mut ids = Vec::with_capacity(count);
    for task in tasks {
        ids.extend(task.await??);
    }
    Ok(ids)
}

/// Creates sessions and returns their ids.
pub async fn sessions(client: &mut Client, count: usize, agent: &Value) -> Result<Vec<String>> {
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count {
        let session = client
            .post("/v1/sessions", &json!({ "agent": agent }))
            .await?;
        ids.push(
            session["id"]
                .as_str()
                .context("a session has an id")?
                .to_owned(),
        );
    }
    Ok(ids)
}
