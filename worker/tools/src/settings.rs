//! Settings of the built-in tools.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mainspring_runtime::Environment;
use serde::{Deserialize, Serialize};

use crate::sandbox::{Launcher, Outside};
use crate::shell::ShellBackend;
use crate::shell::commands::Background;
use crate::skills::Shelf;
use crate::web::WebSettings;

/// What the built-in tools may use. Nothing by default: no workspace, hence no files and no shell.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where files are. Without it no tool touches any files.
    pub workspace: Option<WorkspaceSettings>,
    /// How commands run. Requires a workspace.
    pub shell: Shell,
    /// The whole environment that commands see. See [`allowed`].
    pub environment: BTreeMap<String, String>,
    /// What commands need that keep running in the background while the agent works; without it
    /// there are no such commands.
    pub background: Option<Background>,
    /// How to start child processes that run the workspace tools; without it they run in the
    /// worker.
    pub launcher: Option<Launcher>,
    /// How to isolate agents that ask for it; without it such agents cannot run here.
    pub isolation: Option<IsolationSettings>,
    /// The skills whose files are placed into workspaces; without it none are.
    pub skills: Option<Arc<Shelf>>,
    /// What tells the database from others, if the files of its deleted sessions are to be removed.
    pub database: Option<String>,
    /// How pages of the web are read; without it they are not.
    pub web: Option<WebSettings>,
    /// The limits.
    pub limits: Limits,
}

/// How agents are isolated.
#[derive(Debug, Clone)]
pub struct IsolationSettings {
    /// How to start the process of a send.
    pub launcher: Launcher,
    /// Memory limit in bytes, for that process and for each process that it starts.
    pub memory: u64,
    /// Maximum number of processes at a time; further sends wait.
    pub processes_max: usize,
    /// What the tools in that process need besides the workspace.
    pub outside: Outside,
}

/// Where files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceSettings {
    /// The directory, created if it is missing. Every worker that may run a session must see the
    /// same directory, or the session's files change when it moves to another worker.
    pub root: PathBuf,
    /// Whether all sessions work in the directory itself. Otherwise each session has its own
    /// subdirectory, named after the session.
    pub shared: bool,
}

impl WorkspaceSettings {
    /// A separate directory for each session, below `root`.
    pub fn per_session(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            shared: false,
        }
    }

    /// One directory for all sessions.
    pub fn shared(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            shared: true,
        }
    }
}

/// How commands run.
#[derive(Debug, Clone, Default)]
pub enum Shell {
    /// Commands do not run.
    #[default]
    Off,
    /// As processes of the worker's own user, in the session's directory. Nothing restricts such a
    /// command beyond that user's permissions: only for workers that are sandboxed as a whole, or
    /// whose sessions are trusted.
    Local,
    /// As an argument to another program, which is the sandbox.
    Template(Template),
    /// Through a custom backend.
    Backend(Arc<dyn ShellBackend>),
}

/// A command line that runs a command in a sandbox. If it does not start, nothing runs.
///
/// | placeholder | stands for |
/// |---|---|
/// | `{command}` | the command, as one whole argument |
/// | `{workspace}` | the absolute path of the session's directory |
/// | `{cwd}` | the directory to start in, relative to the session's directory, `.` for that directory itself |
/// | `{session}` | the session's id |
/// | `{call}` | the call's id, which is unique |
///
/// With bubblewrap: `bwrap --unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin
/// /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp
/// --bind {workspace} /workspace --chdir /workspace/{cwd} /bin/sh -c {command}`.
///
/// With Docker, or with gVisor via `--runtime=runsc`: `docker run --rm --name {call} --network none
/// -v {workspace}:/workspace -w /workspace/{cwd} IMAGE sh -c {command}`, and `docker rm -f {call}`
/// as `cleanup`, because a container outlives the program that started it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    /// The program and its arguments. The program is a path or is looked up in the `PATH` of
    /// [`Settings::environment`].
    pub argv: Vec<String>,
    /// Run after a command was stopped; empty for nothing. Must not contain `{command}`.
    pub cleanup: Vec<String>,
}

/// Limits of the built-in tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Maximum bytes of a file that is read, searched or changed as a whole.
    pub file_bytes_max: u64,
    /// Maximum bytes to skip to reach a position in a larger file.
    pub scan_bytes_max: u64,
    /// Maximum characters of a file that one call returns; the next call continues after them.
    pub read_chars_max: usize,
    /// Maximum number of files remembered as read, across all sessions of a worker.
    pub stamps_max: usize,
    /// Maximum number of entries that one search visits.
    pub walk_entries_max: usize,
    /// How long one search may take; it returns what it found by then.
    pub walk_time_max: Duration,
    /// Timeout of a command unless the call sets another.
    pub shell_timeout: Duration,
    /// Longest timeout that a call can set for a command.
    pub shell_timeout_max: Duration,
    /// Bytes kept of a command's output: its head and tail.
    pub shell_output_bytes_max: usize,
    /// Maximum number of commands that run at once in one worker; others wait.
    pub shell_running_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes_max: 5 << 20,
            scan_bytes_max: 256 << 20,
            // Below the limit on a tool's output, so that the kernel never truncates a page.
            read_chars_max: 48_000,
            stamps_max: 4_096,
            walk_entries_max: 200_000,
            walk_time_max: Duration::from_secs(20),
            shell_timeout: Duration::from_mins(2),
            shell_timeout_max: Duration::from_mins(10),
            shell_output_bytes_max: 1 << 20,
            shell_running_max: 64,
        }
    }
}

/// The environment variables that commands see by default.
pub const ENVIRONMENT_DEFAULT: &[&str] = &["LANG", "LC_ALL", "LC_CTYPE", "PATH", "TZ"];

/// The variables of `environment` that have these names.
pub fn allowed<'a>(
    environment: &Environment,
    names: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<String, String> {
    let set = names.into_iter().filter_map(|name| {
        let value = environment.get(name)?;
        Some((name.to_owned(), value.to_owned()))
    });
    set.collect()
}
