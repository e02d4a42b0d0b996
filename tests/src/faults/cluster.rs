//! The cluster under a fault test: its own servers, a model with a ledger, `mainspring` processes.

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

/// What is kept of the database when a test failed.
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

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct Recipe<'a> {
    /// Schedulers, each on a port of its own.
    pub schedulers: usize,
    /// Workers.
    pub workers: usize,
    /// Whether MariaDB is the database instead of Postgres.
    pub mysql: bool,
    /// Whether a [`Proxy`] stands between them and Postgres.
    pub proxied: bool,
    /// What the model does with every request.
    pub script: &'a str,
    /// Whether the model's ledger keeps whole requests.
    pub keep_bodies: bool,
    /// Who else may use the machine meanwhile.
    pub machine: Machine,
    /// Settings of every process besides those that name servers; leases are short unless these
    /// say otherwise.
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

/// Everything that runs. Fields drop in order: processes before servers.
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
    /// What stands before Postgres.
    pub proxy: Option<Proxy>,
    /// The queue.
    pub redis: Redis,
    /// The truth.
    pub postgres: Postgres,
    /// The truth instead, where the recipe asks for it.
    pub mysql: Option<Mysql>,
    /// What takes its place when it is gone.
    pub standby: Option<Postgres>,
    /// What is done to all of that.
    pub fault_log: FaultLog,
    dir: Option<tempfile::TempDir>,
    _turn: File,
}

impl Cluster {
    /// Starts everything: beside the clusters of other tests, which mostly wait, unless the recipe wants the machine for
    /// this one. `None`, and a message on standard error, if the program of a server is missing.
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

    /// Starts one more worker.
    pub fn add_worker(&mut self) -> Result<()> {
        let worker = self.worker(&format!("worker-{}", self.workers.len()))?;
        blocking(|| worker.wait_until_ready())?;
        self.workers.push(worker);
        Ok(())
    }

    /// Kills a worker with signal 9.
    pub fn kill_worker(&mut self, n: usize) {
        blocking(|| self.workers[n].kill());
    }

    /// Starts a worker in the place of a dead one, without waiting for it.
    pub fn replace_worker(&mut self, n: usize) -> Result<()> {
        self.workers[n] = self.worker(&self.workers[n].name)?;
        Ok(())
    }

    fn worker(&self, name: &str) -> Result<Process> {
        let environment = [("MAINSPRING_NAME", name)];
        self.program.worker_at_start(name, &environment)
    }

    /// Starts a scheduler in the place, and on the port, of a dead one, without waiting for it.
    pub fn replace_scheduler(&mut self, n: usize) -> Result<()> {
        let (name, port) = (&self.schedulers[n].name, self.schedulers[n].port);
        self.schedulers[n] = self.program.scheduler_on(name, port)?;
        Ok(())
    }

    /// Waits until every process says that it is ready.
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

    /// Crashes Postgres for good. Its standby takes its place, also in the eyes of a proxy.
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

    /// The processes that have ended by themselves.
    pub fn fallen(&mut self) -> Vec<String> {
        let all = self.workers.iter_mut().chain(&mut self.schedulers);
        all.filter_map(|process| (!process.is_alive()).then(|| process.name.clone()))
            .collect()
    }

    /// The addresses of the schedulers.
    pub fn urls(&self) -> Vec<String> {
        self.schedulers.iter().map(Process::url).collect()
    }

    /// What the database answers, past every proxy.
    pub fn query(&self, sql: &str) -> Result<String> {
        blocking(|| self.ask(sql))
    }

    fn ask(&self, sql: &str) -> Result<String> {
        match &self.mysql {
            Some(mysql) => mysql.query("mainspring", sql),
            None => self.postgres.query("mainspring", sql),
        }
    }

    /// A worker that holds a session at this moment, as the database has it.
    pub async fn busy_worker(&self) -> Result<usize> {
        // A worker that was killed a moment ago still has its lease, and another one its name.
        let (now, random) = match self.mysql {
            Some(_) => ("unix_timestamp()", "rand()"),
            None => ("extract(epoch FROM now())", "random()"),
        };
        let sql = format!(
            "SELECT b.name FROM session_hot h JOIN boots b ON b.boot_id = h.owner_boot \
             WHERE b.dead_at IS NULL AND b.lease_until > {now} * 1000 AND NOT EXISTS ( \
                 SELECT 1 FROM boots n WHERE n.name = b.name AND n.started_at > b.started_at \
             ) ORDER BY {random} LIMIT 1"
        );
        for _ in 0..200 {
            let name = self.query(&sql)?;
            if let Some(n) = self.workers.iter().position(|worker| worker.name == name) {
                return Ok(n);
            }
            pause(Duration::from_millis(10)).await;
        }
        anyhow::bail!("no worker holds a session")
    }

    /// The system's own audit: an error unless every invariant holds.
    pub fn audit(&self) -> Result<()> {
        let (code, out, err) = blocking(|| self.program.run(&["audit"]))?;
        ensure!(code == 0, "audit exited with {code}:\n{out}\n{err}");
        Ok(())
    }

    /// Waits until something is so.
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

    /// Says that the test has passed: its logs may go.
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
                // Where it cannot be written, the test's own words have to do.
                let _ = std::fs::write(kept.join(name), rows);
            }
            say(&format!("the logs are kept in {}", kept.display()));
        }
    }
}

/// Whether a server's program is missing. Says so, or panics where `REQUIRE_STORES=all` forbids
/// that.
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

/// The program under test: `MAINSPRING_TEST_BINARY`, else what was built beside this test.
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
    // Where stderr is gone, nobody reads it.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Waits until no test has the machine to itself, and keeps any from taking it as long as the file is held.
///
/// # Errors
/// When a lock file cannot be opened.
pub fn beside() -> Result<File> {
    let _turn = queue()?;
    let file = lock_file("mainspring-faults.lock")?;
    file.lock_shared()?;
    Ok(file)
}

/// Waits until no other test that takes this lock runs on this machine, and keeps them from starting as long as the
/// file is held.
///
/// # Errors
/// When a lock file cannot be opened.
pub fn alone() -> Result<File> {
    let _turn = queue()?;
    let file = lock_file("mainspring-faults.lock")?;
    file.lock()?;
    Ok(file)
}

/// Held while a test waits for the other lock: later ones wait behind it, or tests beside each other would never let
/// one have the machine.
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
