//! Parameters of creating, advancing and reading runs.

use super::{Page, Result};
use async_trait::async_trait;
use serde_json::Value;

use super::sends::{AcceptSend, IdempotencyKey};
use super::sweeps::ReadySession;
use crate::budget::Spent;
use crate::error::{Code, Failure};
use crate::id::{BootId, RunId, RunKey, SendId, SessionId, SessionKey, TenantId};
use crate::message::ContentPart;
use crate::send::{SendRecord, SendStatus, StopReason};
use crate::time::Timestamp;
use crate::tool::CallResult;
use crate::usage::Usage;
use crate::workflow::run::{
    LeafEnd, NodeRecord, RunAsk, RunCounts, RunOptions, RunRecord, RunStatus,
};

/// Runs of workflows.
#[async_trait]
pub trait Runs: Send + Sync {
    /// Creates runs, each due at once. With an idempotency key a repeat creates nothing.
    async fn create_runs(&self, items: Vec<NewRun>) -> Result<Vec<CreateRunOutcome>>;

    /// Asks something of runs, for their next advance. False where unknown.
    async fn ask_runs(&self, items: Vec<(RunKey, RunAsk)>) -> Result<Vec<bool>>;

    /// Takes runs with ended leaves, with asks, or whose time has come, unless another live boot
    /// owns them; returns what is new of them, and of those that the boot owns already. Those whose
    /// last advance is the longest ago come first. News that cannot be read are marked as such, and
    /// are nobody else's trouble.
    async fn claim_runs(&self, claim: ClaimRuns) -> Result<ClaimedRuns>;

    /// Advances runs that `boot` owns: what was taken into account is noted, nodes are written,
    /// leaves accepted, and who waits for a run's end hears of it. A run that is final has no owner.
    async fn advance_runs(
        &self,
        boot: BootId,
        items: Vec<AdvanceRun>,
    ) -> Result<Vec<AdvanceOutcome>>;

    /// Gives runs up that `boot` owns: others may take them at once.
    async fn release_runs(&self, boot: BootId, runs: Vec<RunKey>) -> Result<()>;

    /// Runs by id; `None` where unknown.
    async fn get_runs(&self, keys: Vec<RunKey>) -> Result<Vec<Option<RunRecord>>>;

    /// What is asked of runs and no advance has taken yet, in order.
    async fn read_asks(&self, keys: Vec<RunKey>) -> Result<Vec<Vec<RunAsk>>>;

    /// Runs, newest first.
    async fn list_runs(&self, query: ListRuns) -> Result<Page<RunRecord>>;

    /// Deletes runs that are final, with their nodes, asks and advances; their leaves' sends may then
    /// be retired. Returns how many rows went.
    async fn forget_runs(&self, keys: Vec<RunKey>) -> Result<u64>;

    /// A piece of a run's nodes, in order.
    async fn read_nodes(&self, query: ReadNodes) -> Result<Vec<NodeRecord>>;

    /// The sends of a run's leaves that are not final, by id.
    async fn live_leaves(&self, key: RunKey) -> Result<Vec<SendId>>;

    /// Advances of a run with numbers above `after`, in order, at most `limit`.
    async fn read_run_steps(&self, key: RunKey, after: i64, limit: u32) -> Result<Vec<RunStep>>;
}

/// The methods of [`Runs`] as [`store_methods`](crate::store_methods) hands them over.
#[doc(hidden)]
#[macro_export]
macro_rules! runs_methods {
    ($apply:ident) => {
        $apply! { Runs:
            write create_runs(
                items: Vec<$crate::store::NewRun>
            ) -> Vec<$crate::store::CreateRunOutcome>;
            write ask_runs(
                items: Vec<($crate::id::RunKey, $crate::workflow::run::RunAsk)>
            ) -> Vec<bool>;
            write claim_runs(claim: $crate::store::ClaimRuns) -> $crate::store::ClaimedRuns;
            write advance_runs(
                boot: $crate::id::BootId,
                items: Vec<$crate::store::AdvanceRun>
            ) -> Vec<$crate::store::AdvanceOutcome>;
            write release_runs(boot: $crate::id::BootId, keys: Vec<$crate::id::RunKey>) -> ();
            read get_runs(
                keys: Vec<$crate::id::RunKey>
            ) -> Vec<Option<$crate::workflow::run::RunRecord>>;
            read read_asks(
                keys: Vec<$crate::id::RunKey>
            ) -> Vec<Vec<$crate::workflow::run::RunAsk>>;
            read list_runs(
                query: $crate::store::ListRuns
            ) -> $crate::store::Page<$crate::workflow::run::RunRecord>;
            write forget_runs(keys: Vec<$crate::id::RunKey>) -> u64;
            read read_nodes(
                query: $crate::store::ReadNodes
            ) -> Vec<$crate::workflow::run::NodeRecord>;
            read live_leaves(key: $crate::id::RunKey) -> Vec<$crate::id::SendId>;
            read read_run_steps(
                key: $crate::id::RunKey,
                after: i64,
                limit: u32
            ) -> Vec<$crate::store::RunStep>;
        }
    };
}

