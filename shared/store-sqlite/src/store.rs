//! The port: each method is one function of a noun, as one transaction.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use mainspring_shared::id::{BootId, RunKey, SendId, SessionKey, TenantId, TimerId};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::list::{List, ListName};
use mainspring_shared::message::Message;
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::SessionRecord;
use mainspring_shared::step::Step;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AdvanceOutcome, AdvanceRun, AlarmSweep, AppendOutcome, AppendRound,
    AuditOptions, BootRecord, CancelOutcome, ChangeTimer, ChangeTimerOutcome, ClaimOutcome,
    ClaimRuns, ClaimSession, ClaimedRuns, CompleteOutcome, CompleteSend, CreateOutcome,
    CreateRunOutcome, CreateTimerOutcome, DeleteOutcome, DeletedSession, DeliverItem,
    DeliverOutcome, Dump, Erased, Fired, IdempotencyKey, ImportSession, KeyOutcome,
    ListOccurrences, ListOutcome, ListRuns, ListSends, ListSessions, ListTimers, NewBoot, NewRun,
    NewSession, NewTimer, Owned, Page, ParkOutcome, ParkSend, PoolTools, PostOutcome, PostResult,
    PruneOutcome, PruneSession, QueueStats, ReadInbox, ReadMessages, ReadNodes, ReleaseSession,
    Renewal, ReportOutcome, Result, RetireSends, Retired, RunStep, ScalingStats, ServerInfo,
    SessionPatch, SessionUsage, Store, SweepReady, Swept, UpdateOutcome, Violation, WriteList,
};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{Occurrence, TimerRecord};
use mainspring_shared::tool::CallRecord;
use mainspring_shared::workflow::run::{NodeRecord, RunAsk, RunRecord};
use sqlx::{SqliteConnection, SqlitePool};

use crate::fault::{self, Fault};
use crate::writer::{Commit, Tx, Writer, clock};
use crate::{
    accept, audit, boots, calls, cancel, claim, complete, deliver, dump, erase, import, inbox,
    lists, park, post, reads, report, rounds, runs, sessions, sweep, timers,
};

/// The store port on one SQLite file. The data directory is held until the store is dropped and
/// the work in flight has ended.
#[derive(Debug)]
pub struct SqliteStore {
    pub(crate) writer: Writer,
    pub(crate) readers: SqlitePool,
}

