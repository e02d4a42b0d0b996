//! Runs one command, from its start to the end of its last process.

use std::io::{self, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::time::Clock;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::backend::Launch;
use super::group::{GUARDED, Group, MARK};
use super::output::Kept;

/// How long a command that is being stopped has to exit on its own.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// How long to wait for output after the command has ended; processes that it left may hold the
/// pipe.
const REST: Duration = Duration::from_millis(500);

/// How long the cleanup may take.
const CLEANUP_TIME: Duration = Duration::from_secs(10);

/// Bytes of output read at once.
const PIECE_BYTES: usize = 16 << 10;

/// A command to run.
#[derive(Debug)]
pub(crate) struct Process<'a> {
    pub(crate) launch: &'a Launch,
    /// Run after the command was stopped.
    pub(crate) cleanup: Option<Launch>,
    pub(crate) call_id: &'a str,
    /// Buffers its output as it arrives.
    pub(crate) kept: &'a Arc<Mutex<Kept>>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) stop: &'a CancellationToken,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It exited with this code; after a signal, 128 plus its number, as in shells.
    Exited(i32),
    TimedOut,
    Stopped,
}

impl Process<'_> {
    /// Runs it for at most `time`; returns how it ended and its output. An error means that it did
    /// not start.
    pub(crate) async fn run(self, time: Duration) -> io::Result<(Ended, String)> {
        // Locals drop in reverse order, so the group is killed before its leader is reaped.
        let (mut child, output, group) = self.start()?;
        let mut cleanup = Cleanup(self.cleanup.as_ref());
        let mut output = Pump {
            from: Some(output),
            piece: vec![0; PIECE_BYTES],
            kept: self.kept,
        };
        let mut out_of_time = self.clock.sleep(time);
        let ended = loop {
            tokio::select! {
                () = self.stop.cancelled() => break Ended::Stopped,
                () = &mut out_of_time => break Ended::TimedOut,
                status = child.wait() => break Ended::Exited(code(status?)),
                () = output.some(), if output.from.is_some() => {}
            }
        };
        if let Ended::Exited(_) = ended {
            cleanup.0 = None;
            self.within(REST, output.all()).await;
        } else {
            group.ask();
            self.within(GRACE, output.beside(child.wait())).await;
        }
        group.end().await;
        // No process is left to write.
        self.within(REST, output.all()).await;
        if let Some(launch) = cleanup.0.take() {
            self.clean_up(launch).await;
        }
        Ok((ended, output.text()))
    }

    fn start(&self) -> io::Result<(Child, Receiver, Group)> {
        let (input, guard) = pipe()?;
        let (output, written) = pipe()?;
        let errors = written.try_clone()?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", GUARDED, "mainspring"])
            .arg(&self.launch.program)
            .args(&self.launch.arguments)
            .env_clear()
            .envs(&self.launch.environment)
            .env(MARK, self.call_id)
            .current_dir(&self.launch.directory)
            .stdin(input)
            // One pipe for both, to keep their order.
            .stdout(written)
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(true);
        let output = Receiver::from_owned_fd(OwnedFd::from(output))?;
        let child = command.spawn()?;
        let group = Group::new(child.id(), self.call_id, guard);
        Ok((child, output, group))
    }

    async fn within<T>(&self, time: Duration, work: impl Future<Output = T>) {
        tokio::select! {
            _ = work => {}
            () = self.clock.sleep(time) => {}
        }
    }

    async fn clean_up(&self, launch: &Launch) {
        let mut child = match cleaning(launch).spawn() {
            Ok(child) => child,
            Err(error) => {
                tracing::warn!(%error, "could not start the cleanup after a command");
                return;
            }
        };
        tokio::select! {
            status = child.wait() => {
                if !status.is_ok_and(|status| status.success()) {
                    tracing::warn!("the cleanup after a command failed");
                }
            }
            () = self.clock.sleep(CLEANUP_TIME) => {
                tracing::warn!("the cleanup after a command takes too long");
            }
        }
    }
}

fn cleaning(launch: &Launch) -> Command {
    let mut command = Command::new(&launch.program);
    command
        .args(&launch.arguments)
        .env_clear()
        .envs(&launch.environment)
        .current_dir(&launch.directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command
}

/// A cleanup that also runs when nobody waits for the command any more.
#[derive(Debug)]
struct Cleanup<'a>(Option<&'a Launch>);

impl Drop for Cleanup<'_> {
    fn drop(&mut self) {
        if let Some(launch) = self.0
            && tokio::runtime::Handle::try_current().is_ok()
            && let Err(error) = cleaning(launch).spawn()
        {
            tracing::warn!(%error, "could not start the cleanup after a command");
        }
    }
}

/// Reads output as it arrives.
#[derive(Debug)]
struct Pump<'a> {
    /// `None` once it has ended.
    from: Option<Receiver>,
    piece: Vec<u8>,
    kept: &'a Mutex<Kept>,
}

impl Pump<'_> {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The output kept so far.
    fn text(&self) -> String {
        let kept = self.kept().clone();
        kept.text()
    }

    /// Reads what is available. Nothing is lost if this is dropped.
    async fn some(&mut self) {
        let Some(from) = &mut self.from else {
            return;
        };
        match from.read(&mut self.piece).await {
            Ok(0) | Err(_) => self.from = None,
            Ok(read) => self.kept().push(&self.piece[..read]),
        }
    }

    /// Reads until the output ends.
    async fn all(&mut self) {
        while self.from.is_some() {
            self.some().await;
        }
    }

    /// Reads until something else is done.
    async fn beside<T>(&mut self, done: impl Future<Output = T>) {
        tokio::pin!(done);
        loop {
            tokio::select! {
                _ = &mut done => return,
                () = self.some(), if self.from.is_some() => {}
            }
        }
    }
}

fn code(status: ExitStatus) -> i32 {
    let signal = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(signal).unwrap_or(-1)
}
