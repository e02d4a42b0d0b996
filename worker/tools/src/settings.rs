//! What the built-in tools may use.

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

/// What the built-in tools may use. By default nothing: no workspace, hence no files and no shell.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where files are. Without it no tool touches any.
    pub workspace: Option<WorkspaceSettings>,
    /// How commands run. Needs a workspace.
    pub shell: Shell,
    /// All that commands see of the worker's environment. See [`allowed`].
    pub environment: BTreeMap<String, String>,
    /// What commands need that run on while the agent works; without it there are none.
    pub background: Option<Background>,
    /// How a process of their own is started for the tools of the workspace; without it they run in
    /// the worker.
    pub launcher: Option<Launcher>,
    /// How agents are isolated that ask for it; without it they cannot be.
    pub isolation: Option<IsolationSettings>,
    /// Where the skills come from whose files are placed into workspaces; without it none are.
    pub skills: Option<Arc<Shelf>>,
    /// The bounds.
    pub limits: Limits,
}

/// How agents are isolated.
#[derive(Debug, Clone)]
pub struct IsolationSettings {
    /// How the process of a send is started.
    pub launcher: Launcher,
    /// Bytes of memory that it, and each process that it starts, may have.
    pub memory: u64,
    /// Processes at a time; further sends wait.
    pub processes_max: usize,
    /// What the tools need that are made in it, besides the workspace.
    pub outside: Outside,
}

/// Where files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceSettings {
    /// The directory, which is created where it is missing. Every worker that may run a session
    /// must see the same one, else the session's files change with the worker.
    pub root: PathBuf,
    /// Whether all sessions work in the directory itself. Otherwise each has a directory of its
    /// own in it, which is named like the session.
    pub shared: bool,
}

impl WorkspaceSettings {
    /// A directory of its own for each session, below `root`.
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
    /// Not at all.
    #[default]
    Off,
    /// As processes of the worker's own user, in the session's directory. Nothing keeps such a
    /// command from what the user may do: only for workers that are sandboxed as a whole, or
    /// whose sessions are trusted.
    Local,
    /// As the argument of another program, which is the sandbox.
    Template(Template),
    /// In a way of one's own.
    Backend(Arc<dyn ShellBackend>),
}

/// A command line that runs a command in a sandbox. Nothing runs where it does not start.
///
/// | placeholder | stands for |
/// |---|---|
/// | `{command}` | the command, as one whole argument |
/// | `{workspace}` | the absolute path of the session's directory |
/// | `{cwd}` | the directory to start in, relative to the session's, `.` for itself |
/// | `{session}` | the session's id |
/// | `{call}` | the call's id, unique |
///
/// With bubblewrap: `bwrap --unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin
/// /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --tmpfs /tmp
/// --bind {workspace} /workspace --chdir /workspace/{cwd} /bin/sh -c {command}`.
///
/// With Docker, or gVisor by `--runtime=runsc`: `docker run --rm --name {call} --network none
/// -v {workspace}:/workspace -w /workspace/{cwd} IMAGE sh -c {command}`, and `docker rm -f {call}`
/// as `cleanup`: a container outlives the program that asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    /// The program and its arguments. The program is a path or is found in the `PATH` of
    /// [`Settings::environment`].
    pub argv: Vec<String>,
    /// Run after a command that was stopped; empty for nothing. Has no `{command}`.
    pub cleanup: Vec<String>,
}

/// The bounds of the built-in tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a file that is read, searched or changed as a whole.
    pub file_bytes_max: u64,
    /// Bytes that are passed over to reach a place in a larger file.
    pub scan_bytes_max: u64,
    /// Characters of a file that one call shows; the next call goes on behind them.
    pub read_chars_max: usize,
    /// Files whose content is remembered as read, over all sessions of a worker.
    pub stamps_max: usize,
    /// Entries that one search looks at.
    pub walk_entries_max: usize,
    /// How long one search may take; what it found until then is its result.
    pub walk_time_max: Duration,
    /// How long a command may take unless it is given another time.
    pub shell_timeout: Duration,
    /// The longest time that a command can be given.
    pub shell_timeout_max: Duration,
    /// Bytes that are kept of a command's output: head and tail.
    pub shell_output_bytes_max: usize,
    /// Commands that run at once in one worker; others wait.
    pub shell_running_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes_max: 5 << 20,
            scan_bytes_max: 256 << 20,
            // Below what a tool's output may be, so that the kernel never cuts a page.
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

/// What commands see of the worker's environment unless it is configured.
pub const ENVIRONMENT_DEFAULT: &[&str] = &["LANG", "LC_ALL", "LC_CTYPE", "PATH", "TZ"];

/// The variables of `environment` with these names.
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
