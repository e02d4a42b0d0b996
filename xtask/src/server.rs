//! A server that lives as long as its handle.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::tools;

/// How long a server may take to start, including an initdb on a busy machine.
const START: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(100);

/// A running server with its folder. Dropping it stops the server and removes the folder.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    child: Child,
    /// The signal that makes the server stop at once, since its data is discarded.
    signal: &'static str,
    /// Removed after the server is gone.
    folders: Vec<TempDir>,
}

impl Server {
    /// Starts a program, with its output in a file in `folder`, and waits until `ready` returns
    /// true.
    pub(crate) fn start(
        name: &str,
        url: String,
        folder: TempDir,
        signal: &'static str,
        mut command: Command,
        ready: impl Fn() -> bool,
    ) -> anyhow::Result<Self> {
        let log = folder.path().join("log");
        let output = std::fs::File::create(&log)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = command
            .spawn()
            .with_context(|| format!("{name} does not start"))?;
        let mut server = Self {
            url,
            child,
            signal,
            folders: vec![folder],
        };
        let looks = START.as_millis() / LOOK.as_millis();
        for _ in 0..looks {
            if let Some(status) = server.child.try_wait()? {
                bail!("{name} ended ({status}):\n{}", tail(&log));
            }
            if crate::process::interrupted() {
                bail!("interrupted");
            }
            if ready() {
                tools::say(&format!("xtask: {name} runs at {}", server.url));
                return Ok(server);
            }
            std::thread::sleep(LOOK);
        }
        bail!("{name} is not ready after {START:?}:\n{}", tail(&log));
    }

    /// Keeps another folder for as long as the server lives.
    pub(crate) fn keep(&mut self, folder: TempDir) {
        self.folders.push(folder);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let id = self.child.id().to_string();
        let _ = Command::new("kill")
            .args([self.signal, &id])
            .stderr(Stdio::null())
            .status();
        for _ in 0..50 {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that runs as `user`, or as ourselves if `None`, and receives `signal` if we are killed
/// before we can stop it.
pub(crate) fn command(user: Option<&str>, signal: &str, program: &Path) -> Command {
    let Some(setpriv) = tools::program("setpriv") else {
        let mut command = match user {
            Some(user) => {
                let mut command = Command::new("su");
                command.args(["-s", program.to_string_lossy().as_ref(), user, "--"]);
                command
            }
            None => Command::new(program),
        };
        command.current_dir("/");
        return command;
    };
    let mut command = Command::new(setpriv);
    if let Some(user) = user {
        let group = primary_group(user);
        command.args(["--reuid", user, "--regid", &group, "--init-groups"]);
    }
    command
        .args(["--pdeathsig", signal, "--"])
        .arg(program)
        .current_dir("/");
    command
}

fn primary_group(user: &str) -> String {
    let output = Command::new("id").args(["-g", user]).output();
    let group = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    group.unwrap_or_else(|_| user.to_owned())
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
