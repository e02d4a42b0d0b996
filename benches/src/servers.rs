//! Private Postgres, MariaDB and Redis servers: on a free port, in a temporary folder, removed on
//! drop.

mod archive;
mod mysql;
mod standby;

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

pub use archive::BaseBackup;
pub use mysql::Mysql;

/// A port that is free, and nobody else's among those who ask here.
///
/// # Errors
/// If there is none, or the lock files cannot be opened.
pub fn free_port() -> Result<u16> {
    // A port that is free now may be another process's by the time it is used. So ports are below
    // those that systems assign by themselves, and one is only handed out by who has its lock.
    static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let locks = std::env::temp_dir().join("mainspring-ports");
    fs::create_dir_all(&locks)?;
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let begin = std::process::id() as usize * 64;
    for n in 0..PORTS.len() {
        let port = PORTS.start + ((begin + n) % PORTS.len()) as u16;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(locks.join(port.to_string()))?;
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            held.push(lock);
            return Ok(port);
        }
    }
    bail!("no port is free")
}

/// The ports of processes and servers under test.
const PORTS: Range<u16> = 15_000..31_000;

/// Waits until something listens on a local port.
pub fn wait_for_port(port: u16, limit: Duration) -> Result<()> {
    wait_for(&format!("port {port}"), limit, || {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else {
            return Ok(false);
        };
        // While nobody listens, a connection may be assigned that very port locally and connect to
        // itself.
        Ok(stream.local_addr()? != stream.peer_addr()?)
    })
}

