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

    /// Adds asks to runs, for their next advance. False if the run is unknown.
    async fn ask_runs(&self, items: Vec<(RunKey, RunAsk)>) -> Result<Vec<bool>>;

    /// Claims runs that have ended leaves or asks, or are due, unless another live boot owns them.
    /// Returns the news of these and of the runs that the boot already owns, least recently
    /// advanced first. Unreadable news are marked as such and do not affect other runs.
    async fn claim_runs(&self, claim: ClaimRuns) -> Result<ClaimedRuns>;

    /// Advances runs that `boot` owns: marks the processed news, writes nodes, accepts leaves, and
    /// reports a run's end to whoever waits for it. A final run has no owner.
    async fn advance_runs(
        &self,
        boot: BootId,
        items: Vec<AdvanceRun>,
    ) -> Result<Vec<AdvanceOutcome>>;

    /// Releases runs that `boot` owns: others may claim them at once.
    async fn release_runs(&self, boot: BootId, runs: Vec<RunKey>) -> Result<()>;

    /// Runs by id; `None` where unknown.
    async fn get_runs(&self, keys: Vec<RunKey>) -> Result<Vec<Option<RunRecord>>>;

    /// Asks of runs that no advance has consumed yet, in order.
    async fn read_asks(&self, keys: Vec<RunKey>) -> Result<Vec<Vec<RunAsk>>>;

    /// Runs, newest first.
    async fn list_runs(&self, query: ListRuns) -> Result<Page<RunRecord>>;

    /// Deletes final runs, with their nodes, asks and advances; their leaves' sends may then be
    /// retired. Returns the number of rows deleted.
    async fn forget_runs(&self, keys: Vec<RunKey>) -> Result<u64>;

    /// A page of a run's nodes, in order.
    async fn read_nodes(&self, query: ReadNodes) -> Result<Vec<NodeRecord>>;

    /// The sends of a run's leaves that are not final, by id.
    async fn live_leaves(&self, key: RunKey) -> Result<Vec<SendId>>;

    /// Advances of a run with numbers above `after`, in order, at most `limit`.
    async fn read_run_steps(&self, key: RunKey, after: i64, limit: u32) -> Result<Vec<RunStep>>;
}

/// The methods of [`Runs`], as passed on by [`store_methods`](crate::store_methods).
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
    /// The version of the workflow language.
    pub dsl_version: i32,
    /// The value of `input`.
    pub input: Value,
    /// The creator's options.
    pub options: RunOptions,
    /// The session it belongs to.
    pub session: Option<SessionId>,
    /// The call of that session that is settled when the run ends.
    pub reports_to: Option<String>,
    /// The depth of its leaves' sessions below the root.
    pub depth: i32,
    /// The request's idempotency key.
    pub idempotency: Option<IdempotencyKey>,
}

impl NewRun {
    /// The run right after its creation: due at once.
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

/// The outcome of creating a run.
#[derive(Debug, Clone, PartialEq)]
pub enum CreateRunOutcome {
    /// It was created.
    Created(Box<RunRecord>),
    /// The key was used for the same request: this run was created then.
    Replayed(RunId),
    /// The key was used for another request.
    Mismatch,
    /// The session that it should belong to does not exist.
    SessionNotFound,
}

/// A claim for runs that must be advanced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRuns {
    /// The claiming boot, which will own the returned runs.
    pub boot: BootId,
    /// At most this many runs.
    pub limit: u32,
    /// Maximum number of ended leaves of all returned runs together, divided equally among them.
    pub ends_max: u32,
    /// Maximum number of live leaves of all runs of a tenant together; `None` for no limit.
    pub leaves_max: Option<u32>,
    /// The latest version of the workflow language that the claimer knows; runs of later versions
    /// are left to others.
    pub dsl_max: i32,
    /// Runs to leave out: the claimer recently failed to read them.
    pub aside: Vec<RunKey>,
}

impl ClaimRuns {
    /// Maximum number of ended leaves per run for `runs` runs, so that no run has to wait for all
    /// of another's.
    pub fn share(&self, runs: usize) -> u32 {
        let runs = u32::try_from(runs).unwrap_or(u32::MAX).max(1);
        (self.ends_max / runs).max(1)
    }
}

/// Runs that must be advanced.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedRuns {
    /// The news of each run.
    pub runs: Vec<RunNews>,
    /// The database's clock.
    pub now: Timestamp,
    /// When the next run is due, of all runs.
    pub next_alarm: Option<Timestamp>,
}

