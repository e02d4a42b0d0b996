//! `shell`: commands in the workspace.
//!
//! Every command is a process in its own process group, with a closed standard input and only the
//! environment it is meant to see. When it ends, times out, is stopped or is no longer awaited,
//! none of its processes are left running. A [`ShellBackend`] decides how the process is started.

mod backend;
pub(crate) mod commands;
mod group;
mod output;
mod process;
mod template;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::error::Code;
use mainspring_shared::session::fold::digest::cut;
use mainspring_shared::time::{Clock, Span};
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;

pub use self::backend::{Launch, ShellBackend, ShellCommand};
pub(crate) use self::backend::{Local, PATH_DEFAULT};
pub(crate) use self::group::end_marked;
pub(crate) use self::output::Kept;
pub(crate) use self::process::{Ended, Process};
pub(crate) use self::template::{Templated, find};
use crate::catalogue::{Listed, SHELL, tool};
use crate::files::list_dir::here;
use crate::files::work::{arguments, blocking, stopped};
use crate::files::workspace::Workspace;
use crate::words::counted;
use mainspring_worker::tool::{
    Concurrency, Invocation, OnInterrupt, Output, Tool, ToolError, ToolSpec, Traits,
};

/// How much longer than the longest command timeout the kernel waits, so that the tool itself gets
/// to report how far the command came.
const MARGIN: Duration = Duration::from_secs(30);

/// Characters of a command shown in its digest.
const COMMAND_CHARS: usize = 100;

/// Characters of its last line of output shown in the digest.
const LAST_CHARS: usize = 80;

/// State that the tools that run commands share.
pub(crate) struct Runs {
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) backend: Arc<dyn ShellBackend>,
    pub(crate) clock: Arc<dyn Clock>,
}

pub(crate) const TOOLS: [Listed<Runs>; 1] = [tool(
    "shell",
    SHELL,
    "runs a command and waits for it",
    |runs| Arc::new(Shell::new(runs)),
)];

#[derive(Debug)]
pub(crate) struct Shell {
    workspace: Arc<Workspace>,
    backend: Arc<dyn ShellBackend>,
    clock: Arc<dyn Clock>,
    running: Semaphore,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    command: String,
    #[serde(default = "here")]
    cwd: String,
    #[serde(default)]
    timeout: Option<u64>,
}

impl Shell {
    fn new(runs: &Runs) -> Self {
        let running = runs.workspace.limits.shell_running_max.max(1);
        Self {
            workspace: runs.workspace.clone(),
            backend: runs.backend.clone(),
            clock: runs.clock.clone(),
            running: Semaphore::new(running),
        }
    }

    fn time(&self, wanted: Option<u64>) -> Duration {
        let limits = &self.workspace.limits;
        let time = wanted.map_or(limits.shell_timeout, Duration::from_secs);
        time.min(limits.shell_timeout_max)
    }

    /// How the command is started.
    async fn launch(
        &self,
        invocation: &Invocation,
        wanted: Arguments,
    ) -> Result<(Launch, Option<Launch>), ToolError> {
        let (workspace, backend) = (self.workspace.clone(), self.backend.clone());
        let (session, call_id) = (invocation.session, invocation.call_id.clone());
        blocking(&invocation.stop, move |_| {
            let session_dir = workspace.session_dir(session)?;
            let (_, cwd) = session_dir.directory(&wanted.cwd)?;
            let command = ShellCommand {
                command: &wanted.command,
                workspace: session_dir.path(),
                cwd: &cwd,
                session,
                call_id: &call_id,
            };
            let launch = backend.launch(&command);
            let launch = launch.map_err(|why| {
                tracing::warn!(session.id = %session.session, why, "could not start a command");
                ToolError::reply(format!("the command was not run: {why}"))
            })?;
            Ok((launch, backend.cleanup(&command)))
        })
        .await
    }
}

#[async_trait]
impl Tool for Shell {
    fn spec(&self) -> ToolSpec {
        let limits = &self.workspace.limits;
        let (time, max) = (limits.shell_timeout, limits.shell_timeout_max);
        ToolSpec {
            name: "shell".into(),
            description:
                "Runs a command in a new shell in the workspace and returns its exit code \
                          and output. Only files persist between commands: set the directory with \
                          cwd, and variables in the command itself. There is no stdin and no \
                          terminal. Processes that are still running when the shell exits are \
                          killed."
                    .into(),
            parameters: json!({
                "type": "object",
                "required": ["command"],
                "additionalProperties": false,
                "properties": {
                    "command": {"type": "string", "minLength": 1},
                    "cwd": {
                        "type": "string",
                        "description": "Working directory; the workspace by default.",
                    },
                    "timeout": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": max.as_secs(),
                        "description": format!("Timeout in seconds, {} by default.", time.as_secs()),
                    },
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits {
            timeout: self.workspace.limits.shell_timeout_max + MARGIN,
            concurrency: Concurrency::Exclusive,
            on_interrupt: OnInterrupt::Stop,
            // A command that is stopped gets a moment to exit on its own.
            grace: process::GRACE * 3,
            ..Traits::new(Repeat::Once)
        }
    }

    async fn call(&self, mut invocation: Invocation) -> Result<Output, ToolError> {
        let given = std::mem::take(&mut invocation.arguments);
        let wanted: Arguments = arguments(given)?;
        let time = self.time(wanted.timeout);
        let command = wanted.command.clone();
        let _turn = tokio::select! {
            turn = self.running.acquire() => turn.expect("is never closed"),
            () = invocation.stop.cancelled() => return Err(stopped()),
        };
        let (launch, cleanup) = self.launch(&invocation, wanted).await?;
        let kept = Kept::new(self.workspace.limits.shell_output_bytes_max);
        let kept = Arc::new(Mutex::new(kept));
        let process = Process {
            launch: &launch,
            cleanup,
            call_id: &invocation.call_id,
            kept: &kept,
            clock: self.clock.as_ref(),
            stop: &invocation.stop,
        };
        let (ended, output) = process.run(time).await.map_err(|error| {
            tracing::warn!(%error, "could not start a command");
            ToolError::reply(format!("the command was not run: {error}"))
        })?;
        match ended {
            Ended::Exited(code) => {
                let digest = digest(&command, code, &output);
                Ok(Output::text(format!("exit_code={code}\n{output}")).with_digest(digest))
            }
            Ended::TimedOut => Err(ToolError::Reply {
                code: Code::ToolTimeout,
                message: format!(
                    "the command timed out after {}; its output until then:\n{output}",
                    Span(time)
                ),
            }),
            Ended::Stopped => Err(ToolError::Reply {
                code: Code::ToolInterrupted,
                message: format!("the command was stopped; its output until then:\n{output}"),
            }),
        }
    }
}

/// The digest of a command: what it was, its exit code and its last line of output.
fn digest(command: &str, code: i32, output: &str) -> String {
    let said = output
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let (lines, last) = said.fold((0, ""), |(lines, _), line| (lines + 1, line));
    let command = cut(command.trim(), COMMAND_CHARS);
    let mut digest = format!("exit code {code} of `{command}`");
    if lines > 0 {
        let last = cut(last, LAST_CHARS);
        // Writing to a string cannot fail.
        let _ = write!(
            digest,
            "; {}, the last: {last}",
            counted(lines, "line", "lines")
        );
    }
    digest
}

/// The absolute path of a directory in the workspace.
fn inside(workspace: &Path, cwd: &Path) -> std::path::PathBuf {
    if cwd == Path::new(".") {
        workspace.to_owned()
    } else {
        workspace.join(cwd)
    }
}