/// Polls every few milliseconds until the condition holds.
#[expect(clippy::disallowed_methods, reason = "a harness runs in true time")]
pub fn wait_for(
    what: &str,
    limit: Duration,
    mut ready: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let start = std::time::Instant::now();
    while !ready()? {
        if start.elapsed() > limit {
            bail!("{what} was not ready within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid)?).context("a process id is positive")?;
    kill_process(pid, signal).with_context(|| format!("signalling process {pid:?}"))
}

/// Finds a server's program: in `PATH`, or else where Debian installs the newest version.
pub fn find_program(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|p| p.is_file());
    if found.is_none() {
        let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
            .map(|dir| {
                dir.flatten()
                    .map(|entry| entry.path().join("bin").join(name))
                    .collect()
            })
            .unwrap_or_default();
        versions.sort();
        found = versions.into_iter().rev().find(|p| p.is_file());
    }
    found.with_context(|| {
        format!("{name} is not installed (apt-get install postgresql mariadb-server redis-server)")
    })
}

/// Starts a server on a free port, and retries on another one if the port was taken meanwhile.
fn on_a_free_port(mut start: impl FnMut(u16) -> Result<()>) -> Result<()> {
    let mut last = start(free_port()?);
    for _ in 0..4 {
        if last.is_ok() {
            break;
        }
        last = start(free_port()?);
    }
    last
}

/// A Postgres server with default durability.
#[derive(Debug)]
pub struct Postgres {
    dir: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

impl Postgres {
    /// Creates a cluster and starts it.
    pub fn start() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("mainspring-pg-")
            .tempdir()?;
        let data = dir.path().join("data");
        let mut init = Command::new(find_program("initdb")?);
        init.args([
            "-A",
            "trust",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "-D",
        ])
        .arg(&data);
        hand_over(dir.path())?;
        let output = as_server_user(init).output().context("running initdb")?;
        if !output.status.success() {
            bail!("initdb failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Self::started(dir)
    }

    /// Starts a server on an existing folder, on a free port.
    fn started(dir: tempfile::TempDir) -> Result<Self> {
        let mut server = Self {
            dir,
            port: 0,
            child: None,
        };
        on_a_free_port(|port| {
            server.port = port;
            server.restart()
        })?;
        Ok(server)
    }

    /// Starts or restarts the server, and waits until it answers.
    pub fn restart(&mut self) -> Result<()> {
        self.stop();
        let log = File::create(self.dir.path().join("log"))?;
        let mut command = Command::new(find_program("postgres")?);
        command.arg("-D").arg(self.dir.path().join("data"));
        command.args([
            "-p",
            &self.port.to_string(),
            "-c",
            "listen_addresses=127.0.0.1",
        ]);
        command.args(["-c", "max_connections=300"]);
        command.arg("-c").arg(format!(
            "unix_socket_directories={}",
            self.dir.path().display()
        ));
        let mut command = as_server_user(command);
        command
            .stdout(Stdio::null())
            .stderr(log)
            .stdin(Stdio::null());
        self.child = Some(command.spawn().context("starting postgres")?);
        let ready = find_program("pg_isready")?;
        wait_for("postgres", Duration::from_mins(1), || {
            if !self.is_up()? {
                return Ok(false);
            }
            let mut ask = Command::new(&ready);
            ask.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            Ok(ask.status()?.success())
        })
    }

    /// Whether this server reports in its own folder that it is up, so that another one on the same
    /// port is not mistaken for it. An error once it has ended.
    fn is_up(&mut self) -> Result<bool> {
        let child = self.child.as_mut().context("it was started")?;
        if let Some(status) = child.try_wait()? {
            bail!("postgres ended with {status}");
        }
        let pid = child.id().to_string();
        let path = self.dir.path().join("data/postmaster.pid");
        let file = fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = file.lines().map(str::trim).collect();
        // The first line is the process id, the eighth the state.
        let state = lines.get(7).copied().unwrap_or_default();
        Ok(lines.first() == Some(&pid.as_str()) && ["ready", "standby"].contains(&state))
    }

    /// Stops the server at once, as a crash of its machine would: it recovers at the next start.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let pid = self.postmaster().unwrap_or(child.id());
            // Immediate shutdown: no checkpoint, connections are dropped, shared memory is cleaned
            // up.
            let _ = signal(pid, Signal::QUIT);
            let _ = child.wait();
        }
    }

    /// The server's main process: the child itself, or the process that the user switch started.
    pub fn postmaster(&self) -> Option<u32> {
        let file = fs::read_to_string(self.dir.path().join("data/postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Creates a database and returns its URL.
    pub fn create_database(&self, name: &str) -> Result<String> {
        self.query("postgres", &format!("CREATE DATABASE {name}"))?;
        Ok(self.url(name))
    }

    /// Runs SQL through psql and returns what it prints, unaligned.
    pub fn query(&self, database: &str, sql: &str) -> Result<String> {
        let output = Command::new(find_program("psql")?)
            .args([
                "-XAtq",
                "-v",
                "ON_ERROR_STOP=1",
                "-d",
                &self.url(database),
                "-c",
                sql,
            ])
            .output()?;
        if !output.status.success() {
            bail!("psql: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A Redis server without persistence.
#[derive(Debug)]
pub struct Redis {
    dir: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

impl Redis {
    /// Starts a server.
    pub fn start() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("mainspring-redis-")
            .tempdir()?;
        let mut server = Self {
            dir,
            port: 0,
            child: None,
        };
        on_a_free_port(|port| {
            server.port = port;
            server.restart()
        })?;
        Ok(server)
    }

    /// Starts or restarts the server, without data.
    pub fn restart(&mut self) -> Result<()> {
        self.stop();
        let mut command = Command::new(find_program("redis-server")?);
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"]);
        command
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(self.dir.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.child = Some(command.spawn().context("starting redis-server")?);
        wait_for_port(self.port, Duration::from_secs(10))?;
        let pid = self.pid().context("it was started")?;
        let said = self.command(&["INFO", "server"])?;
        let line = format!("process_id:{pid}");
        if !said.lines().any(|it| it.trim() == line) {
            bail!("another Redis answers on port {}", self.port);
        }
        Ok(())
    }

    /// Kills the server; its data is lost.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs a command through redis-cli and returns what it prints.
    pub fn command(&self, words: &[&str]) -> Result<String> {
        let output = Command::new(find_program("redis-cli")?)
            .args(["-p", &self.port.to_string()])
            .args(words)
            .output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Bytes used by the server's data, as reported by the server.
    pub fn used_memory(&self) -> Result<u64> {
        let info = self.command(&["INFO", "memory"])?;
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        line.context("used_memory is missing")?
            .trim()
            .parse()
            .context("a number of bytes")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Postgres refuses to run as root; in that case the server runs as `postgres` or `nobody`.
fn server_user() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let known = |name: &str| {
        users
            .lines()
            .any(|line| line.starts_with(&format!("{name}:")))
    };
    Some(if known("postgres") {
        "postgres"
    } else {
        "nobody"
    })
}

/// Runs a command as the server's user. `setpriv` replaces itself with the program, so that signals
/// reach the server itself.
fn as_server_user(command: Command) -> Command {
    let Some(user) = server_user() else {
        return command;
    };
    let mut switched = Command::new("setpriv");
    switched.args(["--reuid", user, "--regid", user, "--clear-groups", "--"]);
    switched.arg(command.get_program()).args(command.get_args());
    switched
}

fn hand_over(dir: &Path) -> Result<()> {
    if let Some(user) = server_user() {
        let status = Command::new("chown").arg(user).arg(dir).status()?;
        if !status.success() {
            bail!("the folder could not be given to {user}");
        }
    }
    Ok(())
}
