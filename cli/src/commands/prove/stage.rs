//! Where a proof plays: a folder, processes of this program, a client, and a record of what was seen.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use comfy_table::{Table, presets};
use mainspring_runtime::Environment;
use mainspring_shared::time::Clock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::asking::{LOOK, PATIENCE, ask, id, late};
use super::model::Model;
use super::tools::Tools;
use crate::args::{Format, ProveArgs};
use crate::client::{Client, Request};
use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::output;

/// What children get of the caller's environment: what a program needs to run at all.
const KEPT: [&str; 4] = ["PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH"];

/// The lease of the proof's processes: as short as it can be, so that nothing takes long.
pub(super) const LEASE: Duration = Duration::from_secs(1);

/// Rows, and findings, that are shown: more do not fit on a screen.
const ROWS: usize = 12;
const FINDINGS: usize = 8;

/// The place of one proof.
#[derive(Debug)]
pub(super) struct Stage {
    folder: TempDir,
    program: PathBuf,
    config: Config,
    format: Format,
    /// Settings of the processes beyond those that they all have.
    settings: Vec<(String, String)>,
    began: Duration,
    draws: u64,
    pub(super) clock: mainspring_runtime::SystemClock,
    pub(super) args: ProveArgs,
    /// What clients were told, beside what the model and the tools saw.
    beside: Vec<(String, String)>,
    /// Measurements by name.
    figures: Map<String, Value>,
    /// Broken promises.
    pub(super) findings: Vec<String>,
    pub(super) shape: &'static str,
    audited: Option<usize>,
    starts: u32,
}

/// A process of this program; killed when dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    port: u16,
    pub(super) client: Client,
}

impl Server {
    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // It may have ended already.
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills it with signal 9, and waits for its end.
    pub(super) async fn kill(&mut self) {
        self.signal(Signal::KILL);
        // Fails only if there is nothing to wait for.
        let _ = self.child.wait().await;
    }

    /// Asks it to stop, and waits for its end.
    async fn stop(&mut self) {
        self.signal(Signal::CONT);
        self.signal(Signal::TERM);
        if tokio::time::timeout(PATIENCE, self.child.wait())
            .await
            .is_err()
        {
            self.kill().await;
        }
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }
}

/// A process, or how one ended that did not start: its exit code and what it said.
pub(super) type Started = Result<Server, (i32, String)>;