/// A run to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// Its id, made by the caller, and its owner.
    pub key: RunKey,
    /// The spec's name.
    pub name: String,
    /// The spec in its canonical form.
    pub spec: Value,
    /// The version of the language it is written in.
    pub dsl_version: i32,
    /// The value of `input`.
    pub input: Value,
    /// What its creator decided.
    pub options: RunOptions,
    /// The session it belongs to.
    pub session: Option<SessionId>,
    /// The call of that session that its end settles.
    pub reports_to: Option<String>,
    /// Steps below the root that its leaves' sessions have.
    pub depth: i32,
    /// What makes a repeat harmless.
    pub idempotency: Option<IdempotencyKey>,
}

impl NewRun {
    /// The run as it is right after its creation: due at once.
    pub fn record(&self, now: Timestamp) -> RunRecord {
        RunRecord {
            key: self.key,
            name: self.name.clone(),
            status: RunStatus::Queued,
            spec: self.spec.clone(),
            dsl_version: self.dsl_version,
            input: self.input.clone(),
            options: self.options.clone(),
            session: self.session,
            reports_to: self.reports_to.clone(),
            depth: self.depth,
            attempt: 1,
            result: None,
            error: None,
            usage: Usage::default(),
            counts: RunCounts::default(),
            alarm_at: Some(now),
            created_at: now,
            started_at: None,
            finished_at: None,
        }
    }
}

/// What became of a run to create.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateRunOutcome {
    /// It exists now.
    Created(Box<RunRecord>),
    /// The key was used for the same request: this run was created then.
    Replayed(RunId),
    /// The key was used for another request.
    Mismatch,
    /// The session that it is to belong to does not exist.
    SessionNotFound,
}

/// A question for runs that have to be advanced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRuns {
    /// Who asks, and owns what is returned.
    pub boot: BootId,
    /// At most this many runs.
    pub limit: u32,
    /// At most this many ended leaves of all of them together, divided equally.
    pub ends_max: u32,
    /// Leaves that all runs of one tenant may have under way together; none for no limit.
    pub leaves_max: Option<u32>,
    /// The latest version of the language that the asker knows: runs of later ones are left to
    /// others.
    pub dsl_max: i32,
    /// Runs that are left out: the asker could not read them a moment ago.
    pub aside: Vec<RunKey>,
}

impl ClaimRuns {
    /// Ended leaves of each of so many runs: none waits until another's are all told.
    pub fn share(&self, runs: usize) -> u32 {
        let runs = u32::try_from(runs).unwrap_or(u32::MAX).max(1);
        (self.ends_max / runs).max(1)
    }
}

/// Runs that have to be advanced.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedRuns {
    /// What is new of each.
    pub runs: Vec<RunNews>,
    /// The database's clock.
    pub now: Timestamp,
    /// When the next of all runs is due.
    pub next_alarm: Option<Timestamp>,
}

/// What is new of a run since its last advance. Nothing, when its time has come.
#[derive(Debug, Clone, PartialEq)]
pub struct RunNews {
    /// The run.
    pub key: RunKey,
    /// Its advances so far.
    pub step: i64,
    /// Leaves that ended, oldest first.
    pub ends: Vec<EndedLeaf>,
    /// What is asked of it, by the numbers of the asks.
    pub asks: Vec<(i64, RunAsk)>,
    /// Asks that cannot be read.
    pub unreadable_asks: Vec<i64>,
    /// Whether there are such asks, or some of the ends stand for sends that cannot be read.
    pub unreadable: bool,
    /// Leaves that the other runs of its tenant leave to it; none for no limit.
    pub live_max: Option<u32>,
}

/// What is left of a bound for a run of whose tenant `all` leaves are under way, `own` of them its
/// own.
pub fn left_to_run(leaves_max: u32, all: u64, own: u64) -> u32 {
    let others = u32::try_from(all.saturating_sub(own)).unwrap_or(u32::MAX);
    leaves_max.saturating_sub(others)
}

/// Whether an advance would take its tenant past its bound: it starts leaves, and there are more
/// than `leaves_max` then. `all` were under way before, `own` of them the run's.
pub fn passes_bound(item: &AdvanceRun, all: u64, own: u64) -> bool {
    let then = all.saturating_sub(own) + u64::from(item.run.counts.live);
    let bound = item.leaves_max.map(u64::from);
    !item.start.is_empty() && bound.is_some_and(|bound| then > bound)
}

