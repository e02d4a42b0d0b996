//! How a command is turned into a process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use mainspring_shared::id::SessionKey;

use super::inside;

/// Shells for running commands; the first one that exists is used.
const SHELLS: [(&str, &[&str]); 2] = [
    ("/bin/bash", &["--noprofile", "--norc", "-c"]),
    ("/bin/sh", &["-c"]),
];

/// The default `PATH`.
pub(crate) const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// A command to run.
#[derive(Debug, Clone, Copy)]
pub struct ShellCommand<'a> {
    /// The command as the model wrote it.
    pub command: &'a str,
    /// The session's directory.
    pub workspace: &'a Path,
    /// The directory to start in, relative to the workspace; `.` for the workspace itself.
    pub cwd: &'a Path,
    /// The session.
    pub session: SessionKey,
    /// The call's id, which is unique.
    pub call_id: &'a str,
}

/// A process to start. It gets nothing but what is listed here: no other variables, no input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program's absolute path.
    pub program: PathBuf,
    /// The arguments, passed on as they are.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: BTreeMap<String, OsString>,
    /// The directory in which it starts.
    pub directory: PathBuf,
}

/// A way to run commands.
pub trait ShellBackend: Send + Sync + Debug {
    /// The process that runs the command. If this fails, the command is not run and the model is
    /// told why; nothing else runs in its place.
    fn launch(&self, command: &ShellCommand<'_>) -> Result<Launch, String>;

    /// What to run after a command was stopped, if killing its process group does not end it
    /// completely.
    fn cleanup(&self, command: &ShellCommand<'_>) -> Option<Launch> {
        let _ = command;
        None
    }
}

/// Runs commands as processes of the worker's user.
#[derive(Debug)]
pub(crate) struct Local {
    shell: (&'static str, &'static [&'static str]),
    environment: BTreeMap<String, String>,
}

impl Local {
    /// A backend whose commands see these variables.
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
            // Files that programs keep in the home directory belong to the session.
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
