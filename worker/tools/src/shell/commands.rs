//! `command_start`, `command_output`, `command_stop`: commands that run in the background while the
//! agent works.
//!
//! A command belongs to the worker that started it and ends with it: when the worker is asked to
//! stop, and when it dies. Its state is an entry of a list in the database, so any worker can tell
//! how it ended, or that it was lost together with its worker.

mod tools;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mainspring_runtime::Lifecycle;
use mainspring_shared::agent::OnBusy;
use mainspring_shared::bus::{Bus, Topic};
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, SessionKey};
use mainspring_shared::inbox::ItemKind;
use mainspring_shared::list::{Bounds, Change, Entry, ListName, NewEntry, Refusal, WhenFull};
use mainspring_shared::message::ContentPart;
use mainspring_shared::queue::{Activation, Lane, Queue};
use mainspring_shared::session::SIGNAL_INBOX;
use mainspring_shared::store::{self, DeliverItem, DeliverOutcome, ListOutcome, Store, WriteList};
use mainspring_shared::time::{Clock, Span};
use tokio_util::sync::CancellationToken;

use self::tools::Start;
pub(crate) use self::tools::TOOLS;
use crate::files::work::blocking;
use crate::files::workspace::Workspace;
use crate::shell::{Ended, Kept, Launch, Process, ShellBackend, ShellCommand};
use mainspring_worker::tool::{Invocation, Output, ToolError};

/// Commands of one session, including those that ended.
const COMMANDS_MAX: u32 = 8;

/// Characters of a command's output that are stored when it ends.
const OUTPUT_CHARS_MAX: usize = 20_000;

/// Maximum characters of a command.
const COMMAND_CHARS_MAX: usize = 10_000;

/// How long a command may run unless the call sets another time.
const TIME: Duration = Duration::from_hours(1);

/// The longest time that a call can set for a command.
const TIME_MAX: Duration = Duration::from_hours(24);

/// How often to check that the session still has a running command's entry.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// Undelivered items that one session may have.
const ITEMS_MAX: i64 = 1_000;

const BOUNDS: Bounds = Bounds {
    entries_max: COMMANDS_MAX,
    chars_max: COMMAND_CHARS_MAX + OUTPUT_CHARS_MAX + 1_000,
    when_full: WhenFull::Fifo,
};

/// What background commands need besides a shell.
#[derive(Debug, Clone)]
pub struct Background {
    /// Where the commands' outcomes are stored.
    pub store: Arc<dyn Store>,
    /// Where a session is enqueued when one of its commands has ended.
    pub queue: Arc<dyn Queue>,
    /// Notifies the worker that runs the session.
    pub bus: Arc<dyn Bus>,
    /// Its stop ends all commands.
    pub lifecycle: Lifecycle,
}

/// A command running in this process.
#[derive(Debug, Clone)]
struct Job {
    kept: Arc<Mutex<Kept>>,
    stop: CancellationToken,
    /// Cancelled once the command's end is stored.
    over: CancellationToken,
}

/// The commands of this process.
#[derive(Debug)]
pub(crate) struct Commands {
    pub(crate) background: Background,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) backend: Arc<dyn ShellBackend>,
    pub(crate) clock: Arc<dyn Clock>,
    jobs: Mutex<BTreeMap<(SessionKey, i64), Job>>,
}

/// A started command to be watched.
struct Started {
    key: SessionKey,
    id: i64,
    call_id: String,
    command: String,
    boot: BootId,
    launch: Launch,
    cleanup: Option<Launch>,
    time: Duration,
    job: Job,
}

impl Commands {
    pub(crate) fn new(
        background: Background,
        workspace: Arc<Workspace>,
        backend: Arc<dyn ShellBackend>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            background,
            workspace,
            backend,
            clock,
            jobs: Mutex::default(),
        }
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<(SessionKey, i64), Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn start(self: &Arc<Self>, invocation: &Invocation, wanted: Start) -> Reply {
        let lifecycle = &self.background.lifecycle;
        if lifecycle.is_stopping() {
            return Err(ToolError::reply("the worker is about to stop; try again"));
        }
        let time = wanted.timeout.map_or(TIME, Duration::from_secs);
        let command = wanted.command.clone();
        let (launch, cleanup) = self.launch(invocation, wanted).await?;
        let entry = NewEntry {
            text: command.clone(),
            kind: Some(invocation.call_id.clone()),
            status: Some("running".to_owned()),
            author: Some(invocation.boot.0.to_string()),
            pinned: true,
        };
        let key = invocation.session;
        let written = self.write(key, &invocation.call_id, Change::Add(entry));
        let id = match written.await? {
            ListOutcome::Written { written, .. } => written.entry.unwrap_or_default(),
            ListOutcome::Refused(Refusal::AllPinned { max }) => {
                let text = format!("{max} commands are already running: stop one of them first");
                return Err(ToolError::reply(text));
            }
            ListOutcome::Refused(refusal) => return Err(ToolError::reply(refusal.to_string())),
            ListOutcome::Gone => return Err(ToolError::reply("the session is gone")),
        };
        let started = Started {
            key,
            id,
            call_id: invocation.call_id.clone(),
            command,
            boot: invocation.boot,
            launch,
            cleanup,
            time,
            job: Job {
                kept: Arc::new(Mutex::new(Kept::new(
                    self.workspace.limits.shell_output_bytes_max,
                ))),
                stop: CancellationToken::new(),
                over: CancellationToken::new(),
            },
        };
        self.jobs().insert((key, id), started.job.clone());
        let commands = self.clone();
        lifecycle.spawn(async move { commands.watch(started).await });
        Ok(Output::text(format!(
            "Command {id} runs for at most {}. You will be notified when it ends.",
            Span(time)
        )))
    }

