//! The cluster under test: its own servers, a model with a ledger, and `mainspring` processes.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::{Process, Program};
use mainspring_benches::servers::{Mysql, Postgres, Redis, find_program};

use super::fault_log::FaultLog;
use super::proxy::Proxy;
use super::{blocking, pause};
use crate::fake_model::{FakeModel, Options};

/// Programs that a cluster needs.
const PROGRAMS: [&str; 10] = [
    "initdb",
    "mariadb",
    "mariadb-install-db",
    "mariadbd",
    "pg_basebackup",
    "postgres",
    "pg_isready",
    "psql",
    "redis-server",
    "redis-cli",
];

/// What is kept of the database when a test fails.
const REMAINS: [(&str, &str); 3] = [
    ("boots", "SELECT * FROM boots ORDER BY started_at"),
    (
        "open",
        "SELECT h.*, s.* FROM session_hot h JOIN sends s USING (tenant, session_id) \
        WHERE s.finished_at IS NULL ORDER BY h.session_id, s.position",
    ),
    ("steps", "SELECT * FROM steps ORDER BY session_id, n"),
];

/// Who may use the machine while a cluster runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// Other clusters too: most of the time, they all wait.
    Shared,
    /// No other one: the test measures time, and the load of others would show.
    Own,
}

/// What a cluster consists of.
#[derive(Debug, Clone)]
pub struct Recipe<'a> {
    /// Number of schedulers, each on a port of its own.
    pub schedulers: usize,
    /// Number of workers.
    pub workers: usize,
    /// Whether MariaDB is the database instead of Postgres.
    pub mysql: bool,
    /// Whether a [`Proxy`] stands between the processes and Postgres.
    pub proxied: bool,
    /// What the model does with every request.
    pub script: &'a str,
    /// Whether the model's ledger keeps request bodies.
    pub keep_bodies: bool,
    /// Who else may use the machine meanwhile.
    pub machine: Machine,
    /// Settings of every process, besides those that name servers; leases are short unless set here.
    pub environment: &'a [(&'a str, &'a str)],
}

impl Default for Recipe<'_> {
    fn default() -> Self {
        Self {
            schedulers: 2,
            workers: 3,
            mysql: false,
            proxied: false,
            script: "[[stream 4x40ms]]",
            keep_bodies: false,
            machine: Machine::Shared,
            environment: &[],
        }
    }
}

/// Everything that runs. Fields drop in order, so processes end before servers.
#[derive(Debug)]
pub struct Cluster {
    /// The workers.
    pub workers: Vec<Process>,
    /// The schedulers.
    pub schedulers: Vec<Process>,
    /// How processes are started.
    pub program: Program,
    /// The model.
    pub model: FakeModel,
    /// The proxy in front of Postgres.
    pub proxy: Option<Proxy>,
    /// The queue.
    pub redis: Redis,
    /// The Postgres server that holds the data.
    pub postgres: Postgres,
    /// The MariaDB server that holds the data instead, if the recipe asks for it.
    pub mysql: Option<Mysql>,
    /// The standby that can take over from Postgres.
    pub standby: Option<Postgres>,
    /// The faults injected so far.
    pub fault_log: FaultLog,
    dir: Option<tempfile::TempDir>,
    _turn: File,
}

impl Cluster {
    /// Starts everything. Clusters of several tests run side by side, since they mostly wait,
    /// unless the recipe asks to be alone. Returns `None`, with a message on standard error, if a
    /// server's program is missing.
    pub async fn start(recipe: Recipe<'_>) -> Result<Option<Self>> {
        if skipped() {
            return Ok(None);
        }
        let turn = blocking(match recipe.machine {
            Machine::Shared => beside,
            Machine::Own => alone,
        })?;
        let binary = binary()?;
        let model = FakeModel::start(Options {
            script: recipe.script.parse()?,
            keep_bodies: recipe.keep_bodies,
            ..Options::default()
        })?;
        let dir = tempfile::Builder::new()
            .prefix("mainspring-faults-")
            .tempdir()?;
        let (postgres, redis) = blocking(|| anyhow::Ok((Postgres::start()?, Redis::start()?)))?;
        let mut url = blocking(|| postgres.create_database("mainspring"))?;
        let mut mysql = None;
        if recipe.mysql {
            let server = blocking(Mysql::start)?;
            url = blocking(|| server.create_database("mainspring"))?;
            mysql = Some(server);
        }
        let mut proxy = None;
        if recipe.proxied {
            let before = Proxy::start(postgres.port()).await?;
            url = before.url("mainspring");
            proxy = Some(before);
        }
        let program = Program {
            binary,
            logs: dir.path().join("logs"),
            environment: environment(&url, &redis, &model, recipe.environment),
        };
        let mut cluster = Self {
            workers: Vec::new(),
            schedulers: Vec::new(),
            program,
            model,
            proxy,
            redis,
            postgres,
            mysql,
            standby: None,
            fault_log: FaultLog::default(),
            dir: Some(dir),
            _turn: turn,
        };
        for n in 0..recipe.schedulers {
            let scheduler = blocking(|| cluster.program.scheduler(&format!("scheduler-{n}")))?;
            cluster.schedulers.push(scheduler);
        }
        for n in 0..recipe.workers {
            let worker = cluster.worker(&format!("worker-{n}"))?;
            cluster.workers.push(worker);
        }
        cluster.all_ready()?;
        if let Some(first) = cluster.schedulers.first() {
            let server = ("MAINSPRING_SERVER".to_owned(), first.url());
            cluster.program.environment.push(server);
        }
        Ok(Some(cluster))
    }

