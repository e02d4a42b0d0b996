//! The port: each method is one function of a noun.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
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

use crate::claim::Doubtful;
use crate::settings::{Pools, Settings, pools};
use crate::{
    accept, audit, boots, calls, cancel, claim, complete, deliver, dump, erase, import, lists,
    migrate, park, reads, report, rounds, runs, sessions, sweep, timers,
};

/// The store port on Postgres. Its futures are to be polled to completion: one that is dropped may
/// have taken effect.
pub struct PostgresStore {
    pools: Pools,
    doubtful: Doubtful,
}

impl PostgresStore {
    /// Reaches the database, does with the schema what the settings say, and opens the store.
    ///
    /// Fails with `SchemaMissing`, `SchemaNewer`, `Unavailable`, `Denied`, or `Refused` for an address that
    /// cannot be read or a migration that was changed after it was applied.
    pub async fn open(settings: &Settings) -> Result<Self> {
        migrate::prepare(settings).await?;
        Ok(Self {
            pools: pools(settings)?,
            doubtful: Doubtful::default(),
        })
    }

    /// Closes every connection, once those in use are done.
    pub async fn close(&self) {
        self.pools.writers.connections.close().await;
        self.pools.claimers.connections.close().await;
        self.pools.renewers.connections.close().await;
        self.pools.streamers.connections.close().await;
        self.pools.readers.connections.close().await;
        self.pools.auditors.connections.close().await;
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn now(&self) -> Result<Timestamp> {
        reads::now(&self.pools.claimers).await
    }

    async fn check(&self) -> Result<ServerInfo> {
        reads::check(&self.pools.claimers).await
    }

    async fn register_boot(&self, at: Option<Timestamp>, boot: NewBoot) -> Result<()> {
        boots::register(&self.pools.writers, at, boot).await
    }

    async fn renew_boot(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        ttl: Duration,
        in_flight: u32,
    ) -> Result<Renewal> {
        boots::renew(
            &self.pools.renewers,
            &self.doubtful,
            at,
            boot,
            ttl,
            in_flight,
        )
        .await
    }

    async fn stop_boot(&self, at: Option<Timestamp>, boot: BootId) -> Result<()> {
        boots::stop(&self.pools.writers, at, boot).await
    }

    async fn owned_sessions(
        &self,
        boot: BootId,
        after: Option<(Timestamp, SessionKey)>,
        limit: u32,
    ) -> Result<Owned> {
        boots::owned(&self.pools.claimers, boot, after, limit).await
    }

    async fn list_boots(&self, at: Option<Timestamp>) -> Result<Vec<BootRecord>> {
        // Every sweep begins with it: it must not wait behind a list or an audit.
        boots::list(&self.pools.claimers, at).await
    }

    async fn list_tools(&self, at: Option<Timestamp>) -> Result<Vec<PoolTools>> {
        boots::tools(&self.pools.claimers, at).await
    }

    async fn create_sessions(
        &self,
        at: Option<Timestamp>,
        items: Vec<(NewSession, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateOutcome>> {
        sessions::create(&self.pools.writers, at, items).await
    }

    async fn import_session(
        &self,
        at: Option<Timestamp>,
        item: ImportSession,
    ) -> Result<CreateOutcome> {
        import::import(&self.pools.writers, at, item).await
    }

    async fn update_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        patch: SessionPatch,
    ) -> Result<UpdateOutcome> {
        sessions::update(&self.pools.writers, at, key, &patch).await
    }

    async fn delete_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        boot: BootId,
    ) -> Result<DeleteOutcome> {
        sessions::delete(&self.pools.writers, at, key, boot).await
    }

    async fn deleted_sessions(
        &self,
        at: Option<Timestamp>,
        after: Option<DeletedSession>,
        limit: u32,
    ) -> Result<Vec<DeletedSession>> {
        erase::due(&self.pools.claimers, at, after, limit).await
    }

    async fn erase_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        limit: u32,
    ) -> Result<Erased> {
        erase::erase(&self.pools.writers, at, key, limit).await
    }

    async fn prune_session(
        &self,
        at: Option<Timestamp>,
        item: PruneSession,
    ) -> Result<PruneOutcome> {
        sessions::prune(&self.pools.writers, at, item).await
    }

    async fn write_list(&self, at: Option<Timestamp>, item: WriteList) -> Result<ListOutcome> {
        lists::write(&self.pools.writers, at, &item).await
    }

    async fn read_list(&self, tenant: TenantId, name: ListName) -> Result<List> {
        lists::read(&self.pools.claimers, tenant, &name).await
    }