impl SqliteStore {
    /// Runs `work` as one durable transaction.
    async fn write<T, W>(&self, at: Option<Timestamp>, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, fault::Result<T>> + Send + 'static,
    {
        self.writer.run(Commit::Durable, at, work).await
    }

    /// Runs `work` on a reader.
    async fn read<T, W>(&self, work: W) -> Result<T>
    where
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, fault::Result<T>> + Send,
    {
        let mut conn = self.readers.acquire().await.map_err(Fault::from)?;
        Ok(work(&mut conn).await?)
    }

    /// Runs `work` on a reader that sees one state of the file throughout.
    async fn snapshot<T, W>(&self, work: W) -> Result<T>
    where
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, fault::Result<T>> + Send,
    {
        let mut tx = self.readers.begin().await.map_err(Fault::from)?;
        let answer = work(&mut tx).await?;
        tx.commit().await.map_err(Fault::from)?;
        Ok(answer)
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn now(&self) -> Result<Timestamp> {
        self.read(|conn| Box::pin(clock(conn, None))).await
    }

    async fn check(&self) -> Result<ServerInfo> {
        self.read(|conn| Box::pin(reads::check(conn))).await
    }

    async fn register_boot(&self, at: Option<Timestamp>, boot: NewBoot) -> Result<()> {
        self.write(at, |tx| Box::pin(boots::register(tx, boot)))
            .await
    }

    async fn renew_boot(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        ttl: Duration,
        in_flight: u32,
    ) -> Result<Renewal> {
        self.write(at, move |tx| {
            Box::pin(boots::renew(tx, boot, ttl, in_flight))
        })
        .await
    }

    async fn stop_boot(&self, at: Option<Timestamp>, boot: BootId) -> Result<()> {
        self.write(at, move |tx| Box::pin(boots::stop(tx, boot)))
            .await
    }

    async fn owned_sessions(
        &self,
        boot: BootId,
        after: Option<(Timestamp, SessionKey)>,
        limit: u32,
    ) -> Result<Owned> {
        self.read(move |conn| Box::pin(boots::owned(conn, boot, after, limit)))
            .await
    }

    async fn list_boots(&self, at: Option<Timestamp>) -> Result<Vec<BootRecord>> {
        self.read(move |conn| Box::pin(boots::list(conn, at))).await
    }

    async fn list_tools(&self, at: Option<Timestamp>) -> Result<Vec<PoolTools>> {
        self.read(move |conn| Box::pin(boots::tools(conn, at)))
            .await
    }

    async fn create_sessions(
        &self,
        at: Option<Timestamp>,
        items: Vec<(NewSession, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateOutcome>> {
        self.write(at, |tx| Box::pin(sessions::create(tx, items)))
            .await
    }

    async fn import_session(
        &self,
        at: Option<Timestamp>,
        item: ImportSession,
    ) -> Result<CreateOutcome> {
        self.write(at, move |tx| Box::pin(import::import(tx, item)))
            .await
    }

    async fn update_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        patch: SessionPatch,
    ) -> Result<UpdateOutcome> {
        self.write(at, move |tx| Box::pin(sessions::update(tx, key, patch)))
            .await
    }

    async fn delete_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        boot: BootId,
    ) -> Result<DeleteOutcome> {
        self.write(at, move |tx| Box::pin(sessions::delete(tx, key, boot)))
            .await
    }

    async fn deleted_sessions(
        &self,
        at: Option<Timestamp>,
        after: Option<DeletedSession>,
        limit: u32,
    ) -> Result<Vec<DeletedSession>> {
        self.read(move |conn| Box::pin(erase::due(conn, at, after, limit)))
            .await
    }

    async fn erase_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        limit: u32,
    ) -> Result<Erased> {
        self.write(at, move |tx| Box::pin(erase::erase(tx, key, limit)))
            .await
    }

    async fn prune_session(
        &self,
        at: Option<Timestamp>,
        item: PruneSession,
    ) -> Result<PruneOutcome> {
        self.write(at, move |tx| Box::pin(sessions::prune(tx, item)))
            .await
    }

    async fn write_list(&self, at: Option<Timestamp>, item: WriteList) -> Result<ListOutcome> {
        self.write(at, move |tx| Box::pin(lists::write(tx, item)))
            .await
    }

    async fn read_list(&self, tenant: TenantId, name: ListName) -> Result<List> {
        let name = name.key();
        self.snapshot(|conn| Box::pin(async move { lists::read(conn, tenant, &name).await }))
            .await
    }

    async fn accept_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<AcceptSend>,
    ) -> Result<Vec<AcceptOutcome>> {
        self.write(at, move |tx| Box::pin(accept::all(tx, boot, items)))
            .await
    }

    async fn take_key(&self, at: Option<Timestamp>, key: IdempotencyKey) -> Result<KeyOutcome> {
        self.write(at, move |tx| Box::pin(accept::take_key(tx, key)))
            .await
    }

    async fn cancel_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> Result<Vec<CancelOutcome>> {
        self.write(at, move |tx| Box::pin(cancel::all(tx, boot, items)))
            .await
    }

    async fn deliver_items(
        &self,
        at: Option<Timestamp>,
        _boot: BootId,
        items: Vec<DeliverItem>,
    ) -> Result<Vec<DeliverOutcome>> {
        self.write(at, |tx| Box::pin(deliver::all(tx, items))).await
    }

    async fn post_results(
        &self,
        at: Option<Timestamp>,
        items: Vec<PostResult>,
    ) -> Result<Vec<PostOutcome>> {
        self.write(at, |tx| Box::pin(post::all(tx, items))).await
    }

    async fn report_children(
        &self,
        at: Option<Timestamp>,
        sends: Option<Vec<(TenantId, SendId)>>,
        limit: u32,
    ) -> Result<Vec<ReportOutcome>> {
        self.write(at, move |tx| Box::pin(report::all(tx, sends, limit)))
            .await
    }

    async fn resume_recovery(
        &self,
        at: Option<Timestamp>,
        _boot: BootId,
        key: SessionKey,
    ) -> Result<Option<SendId>> {
        self.write(at, move |tx| Box::pin(cancel::resume_recovery(tx, key)))
            .await
    }

