//! The store port: domain steps, each one transaction, over any database.
//!
//! Every method takes a vector and returns one outcome per item, in order, so that concurrent work
//! on different sessions shares a commit. When the database refuses one item's data, the call fails
//! whole and writes nothing: the caller runs its items one by one ([`Error::is_of_data`]). One whose
//! session is locked by someone else for long is answered so, and its neighbours are served. What is
//! sent again takes effect once: a write under a lease is known by its number, a send by its id. An
//! ambiguous commit is resolved inside the store, by reading back. `at` replaces the database's clock
//! and is `None` outside tests.

mod calls;
mod error;
mod leases;
mod lists;
mod reads;
mod runs;
mod sends;
mod sessions;
mod sweeps;
mod timers;
mod tree;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::id::{BootId, RunKey, SendId, SessionKey, TenantId, TimerId};
use crate::inbox::InboxItem;
use crate::list::{List, ListName};
use crate::message::Message;
use crate::send::SendRecord;
use crate::session::SessionRecord;
use crate::step::Step;
use crate::time::Timestamp;
use crate::timer::{Occurrence, TimerRecord};
use crate::tool::CallRecord;
use crate::workflow::run::{NodeRecord, RunAsk, RunRecord};

pub use calls::{
    CallAnswer, CallBegin, CallChange, CallStep, DeliverItem, DeliverOutcome, Delivery, NewCall,
    Parent, PostOutcome, PostResult, ReadInbox, ReportOutcome,
};
pub use error::{Denial, Error};
pub use leases::{
    AppendOutcome, AppendRound, BootRecord, ClaimOutcome, ClaimSession, Claimed, CompleteOutcome,
    CompleteSend, Completed, Counters, NewBoot, Owned, ParkOutcome, ParkSend, ParkUntil, PoolTools,
    ReleaseSession, Renewal, Resumed, Role, SendTotals, StartedSend, Then, UsageRow,
};
pub use lists::{DumpList, ListOutcome, WriteList};
pub use reads::{
    AuditOptions, Dump, DumpHot, DumpSession, ListSends, ListSessions, ModelUsage, Page,
    QueueStats, ReadMessages, ScalingStats, ServerInfo, SessionUsage, Violation,
};
pub use runs::{
    AdvanceOutcome, AdvanceRun, ClaimRuns, ClaimedRuns, CreateRunOutcome, DumpRun, EndedLeaf,
    ListRuns, NewRun, ReadNodes, RunNews, RunReport, RunStep, RunWords, left_to_run, passes_bound,
};
pub use sends::{
    AcceptOutcome, AcceptSend, Accepted, CancelOutcome, IdempotencyKey, KeyOutcome, RefuseReason,
    Target,
};
pub use sessions::{
    CALLS_EACH, CreateOutcome, DeleteOutcome, DeletedSession, ERASED_AT_ONCE, ERASED_MS_MIN,
    Erased, ImportSession, NewSession, PruneOutcome, PruneSession, PruneTo, STAGED_MS,
    SessionPatch, UpdateOutcome,
};
pub use sweeps::{AlarmSweep, ReadySession, RetireSends, Retired, SweepReady, Swept};
pub use timers::{
    ChangeTimer, ChangeTimerOutcome, CreateTimerOutcome, Fired, FiredRun, FiredSend,
    ListOccurrences, ListTimers, NewTimer, RefuseTimer, TIMER_QUEUED_MAX, TimerChange,
    TimerDelivery, deliveries, refusal, run_refusal,
};
pub use tree::{ErasedStep, cancel_below, delete_whole, erase_step, prune_all};

/// Counter: rows that could not be read and were passed over among others, by `table`.
pub const ROWS_UNREADABLE: &str = "mainspring_rows_unreadable_total";

/// What a store's methods return.
pub type Result<T> = std::result::Result<T, Error>;

