//! A server as a child process, in its own process group and killed when its owner drops it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, DuplexStream};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::lines;
use mainspring_shared::secrets::Secrets;
use mainspring_worker::llm::Secret;

/// The variables that a server inherits from the worker: enough to find programs, files and its
/// locale.
const INHERITED: &[&str] = &[
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ",
    "USER",
];

/// Bytes kept of a server's latest standard error output.
const KEPT_BYTES_MAX: usize = 8 << 10;

/// Characters of it reported with a failure. Fewer than are kept, because a secret cut in half at
/// the buffer's start would not be recognized and hidden.
const SAID_CHARS_MAX: usize = 600;

/// How long to wait for the last output of a dead server.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);

/// A running server. Dropping it kills its process group.
#[derive(Debug)]
pub(super) struct Process {
    group: Group,
    said: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    secrets: Secrets,
}

/// What a server writes, with its results sealed, and the pipe to it.
pub(super) type Pipes = (DuplexStream, ChildStdin);

impl Process {
    /// Starts a program with its own environment. Its output may quote `secrets`.
    pub(super) fn start(
        server: &str,
        command: &str,
        args: &[String],
        env: &BTreeMap<String, Secret>,
        secrets: Secrets,
    ) -> io::Result<(Self, Pipes)> {
        let mut child = Command::new(command)
            .args(args)
            .env_clear()
            .envs(inherited())
            .envs(env.iter().map(|(name, value)| (name, value.expose())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let missing = || io::Error::other("a pipe is missing");
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let process = Self {
            group: Group(child),
            reader: tokio::spawn(listen(server.to_owned(), stderr, said.clone())),
            said,
            secrets,
        };
        Ok((process, (lines::sealed(stdout), stdin)))
    }

    /// Kills it, and returns its exit status and last output, fit to be shown.
    pub(super) async fn last_words(self) -> String {
        let Self {
            mut group,
            said,
            reader,
            secrets,
        } = self;
        group.kill();
        let status = timeout(LAST_WORDS_TIMEOUT, group.0.wait()).await;
        // A grandchild that left the group may hold the pipe open.
        let _ = timeout(LAST_WORDS_TIMEOUT, reader).await;
        let said = said.lock().unwrap_or_else(PoisonError::into_inner);
        let said = presentable(&said, &secrets);
        match status {
            Ok(Ok(status)) if said.is_empty() => format!(" ({status})"),
            Ok(Ok(status)) => format!(" ({status}): {said}"),
            _ if said.is_empty() => String::new(),
            _ => format!(": {said}"),
        }
    }
}

pub(super) fn inherited() -> impl Iterator<Item = (&'static str, OsString)> {
    let value = |name: &&'static str| Some((*name, std::env::var_os(name)?));
    INHERITED.iter().filter_map(value)
}

/// The leader of a process group. It is not waited for until the group is killed, so that its
/// number cannot be reused meanwhile.
#[derive(Debug)]
struct Group(Child);

impl Group {
    fn kill(&mut self) {
        let leader = self.0.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = leader.and_then(Pid::from_raw) {
            // It may have exited already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Drains a server's standard error, so that the server never blocks on it.
async fn listen(server: String, mut stderr: impl AsyncRead + Unpin, said: Arc<Mutex<Vec<u8>>>) {
    let mut piece = [0; 4096];
    while let Ok(read @ 1..) = stderr.read(&mut piece).await {
        tracing::debug!(
            mcp.server = server,
            bytes = read,
            "an MCP server wrote to its standard error"
        );
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(&piece[..read]);
        let old = said.len().saturating_sub(KEPT_BYTES_MAX);
        said.drain(..old);
    }
}

/// The end of a text as one line, with the server's secrets hidden.
fn presentable(said: &[u8], secrets: &Secrets) -> String {
    let said = secrets.hidden(&String::from_utf8_lossy(said));
    let words: Vec<&str> = said
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let line = words.join(" ");
    let skipped = line.chars().count().saturating_sub(SAID_CHARS_MAX);
    line.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn said(script: &str, env: &BTreeMap<String, Secret>) -> String {
        let args = ["-c".to_owned(), script.to_owned()];
        let secrets = env.values().map(Secret::expose);
        let secrets = secrets.fold(Secrets::default(), Secrets::and);
        let (process, (mut stdout, stdin)) =
            Process::start("test", "sh", &args, env, secrets).expect("sh starts");
        drop(stdin);
        let mut out = String::new();
        stdout.read_to_string(&mut out).await.expect("a pipe");
        out + &process.last_words().await
    }

    #[tokio::test]
    async fn a_server_gets_its_own_environment_and_little_of_the_workers() {
        let env = BTreeMap::from([("KEY".to_owned(), Secret::new("value"))]);
        let output = said("env", &env).await;
        assert!(output.contains("KEY=value"), "{output}");
        assert!(output.contains("PATH="), "{output}");
        let ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let leaked = ours.filter(|name| {
            let shown = format!("\n{name}=");
            !INHERITED.contains(&name.as_str())
                // Set by the shell itself.
                && !["PWD", "SHLVL", "_", "OLDPWD"].contains(&name.as_str())
                && format!("\n{output}").contains(&shown)
        });
        assert_eq!(leaked.collect::<Vec<_>>(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn last_words_are_short_and_without_secrets() {
        let env = BTreeMap::from([("KEY".to_owned(), Secret::new("sk-secret"))]);
        let words = said("echo bad key: $KEY >&2; exit 3", &env).await;
        assert_eq!(words, " (exit status: 3): bad key: [redacted]");
        let long = said("yes long | head -c 100000 >&2", &BTreeMap::new()).await;
        assert!(long.len() < SAID_CHARS_MAX + 50, "{}", long.len());
        assert!(long.ends_with("long"), "{long}");
        // Nothing is left of a secret that is cut in half.
        let script = format!("echo ${{KEY}}{} >&2", "x".repeat(SAID_CHARS_MAX - 5));
        let words = said(&script, &env).await;
        assert!(
            words.contains("xxx") && !words.contains("secret"),
            "{words}"
        );
    }

    #[tokio::test]
    async fn a_server_dies_with_all_its_children() {
        let script = "sleep 600 & echo $!; wait";
        let args = ["-c".to_owned(), script.to_owned()];
        let none = (BTreeMap::new(), Secrets::default());
        let (process, (mut stdout, _stdin)) =
            Process::start("test", "sh", &args, &none.0, none.1).expect("sh starts");
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            assert_ne!(stdout.read_buf(&mut line).await.expect("a pipe"), 0);
        }
        drop(process);
        // The pipe closes when the last process that holds it is gone.
        assert_eq!(stdout.read_buf(&mut line).await.expect("a pipe"), 0);
    }
}
