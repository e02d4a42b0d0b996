//! A child, from the worker's side.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::time::Clock;
use mainspring_shared::tool::DeclaredTool;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::frame::{Begin, FromChild, ToChild, line, next_line};
use crate::shell::end_marked;
use mainspring_worker::tool::Invocation;

/// Minimum time that an idle child is kept.
const IDLE: Duration = Duration::from_mins(1);

/// How long a child may take to report that it is ready. Starting a container is the slowest case.
const START: Duration = Duration::from_secs(20);

/// How often to check whether a child is still alive.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a child may take to exit after its input was closed.
const GRACE: Duration = Duration::from_secs(2);

/// How long to wait for the rest of a child's standard error after it has ended.
const REST: Duration = Duration::from_millis(200);

/// Capacity of the queue of frames to a child.
const FRAMES_MAX: usize = 256;

/// Bytes of a child's standard error that are logged.
const COMPLAINT_BYTES_MAX: usize = 2_000;

/// A call that is waiting for its answer.
#[derive(Debug)]
struct Waiting {
    call_id: String,
    answer: oneshot::Sender<FromChild>,
}

/// The worker's handle to a child.
#[derive(Debug)]
pub(crate) struct Handle {
    token: String,
    frames: mpsc::Sender<Vec<u8>>,
    pending: Mutex<BTreeMap<u64, Waiting>>,
    next: AtomicU64,
    /// The child takes no more calls.
    over: CancellationToken,
    /// The child is to be killed without time to exit on its own.
    kill: CancellationToken,
    /// The child has reported that it is ready.
    ready: CancellationToken,
}

/// What a child is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Question<'a> {
    /// To run a call.
    Call {
        tool: &'a str,
        declared: Option<&'a DeclaredTool>,
        invocation: &'a Invocation,
    },
    /// To list the tools that an entry of the agent's list stands for.
    List(&'a DeclaredTool),
}

/// Why a child was not asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotAsked {
    /// The child is over.
    Over,
    /// The child is too busy, or the call is too large.
    Refused(String),
}

/// A call in flight in a child. Dropping it before the child has answered kills the child.
#[derive(Debug)]
pub(crate) struct PendingCall {
    child: Arc<Handle>,
    id: u64,
    answer: oneshot::Receiver<FromChild>,
}

impl Handle {
    fn pending(&self) -> MutexGuard<'_, BTreeMap<u64, Waiting>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    pub(crate) fn was_ready(&self) -> bool {
        self.ready.is_cancelled()
    }

    /// Waits until the child is ready; false if it ended first.
    pub(crate) async fn begun(&self) -> bool {
        tokio::select! {
            () = self.ready.cancelled() => {}
            () = self.over.cancelled() => {}
        }
        self.was_ready()
    }

    /// Lets the child exit on its own.
    pub(crate) fn end(&self) {
        self.over.cancel();
    }

    /// The same, unless the child is busy; returns whether it is over.
    pub(crate) fn end_if_idle(&self) -> bool {
        let pending = self.pending();
        if pending.is_empty() {
            self.over.cancel();
        }
        self.is_over()
    }

    fn kill(&self) {
        self.over.cancel();
        self.kill.cancel();
    }

    pub(crate) fn ask(self: &Arc<Self>, question: Question<'_>) -> Result<PendingCall, NotAsked> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let token = self.token.clone();
        let (call_id, frame) = match question {
            Question::Call {
                tool,
                declared,
                invocation,
            } => {
                let frame = ToChild::Call {
                    token,
                    id,
                    tool: tool.to_owned(),
                    declared: declared.cloned().map(Box::new),
                    call_id: invocation.call_id.clone(),
                    arguments: Box::new(invocation.arguments.clone()),
                    said: invocation.said.as_deref().map(str::to_owned),
                    session: invocation.session,
                    send_id: invocation.send_id,
                    attempt: invocation.attempt,
                    asked: invocation.inquiring.asked().map(<[_]>::to_vec),
                };
                (invocation.call_id.clone(), frame)
            }
            Question::List(declared) => {
                let declared = Box::new(declared.clone());
                (
                    String::new(),
                    ToChild::List {
                        token,
                        id,
                        declared,
                    },
                )
            }
        };
        let frame = line(&frame).map_err(|error| NotAsked::Refused(error.to_string()))?;
        let (sender, answer) = oneshot::channel();
        let mut pending = self.pending();
        // Under the lock, so that whoever ends the child either sees this call or has ended it
        // already.
        if self.is_over() {
            return Err(NotAsked::Over);
        }
        if self.frames.try_send(frame).is_err() {
            let detail = "the tool sandbox cannot keep up with its calls";
            return Err(NotAsked::Refused(detail.to_owned()));
        }
        let waiting = Waiting {
            call_id,
            answer: sender,
        };
        pending.insert(id, waiting);
        drop(pending);
        Ok(PendingCall {
            child: self.clone(),
            id,
            answer,
        })
    }

    /// Drops the unanswered calls, whose answers nobody gets; returns their ids.
    fn abandon(&self) -> Vec<String> {
        self.over.cancel();
        let pending = std::mem::take(&mut *self.pending());
        pending.into_values().map(|call| call.call_id).collect()
    }

    /// Returns once the child has been idle for a while; by then it takes no more calls.
    async fn idle(&self, clock: &dyn Clock) {
        let mut seen = 0;
        loop {
            clock.sleep(IDLE).await;
            let asked = self.next.load(Ordering::Relaxed);
            if asked == seen && self.end_if_idle() {
                return;
            }
            seen = asked;
        }
    }
}