    async fn launch(
        &self,
        invocation: &Invocation,
        wanted: Start,
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
            let launch = backend.launch(&command).map_err(|why| {
                tracing::warn!(session.id = %session.session, why, "could not start a command");
                ToolError::reply(format!("the command was not run: {why}"))
            })?;
            Ok((launch, backend.cleanup(&command)))
        })
        .await
    }

    /// Runs a command to its end, stores the outcome, and notifies its session.
    async fn watch(self: Arc<Self>, started: Started) {
        let Started { key, id, .. } = started;
        let stop = started.job.stop.clone();
        let process = Process {
            launch: &started.launch,
            cleanup: started.cleanup.clone(),
            call_id: &started.call_id,
            kept: &started.job.kept,
            clock: self.clock.as_ref(),
            stop: &stop,
        };
        let guard = async {
            tokio::select! {
                () = self.background.lifecycle.stopping() => {}
                () = self.until_gone(key, id) => {}
            }
            stop.cancel();
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = process.run(started.time) => ended,
            () = guard => return,
        };
        let (status, output) = match ended {
            Ok((Ended::Exited(code), output)) => (format!("exit_code={code}"), output),
            Ok((Ended::TimedOut, output)) => ("timed_out".to_owned(), output),
            Ok((Ended::Stopped, output)) => ("stopped".to_owned(), output),
            Err(error) => (format!("not_started: {error}"), String::new()),
        };
        let output = shortened(&output);
        let command = &started.command;
        let change = Change::Update {
            id,
            text: Some(format!("{command}\n{output}")),
            status: Some(status.clone()),
            pinned: Some(false),
            if_version: None,
        };
        let call_id = format!("{}_end", started.call_id);
        // If the database is unavailable, a stopping worker does not wait for it: the next reader
        // finds `lost`.
        let stored = self.write(key, &call_id, change).await;
        self.jobs().remove(&(key, id));
        started.job.over.cancel();
        if matches!(stored, Ok(ListOutcome::Written { .. })) {
            let text = format!("Command {id} has ended, {status}: {command}\n{output}");
            self.tell(&started, text).await;
        }
    }

    /// Waits until the session, or its entry for the command, is gone.
    async fn until_gone(&self, key: SessionKey, id: i64) {
        loop {
            self.clock.sleep(LOOK_INTERVAL).await;
            let name = ListName::Commands(key.session);
            if let Ok(list) = self.background.store.read_list(key.tenant, name).await
                && list.entries.iter().all(|entry| entry.id != id)
            {
                return;
            }
        }
    }

    /// Delivers the outcome to the session's inbox. If the session is idle, its next send receives
    /// it.
    async fn tell(&self, started: &Started, text: String) {
        let key = started.key;
        let item = DeliverItem {
            key,
            item_id: format!("command_{}", started.call_id),
            kind: ItemKind::LateResult,
            mode: OnBusy::Steer,
            content: vec![ContentPart::text(text)],
            idempotency: None,
            items_max: ITEMS_MAX,
        };
        let Background {
            store, queue, bus, ..
        } = &self.background;
        let mut pause = Duration::from_millis(50);
        let outcome = loop {
            // If the response to a stored delivery was lost, a retry finds the item and does no
            // harm.
            let delivered = store.deliver_items(started.boot, vec![item.clone()]);
            match delivered.await {
                Ok(mut outcomes) => match outcomes.pop() {
                    Some(DeliverOutcome::Locked) if self.background.lifecycle.is_stopping() => {
                        tracing::warn!("could not deliver the news that a command ended");
                        return;
                    }
                    Some(DeliverOutcome::Locked) => {}
                    outcome => break outcome,
                },
                Err(store::Error::Unavailable { .. })
                    if !self.background.lifecycle.is_stopping() => {}
                Err(error) => {
                    tracing::warn!(%error, "could not deliver the news that a command ended");
                    return;
                }
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        };
        let Some(DeliverOutcome::Accepted { enqueue, owner, .. }) = outcome else {
            return;
        };
        if let Some(ready) = enqueue {
            let lane = Lane {
                pool: ready.pool,
                priority: ready.priority,
            };
            let activation = Activation {
                sessions: vec![ready.key],
            };
            // If the queue is full, the sweep finds the session.
            queue.push(&lane, vec![activation]).await;
        }
        if owner.is_some()
            && let Ok(json) = serde_json::to_vec(&[(key, SIGNAL_INBOX)])
        {
            bus.publish(Topic::Signals, Bytes::from(json));
        }
    }

    async fn write(
        &self,
        session: SessionKey,
        call_id: &str,
        change: Change,
    ) -> Result<ListOutcome, ToolError> {
        let item = WriteList {
            name: ListName::Commands(session.session),
            session,
            call_id: call_id.to_owned(),
            change,
            bounds: BOUNDS,
        };
        let mut pause = Duration::from_millis(50);
        loop {
            match self.background.store.write_list(item.clone()).await {
                Ok(outcome) => return Ok(outcome),
                Err(store::Error::Unavailable { .. })
                    if !self.background.lifecycle.is_stopping() =>
                {
                    self.clock.sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not update the list of commands");
                    return Err(ToolError::reply("the list of commands cannot be reached"));
                }
            }
        }
    }

    /// The entries of the session's commands.
    async fn entries(&self, key: SessionKey) -> Result<Vec<Entry>, ToolError> {
        let name = ListName::Commands(key.session);
        let list = self.background.store.read_list(key.tenant, name).await;
        let list = list.map_err(|error| ToolError::reply(error.to_string()))?;
        Ok(list.entries)
    }

    /// The current state of a command; if its worker is gone, the command is lost.
    async fn shown(&self, key: SessionKey, entry: &Entry) -> Result<String, ToolError> {
        let id = entry.id;
        let status = entry.status.as_deref().unwrap_or("running");
        if status != "running" {
            return Ok(format!("Command {id}, {status}: {}", entry.text));
        }
        let kept = self.jobs().get(&(key, id)).map(|job| job.kept.clone());
        if let Some(kept) = kept {
            let output = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let output = shortened(&output.text());
            return Ok(format!("Command {id}, running: {}\n{output}", entry.text));
        }
        if self.lives(entry.author.as_deref()).await? {
            let text = &entry.text;
            return Ok(format!(
                "Command {id} is running on another worker; its output is available once it ends: \
                 {text}"
            ));
        }
        let change = Change::Update {
            id,
            text: None,
            status: Some("lost".to_owned()),
            pinned: Some(false),
            if_version: Some(entry.version),
        };
        let call_id = format!("{}_lost", entry.kind.as_deref().unwrap_or_default());
        self.write(key, &call_id, change).await?;
        Ok(format!(
            "Command {id} was lost because its worker terminated: {}",
            entry.text
        ))
    }

    async fn lives(&self, boot: Option<&str>) -> Result<bool, ToolError> {
        let store = &self.background.store;
        let asked =
            async { Ok::<_, store::Error>((store.now().await?, store.list_boots().await?)) };
        let (now, boots) = asked
            .await
            .map_err(|error| ToolError::reply(error.to_string()))?;
        let live = boots
            .iter()
            .find(|known| Some(known.id.0.to_string().as_str()) == boot);
        Ok(live.is_some_and(|known| known.dead_at.is_none() && known.lease_until >= now))
    }

    async fn output(&self, key: SessionKey, id: Option<i64>) -> Reply {
        let mut entries = self.entries(key).await?;
        if let Some(id) = id {
            entries.retain(|entry| entry.id == id);
            if entries.is_empty() {
                return Err(unknown(id));
            }
        }
        let mut shown = Vec::with_capacity(entries.len());
        for entry in &entries {
            shown.push(self.shown(key, entry).await?);
        }
        if shown.is_empty() {
            return Ok(Output::text("No commands."));
        }
        let heads = shown.iter().filter_map(|one| one.lines().next());
        let digest = heads.collect::<Vec<_>>().join("; ");
        Ok(Output::text(shown.join("\n\n")).with_digest(digest))
    }

    async fn stop(&self, key: SessionKey, id: i64) -> Reply {
        let found = self.jobs().get(&(key, id)).map(|job| {
            job.stop.cancel();
            job.over.clone()
        });
        if let Some(over) = found {
            over.cancelled().await;
        }
        self.output(key, Some(id)).await
    }
}

type Reply = Result<Output, ToolError>;

fn unknown(id: i64) -> ToolError {
    ToolError::Reply {
        code: Code::ToolInvalidArguments,
        message: format!("there is no command {id}"),
    }
}

/// Head and tail of a command's output.
fn shortened(output: &str) -> String {
    let chars = output.chars().count();
    if chars <= OUTPUT_CHARS_MAX {
        return output.to_owned();
    }
    let half = OUTPUT_CHARS_MAX / 2;
    let head: String = output.chars().take(half).collect();
    let tail: String = output.chars().skip(chars - half).collect();
    format!(
        "{head}\n[… {} characters left out …]\n{tail}",
        chars - 2 * half
    )
}
