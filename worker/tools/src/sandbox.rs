//! Workspace tools in a separate process.
//!
//! A worker that has a launcher never runs these tools itself: for each send it starts a child,
//! which is the same program with another task, in whatever sandbox the launcher names. The child
//! gets the session's directory and nothing else of the worker's: not its environment, the database
//! or any key. Calls and their results travel over the child's standard input and output, each
//! frame with a token drawn for this child. If the child does not start, does not answer or answers
//! nonsense, calls fail: nothing runs in the worker instead.
//!
//! For an isolated agent, the child also makes the calls to its HTTP tools and MCP servers, and
//! receives the settings of those. It is then the send's [`cell`]: if it dies, the send is taken up
//! again as after a worker's death.

pub(crate) mod cell;
mod child;
mod confine;
mod frame;
mod outside;
mod process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_runtime::Lifecycle;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionKey};
use mainspring_shared::time::Clock;
use mainspring_shared::tool::{DeclaredTool, Repeat};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

pub use self::child::run as run_child;
pub use self::confine::{conceal, confine};
use self::frame::{Begin, FromChild};
pub use self::outside::Outside;
use self::outside::WireCell;
use self::process::{Handle, NotAsked, PendingCall, Question};
use crate::files::work::{blocking, stopped};
use crate::files::workspace::Workspace;
use crate::settings::{Limits, Shell};
use crate::shell::{PATH_DEFAULT, find};
use mainspring_worker::tool::{
    CellOwner, Invocation, Output, PerSend, Tool, ToolError, ToolSpec, Traits,
};

/// Placeholder, as a whole argument, for the program and its task.
const CHILD: &str = "{child}";

/// Placeholder for the session's directory.
const WORKSPACE: &str = "{workspace}";

/// The placeholders that may occur inside any argument of a launcher.
const PLACEHOLDERS: [&str; 3] = [WORKSPACE, "{session}", "{send}"];

/// The task of a child on the command line.
pub const TASK: &str = "run-tools";

/// What the model is told when nothing was run.
const NO_START: &str = "the sandbox of tools does not start: the call was not made";

/// Children of one worker at a time; each is a process of a few megabytes.
pub(crate) const CHILDREN_MAX: usize = 64;

/// How long a send waits for its cell to start before it is reported as busy and its session is
/// given to others meanwhile.
pub(crate) const START_WAIT: Duration = Duration::from_secs(5);

/// How often a call that waits for a slot checks whether a child is idle.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How children are started.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// A command line in which the argument `{child}` stands for the program and its task, and
    /// `{workspace}`, `{session}` and `{send}` for the respective values. The workspace must be at
    /// the same path inside the sandbox. `["{child}"]` alone is a process without a sandbox.
    pub argv: Vec<String>,
    /// The program to run as the child: this program.
    pub program: PathBuf,
    /// Source of the tokens.
    pub entropy: Arc<dyn Entropy>,
    /// Its hard stop kills all children.
    pub lifecycle: Lifecycle,
}

impl Launcher {
    /// What is wrong with the launcher, if anything.
    fn fault(&self, path: &str, has_workspace: bool) -> Option<String> {
        let places = self.argv.iter().filter(|word| *word == CHILD).count();
        if places != 1 {
            return Some(format!(
                "the launcher has to have the argument {CHILD} once"
            ));
        }
        if let Some(word) = self.argv.iter().find_map(|word| strange(word)) {
            return Some(format!("the launcher has {word}, which is unknown"));
        }
        if !has_workspace && self.argv.iter().any(|word| word.contains(WORKSPACE)) {
            return Some(format!(
                "the launcher has {WORKSPACE}, but tools.workspace is not set"
            ));
        }
        let program = self.argv.first().filter(|word| *word != CHILD)?;
        let found = find(program, path).is_some();
        (!found).then(|| format!("{program} of the launcher is no program here"))
    }

    /// The command line for one send.
    fn words(&self, workspace: &Path, key: SessionKey, send: SendId, path: &str) -> Vec<String> {
        let mut words = Vec::with_capacity(self.argv.len() + 1);
        for word in &self.argv {
            if word == CHILD {
                words.push(self.program.display().to_string());
                words.push(TASK.to_owned());
                continue;
            }
            let word = word.replace("{session}", &key.session.to_string());
            let word = word.replace("{send}", &send.to_string());
            words.push(word.replace(WORKSPACE, &workspace.display().to_string()));
        }
        // Use the program that was found and checked, whatever `PATH` the worker itself has.
        if let Some(program) = find(&words[0], path) {
            words[0] = program.display().to_string();
        }
        words
    }
}