    async fn create_timers(
        &self,
        at: Option<Timestamp>,
        items: Vec<(NewTimer, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateTimerOutcome>> {
        self.write(at, |tx| Box::pin(timers::create(tx, items)))
            .await
    }

    async fn change_timers(
        &self,
        at: Option<Timestamp>,
        items: Vec<ChangeTimer>,
    ) -> Result<Vec<ChangeTimerOutcome>> {
        self.write(at, |tx| Box::pin(timers::change(tx, items)))
            .await
    }

    async fn fire_timers(&self, at: Option<Timestamp>, boot: BootId, limit: u32) -> Result<Fired> {
        self.write(at, move |tx| Box::pin(timers::fire(tx, boot, limit)))
            .await
    }

    async fn retire_sends(&self, at: Option<Timestamp>, query: RetireSends) -> Result<Retired> {
        self.write(at, move |tx| Box::pin(sweep::retire_sends(tx, query)))
            .await
    }

    async fn sweep_timers(&self, at: Option<Timestamp>, keep: Duration) -> Result<u64> {
        self.write(at, move |tx| Box::pin(timers::retention(tx, keep)))
            .await
    }

    async fn get_timers(&self, ids: Vec<(TenantId, TimerId)>) -> Result<Vec<Option<TimerRecord>>> {
        self.read(|conn| Box::pin(timers::all(conn, ids))).await
    }

    async fn list_timers(&self, query: ListTimers) -> Result<Page<TimerRecord>> {
        self.read(|conn| Box::pin(timers::list(conn, query))).await
    }

    async fn list_occurrences(&self, query: ListOccurrences) -> Result<Page<Occurrence>> {
        self.read(|conn| Box::pin(timers::occurrences(conn, query)))
            .await
    }

    async fn claim_sessions(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<ClaimSession>,
    ) -> Result<Vec<ClaimOutcome>> {
        let outcomes = self
            .writer
            .run(Commit::Relaxed, at, move |tx| {
                Box::pin(claim::all(tx, boot, items))
            })
            .await?;
        // A send that goes on is a step, which readers see: it has to outlast a power cut.
        let goes_on = outcomes.iter().any(|outcome| match outcome {
            ClaimOutcome::Claimed(claimed) => claimed.send.resumed.is_some(),
            ClaimOutcome::Busy | ClaimOutcome::Suspect | ClaimOutcome::Idle => false,
        });
        if goes_on {
            let kept = self.write(at, move |tx| Box::pin(boots::touch(tx, boot)));
            if let Err(error) = kept.await {
                tracing::warn!(%error, "a claim is not known to outlast a power cut");
            }
        }
        Ok(outcomes)
    }

    async fn append_rounds(
        &self,
        at: Option<Timestamp>,
        items: Vec<AppendRound>,
    ) -> Result<Vec<AppendOutcome>> {
        self.write(at, |tx| Box::pin(rounds::all(tx, items))).await
    }

    async fn complete_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<CompleteSend>,
    ) -> Result<Vec<CompleteOutcome>> {
        self.write(at, |tx| Box::pin(complete::all(tx, items)))
            .await
    }

    async fn park_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<ParkSend>,
    ) -> Result<Vec<ParkOutcome>> {
        self.write(at, |tx| Box::pin(park::all(tx, items))).await
    }

    async fn release_sessions(
        &self,
        at: Option<Timestamp>,
        items: Vec<ReleaseSession>,
    ) -> Result<Vec<bool>> {
        self.write(at, |tx| Box::pin(park::release(tx, items)))
            .await
    }

    async fn create_runs(
        &self,
        at: Option<Timestamp>,
        items: Vec<NewRun>,
    ) -> Result<Vec<CreateRunOutcome>> {
        self.write(at, |tx| Box::pin(runs::create(tx, items))).await
    }

    async fn ask_runs(
        &self,
        at: Option<Timestamp>,
        items: Vec<(RunKey, RunAsk)>,
    ) -> Result<Vec<bool>> {
        self.write(at, |tx| Box::pin(runs::ask(tx, items))).await
    }

    async fn claim_runs(&self, at: Option<Timestamp>, claim: ClaimRuns) -> Result<ClaimedRuns> {
        self.writer
            .run(Commit::Relaxed, at, move |tx| {
                Box::pin(runs::claim(tx, claim))
            })
            .await
    }

    async fn advance_runs(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<AdvanceRun>,
    ) -> Result<Vec<AdvanceOutcome>> {
        self.write(at, move |tx| Box::pin(runs::advance(tx, boot, items)))
            .await
    }

    async fn release_runs(&self, boot: BootId, keys: Vec<RunKey>) -> Result<()> {
        self.write(None, move |tx| Box::pin(runs::release(tx, boot, keys)))
            .await
    }

    async fn get_runs(&self, keys: Vec<RunKey>) -> Result<Vec<Option<RunRecord>>> {
        self.read(|conn| Box::pin(runs::get(conn, keys))).await
    }

    async fn read_asks(&self, keys: Vec<RunKey>) -> Result<Vec<Vec<RunAsk>>> {
        self.read(|conn| Box::pin(runs::read_asks(conn, keys)))
            .await
    }

    async fn list_runs(&self, query: ListRuns) -> Result<Page<RunRecord>> {
        self.read(|conn| Box::pin(runs::list(conn, query))).await
    }