impl Stage {
    /// An empty place.
    pub(super) fn new(args: &ProveArgs, format: Format, config: &Config) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new()
            .prefix("mainspring-prove-")
            .tempdir()
            .map_err(|error| {
                Failure::new(Exit::Failure, format!("no folder to work in: {error}"))
                    .next("set TMPDIR to a folder with some room")
            })?;
        let program = std::env::current_exe().map_err(|error| {
            Failure::new(Exit::Failure, format!("where am I? {error}"))
                .next("run the program by its path")
        })?;
        let clock = mainspring_runtime::SystemClock::new();
        let began = clock.monotonic();
        let seed = args.seed.unwrap_or_else(|| clock.now().0.unsigned_abs());
        let mut args = args.clone();
        args.seed = Some(seed);
        Ok(Self {
            folder,
            program,
            config: config.clone(),
            format,
            settings: Vec::new(),
            began,
            draws: seed,
            clock,
            args,
            beside: Vec::new(),
            figures: Map::new(),
            findings: Vec::new(),
            shape: "one process on SQLite",
            audited: None,
            starts: 0,
        })
    }

    /// How long to do harm.
    pub(super) fn seconds(&self, default: u64) -> Duration {
        Duration::from_secs(self.args.seconds.unwrap_or(default))
    }

    /// Whether a fault is planted.
    pub(super) fn plants(&self) -> bool {
        self.args.plant
    }

    /// A number from the seed, below `end`.
    pub(super) fn draw(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.draws = self.draws.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.draws;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }

    /// Says what happens, and when.
    pub(super) fn say(&self, what: &str) -> Result<(), Failure> {
        if self.format != Format::Table {
            return Ok(());
        }
        let seconds = self.elapsed().as_secs_f64();
        output::line(&format!("{seconds:5.1} s  {}", output::harmless(what)))
    }

    fn elapsed(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.began)
    }

    /// Adds a row: what clients were told, and what the model or a tool saw.
    pub(super) fn beside(&mut self, told: impl Into<String>, saw: impl Into<String>) {
        self.beside.push((told.into(), saw.into()));
    }

    /// Adds a measurement.
    pub(super) fn figure(&mut self, name: &str, value: impl Into<Value>) {
        self.figures.insert(name.to_owned(), value.into());
    }

    /// Adds a broken promise unless it holds.
    pub(super) fn expect(&mut self, holds: bool, broken: impl FnOnce() -> String) {
        if !holds {
            self.findings.push(broken());
        }
    }

    /// Adds a setting of the processes that are started from now on.
    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.settings.push((name.to_owned(), value.into()));
    }

    /// Has the processes ask this model.
    pub(super) fn ask_of(&mut self, model: &Model) {
        self.set("MAINSPRING_LLM_PROVIDER", "openai");
        self.set("MAINSPRING_LLM_BASE_URL", model.base_url());
        self.set("MAINSPRING_LLM_API_KEY", "a-key-of-the-proof");
        self.set("MAINSPRING_LLM_MODEL", "proof");
        self.set("MAINSPRING_LEASE_TTL", format!("{}s", LEASE.as_secs()));
        self.set("MAINSPRING_TOOLS_ALLOW_PRIVATE", "127.0.0.1");
        // The proof kills one process more often than a send should take.
        self.set("MAINSPRING_WORKER_CRASHES_MAX", "1000");
    }

    /// Has the processes use a schema of their own on this server.
    pub(super) fn on_database(&mut self, url: &str) {
        let schema = format!("mainspring_prove_{}", self.clock.now().0.unsigned_abs());
        self.set("MAINSPRING_DATABASE_URL", url);
        self.set("MAINSPRING_DATABASE_SCHEMA", schema.clone());
        self.figure("schema", schema);
    }

    /// Starts a model and has the processes ask it.
    pub(super) async fn model(
        &mut self,
        script: impl Fn(&super::model::Prompt) -> super::model::Reply + Send + Sync + 'static,
    ) -> Result<Model, Failure> {
        let model = Model::start(script)
            .await
            .map_err(|error| no_port(&error))?;
        self.ask_of(&model);
        Ok(model)
    }

    /// Starts a server of tools.
    pub(super) async fn tools(&self, takes: Duration) -> Result<Tools, Failure> {
        Tools::start(takes).await.map_err(|error| no_port(&error))
    }

    /// Whether the processes use a database server.
    fn is_on_server(&self) -> bool {
        let mut settings = self.settings.iter();
        settings.any(|(name, _)| name == "MAINSPRING_DATABASE_URL")
    }

    /// The data folder of the processes.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let environment = Environment::read();
        for name in KEPT {
            if let Some(value) = environment.get(name) {
                command.env(name, value);
            }
        }
        command.env("MAINSPRING_DATA_DIR", self.data());
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts a process that serves, on a port of its own, and waits until it does.
    pub(super) async fn serve(&mut self) -> Result<Server, Failure> {
        let port = free_port()?;
        self.serve_at(port).await
    }

    /// Starts one in the place of another that has ended.
    pub(super) async fn again(&mut self, server: &mut Server) -> Result<(), Failure> {
        *server = self.serve_at(server.port).await?;
        Ok(())
    }

    async fn serve_at(&mut self, port: u16) -> Result<Server, Failure> {
        match self.try_serve_at(port).await? {
            Ok(server) => Ok(server),
            Err((code, said)) => {
                let message = format!("the server ended with {code}: {said}");
                Err(Failure::new(Exit::Failure, message)
                    .next("if its address was taken meanwhile, run the proof again"))
            }
        }
    }

    /// Starts a process beside the others, which may refuse.
    pub(super) async fn try_serve(&mut self) -> Result<Started, Failure> {
        let port = free_port()?;
        self.try_serve_at(port).await
    }

    async fn try_serve_at(&mut self, port: u16) -> Result<Started, Failure> {
        self.starts += 1;
        let log = self
            .folder
            .path()
            .join(format!("server-{}.log", self.starts));
        let file = File::create(&log).map_err(|error| no_room(&error))?;
        let address = format!("127.0.0.1:{port}");
        let is_on_server = self.is_on_server();
        let role = if is_on_server { "serve" } else { "dev" };
        let mut command = self.command(&[role, "--listen", &address, "--log", "warn"]);
        command.stdout(Stdio::null()).stderr(file);
        let mut child = command.spawn().map_err(|error| {
            let program = self.program.display();
            Failure::new(
                Exit::Failure,
                format!("{program} cannot be started: {error}"),
            )
            .next("run the program from where it is, and not while it is replaced")
        })?;
        let config = Config {
            server: format!("http://{address}"),
            api_key: None,
            tenant: None,
            ..self.config.clone()
        };
        let client = Client::new(&config)?;
        let until = self.clock.monotonic() + PATIENCE;
        loop {
            if let Ok(Some(status)) = child.try_wait() {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                return Ok(Err((status.code().unwrap_or(-1), said.trim().to_owned())));
            }
            if client.ask(Request::get("/v1/info")).await.is_ok() {
                return Ok(Ok(Server {
                    child,
                    port,
                    client,
                }));
            }
            if self.clock.monotonic() > until {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                let message = format!("the server did not start in 30 s: {}", said.trim());
                return Err(Failure::new(Exit::Unavailable, message)
                    .next("the machine may be too busy: try again"));
            }
            self.clock.sleep(LOOK).await;
        }
    }

    /// Waits until something is so.
    pub(super) async fn until(
        &self,
        what: &str,
        mut is_so: impl FnMut() -> bool,
    ) -> Result<(), Failure> {
        let until = self.clock.monotonic() + PATIENCE;
        while !is_so() {
            if self.clock.monotonic() > until {
                return Err(late(what));
            }
            self.clock.sleep(LOOK).await;
        }
        Ok(())
    }

    /// Creates a session.
    pub(super) async fn session(&self, client: &Client, agent: &Value) -> Result<String, Failure> {
        let request = Request::post("/v1/sessions").body(json!({ "agent": agent }));
        let session = ask(client, &request.key(client.fresh_key())).await?;
        Ok(id(&session))
    }

    /// Stops the processes and has the data checked.
    pub(super) async fn audit(&mut self, servers: Vec<Server>) -> Result<(), Failure> {
        for mut server in servers {
            server.stop().await;
        }
        let mut command = self.command(&["audit", "-o", "json"]);
        let ended = command.output().await.map_err(|error| {
            Failure::new(
                Exit::Failure,
                format!("the audit cannot be started: {error}"),
            )
        })?;
        let violations: Vec<Value> = serde_json::from_slice(&ended.stdout).map_err(|_| {
            let said = String::from_utf8_lossy(&ended.stderr);
            Failure::new(Exit::Failure, format!("the audit failed: {}", said.trim()))
        })?;
        self.audited = Some(violations.len());
        for violation in &violations {
            let name = violation["invariant"].as_str().unwrap_or("an invariant");
            self.findings.push(format!("the audit found {name}"));
        }
        Ok(())
    }

    /// Says what was found; fails if a promise was broken, or a planted fault was not found.
    pub(super) fn conclude(mut self, name: &str) -> Result<(), Failure> {
        let findings = std::mem::take(&mut self.findings);
        let verdict = match (findings.is_empty(), self.args.plant) {
            (true, false) => "proved",
            (true, true) => "missed",
            (false, _) => "broken",
        };
        if self.format == Format::Table {
            self.tell(&findings)?;
        } else {
            let beside: Vec<Value> = self
                .beside
                .iter()
                .map(|(told, saw)| json!({ "told": told, "saw": saw }))
                .collect();
            let report = json!({
                "proof": name, "verdict": verdict, "planted": self.args.plant,
                "shape": self.shape, "seed": self.args.seed, "findings": findings,
                "beside": beside, "figures": self.figures,
                "audit": { "violations": self.audited },
                "seconds": (self.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            });
            output::object(self.format, &report)?;
        }
        match verdict {
            "proved" => Ok(()),
            "missed" => Err(Failure::new(
                Exit::Failure,
                "the planted fault was not found, so the proof proves nothing here",
            )
            .next("report this with the output above")),
            _ => {
                if !self.args.plant {
                    let kept = self.folder.keep();
                    output::note(&format!(
                        "the data and the logs are kept in {}",
                        kept.display()
                    ));
                }
                Err(Failure::silent(Exit::Failure))
            }
        }
    }

    fn tell(&self, findings: &[String]) -> Result<(), Failure> {
        let mut table = Table::new();
        table
            .load_preset(presets::NOTHING)
            .set_header(["what clients were told", "what the model and the tools saw"]);
        for (told, saw) in self.beside.iter().take(ROWS) {
            table.add_row([output::harmless(told), output::harmless(saw)]);
        }
        output::line("")?;
        for line in table.lines() {
            output::line(line.trim_end())?;
        }
        if self.beside.len() > ROWS {
            output::line(&format!(" and {} more", self.beside.len() - ROWS))?;
        }
        output::line("")?;
        for (name, value) in &self.figures {
            output::line(&format!("{}: {value}", name.replace('_', " ")))?;
        }
        output::line(&format!("shape: {}", self.shape))?;
        match self.audited {
            Some(0) => output::line("audit: no invariant is violated")?,
            Some(count) => output::line(&format!("audit: {count} invariants are violated"))?,
            None => {}
        }
        for finding in findings.iter().take(FINDINGS) {
            output::line(&format!("BROKEN: {}", output::harmless(finding)))?;
        }
        if findings.len() > FINDINGS {
            output::line(&format!("and {} more", findings.len() - FINDINGS))?;
        }
        match (findings.is_empty(), self.args.plant) {
            (true, false) => output::line("PROVED"),
            (false, true) => output::line("The planted fault was found."),
            (true, true) | (false, false) => Ok(()),
        }
    }
}

/// A port of this machine that nobody listens on.
fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| no_port(&error))?;
    Ok(listener
        .local_addr()
        .map_err(|error| no_port(&error))?
        .port())
}

fn no_port(error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Failure,
        format!("127.0.0.1 cannot be listened on: {error}"),
    )
    .next("a proof needs the loopback interface and a few free ports")
}

pub(super) fn no_room(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failure, format!("no file can be made: {error}"))
        .next("set TMPDIR to a folder with some room")
}

/// A number with its ending: 1st, 2nd, 3rd.
pub(super) fn nth(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (1, hundred) if hundred != 11 => "st",
        (2, hundred) if hundred != 12 => "nd",
        (3, hundred) if hundred != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// How often, in words.
pub(super) fn times(count: usize) -> String {
    match count {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}