/// Something that looks like a placeholder but is not one.
fn strange(word: &str) -> Option<&str> {
    let known = |found: &str| found == CHILD || PLACEHOLDERS.contains(&found);
    let mut rest = word;
    while let Some(start) = rest.find('{') {
        let length = rest[start..].find('}')?;
        let found = &rest[start..=start + length];
        let name = &found[1..found.len() - 1];
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
        // `{child}` is replaced only where it is the whole argument.
        if is_name && (!known(found) || (found == CHILD && word != CHILD)) {
            return Some(found);
        }
        rest = &rest[start + 1..];
    }
    None
}

/// What a worker's children are started with.
#[derive(Debug)]
pub(crate) struct JailSettings {
    pub(crate) launcher: Launcher,
    /// Where the sessions' directories are; without it children have none.
    pub(crate) workspace: Option<Arc<Workspace>>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) limits: Limits,
    /// Maximum number of children at a time.
    pub(crate) children_max: usize,
}

/// The children of a worker.
#[derive(Debug)]
pub(crate) struct Jail {
    settings: JailSettings,
    shell: frame::WireShell,
    clock: Arc<dyn Clock>,
    slots: Arc<Semaphore>,
    children: Mutex<BTreeMap<(SessionKey, SendId), Arc<Handle>>>,
}

/// Why a child was not asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum CallNotMade {
    /// The error that the model is shown.
    #[error(transparent)]
    Reply(ToolError),
    /// No child can be started.
    #[error("{NO_START}")]
    NoStart,
}

impl PerSend for Jail {
    /// Ends the child of the send.
    fn left(&self, session: SessionKey, send: SendId) {
        let child = self.children().remove(&(session, send));
        if let Some(child) = child {
            child.end();
        }
    }
}

impl Jail {
    pub(crate) fn new(
        settings: JailSettings,
        shell: &Shell,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let jail = Self {
            shell: frame::WireShell::of(shell)?,
            clock,
            slots: Arc::new(Semaphore::new(settings.children_max)),
            children: Mutex::default(),
            settings,
        };
        let has_workspace = jail.settings.workspace.is_some();
        match jail.settings.launcher.fault(jail.path(), has_workspace) {
            None => Ok(jail),
            Some(fault) => Err(fault),
        }
    }

    /// The `PATH` in which programs are looked up.
    fn path(&self) -> &str {
        let path = self.settings.environment.get("PATH");
        path.map_or(PATH_DEFAULT, String::as_str)
    }

    fn children(&self) -> MutexGuard<'_, BTreeMap<(SessionKey, SendId), Arc<Handle>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires a slot for one more child; an idle child is ended to make room.
    async fn slot(&self, stop: &CancellationToken) -> Result<OwnedSemaphorePermit, CallNotMade> {
        loop {
            if self.slots.available_permits() == 0 {
                let children = self.children();
                let mut children = children.values().filter(|child| !child.is_over());
                // Only one at a time: whoever else waits frees its own slot.
                let _ = children.any(|child| child.end_if_idle());
            }
            tokio::select! {
                slot = self.slots.clone().acquire_owned() => {
                    return Ok(slot.expect("is never closed"));
                }
                () = stop.cancelled() => return Err(CallNotMade::Reply(stopped())),
                () = self.clock.sleep(LOOK_INTERVAL) => {}
            }
        }
    }

    /// The directory that a child works in.
    async fn session_dir(
        &self,
        session: SessionKey,
        stop: &CancellationToken,
    ) -> Result<Option<PathBuf>, CallNotMade> {
        let Some(workspace) = self.settings.workspace.clone() else {
            return Ok(None);
        };
        let session_dir = blocking(stop, move |_| {
            Ok(workspace.session_dir(session)?.path().to_owned())
        });
        session_dir.await.map(Some).map_err(CallNotMade::Reply)
    }

    /// The child of the send, started by its first call. With `cell` it is the cell of an isolated
    /// agent.
    pub(crate) async fn child(
        &self,
        owner: CellOwner,
        stop: &CancellationToken,
        cell: Option<&Arc<WireCell>>,
    ) -> Result<Arc<Handle>, CallNotMade> {
        let CellOwner { session, send } = owner;
        let known = self.children().get(&(session, send)).cloned();
        if let Some(child) = known.filter(|child| !child.is_over()) {
            return Ok(child);
        }
        let slot = self.slot(stop).await?;
        let session_dir = self.session_dir(session, stop).await?;
        // Another call of the send may have been faster; use its child then.
        let mut children = self.children();
        let known = children.get(&(session, send));
        if let Some(child) = known.filter(|child| !child.is_over()) {
            return Ok(child.clone());
        }
        let settings = &self.settings;
        let begin = Begin {
            token: settings.launcher.entropy.random_id().simple().to_string(),
            root: session_dir.clone(),
            shell: if session_dir.is_some() {
                self.shell.clone()
            } else {
                frame::WireShell::Off
            },
            environment: settings.environment.clone(),
            limits: settings.limits.clone(),
            cell: cell.map(|cell| cell.as_ref().clone()),
        };
        let directory = session_dir.unwrap_or_else(|| PathBuf::from("/"));
        let words = settings
            .launcher
            .words(&directory, session, send, self.path());
        let token = begin.token.clone();
        let clock = self.clock.clone();
        let started = process::start(&words, self.path(), &directory, token, clock, slot);
        let started = started.map_err(|error| {
            tracing::warn!(
                session.id = %session.session,
                %error,
                "could not start a process for tools"
            );
            CallNotMade::NoStart
        })?;
        let child = started.handle.clone();
        let aborted = settings.launcher.lifecycle.aborting();
        settings
            .launcher
            .lifecycle
            .spawn(started.watch(begin, aborted));
        children.retain(|_, child| !child.is_over());
        children.insert((session, send), child.clone());
        Ok(child)
    }

