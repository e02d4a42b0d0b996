//! `mainspring` processes that are started, signalled, measured, and killed on drop.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use crate::servers::{free_port, signal, wait_for};

/// The program, and where its processes log.
#[derive(Debug, Clone)]
pub struct Program {
    /// The `mainspring` binary.
    pub binary: PathBuf,
    /// The folder for logs.
    pub logs: PathBuf,
    /// Environment of every process.
    pub environment: Vec<(String, String)>,
}

/// A running process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Its name in messages and its log's file name.
    pub name: String,
    /// The port on which it serves HTTP: a scheduler its API, a worker its ops endpoints.
    pub port: u16,
}

impl Program {
    /// Starts a scheduler and waits until it is ready.
    pub fn scheduler(&self, name: &str) -> Result<Process> {
        let port = free_port()?;
        let process = self.start(name, &["scheduler"], port, "MAINSPRING_LISTEN", &[])?;
        process.wait_until_ready()?;
        Ok(process)
    }

    /// Starts a scheduler on this port without waiting, for one that comes back after a crash.
    pub fn scheduler_on(&self, name: &str, port: u16) -> Result<Process> {
        self.start(name, &["scheduler"], port, "MAINSPRING_LISTEN", &[])
    }

    /// Starts a worker and waits until it is ready.
    pub fn worker(&self, name: &str, environment: &[(&str, &str)]) -> Result<Process> {
        let process = self.worker_at_start(name, environment)?;
        process.wait_until_ready()?;
        Ok(process)
    }

    /// Starts a worker without waiting, for one that has to wait for its servers.
    pub fn worker_at_start(&self, name: &str, environment: &[(&str, &str)]) -> Result<Process> {
        let (port, listen) = (free_port()?, "MAINSPRING_OPS_LISTEN");
        self.start(name, &["worker"], port, listen, environment)
    }

    /// Starts a worker on this port without waiting, for one that comes back after a crash.
    pub fn worker_on(
        &self,
        name: &str,
        port: u16,
        environment: &[(&str, &str)],
    ) -> Result<Process> {
        self.start(
            name,
            &["worker"],
            port,
            "MAINSPRING_OPS_LISTEN",
            environment,
        )
    }

    /// Starts a process with both roles.
    pub fn dev(&self, name: &str, data_dir: &Path) -> Result<Process> {
        let port = free_port()?;
        let data_dir = data_dir.to_str().context("a UTF-8 path")?;
        let environment = [("MAINSPRING_DATA_DIR", data_dir)];
        self.start(name, &["dev"], port, "MAINSPRING_LISTEN", &environment)
    }

    /// The same on a database server.
    pub fn dev_on(&self, name: &str, data_dir: &Path, database: &str) -> Result<Process> {
        let port = free_port()?;
        let data_dir = data_dir.to_str().context("a UTF-8 path")?;
        let environment = [("MAINSPRING_DATA_DIR", data_dir)];
        let words = ["dev", "--database-url", database];
        self.start(name, &words, port, "MAINSPRING_LISTEN", &environment)
    }

    /// Runs a command to its end and returns its exit code, stdout and stderr.
    pub fn run(&self, arguments: &[&str]) -> Result<(i32, String, String)> {
        self.run_with_input(arguments, "")
    }

    /// The same, with input for its stdin that must fit into a pipe.
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Result<(i32, String, String)> {
        let mut child = Command::new(&self.binary)
            .args(arguments)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("running mainspring {}", arguments.join(" ")))?;
        if let Some(mut stdin) = child.stdin.take() {
            // The exit code judges a command that ends without reading.
            let _ = stdin.write_all(input.as_bytes());
        }
        let output = child.wait_with_output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((
            output.status.code().unwrap_or(-1),
            text(&output.stdout),
            text(&output.stderr),
        ))
    }

    fn start(
        &self,
        name: &str,
        arguments: &[&str],
        port: u16,
        listen: &str,
        environment: &[(&str, &str)],
    ) -> Result<Process> {
        fs::create_dir_all(&self.logs)?;
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.logs.join(format!("{name}.log")))?;
        let child = Command::new(&self.binary)
            .args(arguments)
            .envs(self.environment.iter().cloned())
            .envs(environment.iter().copied())
            .env(listen, format!("127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", self.binary.display()))?;
        Ok(Process {
            child,
            name: name.to_owned(),
            port,
        })
    }
}

impl Process {
    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it reports that it is ready.
    pub fn wait_until_ready(&self) -> Result<()> {
        let limit = Duration::from_secs(30);
        wait_for(
            &format!("{} on port {}", self.name, self.port),
            limit,
            || Ok(self.is_ready()),
        )
    }

    fn is_ready(&self) -> bool {
        let ask = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.write_all(b"GET /readyz HTTP/1.0\r\nhost: localhost\r\n\r\n")?;
            let mut answer = [0; 12];
            stream.read_exact(&mut answer)?;
            Ok(answer.ends_with(b" 200"))
        };
        ask().unwrap_or(false)
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it a signal.
    pub fn signal(&self, which: Signal) -> Result<()> {
        signal(self.pid(), which)
    }

    /// Suspends it: it does nothing at all until `resume`.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes it.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to stop and waits; returns its exit code, or an error if it takes longer than
    /// `limit`.
    pub fn stop(&mut self, limit: Duration) -> Result<i32> {
        self.signal(Signal::TERM)?;
        let mut code = None;
        let waited = wait_for(&format!("the end of {}", self.name), limit, || {
            code = self.child.try_wait()?;
            Ok(code.is_some())
        });
        waited?;
        match code.and_then(|status| status.code()) {
            Some(code) => Ok(code),
            None => bail!("{} was killed by a signal", self.name),
        }
    }

    /// The processor time that it has used.
    pub fn cpu(&self) -> Result<Duration> {
        cpu_of(self.pid())
    }

    /// Its resident memory in bytes, private and shared.
    pub fn resident_memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes: u64 = line
            .and_then(|line| line.trim().strip_suffix("kB"))
            .context("VmRSS is missing")?
            .trim()
            .parse()?;
        Ok(kilobytes * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The processor time of one process, from the kernel's accounting in ticks of 10 ms.
pub fn cpu_of(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command's name may contain spaces; the numbers follow its closing parenthesis.
    let numbers: Vec<&str> = stat
        .rsplit_once(')')
        .context("no name in stat")?
        .1
        .split_whitespace()
        .collect();
    let ticks: u64 = numbers[11].parse::<u64>()? + numbers[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// The processor time of a process and its children, including those that have ended.
pub fn cpu_of_tree(pid: u32) -> Result<Duration> {
    let mut total = cpu_of(pid)?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let numbers: Vec<&str> = stat
        .rsplit_once(')')
        .context("no name in stat")?
        .1
        .split_whitespace()
        .collect();
    total +=
        Duration::from_millis((numbers[13].parse::<u64>()? + numbers[14].parse::<u64>()?) * 10);
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    for child in children.split_whitespace() {
        total += cpu_of(child.parse()?).unwrap_or_default();
    }
    Ok(total)
}