impl PendingCall {
    /// The child's answer; `None` if it ended without one.
    pub(crate) async fn answer(&mut self) -> Option<FromChild> {
        (&mut self.answer).await.ok()
    }

    /// Tells the child to stop the call.
    pub(crate) fn stop(&self) {
        let frame = ToChild::Stop {
            token: self.child.token.clone(),
            id: self.id,
        };
        let sent = line(&frame).map(|frame| self.child.frames.try_send(frame));
        if !matches!(sent, Ok(Ok(()))) {
            self.child.kill();
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        // A stopped call had its time to report back: nothing of it may continue unseen.
        if self.child.pending().contains_key(&self.id) {
            self.child.kill();
        }
    }
}

/// The processes of a child. Dropping it kills them all before their leader is reaped, so that the
/// group's number cannot be reused meanwhile.
struct Group {
    child: Child,
    leader: Option<Pid>,
}

impl Group {
    /// Waits until the leader has exited, without reaping it. The end of its output is no sign of
    /// that, because processes that it started may hold its pipes.
    async fn leader_exited(leader: Option<Pid>, clock: &dyn Clock) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            clock.sleep(LOOK_INTERVAL).await;
            let ended = leader.map(|leader| waitid(WaitId::Pid(leader), options));
            if !matches!(ended, Some(Ok(None))) {
                return;
            }
        }
    }

    fn kill(&mut self) {
        if let Some(leader) = self.leader.take() {
            // Fails only where no process is left.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A started child with its pipes.
pub(crate) struct Started {
    pub(crate) handle: Arc<Handle>,
    group: Group,
    pipes: Pipes,
    frames: mpsc::Receiver<Vec<u8>>,
    clock: Arc<dyn Clock>,
    /// Released when this is dropped.
    _slot: OwnedSemaphorePermit,
}

struct Pipes {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    complaints: ChildStderr,
}

/// Starts a child with nothing of this process's environment except `PATH`. It starts working once
/// [`Started::watch`] has sent it its settings.
pub(crate) fn start(
    words: &[String],
    path: &str,
    directory: &Path,
    token: String,
    clock: Arc<dyn Clock>,
    slot: OwnedSemaphorePermit,
) -> io::Result<Started> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| io::Error::other("the launcher is empty"))?;
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", path)
        // Commit the program's memory as needed, not 32 MiB at once: the limit should count what it
        // uses.
        .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
        .env("MIMALLOC_EAGER_COMMIT", "0")
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let leader = child.id().and_then(|pid| i32::try_from(pid).ok());
    let group = Group {
        child,
        leader: leader.and_then(Pid::from_raw),
    };
    let (Some(input), Some(output), Some(complaints)) = pipes else {
        return Err(io::Error::other("the child has no pipes"));
    };
    let (sender, frames) = mpsc::channel(FRAMES_MAX);
    let handle = Handle {
        token,
        frames: sender,
        pending: Mutex::default(),
        next: AtomicU64::new(0),
        over: CancellationToken::new(),
        kill: CancellationToken::new(),
        ready: CancellationToken::new(),
    };
    Ok(Started {
        handle: Arc::new(handle),
        group,
        pipes: Pipes {
            input,
            output: BufReader::new(output),
            complaints,
        },
        frames,
        clock,
        _slot: slot,
    })
}