    /// Starts another worker and waits until it is ready.
    pub fn add_worker(&mut self) -> Result<()> {
        let worker = self.worker(&format!("worker-{}", self.workers.len()))?;
        blocking(|| worker.wait_until_ready())?;
        self.workers.push(worker);
        Ok(())
    }

    /// Kills a worker with `SIGKILL`.
    pub fn kill_worker(&mut self, n: usize) {
        blocking(|| self.workers[n].kill());
    }

    /// Starts a replacement for a dead worker on the same port, without waiting for it.
    pub fn replace_worker(&mut self, n: usize) -> Result<()> {
        let (name, port) = (&self.workers[n].name, self.workers[n].port);
        let environment = [("MAINSPRING_NAME", name.as_str())];
        self.workers[n] = self.program.worker_on(name, port, &environment)?;
        Ok(())
    }

    fn worker(&self, name: &str) -> Result<Process> {
        let environment = [("MAINSPRING_NAME", name)];
        self.program.worker_at_start(name, &environment)
    }

    /// Starts a replacement for a dead scheduler on the same port, without waiting for it.
    pub fn replace_scheduler(&mut self, n: usize) -> Result<()> {
        let (name, port) = (&self.schedulers[n].name, self.schedulers[n].port);
        self.schedulers[n] = self.program.scheduler_on(name, port)?;
        Ok(())
    }

    /// Waits until every process reports that it is ready.
    pub fn all_ready(&self) -> Result<()> {
        let mut all = self.workers.iter().chain(&self.schedulers);
        blocking(|| all.try_for_each(Process::wait_until_ready))
    }

    /// Gives Postgres a standby, unless it has one.
    pub fn add_standby(&mut self) -> Result<()> {
        if self.standby.is_none() {
            self.standby = Some(blocking(|| self.postgres.standby())?);
        }
        Ok(())
    }

    /// Crashes Postgres for good and promotes its standby, to which a proxy then connects.
    pub fn fail_over(&mut self) -> Result<()> {
        let standby = self.standby.take().context("a standby")?;
        blocking(|| {
            self.postgres.stop();
            standby.promote()
        })?;
        if let Some(proxy) = &self.proxy {
            proxy.lead_to(standby.port());
        }
        self.postgres = standby;
        Ok(())
    }

    /// The names of the processes that have exited on their own.
    pub fn fallen(&mut self) -> Vec<String> {
        let all = self.workers.iter_mut().chain(&mut self.schedulers);
        all.filter_map(|process| (!process.is_alive()).then(|| process.name.clone()))
            .collect()
    }

    /// The addresses of the schedulers.
    pub fn urls(&self) -> Vec<String> {
        self.schedulers.iter().map(Process::url).collect()
    }

    /// The result of a query sent straight to the database, bypassing any proxy.
    pub fn query(&self, sql: &str) -> Result<String> {
        blocking(|| self.ask(sql))
    }

    fn ask(&self, sql: &str) -> Result<String> {
        match &self.mysql {
            Some(mysql) => mysql.query("mainspring", sql),
            None => self.postgres.query("mainspring", sql),
        }
    }

    /// A worker that holds a session right now, according to the database.
    pub async fn busy_worker(&self) -> Result<usize> {
        // A worker killed a moment ago may still hold its lease, while its replacement has the same
        // name.
        let now = match self.mysql {
            Some(_) => "unix_timestamp()",
            None => "extract(epoch FROM now())",
        };
        let sql = format!(
            "SELECT DISTINCT b.name FROM session_hot h JOIN boots b ON b.boot_id = h.owner_boot \
             WHERE b.dead_at IS NULL AND b.lease_until > {now} * 1000 AND NOT EXISTS ( \
                 SELECT 1 FROM boots n WHERE n.name = b.name AND n.started_at > b.started_at \
             ) ORDER BY 1"
        );
        for _ in 0..200 {
            let names = self.query(&sql)?;
            let is_busy = |n: &usize| names.lines().any(|name| name == self.workers[*n].name);
            let busy: Vec<usize> = (0..self.workers.len()).filter(is_busy).collect();
            if !busy.is_empty() {
                return Ok(busy[super::any_of(busy.len())]);
            }
            pause(Duration::from_millis(10)).await;
        }
        anyhow::bail!("no worker holds a session")
    }

