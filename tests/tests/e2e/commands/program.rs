//! Runs the binary in an environment of its own.

use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// The program under test.
pub(crate) fn binary() -> PathBuf {
    mainspring_tests::faults::binary().expect("it is built")
}

/// The binary with nothing of the caller's environment.
pub(crate) fn mainspring() -> Command {
    let mut command = Command::new(binary());
    command.env_clear().stdin(Stdio::null());
    command
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

/// Runs a client command against a server.
pub(crate) fn ask(server: &str, arguments: &[&str]) -> Ended {
    let mut command = mainspring();
    command.env("MAINSPRING_SERVER", server).args(arguments);
    command.output().expect("runs").into()
}

/// Runs a client command that must succeed; returns its JSON output.
pub(crate) fn json(server: &str, arguments: &[&str]) -> Value {
    let mut all = arguments.to_vec();
    all.extend(["-o", "json"]);
    let ended = ask(server, &all);
    assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.stderr);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

/// Runs a client command with input on stdin.
pub(crate) fn ask_with_input(server: &str, arguments: &[&str], input: &str) -> Ended {
    let mut command = mainspring();
    command.env("MAINSPRING_SERVER", server).args(arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("runs");
    // Fails if the command has ended early.
    let _ = child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes());
    child.wait_with_output().expect("ends").into()
}

/// A process that serves until it is stopped; killed when dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    child: Child,
    /// Where it serves.
    pub(crate) url: String,
    /// Kept open, because the process would fail on a closed pipe.
    _stdout: Option<BufReader<ChildStdout>>,
}

impl Serving {
    /// Starts `mainspring dev` on a free port; returns when it accepts connections.
    pub(crate) fn dev(folder: &Path, more: &[&str]) -> Self {
        Self::dev_by(mainspring(), folder, more)
    }

    /// The same, by a command that ends with the program.
    pub(crate) fn dev_by(mut command: Command, folder: &Path, more: &[&str]) -> Self {
        command.args([
            "dev",
            "--listen",
            "127.0.0.1:0",
            "--log",
            "warn",
            "--data-dir",
        ]);
        command
            .arg(folder)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a first line");
        let url = line.trim().rsplit(' ').next().expect("a word").to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{line:?}");
        Self {
            child,
            url,
            _stdout: Some(stdout),
        }
    }

    /// Starts any other role, without waiting until it is ready.
    pub(crate) fn role(mut command: Command, url: String) -> Self {
        let child = command.spawn().expect("starts");
        Self {
            child,
            url,
            _stdout: None,
        }
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .expect("kill runs");
        assert!(sent.success());
    }

    /// Waits for its end; returns its exit code, `None` if a signal ended it.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        eventually("the process ends", || self.child.try_wait().expect("waits")).code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls until something is there, for at most a minute.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..1_200 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}: not within a minute");
}

/// A server's Prometheus metrics.
pub(crate) fn metrics(url: &str) -> String {
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).expect("it listens");
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("UTF-8");
    text
}
