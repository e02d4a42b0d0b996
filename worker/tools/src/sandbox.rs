//! Tools of the workspace in a process of their own.
//!
//! A worker that has a launcher never runs them itself: for each send it starts a child, the same
//! program with another task, behind whatever sandbox the launcher names. The child gets the
//! session's directory and nothing else of the worker's: not its environment, not the database, no
//! key. Calls and their results go over its standard input and output, each frame with a token that
//! is drawn for this child. Where the child does not start, does not answer or says what makes no
//! sense, calls fail: nothing runs in the worker in its place.

mod child;
mod frame;
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
use mainspring_shared::tool::Repeat;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::child::run as run_child;
use self::frame::{Begin, Up};
use self::process::{Handle, NotAsked, PendingCall};
use crate::files::work::{blocking, stopped};
use crate::files::workspace::Workspace;
use crate::settings::Shell;
use crate::shell::{PATH_DEFAULT, find};
use mainspring_worker::tool::{Invocation, Output, PerSend, Tool, ToolError, ToolSpec, Traits};

/// Stands, as a whole argument, for the program and its task.
const CHILD: &str = "{child}";

/// What else may stand in a launcher.
const PLACEHOLDERS: [&str; 3] = ["{workspace}", "{session}", "{send}"];

/// The task of a child on the command line.
pub const TASK: &str = "run-tools";

/// What the model is told where nothing was run.
const NO_START: &str = "the sandbox of tools does not start: the call was not made";

/// Children of one worker at a time: each is a process of some megabytes.
const CHILDREN_MAX: usize = 64;

/// How often a call that waits for a place looks whether a child has nothing to do.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How children are started.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// A command line, in which the argument `{child}` stands for the program and its task, and
    /// `{workspace}`, `{session}` and `{send}` for what they say. The workspace must be found at the
    /// same path inside. `["{child}"]` alone is a process without a sandbox.
    pub argv: Vec<String>,
    /// The program: this one.
    pub program: PathBuf,
    /// Where tokens come from.
    pub entropy: Arc<dyn Entropy>,
    /// Its hard stop ends all children.
    pub lifecycle: Lifecycle,
}

impl Launcher {
    /// What is wrong with it.
    fn fault(&self, path: &str) -> Option<String> {
        let places = self.argv.iter().filter(|word| *word == CHILD).count();
        if places != 1 {
            return Some(format!(
                "the launcher has to have the argument {CHILD} once"
            ));
        }
        if let Some(word) = self.argv.iter().find_map(|word| strange(word)) {
            return Some(format!("the launcher has {word}, which is unknown"));
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
            words.push(word.replace("{workspace}", &workspace.display().to_string()));
        }
        // Found where it was judged, whatever the worker's own environment says.
        if let Some(program) = find(&words[0], path) {
            words[0] = program.display().to_string();
        }
        words
    }
}

/// What looks like a placeholder and is none.
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

/// The children of a worker.
#[derive(Debug)]
pub(crate) struct Jail {
    launcher: Launcher,
    workspace: Arc<Workspace>,
    shell: frame::WireShell,
    environment: BTreeMap<String, String>,
    clock: Arc<dyn Clock>,
    slots: Arc<Semaphore>,
    children: Mutex<BTreeMap<(SessionKey, SendId), Arc<Handle>>>,
}

impl PerSend for Jail {
    /// Its child ends.
    fn left(&self, session: SessionKey, send: SendId) {
        let child = self.children().remove(&(session, send));
        if let Some(child) = child {
            child.end();
        }
    }
}

impl Jail {
    pub(crate) fn new(
        launcher: Launcher,
        workspace: Arc<Workspace>,
        shell: &Shell,
        environment: BTreeMap<String, String>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let jail = Self {
            launcher,
            shell: frame::WireShell::of(shell)?,
            workspace,
            environment,
            clock,
            slots: Arc::new(Semaphore::new(CHILDREN_MAX)),
            children: Mutex::default(),
        };
        match jail.launcher.fault(jail.path()) {
            None => Ok(jail),
            Some(fault) => Err(fault),
        }
    }

    /// Where programs are found.
    fn path(&self) -> &str {
        let path = self.environment.get("PATH");
        path.map_or(PATH_DEFAULT, String::as_str)
    }