    /// Runs the system's own audit; fails unless every invariant holds.
    pub fn audit(&self) -> Result<()> {
        let (code, out, err) = blocking(|| self.program.run(&["audit"]))?;
        ensure!(code == 0, "audit exited with {code}:\n{out}\n{err}");
        Ok(())
    }

    /// Waits until a condition holds.
    pub async fn until(
        &self,
        what: &str,
        limit: Duration,
        mut so: impl AsyncFnMut(&Self) -> Result<bool>,
    ) -> Result<()> {
        let end = super::monotonic() + limit;
        while !so(self).await? {
            ensure!(
                super::monotonic() < end,
                "{what} did not happen within {limit:?}"
            );
            pause(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Marks the test as passed, so its logs may be deleted.
    pub fn passed(mut self) {
        self.dir = None;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(dir) = self.dir.take() {
            let kept = dir.keep();
            for (name, sql) in REMAINS {
                let rows = self.ask(sql);
                let rows = rows.unwrap_or_else(|error| format!("{error:#}"));
                // If this cannot be written, the test's own output has to do.
                let _ = std::fs::write(kept.join(name), rows);
            }
            say(&format!("the logs are kept in {}", kept.display()));
        }
    }
}

/// Whether a server's program is missing. Reports it, or panics if `REQUIRE_STORES=all` forbids
/// skipping.
pub fn skipped() -> bool {
    let missing: Vec<_> = PROGRAMS
        .into_iter()
        .filter(|name| find_program(name).is_err())
        .collect();
    if missing.is_empty() {
        return false;
    }
    let required = std::env::var_os("REQUIRE_STORES").is_some_and(|stores| stores == "all");
    assert!(!required, "missing: {}", missing.join(", "));
    say(&format!("SKIPPED: missing: {}", missing.join(", ")));
    true
}

/// The program under test: `MAINSPRING_TEST_BINARY`, or else the one built along with this test.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("MAINSPRING_TEST_BINARY") {
        return Ok(path.into());
    }
    let test = std::env::current_exe()?;
    let built = test
        .ancestors()
        .nth(2)
        .context("a test lies in a target folder")?
        .join("mainspring");
    ensure!(
        built.is_file(),
        "{} does not exist: `cargo build -p mainspring-cli` makes it, MAINSPRING_TEST_BINARY names another",
        built.display()
    );
    Ok(built)
}

/// Writes to the test's output.
pub fn say(text: &str) {
    // If stderr is closed there is nobody to report to.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Waits until no test has the machine to itself, and keeps any from claiming it while the returned
/// file is held.
///
/// # Errors
/// If a lock file cannot be opened.
pub fn beside() -> Result<File> {
    let _turn = queue()?;
    let file = lock_file("mainspring-faults.lock")?;
    file.lock_shared()?;
    Ok(file)
}

/// Waits until no other test that takes this lock is running on this machine, and keeps them from
/// starting while the returned file is held.
///
/// # Errors
/// If a lock file cannot be opened.
pub fn alone() -> Result<File> {
    let _turn = queue()?;
    let file = lock_file("mainspring-faults.lock")?;
    file.lock()?;
    Ok(file)
}

/// Serializes the tests that wait for the main lock: otherwise a steady stream of shared holders
/// could starve a test that wants it exclusively.
fn queue() -> Result<File> {
    let file = lock_file("mainspring-faults-queue.lock")?;
    file.lock()?;
    Ok(file)
}

fn lock_file(name: &str) -> Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(std::env::temp_dir().join(name))?;
    Ok(file)
}

fn environment(
    database: &str,
    redis: &Redis,
    model: &FakeModel,
    more: &[(&str, &str)],
) -> Vec<(String, String)> {
    let (redis, model) = (redis.url(), model.base_url());
    let log = std::env::var_os("MAINSPRING_TEST_LOG").and_then(|filter| filter.into_string().ok());
    let log = log.unwrap_or_else(|| "info".to_owned());
    let common = [
        ("MAINSPRING_DATABASE_URL", database),
        ("MAINSPRING_REDIS_URL", &redis),
        ("MAINSPRING_LLM_PROVIDER", "openai"),
        ("MAINSPRING_LLM_BASE_URL", &model),
        ("MAINSPRING_LLM_API_KEY", "a-key-of-the-tests"),
        ("MAINSPRING_LLM_MODEL", "fake"),
        ("MAINSPRING_LEASE_TTL", "2s"),
        ("MAINSPRING_SWEEP_INTERVAL", "250ms"),
        ("MAINSPRING_LOG", &log),
    ];
    common
        .iter()
        .chain(more)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}