    async fn accept_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<AcceptSend>,
    ) -> Result<Vec<AcceptOutcome>> {
        accept::accept(&self.pools.writers, at, boot, items).await
    }

    async fn take_key(&self, at: Option<Timestamp>, key: IdempotencyKey) -> Result<KeyOutcome> {
        accept::take_key(&self.pools.writers, at, &key).await
    }

    async fn cancel_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> Result<Vec<CancelOutcome>> {
        cancel::cancel(&self.pools.writers, at, boot, &items).await
    }

    async fn deliver_items(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<DeliverItem>,
    ) -> Result<Vec<DeliverOutcome>> {
        deliver::deliver(&self.pools.writers, at, boot, &items).await
    }

    async fn post_results(
        &self,
        at: Option<Timestamp>,
        items: Vec<PostResult>,
    ) -> Result<Vec<PostOutcome>> {
        calls::post(&self.pools.writers, at, &items).await
    }

    async fn report_children(
        &self,
        at: Option<Timestamp>,
        sends: Option<Vec<(TenantId, SendId)>>,
        limit: u32,
    ) -> Result<Vec<ReportOutcome>> {
        report::report(&self.pools.writers, at, sends.as_deref(), limit).await
    }

    async fn resume_recovery(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        key: SessionKey,
    ) -> Result<Option<SendId>> {
        cancel::resume_recovery(&self.pools.writers, at, boot, key).await
    }

    async fn create_timers(
        &self,
        at: Option<Timestamp>,
        items: Vec<(NewTimer, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateTimerOutcome>> {
        timers::create(&self.pools.writers, at, items).await
    }

    async fn change_timers(
        &self,
        at: Option<Timestamp>,
        items: Vec<ChangeTimer>,
    ) -> Result<Vec<ChangeTimerOutcome>> {
        timers::change(&self.pools.writers, at, &items).await
    }

    async fn fire_timers(&self, at: Option<Timestamp>, boot: BootId, limit: u32) -> Result<Fired> {
        timers::fire(&self.pools.writers, at, boot, limit).await
    }

    async fn retire_sends(&self, at: Option<Timestamp>, query: RetireSends) -> Result<Retired> {
        sweep::retire_sends(&self.pools.writers, at, query).await
    }

    async fn sweep_timers(&self, at: Option<Timestamp>, keep: Duration) -> Result<u64> {
        timers::retention(&self.pools.writers, at, keep).await
    }

    async fn get_timers(&self, ids: Vec<(TenantId, TimerId)>) -> Result<Vec<Option<TimerRecord>>> {
        timers::get(&self.pools.claimers, &ids).await
    }

    async fn list_timers(&self, query: ListTimers) -> Result<Page<TimerRecord>> {
        timers::list(&self.pools.readers, &query).await
    }

    async fn list_occurrences(&self, query: ListOccurrences) -> Result<Page<Occurrence>> {
        timers::occurrences(&self.pools.readers, &query).await
    }

    async fn claim_sessions(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<ClaimSession>,
    ) -> Result<Vec<ClaimOutcome>> {
        claim::claim(&self.pools.claimers, &self.doubtful, at, boot, items).await
    }

    async fn append_rounds(
        &self,
        at: Option<Timestamp>,
        items: Vec<AppendRound>,
    ) -> Result<Vec<AppendOutcome>> {
        rounds::append(&self.pools.writers, at, items).await
    }

    async fn complete_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<CompleteSend>,
    ) -> Result<Vec<CompleteOutcome>> {
        complete::complete(&self.pools.writers, &self.doubtful, at, items).await
    }

    async fn park_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<ParkSend>,
    ) -> Result<Vec<ParkOutcome>> {
        park::park(&self.pools.writers, at, items).await
    }

    async fn release_sessions(
        &self,
        _at: Option<Timestamp>,
        items: Vec<ReleaseSession>,
    ) -> Result<Vec<bool>> {
        park::release(&self.pools.writers, items).await
    }

    async fn create_runs(
        &self,
        at: Option<Timestamp>,
        items: Vec<NewRun>,
    ) -> Result<Vec<CreateRunOutcome>> {
        runs::create(&self.pools.writers, at, &items).await
    }

    async fn ask_runs(
        &self,
        at: Option<Timestamp>,
        items: Vec<(RunKey, RunAsk)>,
    ) -> Result<Vec<bool>> {
        runs::ask(&self.pools.writers, at, &items).await
    }

    async fn claim_runs(&self, at: Option<Timestamp>, claim: ClaimRuns) -> Result<ClaimedRuns> {
        runs::claim(&self.pools.claimers, at, claim).await
    }

    async fn advance_runs(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<AdvanceRun>,
    ) -> Result<Vec<AdvanceOutcome>> {
        runs::advance(&self.pools.writers, at, boot, &items).await
    }

    async fn release_runs(&self, boot: BootId, keys: Vec<RunKey>) -> Result<()> {
        runs::release(&self.pools.writers, boot, &keys).await
    }

    async fn get_runs(&self, keys: Vec<RunKey>) -> Result<Vec<Option<RunRecord>>> {
        runs::get(&self.pools.claimers, &keys).await
    }

    async fn read_asks(&self, keys: Vec<RunKey>) -> Result<Vec<Vec<RunAsk>>> {
        runs::read_asks(&self.pools.claimers, &keys).await
    }

    async fn list_runs(&self, query: ListRuns) -> Result<Page<RunRecord>> {
        runs::list(&self.pools.readers, &query).await
    }

    async fn read_nodes(&self, query: ReadNodes) -> Result<Vec<NodeRecord>> {
        runs::nodes(&self.pools.claimers, &query).await
    }

    async fn forget_runs(&self, keys: Vec<RunKey>) -> Result<u64> {
        runs::forget(&self.pools.writers, &keys).await
    }

    async fn live_leaves(&self, key: RunKey) -> Result<Vec<SendId>> {
        runs::live_leaves(&self.pools.claimers, key).await
    }

    async fn read_run_steps(&self, key: RunKey, after: i64, limit: u32) -> Result<Vec<RunStep>> {
        runs::steps(&self.pools.streamers, key, after, limit).await
    }

    async fn sweep_ready(&self, at: Option<Timestamp>, query: SweepReady) -> Result<Swept> {
        sweep::ready(&self.pools.claimers, at, &query).await
    }

    async fn sweep_alarms(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        limit: u32,
    ) -> Result<AlarmSweep> {
        sweep::alarms(&self.pools.writers, at, boot, limit).await
    }

    async fn sweep_retention(&self, at: Option<Timestamp>, keep: Duration) -> Result<u64> {
        sweep::retention(&self.pools.writers, at, keep).await
    }

    async fn get_sends(&self, ids: Vec<(TenantId, SendId)>) -> Result<Vec<Option<SendRecord>>> {
        reads::sends(&self.pools.claimers, &ids).await
    }

    async fn get_session(&self, key: SessionKey) -> Result<Option<SessionRecord>> {
        reads::session(&self.pools.claimers, key).await
    }

    async fn list_sessions(&self, query: ListSessions) -> Result<Page<SessionRecord>> {
        reads::list_sessions(&self.pools.readers, &query).await
    }

    async fn list_sends(&self, query: ListSends) -> Result<Page<SendRecord>> {
        reads::list_sends(&self.pools.readers, &query).await
    }

    async fn last_steps(&self, keys: Vec<SessionKey>) -> Result<Vec<i64>> {
        reads::last_steps(&self.pools.streamers, &keys).await
    }

    async fn read_round(
        &self,
        key: SessionKey,
        send: SendId,
        round: i32,
    ) -> Result<Vec<CallRecord>> {
        reads::round(&self.pools.claimers, key, send, round).await
    }

    async fn get_calls(&self, ids: Vec<(TenantId, String)>) -> Result<Vec<Option<CallRecord>>> {
        reads::calls(&self.pools.claimers, &ids).await
    }

    async fn read_inbox(&self, query: ReadInbox) -> Result<Vec<InboxItem>> {
        reads::inbox(&self.pools.claimers, query).await
    }

    async fn list_children(&self, key: SessionKey) -> Result<Vec<SessionKey>> {
        reads::children(&self.pools.claimers, key).await
    }

    async fn session_usage(&self, key: SessionKey) -> Result<Option<SessionUsage>> {
        // It goes through all sends of a tree: others do not wait for it.
        reads::usage(&self.pools.streamers, key).await
    }

    async fn open_children(&self, key: SessionKey) -> Result<u64> {
        reads::open_children(&self.pools.claimers, key).await
    }

    async fn read_messages(&self, query: ReadMessages) -> Result<Vec<Message>> {
        reads::messages(&self.pools.streamers, query).await
    }

    async fn read_steps(&self, key: SessionKey, after: i64, limit: u32) -> Result<Vec<Step>> {
        reads::steps(&self.pools.streamers, key, after, limit).await
    }

    async fn queue_stats(&self, at: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        reads::queue_stats(&self.pools.readers, at, None).await
    }

    async fn scaling(&self, at: Option<Timestamp>, pool: &str) -> Result<ScalingStats> {
        reads::scaling(&self.pools.readers, at, pool).await
    }

    async fn audit(&self, at: Option<Timestamp>, options: AuditOptions) -> Result<Vec<Violation>> {
        audit::audit(&self.pools.auditors, at, options).await
    }

    async fn dump(&self) -> Result<Dump> {
        dump::dump(&self.pools.auditors).await
    }
}