    fn children(&self) -> MutexGuard<'_, BTreeMap<(SessionKey, SendId), Arc<Handle>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more child; one that has nothing to do makes room.
    async fn slot(&self, invocation: &Invocation) -> Result<OwnedSemaphorePermit, ToolError> {
        loop {
            if self.slots.available_permits() == 0 {
                let children = self.children();
                let mut children = children.values().filter(|child| !child.is_over());
                // One at a time: who waits beside this call needs a place of its own.
                let _ = children.any(|child| child.end_if_idle());
            }
            tokio::select! {
                slot = self.slots.clone().acquire_owned() => {
                    return Ok(slot.expect("is never closed"));
                }
                () = invocation.stop.cancelled() => return Err(stopped()),
                () = self.clock.sleep(LOOK_INTERVAL) => {}
            }
        }
    }

    /// The child of the send, which is started by its first call.
    async fn child(&self, invocation: &Invocation) -> Result<Arc<Handle>, ToolError> {
        let (session, send) = (invocation.session, invocation.send_id);
        let known = self.children().get(&(session, send)).cloned();
        if let Some(child) = known.filter(|child| !child.is_over()) {
            return Ok(child);
        }
        let slot = self.slot(invocation).await?;
        let workspace = self.workspace.clone();
        let room = blocking(&invocation.stop, move |_| {
            Ok(workspace.room(session)?.path().to_owned())
        });
        let room = room.await?;
        // Another call of the send may have been quicker; its child is the one.
        let mut children = self.children();
        let known = children.get(&(session, send));
        if let Some(child) = known.filter(|child| !child.is_over()) {
            return Ok(child.clone());
        }
        let begin = Begin {
            token: self.launcher.entropy.random_id().simple().to_string(),
            root: room.clone(),
            shell: self.shell.clone(),
            environment: self.environment.clone(),
            limits: self.workspace.limits.clone(),
        };
        let words = self.launcher.words(&room, session, send, self.path());
        let token = begin.token.clone();
        let clock = self.clock.clone();
        let started = process::start(&words, self.path(), &room, token, clock, slot);
        let started = started.map_err(|error| {
            tracing::warn!(session.id = %session.session, %error, "no process for tools");
            ToolError::reply(NO_START)
        })?;
        let child = started.handle.clone();
        let aborted = self.launcher.lifecycle.aborting();
        self.launcher.lifecycle.spawn(started.watch(begin, aborted));
        children.retain(|_, child| !child.is_over());
        children.insert((session, send), child.clone());
        Ok(child)
    }

    /// Gives the call to the send's child.
    async fn ask(
        &self,
        tool: &str,
        invocation: Invocation,
    ) -> Result<(Arc<Handle>, PendingCall), ToolError> {
        loop {
            let child = self.child(&invocation).await?;
            match child.ask(tool, invocation.clone()) {
                Ok(asked) => return Ok((child, asked)),
                // It went to sleep just now; the next one is new.
                Err(NotAsked::Over) => {}
                Err(NotAsked::Refused(why)) => {
                    return Err(ToolError::reply(format!("the call was not made: {why}")));
                }
            }
        }
    }
}

/// A tool whose calls are made in a child.
#[derive(Debug)]
pub(crate) struct Isolated {
    pub(crate) inner: Arc<dyn Tool>,
    pub(crate) jail: Arc<Jail>,
}

#[async_trait]
impl Tool for Isolated {
    fn spec(&self) -> ToolSpec {
        self.inner.spec()
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let stop = invocation.stop.clone();
        let (child, mut asked) = self.jail.ask(&self.inner.spec().name, invocation).await?;
        let said = tokio::select! {
            said = asked.answer() => said,
            () = stop.cancelled() => {
                asked.stop();
                asked.answer().await
            }
        };
        match said {
            Some(Up::Done {
                content,
                value,
                failed,
                ..
            }) => Ok(Output {
                content,
                value,
                failed,
            }),
            Some(Up::Failed { code, message, .. }) => Err(ToolError::Reply { code, message }),
            Some(Up::Aborted { message, .. }) => Err(ToolError::Abort { message }),
            Some(Up::Ready { .. }) | None if !child.was_ready() => Err(ToolError::reply(NO_START)),
            Some(Up::Ready { .. }) | None => Err(self.broken_off()),
        }
    }
}

impl Isolated {
    /// The child went away in the middle of the call.
    fn broken_off(&self) -> ToolError {
        if self.inner.traits().repeat == Repeat::Safe {
            return ToolError::reply("the sandbox ended while the tool ran, which changes nothing");
        }
        ToolError::Reply {
            code: Code::ToolUnknownOutcome,
            message: "the sandbox ended while the tool ran; how far it came is not known".into(),
        }
    }
}