/// A leaf whose send is final.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedLeaf {
    /// The node.
    pub path: String,
    /// The attempt that ended.
    pub attempt: i32,
    /// How.
    pub end: LeafEnd,
}

impl EndedLeaf {
    /// What stands for a final send that cannot be read.
    pub fn unreadable(send: SendId, path: String, attempt: i32) -> Self {
        Self {
            path,
            attempt,
            end: LeafEnd {
                send,
                status: SendStatus::Failed,
                stop_reason: StopReason::Internal,
                text: None,
                value: None,
                error: Some(Failure::new(
                    Code::Internal,
                    "what became of the leaf cannot be read",
                )),
                usage: Usage::default(),
                kept: Spent::default(),
                todo_left: false,
            },
        }
    }

    /// What a final send tells the run that it is a leaf of; none of another send.
    pub fn of(send: SendRecord) -> Option<Self> {
        let kept = send.kept();
        let leaf = send.run?;
        let stop_reason = send.stop_reason?;
        Some(Self {
            path: leaf.path,
            attempt: leaf.attempt,
            end: LeafEnd {
                send: send.id,
                status: send.status,
                stop_reason,
                text: send.output_text,
                value: send.output,
                error: send.error,
                usage: send.usage,
                kept,
                todo_left: false,
            },
        })
    }
}

/// An advance of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct AdvanceRun {
    /// The number of advances that it follows.
    pub step: i64,
    /// The run as it is then. What was fixed at its creation stays as it was.
    pub run: RunRecord,
    /// The nodes that are new or changed.
    pub nodes: Vec<NodeRecord>,
    /// Leaves to start, each in a new session.
    pub start: Vec<AcceptSend>,
    /// The ended leaves that it took into account.
    pub ends: Vec<SendId>,
    /// The asks that it took into account.
    pub asks: Vec<i64>,
    /// What changed, for readers of its events.
    pub changes: Value,
    /// Who hears of its end.
    pub report: Option<RunReport>,
    /// The owner keeps it no longer.
    pub release: bool,
    /// Leaves that all runs of its tenant may have under way together once it starts its own; none
    /// for no limit.
    pub leaves_max: Option<u32>,
}

/// Who hears of the end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// The session that the run belongs to.
    pub session: SessionKey,
    /// The call that waits for it, and its result.
    pub call: Option<(String, CallResult)>,
    /// What the session is told where no call waits.
    pub words: Option<RunWords>,
}

/// Words for a session.
#[derive(Debug, Clone, PartialEq)]
pub struct RunWords {
    /// The id of the inbox item, where the session is busy.
    pub item_id: String,
    /// The id of the send, where it is at rest.
    pub send: SendId,
    /// What is said.
    pub content: Vec<ContentPart>,
    /// Whether they wake a session that is at rest; else its next send is told.
    pub wake: bool,
    /// The run that has ended, where what it did not use goes back with these words.
    pub ended_run: Option<RunId>,
}

/// What became of an advance.
#[derive(Debug, Clone, PartialEq)]
pub enum AdvanceOutcome {
    /// It is durable.
    Advanced {
        /// Its number.
        step: i64,
        /// Sessions to enqueue.
        enqueue: Vec<ReadySession>,
        /// The session that the end was delivered to, and the boot that runs it and is to be notified.
        notify: Option<(SessionKey, BootId)>,
    },
    /// Someone else owns the run, it was advanced meanwhile, or a session in which a leaf was to go on
    /// takes no more sends: nothing was stored, whether or not there is room for its leaves.
    Lost,
    /// Other runs of its tenant took the room for the leaves that it starts: nothing was stored.
    NoRoom,
    /// Someone else has had what it needs locked for longer than other runs should wait: nothing was
    /// stored. Its news is news still.
    Locked,
}

/// A question for runs, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct ListRuns {
    /// The owner.
    pub tenant: TenantId,
    /// Only those with this status.
    pub status: Option<RunStatus>,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those older than this one.
    pub before: Option<RunId>,
    /// At most this many.
    pub limit: u32,
}

/// A question for a run's nodes, in the order in which they were reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadNodes {
    /// The run.
    pub key: RunKey,
    /// Only nodes whose paths begin so.
    pub prefix: Option<String>,
    /// Only nodes behind this one.
    pub after: i64,
    /// At most this many.
    pub limit: u32,
}

/// An advance as its readers see it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunStep {
    /// Its number.
    pub n: i64,
    /// When.
    pub at: Timestamp,
    /// Who wrote it.
    pub boot: BootId,
    /// What changed.
    pub changes: Value,
}