    async fn read_nodes(&self, query: ReadNodes) -> Result<Vec<NodeRecord>> {
        self.read(|conn| Box::pin(runs::nodes(conn, query))).await
    }

    async fn forget_runs(&self, keys: Vec<RunKey>) -> Result<u64> {
        self.write(None, |tx| Box::pin(runs::forget(tx, keys)))
            .await
    }

    async fn live_leaves(&self, key: RunKey) -> Result<Vec<SendId>> {
        self.read(move |conn| Box::pin(runs::live_leaves(conn, key)))
            .await
    }

    async fn read_run_steps(&self, key: RunKey, after: i64, limit: u32) -> Result<Vec<RunStep>> {
        self.read(move |conn| Box::pin(runs::steps(conn, key, after, limit)))
            .await
    }

    async fn sweep_ready(&self, at: Option<Timestamp>, query: SweepReady) -> Result<Swept> {
        self.read(move |conn| Box::pin(sweep::ready(conn, at, query)))
            .await
    }

    async fn sweep_alarms(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        limit: u32,
    ) -> Result<AlarmSweep> {
        self.write(at, move |tx| Box::pin(sweep::alarms(tx, boot, limit)))
            .await
    }

    async fn sweep_retention(&self, at: Option<Timestamp>, keep: Duration) -> Result<u64> {
        self.write(at, move |tx| Box::pin(sweep::retention(tx, keep)))
            .await
    }

    async fn get_sends(&self, ids: Vec<(TenantId, SendId)>) -> Result<Vec<Option<SendRecord>>> {
        self.read(|conn| Box::pin(reads::sends(conn, ids))).await
    }

    async fn get_session(&self, key: SessionKey) -> Result<Option<SessionRecord>> {
        self.read(move |conn| Box::pin(reads::session(conn, key)))
            .await
    }

    async fn list_sessions(&self, query: ListSessions) -> Result<Page<SessionRecord>> {
        self.read(|conn| Box::pin(reads::sessions(conn, query)))
            .await
    }

    async fn list_sends(&self, query: ListSends) -> Result<Page<SendRecord>> {
        self.read(|conn| Box::pin(reads::list_sends(conn, query)))
            .await
    }

    async fn last_steps(&self, keys: Vec<SessionKey>) -> Result<Vec<i64>> {
        self.read(move |conn| Box::pin(reads::last_steps(conn, keys)))
            .await
    }

    async fn read_round(
        &self,
        key: SessionKey,
        send: SendId,
        round: i32,
    ) -> Result<Vec<CallRecord>> {
        self.read(move |conn| Box::pin(calls::of_round(conn, key, send, round)))
            .await
    }

    async fn get_calls(&self, ids: Vec<(TenantId, String)>) -> Result<Vec<Option<CallRecord>>> {
        self.read(|conn| Box::pin(calls::by_id(conn, ids))).await
    }

    async fn read_inbox(&self, query: ReadInbox) -> Result<Vec<InboxItem>> {
        self.read(move |conn| Box::pin(inbox::read(conn, query)))
            .await
    }

    async fn list_children(&self, key: SessionKey) -> Result<Vec<SessionKey>> {
        self.read(move |conn| Box::pin(reads::children(conn, key)))
            .await
    }

    async fn session_usage(&self, key: SessionKey) -> Result<Option<SessionUsage>> {
        self.read(move |conn| Box::pin(reads::usage(conn, key)))
            .await
    }

    async fn open_children(&self, key: SessionKey) -> Result<u64> {
        self.read(move |conn| Box::pin(reads::open_children(conn, key)))
            .await
    }

    async fn read_messages(&self, query: ReadMessages) -> Result<Vec<Message>> {
        self.read(move |conn| Box::pin(reads::messages(conn, query)))
            .await
    }

    async fn read_steps(&self, key: SessionKey, after: i64, limit: u32) -> Result<Vec<Step>> {
        self.read(move |conn| Box::pin(reads::steps(conn, key, after, limit)))
            .await
    }

    async fn queue_stats(&self, at: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        self.read(move |conn| Box::pin(reads::queue_stats(conn, at)))
            .await
    }

    async fn scaling(&self, at: Option<Timestamp>, pool: &str) -> Result<ScalingStats> {
        let pool = pool.to_owned();
        self.read(move |conn| Box::pin(reads::scaling(conn, at, pool)))
            .await
    }

    async fn audit(&self, at: Option<Timestamp>, options: AuditOptions) -> Result<Vec<Violation>> {
        self.snapshot(move |conn| Box::pin(audit::all(conn, at, options)))
            .await
    }

    async fn dump(&self) -> Result<Dump> {
        self.snapshot(|conn| Box::pin(dump::all(conn))).await
    }
}