    /// Asks the send's child.
    pub(crate) async fn ask<'a>(
        &self,
        owner: CellOwner,
        stop: &CancellationToken,
        cell: Option<&Arc<WireCell>>,
        question: impl Fn() -> Question<'a>,
    ) -> Result<(Arc<Handle>, PendingCall), CallNotMade> {
        loop {
            let child = self.child(owner, stop, cell).await?;
            match child.ask(question()) {
                Ok(asked) => return Ok((child, asked)),
                // It was just ended as idle; try again with a new one.
                Err(NotAsked::Over) => {}
                Err(NotAsked::Refused(why)) => {
                    let why = format!("the call was not made: {why}");
                    return Err(CallNotMade::Reply(ToolError::reply(why)));
                }
            }
        }
    }
}

/// What a child means to its send.
#[derive(Debug)]
pub(crate) enum ChildRole {
    /// It only runs the workspace tools: if it dies, the model is told.
    Tools,
    /// It is the cell of an isolated agent: if it dies, the send is taken up again.
    Cell {
        wire: Arc<WireCell>,
        /// How the agent declares the tool, if the worker has none of that name.
        declared: Option<Box<DeclaredTool>>,
    },
}

/// A tool whose calls run in a child.
#[derive(Debug)]
pub(crate) struct Isolated {
    pub(crate) inner: Arc<dyn Tool>,
    pub(crate) jail: Arc<Jail>,
    pub(crate) role: ChildRole,
}

#[async_trait]
impl Tool for Isolated {
    fn spec(&self) -> ToolSpec {
        self.inner.spec()
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }

    fn kind(&self) -> &'static str {
        "isolated"
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let stop = invocation.stop.clone();
        let owner = CellOwner {
            session: invocation.session,
            send: invocation.send_id,
        };
        let (wire, declared) = match &self.role {
            ChildRole::Tools => (None, None),
            ChildRole::Cell { wire, declared } => (Some(wire), declared.as_deref()),
        };
        let name = self.inner.spec().name;
        let question = || Question::Call {
            tool: &name,
            declared,
            invocation: &invocation,
        };
        let asked = self.jail.ask(owner, &stop, wire, question).await;
        let (child, mut asked) = asked.map_err(|why| match why {
            CallNotMade::Reply(error) => error,
            CallNotMade::NoStart => self.no_start(),
        })?;
        let said = tokio::select! {
            said = asked.answer() => said,
            () = stop.cancelled() => {
                asked.stop();
                asked.answer().await
            }
        };
        match said {
            Some(FromChild::Done {
                content,
                value,
                failed,
                ..
            }) => Ok(Output {
                content,
                value,
                failed,
            }),
            Some(FromChild::Failed { code, message, .. }) => {
                Err(ToolError::Reply { code, message })
            }
            Some(FromChild::Aborted { message, .. }) => Err(ToolError::Abort { message }),
            Some(FromChild::Asks { inquiry, .. }) => Err(ToolError::Asks(inquiry)),
            Some(FromChild::Ready { .. } | FromChild::Listed { .. } | FromChild::Away { .. })
            | None => Err(if child.was_ready() {
                self.broken_off()
            } else {
                self.no_start()
            }),
        }
    }
}

impl Isolated {
    /// The error when no child could be started.
    fn no_start(&self) -> ToolError {
        match self.role {
            ChildRole::Tools => ToolError::reply(NO_START),
            ChildRole::Cell { .. } => ToolError::Lost {
                message: NO_START.to_owned(),
            },
        }
    }

    /// The error when the child died during the call.
    fn broken_off(&self) -> ToolError {
        if let ChildRole::Cell { .. } = self.role {
            return ToolError::Lost {
                message: "the process of the send's tools ended while one of them ran".to_owned(),
            };
        }
        if self.inner.traits().repeat == Repeat::Safe {
            return ToolError::reply("the sandbox ended while the tool ran, which changes nothing");
        }
        ToolError::Reply {
            code: Code::ToolUnknownOutcome,
            message: "the sandbox ended while the tool ran; how far it got is not known".into(),
        }
    }
}
