//! How a command becomes a process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use mainspring_shared::id::SessionKey;

use super::inside;

/// Shells that run commands, the first one that is there.
const SHELLS: [(&str, &[&str]); 2] = [
    ("/bin/bash", &["--noprofile", "--norc", "-c"]),
    ("/bin/sh", &["-c"]),
];

/// Where programs are found unless the environment says so.
pub(crate) const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// A command to run.
#[derive(Debug, Clone, Copy)]
pub struct ShellCommand<'a> {
    /// What the model wrote.
    pub command: &'a str,
    /// The session's directory.
    pub workspace: &'a Path,
    /// Where to start, relative to it; `.` for itself.
    pub cwd: &'a Path,
    /// The session.
    pub session: SessionKey,
    /// The call, which no other has.
    pub call_id: &'a str,
}

/// A process to start. It gets nothing but what is said here: no other variables, no input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// An absolute path.
    pub program: PathBuf,
    /// Passed on as they are.
    pub arguments: Vec<OsString>,
    /// All of its environment.
    pub environment: BTreeMap<String, OsString>,
    /// Where it starts.
    pub directory: PathBuf,
}

/// A way to run commands.
pub trait ShellBackend: Send + Sync + Debug {
    /// The process that is the command. Where there is none, the command is not run, and the model
    /// is told why; nothing else runs in its place.
    fn launch(&self, command: &ShellCommand<'_>) -> Result<Launch, String>;

    /// What has to run after a command was stopped, where the end of its process group is not the
    /// end of it.
    fn cleanup(&self, command: &ShellCommand<'_>) -> Option<Launch> {
        let _ = command;
        None
    }
}

/// Commands as processes of the worker's user.
#[derive(Debug)]
pub(crate) struct Local {
    shell: (&'static str, &'static [&'static str]),
    environment: BTreeMap<String, String>,
}

impl Local {
    /// Commands that see these variables.
    pub(crate) fn new(environment: &BTreeMap<String, String>) -> Result<Self, String> {
        let shell = SHELLS
            .into_iter()
            .find(|(path, _)| Path::new(path).exists());
        Ok(Self {
            shell: shell.ok_or("there is no shell here")?,
            environment: environment.clone(),
        })
    }
}

impl ShellBackend for Local {
    fn launch(&self, command: &ShellCommand<'_>) -> Result<Launch, String> {
        let (program, options) = self.shell;
        let mut environment: BTreeMap<String, OsString> = [
            // What programs keep for their user is kept for the session.
            ("HOME", command.workspace.into()),
            ("NO_COLOR", "1".into()),
            ("PAGER", "cat".into()),
            ("PATH", PATH_DEFAULT.into()),
            ("TERM", "dumb".into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let given = self.environment.iter();
        environment.extend(given.map(|(name, value)| (name.clone(), value.into())));
        let arguments = options.iter().copied().chain([command.command]);
        Ok(Launch {
            program: program.into(),
            arguments: arguments.map(OsString::from).collect(),
            environment,
            directory: inside(command.workspace, command.cwd),
        })
    }
}