/// The domain steps. Each method is one transaction; each write under a lease matches the lease's
/// token on the row that numbers messages, so a stale owner changes nothing.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// The database's clock.
    async fn now(&self) -> Result<Timestamp>;

    /// Fails unless the database answers and its schema is the one this program needs.
    async fn check(&self) -> Result<ServerInfo>;

    // Boots -------------------------------------------------------------------------------------

    /// Enters a process's life; its lease runs from the database's now.
    async fn register_boot(&self, at: Option<Timestamp>, boot: NewBoot) -> Result<()>;

    /// Extends a boot's lease by `ttl` and returns the signals raised for its sessions. A boot
    /// that was declared dead stays dead: the answer is `Renewal::Dead`, and the process has
    /// nothing left to write. Leases of others that end later than any renewal could make them, since
    /// the database's clock was set back, are cut: they end as if they had been renewed just now.
    async fn renew_boot(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        ttl: Duration,
        in_flight: u32,
    ) -> Result<Renewal>;

    /// Ends a boot at once and gives back what it still owned, as its own process asks for it: no
    /// crash is counted, but each send that ran counts a model call that may have been begun.
    async fn stop_boot(&self, at: Option<Timestamp>, boot: BootId) -> Result<()>;

    /// Sessions that a boot owns and that have work, in the order of [`Store::sweep_ready`], with the
    /// token of each grant: a page behind `after`, and where the next one begins, if there is one.
    async fn owned_sessions(
        &self,
        boot: BootId,
        after: Option<(Timestamp, SessionKey)>,
        limit: u32,
    ) -> Result<Owned>;

    /// The boots that are alive, and those that ended within the last ten minutes.
    async fn list_boots(&self, at: Option<Timestamp>) -> Result<Vec<BootRecord>>;

    /// What the workers of each pool say that agents may name, of those that
    /// [`list_boots`](Store::list_boots) lists; by pool.
    async fn list_tools(&self, at: Option<Timestamp>) -> Result<Vec<PoolTools>>;

    // Sessions ----------------------------------------------------------------------------------

    /// Creates sessions. With an idempotency key a repeat creates nothing.
    async fn create_sessions(
        &self,
        at: Option<Timestamp>,
        items: Vec<(NewSession, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateOutcome>>;

    /// Creates a session with copied messages: numbered from 1 whatever their numbers were, of
    /// epoch 0, with their sends and times as they are. It has no sends, steps, calls or usage of
    /// its own, and nothing to do. With an idempotency key a repeat creates nothing.
    async fn import_session(
        &self,
        at: Option<Timestamp>,
        item: ImportSession,
    ) -> Result<CreateOutcome>;

    /// Changes a session's agent (as a new version), metadata or lifecycle. Fields of the patch
    /// that are `None` stay.
    async fn update_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        patch: SessionPatch,
    ) -> Result<UpdateOutcome>;

    /// Ends every open send as cancelled under a grant of `boot`, cancels its timers, takes its
    /// lease away; its hot row stays as a tombstone, its sends until retention. It is gone for
    /// everyone: what it leaves behind, [`erase_step`] removes page by page.
    async fn delete_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        boot: BootId,
    ) -> Result<DeleteOutcome>;

    /// Deleted sessions that may have left something behind, in order, behind `after`.
    async fn deleted_sessions(
        &self,
        at: Option<Timestamp>,
        after: Option<DeletedSession>,
        limit: u32,
    ) -> Result<Vec<DeletedSession>>;

    /// Removes at most `limit` rows of each kind that a deleted session left behind. It is no longer
    /// due when none is left, nor a session below it, and it was deleted [`ERASED_MS_MIN`] ago.
    async fn erase_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        limit: u32,
    ) -> Result<Erased>;

    /// Removes old messages with the rows of their calls. A call is never parted from its results; the
    /// last message and those of the open send stay, numbers as well. `context_version` goes up.
    async fn prune_session(
        &self,
        at: Option<Timestamp>,
        item: PruneSession,
    ) -> Result<PruneOutcome>;

    // Lists -------------------------------------------------------------------------------------

    /// Changes a list as [`apply`](crate::list::apply) says, once for each call id: a repeat answers
    /// as the first time did, with the list as it is by then.
    async fn write_list(&self, at: Option<Timestamp>, item: WriteList) -> Result<ListOutcome>;

    /// A list; an empty one when nothing was written to it.
    async fn read_list(&self, tenant: TenantId, name: ListName) -> Result<List>;

    // Sends -------------------------------------------------------------------------------------

    /// Accepts sends: each gets its row, its place (unless delayed), its step and, where asked,
    /// its idempotency key; its session becomes ready. `boot` is the accepting process. Sends of
    /// one call to one session keep their order.
    async fn accept_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<AcceptSend>,
    ) -> Result<Vec<AcceptOutcome>>;

    /// Takes an idempotency key for a request that makes many things, each with a key of its own,
    /// before any of them is made: from now on no other request under this key makes anything.
    async fn take_key(&self, at: Option<Timestamp>, key: IdempotencyKey) -> Result<KeyOutcome>;

    /// Asks sends to end. A queued one ends here; a waiting one ends here under a grant of `boot`;
    /// a running one gets a durable signal that its worker obeys. One whose worker's lease has run out
    /// ends here, too, and that boot is declared dead.
    async fn cancel_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> Result<Vec<CancelOutcome>>;

    /// Brings words to busy sessions: they join a queued send's input (`coalesce`) or lie in the
    /// inbox until the next boundary of the send that is under way. A send that waits for a retry
    /// or a timer goes on at once; `interrupt` settles the open calls of a waiting send as
    /// interrupted, so that it goes on too. `boot` is the accepting process.
    async fn deliver_items(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<DeliverItem>,
    ) -> Result<Vec<DeliverOutcome>>;

    /// Settles calls from outside, or permits them. The first answer counts. A waiting send becomes
    /// ready once none of its calls waits any more; a running one is told by a signal.
    async fn post_results(
        &self,
        at: Option<Timestamp>,
        items: Vec<PostResult>,
    ) -> Result<Vec<PostOutcome>>;

    /// Reports final sends that a parent waits for, oldest first, at most `limit`: the parent's
    /// call gets the child's answer as its result, or, when it was settled before, the parent's
    /// inbox gets an item. Each send is reported once. Only these sends, where some are named.
    async fn report_children(
        &self,
        at: Option<Timestamp>,
        sends: Option<Vec<(TenantId, SendId)>>,
        limit: u32,
    ) -> Result<Vec<ReportOutcome>>;

    /// Lets a send that waits for `recovery` go on. False when no send of the session does.
    async fn resume_recovery(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        key: SessionKey,
    ) -> Result<Option<SendId>>;

    // Timers ------------------------------------------------------------------------------------

    /// Makes timers, armed from now on. With an idempotency key a repeat makes nothing.
    async fn create_timers(
        &self,
        at: Option<Timestamp>,
        items: Vec<(NewTimer, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateTimerOutcome>>;

    /// Pauses, resumes and cancels timers. What was asked for already is no mistake.
    async fn change_timers(
        &self,
        at: Option<Timestamp>,
        items: Vec<ChangeTimer>,
    ) -> Result<Vec<ChangeTimerOutcome>>;

    /// Fires due timers, oldest first, at most `limit`: their occurrences, the sends that these ask
    /// for and the timers' next due times are one transaction, so that an occurrence fires once, and
    /// never before the database's clock says so. Timers that another process is firing are left to
    /// it; those whose session someone has locked stay due. `boot` is the accepting process.
    async fn fire_timers(&self, at: Option<Timestamp>, boot: BootId, limit: u32) -> Result<Fired>;

    /// Deletes occurrences whose fate is older than `keep`, and timers that ended before that and
    /// have none left. Returns how many rows went; call again until it is zero.
    async fn sweep_timers(&self, at: Option<Timestamp>, keep: Duration) -> Result<u64>;

    /// Timers by id; `None` where unknown.
    async fn get_timers(&self, ids: Vec<(TenantId, TimerId)>) -> Result<Vec<Option<TimerRecord>>>;

    /// Timers, newest first.
    async fn list_timers(&self, query: ListTimers) -> Result<Page<TimerRecord>>;

    /// A timer's occurrences, newest first.
    async fn list_occurrences(&self, query: ListOccurrences) -> Result<Page<Occurrence>>;

    // Work under a lease ------------------------------------------------------------------------

    /// Takes the lease of each session that has work and no live owner, starts its head send and
    /// returns it with its agent and the part of the window that the caller's cache lacks. Taking
    /// from an expired boot marks that boot dead and counts a crash on a running send, and a model
    /// call that the dead worker may have begun. A boot that is dead itself gets nothing. The commit
    /// may be asynchronous unless a send goes on: that is a step, which readers see at once.
    async fn claim_sessions(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<ClaimSession>,
    ) -> Result<Vec<ClaimOutcome>>;

    /// Stores a round, or what became of its calls, and goes on under the same lease. Resets the
    /// crash count. A repeat of what its lease stored last changes nothing and is told what the first
    /// was, with signals that may be old.
    async fn append_rounds(
        &self,
        at: Option<Timestamp>,
        items: Vec<AppendRound>,
    ) -> Result<Vec<AppendOutcome>>;

    /// Makes sends final and either takes each session's next send or gives the lease back. A
    /// cancel that was raised meanwhile wins over the result.
    async fn complete_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<CompleteSend>,
    ) -> Result<Vec<CompleteOutcome>>;

    /// Parks sends: each waits as a row, its lease is given back. A cancel that was raised
    /// meanwhile ends the send instead.
    async fn park_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<ParkSend>,
    ) -> Result<Vec<ParkOutcome>>;

    /// Gives leases back with their sends as they are: running sends stay ready for the next
    /// worker, without counting a crash. True where the lease was still held, by its boot and token
    /// alone: a claim whose answer was never heard is given back without knowing its epoch.
    async fn release_sessions(
        &self,
        at: Option<Timestamp>,
        items: Vec<ReleaseSession>,
    ) -> Result<Vec<bool>>;

    // Runs --------------------------------------------------------------------------------------

    /// Creates runs, each due at once. With an idempotency key a repeat creates nothing.
    async fn create_runs(
        &self,
        at: Option<Timestamp>,
        items: Vec<NewRun>,
    ) -> Result<Vec<CreateRunOutcome>>;

    /// Asks something of runs, for their next advance. False where unknown.
    async fn ask_runs(
        &self,
        at: Option<Timestamp>,
        items: Vec<(RunKey, RunAsk)>,
    ) -> Result<Vec<bool>>;

    /// Takes runs with ended leaves, with asks, or whose time has come, unless another live boot
    /// owns them; returns what is new of them, and of those that the boot owns already. Those whose
    /// last advance is the longest ago come first. News that cannot be read are marked as such, and
    /// are nobody else's trouble.
    async fn claim_runs(&self, at: Option<Timestamp>, claim: ClaimRuns) -> Result<ClaimedRuns>;

    /// Advances runs that `boot` owns: what was taken into account is noted, nodes are written,
    /// leaves accepted, and who waits for a run's end hears of it. A run that is final has no owner.
    async fn advance_runs(
        &self,
        at: Option<Timestamp>,
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

    // Sweeps ------------------------------------------------------------------------------------

    /// Reads sessions that have work and no live owner, oldest first.
    async fn sweep_ready(&self, at: Option<Timestamp>, query: SweepReady) -> Result<Swept>;

    /// Serves due alarms, at most `limit`: delayed sends get their place, parked retries become
    /// ready, sends past their deadline end under a grant of `boot`. Running ones are left to their
    /// workers, as long as these live: a boot whose lease has run out is declared dead, and its sends
    /// end here if their time is up or someone asked for it.
    async fn sweep_alarms(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        limit: u32,
    ) -> Result<AlarmSweep>;

    /// Deletes idempotency keys older than `keep` and ended boots that nothing refers to. Returns
    /// how many rows went; call again until it is zero.
    async fn sweep_retention(&self, at: Option<Timestamp>, keep: Duration) -> Result<u64>;

    /// Looks at a page of sends and deletes those that ended before `keep`, with their steps, calls
    /// and usage. Their messages stay. So do sends whose end somebody has still to be told. Those of
    /// runs stay and go with the run.
    async fn retire_sends(&self, at: Option<Timestamp>, query: RetireSends) -> Result<Retired>;

    // Reads -------------------------------------------------------------------------------------

    /// Sends by id; `None` where unknown.
    async fn get_sends(&self, ids: Vec<(TenantId, SendId)>) -> Result<Vec<Option<SendRecord>>>;

    /// A session; `None` when unknown or deleted.
    async fn get_session(&self, key: SessionKey) -> Result<Option<SessionRecord>>;

    /// Sessions, newest first.
    async fn list_sessions(&self, query: ListSessions) -> Result<Page<SessionRecord>>;

    /// Sends, newest first.
    async fn list_sends(&self, query: ListSends) -> Result<Page<SendRecord>>;

    /// The numbers of sessions' last steps; 0 where unknown.
    async fn last_steps(&self, keys: Vec<SessionKey>) -> Result<Vec<i64>>;

    /// The calls of a round, by their places.
    async fn read_round(
        &self,
        key: SessionKey,
        send: SendId,
        round: i32,
    ) -> Result<Vec<CallRecord>>;

    /// Calls by id; `None` where unknown.
    async fn get_calls(&self, ids: Vec<(TenantId, String)>) -> Result<Vec<Option<CallRecord>>>;

    /// A piece of a session's inbox, in order.
    async fn read_inbox(&self, query: ReadInbox) -> Result<Vec<InboxItem>>;

    /// The sessions that this one created as its children, oldest first.
    async fn list_children(&self, key: SessionKey) -> Result<Vec<SessionKey>>;

    /// What a session's model calls cost, and those of the sessions below it, as far as their sends
    /// are kept; `None` when unknown or deleted.
    async fn session_usage(&self, key: SessionKey) -> Result<Option<SessionUsage>>;

    /// How many of the sessions that this one created as its children have sends that are not final.
    async fn open_children(&self, key: SessionKey) -> Result<u64>;

    /// A piece of a transcript by `seq`; empty when unknown or deleted.
    async fn read_messages(&self, query: ReadMessages) -> Result<Vec<Message>>;

    /// Steps of a session with numbers above `after`, in order, at most `limit`.
    async fn read_steps(&self, key: SessionKey, after: i64, limit: u32) -> Result<Vec<Step>>;

    /// How much waits and runs, per pool.
    async fn queue_stats(&self, at: Option<Timestamp>) -> Result<Vec<QueueStats>>;

    /// What an autoscaler of one pool needs.
    async fn scaling(&self, at: Option<Timestamp>, pool: &str) -> Result<ScalingStats>;

    /// Runs every invariant as a query; returns what violates them.
    async fn audit(&self, at: Option<Timestamp>, options: AuditOptions) -> Result<Vec<Violation>>;

    /// The whole content in a fixed order, for tests and comparisons.
    async fn dump(&self) -> Result<Dump>;
}