/// The news of a run since its last advance; empty if it is merely due.
#[derive(Debug, Clone, PartialEq)]
pub struct RunNews {
    /// The run.
    pub key: RunKey,
    /// Number of its advances so far.
    pub step: i64,
    /// How many boots in a row, this one included, have claimed it from another or from none since
    /// its last advance was committed, or its last owner gave it back.
    pub claims: i32,
    /// Leaves that ended, oldest first.
    pub ends: Vec<EndedLeaf>,
    /// Its asks, with their numbers.
    pub asks: Vec<(i64, RunAsk)>,
    /// Numbers of unreadable asks.
    pub unreadable_asks: Vec<i64>,
    /// Whether any of the news is unreadable: an ask, or a leaf's final send.
    pub unreadable: bool,
    /// How many live leaves the tenant's other runs leave to it; `None` for no limit.
    pub live_max: Option<u32>,
}

/// How many live leaves a run may have, if its tenant has `all` live leaves, `own` of them the run's.
pub fn left_to_run(leaves_max: u32, all: u64, own: u64) -> u32 {
    let others = u32::try_from(all.saturating_sub(own)).unwrap_or(u32::MAX);
    leaves_max.saturating_sub(others)
}

/// Whether an advance would exceed its tenant's limit of live leaves: it starts leaves, and there
/// would then be more than `leaves_max`. Before it, there are `all` live leaves, `own` of them the run's.
pub fn passes_bound(item: &AdvanceRun, all: u64, own: u64) -> bool {
    let then = all.saturating_sub(own) + u64::from(item.run.counts.live);
    let bound = item.leaves_max.map(u64::from);
    !item.start.is_empty() && bound.is_some_and(|bound| then > bound)
}

/// A run leaf whose send is final.
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
    /// A stand-in for a final send that cannot be read.
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

    /// The end of a leaf, from its final send; `None` for any other send.
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
    /// The number of advances before it.
    pub step: i64,
    /// The run afterwards. Fields fixed at creation are not written.
    pub run: RunRecord,
    /// The nodes that are new or changed.
    pub nodes: Vec<NodeRecord>,
    /// Leaves to start, each in a new session.
    pub start: Vec<AcceptSend>,
    /// The ended leaves that it processed.
    pub ends: Vec<SendId>,
    /// The asks that it processed.
    pub asks: Vec<i64>,
    /// What changed, for its event stream.
    pub changes: Value,
    /// The report of the run's end.
    pub report: Option<RunReport>,
    /// Whether the owner releases it.
    pub release: bool,
    /// Maximum number of live leaves of all runs of its tenant together, including those it starts;
    /// `None` for no limit.
    pub leaves_max: Option<u32>,
}

/// A report of the end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    /// The session that the run belongs to.
    pub session: SessionKey,
    /// The call that waits for it, and its result.
    pub call: Option<(String, CallResult)>,
    /// The message to the session if no call waits.
    pub words: Option<RunWords>,
}

/// A message for a session.
#[derive(Debug, Clone, PartialEq)]
pub struct RunWords {
    /// The id of the inbox item, if the session is busy.
    pub item_id: String,
    /// The id of the send, if the session is idle.
    pub send: SendId,
    /// The content.
    pub content: Vec<ContentPart>,
    /// Whether to wake an idle session; otherwise the message waits for its next send.
    pub wake: bool,
    /// The ended run whose unused reservation is refunded together with this message.
    pub ended_run: Option<RunId>,
}

/// The outcome of an advance.
#[derive(Debug, Clone, PartialEq)]
pub enum AdvanceOutcome {
    /// It is durable.
    Advanced {
        /// Its number.
        step: i64,
        /// Sessions to enqueue.
        enqueue: Vec<ReadySession>,
        /// The session that the end was delivered to, and the boot that runs it and must be notified.
        notify: Option<(SessionKey, BootId)>,
    },
    /// Another boot owns the run, it was advanced in the meantime, or a session in which a leaf was
    /// to continue takes no more sends. Nothing was stored, whether or not there is room for its leaves.
    Lost,
    /// The tenant's other runs leave no room for the leaves that it starts: nothing was stored.
    NoRoom,
    /// Another transaction has held a lock that it needs for longer than other runs should wait:
    /// nothing was stored, and its news remain.
    Locked,
}

/// A query for runs, newest first.
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

/// A query for a run's nodes, in the order in which they were reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadNodes {
    /// The run.
    pub key: RunKey,
    /// Only nodes whose paths have this prefix.
    pub prefix: Option<String>,
    /// Only nodes after this one.
    pub after: i64,
    /// At most this many.
    pub limit: u32,
}

/// An advance, as read back.
#[derive(Debug, Clone, PartialEq)]
pub struct RunStep {
    /// Its number.
    pub n: i64,
    /// When it was committed.
    pub at: Timestamp,
    /// The boot that wrote it.
    pub boot: BootId,
    /// What changed.
    pub changes: Value,
}
