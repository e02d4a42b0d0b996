//! The port: each method is one function of a noun, run under the lock.

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

use crate::audit::audit;
use crate::memory::ModelStore;
use crate::{
    boots, children, claim, inbox, leases, lists, posts, reads, runs, sends, sessions, sweeps,
    timers,
};

#[async_trait]
impl Store for ModelStore {
    async fn now(&self) -> Result<Timestamp> {
        Ok(self.clock.now())
    }

    async fn check(&self) -> Result<ServerInfo> {
        Ok(ServerInfo {
            server: "model".to_owned(),
            schema: 5,
            now: self.clock.now(),
        })
    }

    async fn register_boot(&self, at: Option<Timestamp>, boot: NewBoot) -> Result<()> {
        let (mut state, now) = self.begin(at);
        boots::register(&mut state, now, boot);
        Ok(())
    }

    async fn renew_boot(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        ttl: Duration,
        in_flight: u32,
    ) -> Result<Renewal> {
        let (mut state, now) = self.begin(at);
        Ok(boots::renew(&mut state, now, boot, ttl, in_flight))
    }

    async fn stop_boot(&self, at: Option<Timestamp>, boot: BootId) -> Result<()> {
        let (mut state, now) = self.begin(at);
        boots::stop(&mut state, now, boot);
        Ok(())
    }

    async fn owned_sessions(
        &self,
        boot: BootId,
        after: Option<(Timestamp, SessionKey)>,
        limit: u32,
    ) -> Result<Owned> {
        let (state, _) = self.begin(None);
        Ok(boots::owned(&state, boot, after, limit))
    }

    async fn list_boots(&self, at: Option<Timestamp>) -> Result<Vec<BootRecord>> {
        let (state, now) = self.begin(at);
        Ok(boots::list(&state, now))
    }

    async fn list_tools(&self, at: Option<Timestamp>) -> Result<Vec<PoolTools>> {
        let (state, now) = self.begin(at);
        Ok(boots::tools(&state, now))
    }

    async fn create_sessions(
        &self,
        at: Option<Timestamp>,
        items: Vec<(NewSession, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|(new, key)| sessions::create(&mut state, now, new, key.as_ref()));
        Ok(outcomes.collect())
    }

    async fn import_session(
        &self,
        at: Option<Timestamp>,
        item: ImportSession,
    ) -> Result<CreateOutcome> {
        let (mut state, now) = self.begin(at);
        Ok(sessions::import(&mut state, now, item))
    }

