//! Starts an installed program, asks it something, and stops it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::{process, tools};

/// How long a program may take to be ready or to stop, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(5);

/// How long it took since the program was started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) ready: Duration,
    pub(super) answer: Duration,
}

/// What `mainspring` is told to serve this port with data in this folder.
pub(super) fn arguments(port: u16, data: &Path) -> Vec<String> {
    let listen = format!("127.0.0.1:{port}");
    let data = data.display().to_string();
    [
        "dev",
        "--provider",
        "demo",
        "--listen",
        &listen,
        "--data-dir",
        &data,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Runs a command that serves this port, waits until it has answered a send, looks at it, and ends it by SIGTERM, at
/// which it has to stop by itself.
#[expect(
    clippy::disallowed_methods,
    reason = "chores take the time that they take"
)]
pub(super) fn serve(
    mut command: Command,
    port: u16,
    look: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Times> {
    // The user's settings are not the program's, and what it starts ends with it.
    for name in tools::settings() {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).process_group(0);
    let shown = format!("{command:?}");
    let log = tempfile::NamedTempFile::new()?;
    command.stdout(log.reopen()?).stderr(log.reopen()?);
    let begin = Instant::now();
    let mut running = Running(command.spawn().with_context(|| shown.clone())?);
    let tried = (|| {
        running.until(&begin, || ask(port, "GET /readyz HTTP/1.0\r\n\r\n").is_ok())?;
        let ready = begin.elapsed();
        let body = r#"{"input":"hello"}"#;
        let answer = ask(
            port,
            &format!(
                "POST /v1/sends?wait=30s HTTP/1.0\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n\
                idempotency-key: trial\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ),
        )?;
        ensure!(answer.contains(r#""status":"completed""#), "{answer}");
        let times = Times {
            ready,
            answer: begin.elapsed(),
        };
        look()?;
        running.stop()?;
        Ok(times)
    })();
    tried.with_context(|| {
        format!(
            "{shown}:\n{}",
            std::fs::read_to_string(log.path()).unwrap_or_default()
        )
    })
}

/// A program with what it started.
struct Running(Child);

impl Running {
    /// Waits until something holds, or fails if the program ends before.
    fn until(&mut self, begin: &Instant, holds: impl Fn() -> bool) -> anyhow::Result<()> {
        while !holds() {
            if let Some(status) = self.0.try_wait()? {
                bail!("it ended: {status}");
            }
            ensure!(!process::interrupted(), "interrupted");
            ensure!(
                begin.elapsed() < PATIENCE,
                "it is not ready after {PATIENCE:?}"
            );
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "chores take the time that they take"
    )]
    fn stop(&mut self) -> anyhow::Result<()> {
        self.signal("-TERM");
        let begin = Instant::now();
        while self.0.try_wait()?.is_none() {
            ensure!(begin.elapsed() < PATIENCE, "it does not stop");
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn signal(&self, signal: &str) {
        let group = format!("-{}", self.0.id());
        let mut kill = Command::new("kill");
        kill.args([signal, "--", &group]).stderr(Stdio::null());
        let _ = kill.status();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal("-KILL");
        let _ = self.0.wait();
    }
}

/// Sends a request to this machine, and reads an answer that is a success.
fn ask(port: u16, request: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).unwrap_or_default();
    ensure!(status.starts_with('2'), "{answer}");
    Ok(answer)
}