impl Started {
    /// Carries frames until the child is idle, one side fails or `aborted` resolves; then ends the
    /// child and every process it started.
    pub(crate) async fn watch(mut self, begin: Begin, aborted: impl Future<Output = ()>) {
        let handle = self.handle.clone();
        let mut complaint = Vec::new();
        let (kill, clock) = (handle.kill.clone(), self.clock.clone());
        let ended = {
            let Pipes {
                input,
                output,
                complaints,
            } = &mut self.pipes;
            let wire = Wire {
                handle: &handle,
                input,
                output,
                held: Vec::new(),
                frames: &mut self.frames,
                clock: clock.as_ref(),
            };
            tokio::select! {
                ended = wire.carry(&begin) => ended,
                () = always(listen(complaints, &mut complaint)) => Ok(()),
                () = Group::leader_exited(self.group.leader, clock.as_ref()) => {
                    Err(io::Error::other("the child went away"))
                }
                () = aborted => {
                    kill.cancel();
                    Ok(())
                }
            }
        };
        let open = handle.abandon();
        let Pipes {
            input,
            mut output,
            mut complaints,
        } = self.pipes;
        drop(input);
        if ended.is_ok() && open.is_empty() {
            tokio::select! {
                () = silence(&mut output) => {}
                () = clock.sleep(GRACE) => {}
                () = kill.cancelled() => {}
            }
        }
        self.group.kill();
        let _ = self.group.child.wait().await;
        if let Err(error) = ended {
            tokio::select! {
                () = listen(&mut complaints, &mut complaint) => {}
                () = clock.sleep(REST) => {}
            }
            let said = String::from_utf8_lossy(&complaint);
            tracing::warn!(%error, said = said.trim(), "a process for tools failed");
        }
        // Processes that a command of an open call started may have left the child's group long
        // ago.
        let _ = tokio::task::spawn_blocking(move || {
            let calls = open.iter().filter(|id| !id.is_empty());
            calls.for_each(|id| end_marked(id));
        })
        .await;
    }
}

/// Does the work, then never returns.
async fn always(work: impl Future<Output = ()>) {
    work.await;
    std::future::pending::<()>().await;
}

/// Reads to the end and keeps only the beginning.
async fn listen(from: &mut ChildStderr, kept: &mut Vec<u8>) {
    let mut piece = [0; 1024];
    loop {
        match from.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                let room = COMPLAINT_BYTES_MAX - kept.len();
                kept.extend_from_slice(&piece[..read.min(room)]);
            }
        }
    }
}

/// Waits for the end of the child's output.
async fn silence(from: &mut BufReader<ChildStdout>) {
    let mut piece = [0; 1024];
    while !matches!(from.read(&mut piece).await, Ok(0) | Err(_)) {}
}

/// Both directions to a child.
struct Wire<'a> {
    handle: &'a Handle,
    input: &'a mut ChildStdin,
    output: &'a mut BufReader<ChildStdout>,
    held: Vec<u8>,
    frames: &'a mut mpsc::Receiver<Vec<u8>>,
    clock: &'a dyn Clock,
}

impl Wire<'_> {
    async fn carry(mut self, begin: &Begin) -> io::Result<()> {
        let handle = self.handle;
        let clock = self.clock;
        tokio::select! {
            greeted = self.greet(begin) => greeted?,
            () = clock.sleep(START) => return Err(io::Error::other("the child does not begin in time")),
            () = handle.over.cancelled() => return Ok(()),
        }
        handle.ready.cancel();
        let Self {
            input,
            output,
            mut held,
            frames,
            ..
        } = self;
        // Concurrently, because a child that writes a lot does not read meanwhile.
        let writing = async {
            while let Some(frame) = frames.recv().await {
                input.write_all(&frame).await?;
            }
            Ok(())
        };
        let reading = async {
            loop {
                let said = heard(handle, output, &mut held).await?;
                let (_, id) = said.about();
                let waiting = id.and_then(|id| handle.pending().remove(&id));
                let Some(waiting) = waiting else {
                    return Err(io::Error::other("the child answers what it was not asked"));
                };
                let _ = waiting.answer.send(said);
            }
        };
        tokio::select! {
            ended = writing => ended,
            ended = reading => ended,
            () = handle.over.cancelled() => Ok(()),
            () = handle.idle(clock) => Ok(()),
        }
    }

    async fn greet(&mut self, begin: &Begin) -> io::Result<()> {
        self.input.write_all(&line(begin)?).await?;
        match heard(self.handle, self.output, &mut self.held).await? {
            FromChild::Ready { .. } => Ok(()),
            _ => Err(io::Error::other("the child does not begin with a greeting")),
        }
    }
}

/// The next frame from this child. One that another process wrote into its pipe lacks its token.
async fn heard(
    handle: &Handle,
    output: &mut BufReader<ChildStdout>,
    held: &mut Vec<u8>,
) -> io::Result<FromChild> {
    let said = next_line(output, held).await?;
    let said = said.ok_or_else(|| io::Error::other("the child went away"))?;
    let up: FromChild = serde_json::from_slice(&said)
        .map_err(|_| io::Error::other("what the child says makes no sense"))?;
    if up.about().0 == handle.token {
        Ok(up)
    } else {
        Err(io::Error::other("a frame has another token"))
    }
}