    async fn update_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        patch: SessionPatch,
    ) -> Result<UpdateOutcome> {
        let (mut state, now) = self.begin(at);
        Ok(sessions::update(&mut state, now, key, patch))
    }

    async fn delete_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        boot: BootId,
    ) -> Result<DeleteOutcome> {
        let (mut state, now) = self.begin(at);
        Ok(sessions::delete(&mut state, now, key, boot))
    }

    async fn deleted_sessions(
        &self,
        at: Option<Timestamp>,
        after: Option<DeletedSession>,
        limit: u32,
    ) -> Result<Vec<DeletedSession>> {
        let (state, now) = self.begin(at);
        Ok(sessions::deleted(&state, now, after, limit))
    }

    async fn erase_session(
        &self,
        at: Option<Timestamp>,
        key: SessionKey,
        limit: u32,
    ) -> Result<Erased> {
        let (mut state, now) = self.begin(at);
        Ok(sessions::erase(&mut state, now, key, limit))
    }

    async fn prune_session(
        &self,
        at: Option<Timestamp>,
        item: PruneSession,
    ) -> Result<PruneOutcome> {
        let (mut state, _) = self.begin(at);
        Ok(sessions::prune(&mut state, item))
    }

    async fn write_list(&self, at: Option<Timestamp>, item: WriteList) -> Result<ListOutcome> {
        let (mut state, now) = self.begin(at);
        Ok(lists::write(&mut state, now, item))
    }

    async fn read_list(&self, tenant: TenantId, name: ListName) -> Result<List> {
        let (state, _) = self.begin(None);
        Ok(lists::read(&state, tenant, &name))
    }

    async fn accept_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<AcceptSend>,
    ) -> Result<Vec<AcceptOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| sends::accept(&mut state, now, boot, item));
        Ok(outcomes.collect())
    }

    async fn take_key(&self, at: Option<Timestamp>, key: IdempotencyKey) -> Result<KeyOutcome> {
        let (mut state, now) = self.begin(at);
        Ok(state.take_key(&key, now))
    }

    async fn cancel_sends(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<(TenantId, SendId)>,
    ) -> Result<Vec<CancelOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|(tenant, id)| sends::cancel(&mut state, now, boot, tenant, id));
        Ok(outcomes.collect())
    }

    async fn deliver_items(
        &self,
        at: Option<Timestamp>,
        _boot: BootId,
        items: Vec<DeliverItem>,
    ) -> Result<Vec<DeliverOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| inbox::deliver(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn post_results(
        &self,
        at: Option<Timestamp>,
        items: Vec<PostResult>,
    ) -> Result<Vec<PostOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| posts::post(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn report_children(
        &self,
        at: Option<Timestamp>,
        sends: Option<Vec<(TenantId, SendId)>>,
        limit: u32,
    ) -> Result<Vec<ReportOutcome>> {
        let (mut state, now) = self.begin(at);
        Ok(children::report(&mut state, now, sends.as_deref(), limit))
    }

    async fn resume_recovery(
        &self,
        at: Option<Timestamp>,
        _boot: BootId,
        key: SessionKey,
    ) -> Result<Option<SendId>> {
        let (mut state, now) = self.begin(at);
        Ok(sends::resume_recovery(&mut state, now, key))
    }

    async fn create_timers(
        &self,
        at: Option<Timestamp>,
        items: Vec<(NewTimer, Option<IdempotencyKey>)>,
    ) -> Result<Vec<CreateTimerOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|(new, key)| timers::create(&mut state, now, new, key.as_ref()));
        Ok(outcomes.collect())
    }

    async fn change_timers(
        &self,
        at: Option<Timestamp>,
        items: Vec<ChangeTimer>,
    ) -> Result<Vec<ChangeTimerOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| timers::change(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn fire_timers(&self, at: Option<Timestamp>, boot: BootId, limit: u32) -> Result<Fired> {
        let (mut state, now) = self.begin(at);
        Ok(timers::fire(&mut state, now, boot, limit))
    }

    async fn retire_sends(&self, at: Option<Timestamp>, query: RetireSends) -> Result<Retired> {
        let (mut state, now) = self.begin(at);
        Ok(sweeps::retire_sends(&mut state, now, query))
    }

    async fn sweep_timers(&self, at: Option<Timestamp>, keep: Duration) -> Result<u64> {
        let (mut state, now) = self.begin(at);
        Ok(timers::retention(&mut state, now, keep))
    }

    async fn get_timers(&self, ids: Vec<(TenantId, TimerId)>) -> Result<Vec<Option<TimerRecord>>> {
        let (state, _) = self.begin(None);
        let found = ids
            .into_iter()
            .map(|id| state.timers.get(&id).map(|timer| timer.record.clone()));
        Ok(found.collect())
    }

    async fn list_timers(&self, query: ListTimers) -> Result<Page<TimerRecord>> {
        let (state, _) = self.begin(None);
        Ok(timers::list(&state, &query))
    }

    async fn list_occurrences(&self, query: ListOccurrences) -> Result<Page<Occurrence>> {
        let (state, _) = self.begin(None);
        Ok(timers::occurrences(&state, &query))
    }

    async fn claim_sessions(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<ClaimSession>,
    ) -> Result<Vec<ClaimOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .iter()
            .map(|item| claim::claim(&mut state, now, boot, item));
        Ok(outcomes.collect())
    }

    async fn append_rounds(
        &self,
        at: Option<Timestamp>,
        items: Vec<AppendRound>,
    ) -> Result<Vec<AppendOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| leases::append(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn complete_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<CompleteSend>,
    ) -> Result<Vec<CompleteOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| leases::complete(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn park_sends(
        &self,
        at: Option<Timestamp>,
        items: Vec<ParkSend>,
    ) -> Result<Vec<ParkOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| leases::park(&mut state, now, item));
        Ok(outcomes.collect())
    }

    async fn release_sessions(
        &self,
        _at: Option<Timestamp>,
        items: Vec<ReleaseSession>,
    ) -> Result<Vec<bool>> {
        let (mut state, _) = self.begin(None);
        let outcomes = items
            .into_iter()
            .map(|item| leases::release(&mut state, item));
        Ok(outcomes.collect())
    }

    async fn create_runs(
        &self,
        at: Option<Timestamp>,
        items: Vec<NewRun>,
    ) -> Result<Vec<CreateRunOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| runs::create(&mut state, now, &item));
        Ok(outcomes.collect())
    }

    async fn ask_runs(
        &self,
        at: Option<Timestamp>,
        items: Vec<(RunKey, RunAsk)>,
    ) -> Result<Vec<bool>> {
        let (mut state, _) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|(key, ask)| runs::ask(&mut state, key, ask));
        Ok(outcomes.collect())
    }

    async fn claim_runs(&self, at: Option<Timestamp>, claim: ClaimRuns) -> Result<ClaimedRuns> {
        let (mut state, now) = self.begin(at);
        Ok(runs::claim(&mut state, now, &claim))
    }

    async fn advance_runs(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        items: Vec<AdvanceRun>,
    ) -> Result<Vec<AdvanceOutcome>> {
        let (mut state, now) = self.begin(at);
        let outcomes = items
            .into_iter()
            .map(|item| runs::advance(&mut state, now, boot, item));
        Ok(outcomes.collect())
    }

    async fn release_runs(&self, boot: BootId, keys: Vec<RunKey>) -> Result<()> {
        let (mut state, _) = self.begin(None);
        runs::release(&mut state, boot, &keys);
        Ok(())
    }

    async fn get_runs(&self, keys: Vec<RunKey>) -> Result<Vec<Option<RunRecord>>> {
        let (state, _) = self.begin(None);
        let found = keys
            .iter()
            .map(|key| state.runs.get(key).map(|run| run.record.clone()));
        Ok(found.collect())
    }

    async fn read_asks(&self, keys: Vec<RunKey>) -> Result<Vec<Vec<RunAsk>>> {
        let (state, _) = self.begin(None);
        Ok(keys.iter().map(|key| runs::asks(&state, *key)).collect())
    }

    async fn list_runs(&self, query: ListRuns) -> Result<Page<RunRecord>> {
        let (state, _) = self.begin(None);
        Ok(runs::list(&state, &query))
    }

    async fn read_nodes(&self, query: ReadNodes) -> Result<Vec<NodeRecord>> {
        let (state, _) = self.begin(None);
        Ok(runs::nodes(&state, &query))
    }

    async fn forget_runs(&self, keys: Vec<RunKey>) -> Result<u64> {
        let (mut state, _) = self.begin(None);
        Ok(runs::forget(&mut state, &keys))
    }

    async fn live_leaves(&self, key: RunKey) -> Result<Vec<SendId>> {
        let (state, _) = self.begin(None);
        Ok(runs::live_leaves(&state, key))
    }

    async fn read_run_steps(&self, key: RunKey, after: i64, limit: u32) -> Result<Vec<RunStep>> {
        let (state, _) = self.begin(None);
        Ok(runs::steps(&state, key, after, limit))
    }

    async fn sweep_ready(&self, at: Option<Timestamp>, query: SweepReady) -> Result<Swept> {
        let (state, now) = self.begin(at);
        Ok(sweeps::ready(&state, now, &query))
    }

    async fn sweep_alarms(
        &self,
        at: Option<Timestamp>,
        boot: BootId,
        limit: u32,
    ) -> Result<AlarmSweep> {
        let (mut state, now) = self.begin(at);
        Ok(sweeps::alarms(&mut state, now, boot, limit))
    }

    async fn sweep_retention(&self, at: Option<Timestamp>, keep: Duration) -> Result<u64> {
        let (mut state, now) = self.begin(at);
        Ok(sweeps::retention(&mut state, now, keep))
    }

    async fn get_sends(&self, ids: Vec<(TenantId, SendId)>) -> Result<Vec<Option<SendRecord>>> {
        let (state, _) = self.begin(None);
        let found = ids
            .into_iter()
            .map(|(tenant, id)| state.send(tenant, id).cloned());
        Ok(found.collect())
    }

    async fn get_session(&self, key: SessionKey) -> Result<Option<SessionRecord>> {
        let (state, now) = self.begin(None);
        Ok(reads::session(&state, now, key))
    }

    async fn list_sessions(&self, query: ListSessions) -> Result<Page<SessionRecord>> {
        let (state, now) = self.begin(None);
        Ok(reads::sessions(&state, now, &query))
    }

    async fn list_sends(&self, query: ListSends) -> Result<Page<SendRecord>> {
        let (state, _) = self.begin(None);
        Ok(reads::sends(&state, &query))
    }

    async fn last_steps(&self, keys: Vec<SessionKey>) -> Result<Vec<i64>> {
        let (state, _) = self.begin(None);
        Ok(reads::last_steps(&state, &keys))
    }

    async fn read_round(
        &self,
        key: SessionKey,
        send: SendId,
        round: i32,
    ) -> Result<Vec<CallRecord>> {
        let (state, _) = self.begin(None);
        Ok(reads::round(&state, key, send, round))
    }

    async fn get_calls(&self, ids: Vec<(TenantId, String)>) -> Result<Vec<Option<CallRecord>>> {
        let (state, _) = self.begin(None);
        let found = ids
            .into_iter()
            .map(|(tenant, id)| state.call(tenant, &id).cloned());
        Ok(found.collect())
    }

    async fn read_inbox(&self, query: ReadInbox) -> Result<Vec<InboxItem>> {
        let (state, _) = self.begin(None);
        Ok(reads::inbox(&state, query))
    }

    async fn list_children(&self, key: SessionKey) -> Result<Vec<SessionKey>> {
        let (state, _) = self.begin(None);
        Ok(reads::children(&state, key))
    }

    async fn session_usage(&self, key: SessionKey) -> Result<Option<SessionUsage>> {
        let (state, _) = self.begin(None);
        Ok(reads::usage(&state, key))
    }

    async fn open_children(&self, key: SessionKey) -> Result<u64> {
        let (state, _) = self.begin(None);
        Ok(reads::open_children(&state, key))
    }

    async fn read_messages(&self, query: ReadMessages) -> Result<Vec<Message>> {
        let (state, _) = self.begin(None);
        Ok(reads::messages(&state, query))
    }

    async fn read_steps(&self, key: SessionKey, after: i64, limit: u32) -> Result<Vec<Step>> {
        let (state, _) = self.begin(None);
        Ok(reads::steps(&state, key, after, limit))
    }

    async fn queue_stats(&self, at: Option<Timestamp>) -> Result<Vec<QueueStats>> {
        let (state, now) = self.begin(at);
        Ok(reads::queue_stats(&state, now))
    }

    async fn scaling(&self, at: Option<Timestamp>, pool: &str) -> Result<ScalingStats> {
        let (state, now) = self.begin(at);
        Ok(reads::scaling(&state, now, pool))
    }

    async fn audit(&self, at: Option<Timestamp>, options: AuditOptions) -> Result<Vec<Violation>> {
        let (state, now) = self.begin(at);
        Ok(audit(&state.dump(), now, options))
    }

    async fn dump(&self) -> Result<Dump> {
        let (state, _) = self.begin(None);
        Ok(state.dump())
    }
}
