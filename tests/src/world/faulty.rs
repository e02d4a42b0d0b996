//! A store that fails at a chosen position.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use mainspring_shared::agent::{AgentKey, AgentQuery, AgentVersion, NamedAgent};
use mainspring_shared::blob::{BlobHash, BlobOwner, BlobPlace};
use mainspring_shared::id::{
    BootId, KeyId, MemoryId, RunKey, SendId, SessionKey, TenantId, TimerId,
};
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::list::{List, ListName};
use mainspring_shared::memory::{MemoryEntry, Namespace};
use mainspring_shared::message::Message;
use mainspring_shared::send::SendRecord;
use mainspring_shared::session::SessionRecord;
use mainspring_shared::session::fold::Fold;
use mainspring_shared::skill::{BrokenSkill, SkillFault, SkillHash, SkillRecord, SkillRef};
use mainspring_shared::step::Step;
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, AdvanceOutcome, AdvanceRun, Agents, AlarmSweep, AliasOutcome,
    AppendOutcome, AppendRound, AuditOptions, BeginBlob, BlobRecord, BlobRows, BootRecord, Boots,
    Calls, CancelOutcome, ChangeMemory, ChangeTimer, ChangeTimerOutcome, ClaimExtractions,
    ClaimOutcome, ClaimRuns, ClaimSession, ClaimedRuns, CompleteOutcome, CompleteSend,
    CreateKeyOutcome, CreateOutcome, CreateRunOutcome, CreateTenantOutcome, CreateTimerOutcome,
    DeleteOutcome, DeleteTenantOutcome, DeletedSession, DeliverItem, DeliverOutcome, EndExtraction,
    EraseMemories, Erased, ErasedMemories, Error, Extraction, Extractions, FindMessages, Fired,
    IdempotencyKey, ImportSession, KeyOutcome, Leases, ListAgentVersions, ListAgents, ListKeys,
    ListMemories, ListOccurrences, ListOutcome, ListRuns, ListSends, ListSessions, ListSkills,
    ListTenants, ListTimers, Lists, Memories, NewBlob, NewBoot, NewExtraction, NewKey, NewRun,
    NewSession, NewTenant, NewTimer, Orphans, Owned, Page, ParkOutcome, ParkSend, PoolTools,
    PostOutcome, PostResult, PruneOutcome, PruneSession, PublishAgent, PublishOutcome,
    PublishSkill, PublishSkillOutcome, QueueStats, ReadInbox, ReadMessages, ReadNodes, Reads,
    ReleaseSession, Renewal, ReportOutcome, Result, RetireBlobs, RetireSends, Retired,
    RetiredBlobs, RotateKey, RunStep, Runs, SaveMemory, SaveMemoryOutcome, ScalingStats,
    SearchMemories, Sends, ServerInfo, SessionPatch, SessionUsage, Sessions, SetAlias,
    SkillVersion, Skills, Store, SweepOrphans, SweepReady, Sweeps, Swept, TenantPatch, Tenants,
    Timers, UpdateOutcome, UpdateTenantOutcome, Violation, WriteList,
};
use mainspring_shared::tenant::{KeyRecord, Tenant};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{Occurrence, TimerRecord};
use mainspring_shared::tool::CallRecord;
use mainspring_shared::workflow::run::{NodeRecord, RunAsk, RunRecord};
use tokio::sync::watch;

/// What goes wrong at the chosen write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The write does not happen, and the caller is told so.
    FailBefore,
    /// The write happens, and the caller is told that it may not have.
    FailAfter,
    /// The write happens, and the caller is told that it may not have; for a while after it,
    /// nothing can be written.
    Outage,
    /// The process dies just before the write: nothing of it is heard again.
    DieBefore,
    /// The process dies just after the write.
    DieAfter,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 5] = [
        Self::FailBefore,
        Self::FailAfter,
        Self::Outage,
        Self::DieBefore,
        Self::DieAfter,
    ];
}

/// Where what goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPlan {
    /// The write, from 0.
    pub at: usize,
    /// What happens there.
    pub fault: Fault,
}

/// Writes that fail in an outage after the one that it begins with.
const OUTAGE_WRITES: usize = 3;

/// A store that counts the writes of one process and fails one of them.
pub struct Faulty {
    inner: Arc<dyn Store>,
    plan: FaultPlan,
    writes: AtomicUsize,
    struck: OnceLock<&'static str>,
    paused: watch::Sender<bool>,
    away: AtomicBool,
    unreadable: Mutex<Option<&'static str>>,
    then: Mutex<Option<(&'static str, BoxFuture<'static, ()>)>>,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl Faulty {
    /// A store over another, with one fault.
    pub fn new(inner: Arc<dyn Store>, plan: FaultPlan) -> Self {
        Self {
            inner,
            plan,
            writes: AtomicUsize::new(0),
            struck: OnceLock::new(),
            paused: watch::Sender::new(false),
            away: AtomicBool::new(false),
            unreadable: Mutex::default(),
            then: Mutex::default(),
        }
    }

    /// Whether the fault's position was reached.
    pub fn fired(&self) -> bool {
        self.writes.load(Ordering::SeqCst) > self.plan.at
    }

    /// Writes so far.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// The method whose write the fault fell on.
    pub fn struck(&self) -> Option<&'static str> {
        self.struck.get().copied()
    }

    /// Stops the process as signal 9 does: nothing of it is heard again.
    pub fn kill(&self) {
        self.pause();
    }

    /// Stops the process as `SIGSTOP` does.
    pub fn pause(&self) {
        self.paused.send_replace(true);
    }

    /// Lets a paused process go on.
    pub fn wake(&self) {
        self.paused.send_replace(false);
    }

    /// Takes the database away from this process, or gives it back.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// From now on, what this method reads is no sense to this process.
    pub fn spoil(&self, name: &'static str) {
        *self.unreadable.lock().expect("nobody panics under it") = Some(name);
    }

    /// What happens right after the next call of this name, before its caller hears of it.
    pub fn then(&self, name: &'static str, what: impl Future<Output = ()> + Send + 'static) {
        *self.then.lock().expect("nobody panics under it") = Some((name, what.boxed()));
    }

    async fn alive(&self) {
        // The sender lives as long as this store: waiting cannot fail.
        let _ = self.paused.subscribe().wait_for(|paused| !paused).await;
    }

    async fn write<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.alive().await;
        if self.away.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        let call = self.followed(name, call);
        let write = self.writes.fetch_add(1, Ordering::SeqCst);
        let Some(after) = write.checked_sub(self.plan.at) else {
            return call.await;
        };
        if after > 0 {
            let out = self.plan.fault == Fault::Outage && after <= OUTAGE_WRITES;
            return if out { Err(unavailable()) } else { call.await };
        }
        // The position is reached once.
        let _ = self.struck.set(name);
        match self.plan.fault {
            Fault::FailBefore => Err(unavailable()),
            Fault::FailAfter | Fault::Outage => {
                call.await?;
                Err(unavailable())
            }
            Fault::DieBefore => {
                self.kill();
                std::future::pending().await
            }
            Fault::DieAfter => {
                call.await?;
                self.kill();
                std::future::pending().await
            }
        }
    }

    async fn followed<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let answer = call.await;
        let then = {
            let mut then = self.then.lock().expect("nobody panics under it");
            then.take_if(|(after, _)| *after == name && answer.is_ok())
        };
        if let Some((_, then)) = then {
            then.await;
        }
        answer
    }

    async fn read<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.alive().await;
        if self.away.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        if *self.unreadable.lock().expect("nobody panics under it") == Some(name) {
            return Err(Error::Corrupt {
                table: "rows",
                column: "value",
                row: name.to_owned(),
                detail: "spoilt by the test".to_owned(),
            });
        }
        self.followed(name, call).await
    }
}

fn unavailable() -> Error {
    Error::Unavailable {
        source: "the connection was cut by the test".into(),
    }
}

/// The port's methods, for whoever puts something in front of all of them: whether each reads or
/// writes, and its signature.
macro_rules! store_methods {
    ($apply:ident) => {
        $apply! { Agents:
        write publish_agent(item: PublishAgent) -> PublishOutcome;
        write set_alias(item: SetAlias) -> AliasOutcome;
        write archive_agent(key: AgentKey, archived: bool) -> Option<NamedAgent>;
        read get_agent(key: AgentKey) -> Option<NamedAgent>;
        read list_agents(query: ListAgents) -> Page<NamedAgent>;
        read get_agent_version(key: AgentKey, n: i32) -> Option<AgentVersion>;
        read list_agent_versions(query: ListAgentVersions) -> Page<AgentVersion>;
        read find_agents(
            tenant: TenantId, queries: Vec<AgentQuery>
        ) -> Vec<Option<AgentVersion>>;
        }
        $apply! { Boots:
        read register_boot(boot: NewBoot) -> ();
        read renew_boot(boot: BootId, ttl: Duration, in_flight: u32) -> Renewal;
        read stop_boot(boot: BootId) -> ();
        read owned_sessions(
            boot: BootId, after: Option<(Timestamp, SessionKey)>, limit: u32
        ) -> Owned;
        read list_boots() -> Vec<BootRecord>;
        read list_tools() -> Vec<PoolTools>;
        }
        $apply! { Sessions:
        write create_sessions(
            items: Vec<(NewSession, Option<IdempotencyKey>)>
        ) -> Vec<CreateOutcome>;
        write import_session(item: ImportSession) -> CreateOutcome;
        write prune_session(item: PruneSession) -> PruneOutcome;
        write update_session(
            key: SessionKey, patch: SessionPatch
        ) -> UpdateOutcome;
        write delete_session(key: SessionKey, boot: BootId) -> DeleteOutcome;
        read deleted_sessions(
            after: Option<DeletedSession>, limit: u32
        ) -> Vec<DeletedSession>;
        write erase_session(key: SessionKey, limit: u32) -> Erased;
        read get_session(key: SessionKey) -> Option<SessionRecord>;
        read list_sessions(query: ListSessions) -> Page<SessionRecord>;
        read list_children(key: SessionKey) -> Vec<SessionKey>;
        read session_usage(key: SessionKey) -> Option<SessionUsage>;
        read open_children(key: SessionKey) -> u64;
        }
        $apply! { BlobRows:
        write begin_blob(blob: NewBlob) -> BeginBlob;
        write finish_blob(place: BlobPlace, owner: Option<BlobOwner>) -> bool;
        write hold_blobs(
            tenant: TenantId, owner: BlobOwner, hashes: Vec<BlobHash>
        ) -> Vec<Option<BlobRecord>>;
        read get_blobs(tenant: TenantId, hashes: Vec<BlobHash>) -> Vec<Option<BlobRecord>>;
        write retire_blobs(query: RetireBlobs) -> RetiredBlobs;
        write forget_blob(place: BlobPlace) -> ();
        write write_blob_chunk(place: BlobPlace, n: i32, data: Bytes) -> ();
        read read_blob_chunk(place: BlobPlace, n: i32) -> Option<Bytes>;
        write drop_blob_chunks(place: BlobPlace, limit: u32) -> u64;
        }
        $apply! { Lists:
        write write_list(item: WriteList) -> ListOutcome;
        read read_list(tenant: TenantId, name: ListName) -> List;
        }
        $apply! { Skills:
        write publish_skill(item: PublishSkill) -> PublishSkillOutcome;
        write note_broken_skill(
            tenant: TenantId, folder: String, faults: Vec<SkillFault>
        ) -> ();
        write remove_skill(tenant: TenantId, name: String, versions: bool) -> bool;
        read find_skills(
            tenant: TenantId, refs: Vec<SkillRef>
        ) -> Vec<Option<SkillRecord>>;
        read list_skills(query: ListSkills) -> Page<SkillRecord>;
        read skill_versions(tenant: TenantId, name: String) -> Vec<SkillVersion>;
        read broken_skills(tenant: TenantId) -> Vec<BrokenSkill>;
        read read_skill_files(
            tenant: TenantId, name: String, hash: SkillHash, paths: Vec<String>
        ) -> BTreeMap<String, Vec<u8>>;
        }
        $apply! { Extractions:
        write owe_extraction(item: NewExtraction) -> ();
        read claim_extractions(claim: ClaimExtractions) -> Vec<Extraction>;
        write end_extraction(item: EndExtraction) -> bool;
        }
        $apply! { Memories:
        write save_memory(item: SaveMemory) -> SaveMemoryOutcome;
        write change_memory(item: ChangeMemory) -> Option<MemoryEntry>;
        write delete_memory(
            tenant: TenantId, within: Option<Namespace>, id: MemoryId
        ) -> bool;
        write erase_memories(item: EraseMemories) -> ErasedMemories;
        write expire_memories(limit: u32) -> u64;
        read get_memory(tenant: TenantId, id: MemoryId) -> Option<MemoryEntry>;
        read list_memories(query: ListMemories) -> Page<MemoryEntry>;
        read search_memories(query: SearchMemories) -> Vec<MemoryEntry>;
        }
        $apply! { Tenants:
        write create_tenant(
            tenant: NewTenant, key: Option<IdempotencyKey>
        ) -> CreateTenantOutcome;
        read get_tenant(id: TenantId) -> Option<Tenant>;
        read list_tenants(query: ListTenants) -> Page<Tenant>;
        write update_tenant(id: TenantId, patch: TenantPatch) -> UpdateTenantOutcome;
        write delete_tenant(id: TenantId) -> DeleteTenantOutcome;
        write create_key(
            key: NewKey, idempotency: Option<IdempotencyKey>
        ) -> CreateKeyOutcome;
        read find_key(id: KeyId) -> Option<KeyRecord>;
        read list_keys(query: ListKeys) -> Page<KeyRecord>;
        write rotate_key(item: RotateKey) -> Option<KeyRecord>;
        write revoke_key(tenant: TenantId, id: KeyId) -> bool;
        write touch_keys(ids: Vec<KeyId>) -> ();
        }
        $apply! { Sends:
        write accept_sends(
            boot: BootId, items: Vec<AcceptSend>
        ) -> Vec<AcceptOutcome>;
        write take_key(key: IdempotencyKey) -> KeyOutcome;
        read has_key(key: IdempotencyKey) -> bool;
        write cancel_sends(
            boot: BootId, items: Vec<(TenantId, SendId)>
        ) -> Vec<CancelOutcome>;
        write deliver_items(
            boot: BootId, items: Vec<DeliverItem>
        ) -> Vec<DeliverOutcome>;
        write resume_recovery(
            boot: BootId, key: SessionKey
        ) -> Option<SendId>;
        write retire_sends(query: RetireSends) -> Retired;
        read get_sends(ids: Vec<(TenantId, SendId)>) -> Vec<Option<SendRecord>>;
        read list_sends(query: ListSends) -> Page<SendRecord>;
        }
        $apply! { Leases:
        write claim_sessions(
            boot: BootId, items: Vec<ClaimSession>
        ) -> Vec<ClaimOutcome>;
        write append_rounds(items: Vec<AppendRound>) -> Vec<AppendOutcome>;
        write complete_sends(items: Vec<CompleteSend>) -> Vec<CompleteOutcome>;
        write park_sends(items: Vec<ParkSend>) -> Vec<ParkOutcome>;
        write release_sessions(items: Vec<ReleaseSession>) -> Vec<bool>;
        }
        $apply! { Calls:
        write post_results(items: Vec<PostResult>) -> Vec<PostOutcome>;
        write report_children(
            sends: Option<Vec<(TenantId, SendId)>>, limit: u32
        ) -> Vec<ReportOutcome>;
        read read_round(key: SessionKey, send: SendId, round: i32) -> Vec<CallRecord>;
        read get_calls(ids: Vec<(TenantId, String)>) -> Vec<Option<CallRecord>>;
        read read_inbox(query: ReadInbox) -> Vec<InboxItem>;
        }
        $apply! { Timers:
        write create_timers(
            items: Vec<(NewTimer, Option<IdempotencyKey>)>
        ) -> Vec<CreateTimerOutcome>;
        write change_timers(
            items: Vec<ChangeTimer>
        ) -> Vec<ChangeTimerOutcome>;
        write fire_timers(boot: BootId, limit: u32) -> Fired;
        write sweep_timers(keep: Duration) -> u64;
        read get_timers(ids: Vec<(TenantId, TimerId)>) -> Vec<Option<TimerRecord>>;
        read list_timers(query: ListTimers) -> Page<TimerRecord>;
        read list_occurrences(query: ListOccurrences) -> Page<Occurrence>;
        }
        $apply! { Runs:
        write create_runs(items: Vec<NewRun>) -> Vec<CreateRunOutcome>;
        write ask_runs(items: Vec<(RunKey, RunAsk)>) -> Vec<bool>;
        write claim_runs(claim: ClaimRuns) -> ClaimedRuns;
        write advance_runs(
            boot: BootId, items: Vec<AdvanceRun>
        ) -> Vec<AdvanceOutcome>;
        write release_runs(boot: BootId, keys: Vec<RunKey>) -> ();
        read get_runs(keys: Vec<RunKey>) -> Vec<Option<RunRecord>>;
        read read_asks(keys: Vec<RunKey>) -> Vec<Vec<RunAsk>>;
        read list_runs(query: ListRuns) -> Page<RunRecord>;
        write forget_runs(keys: Vec<RunKey>) -> u64;
        read read_nodes(query: ReadNodes) -> Vec<NodeRecord>;
        read live_leaves(key: RunKey) -> Vec<SendId>;
        read read_run_steps(key: RunKey, after: i64, limit: u32) -> Vec<RunStep>;
        }
        $apply! { Sweeps:
        read sweep_orphans(query: SweepOrphans) -> Orphans;
        read sweep_ready(query: SweepReady) -> Swept;
        write sweep_alarms(boot: BootId, limit: u32) -> AlarmSweep;
        write sweep_retention(keep: Duration) -> u64;
        }
        $apply! { Reads:
        read now() -> Timestamp;
        read check() -> ServerInfo;
        read last_steps(keys: Vec<SessionKey>) -> Vec<i64>;
        read read_messages(query: ReadMessages) -> Vec<Message>;
        read read_folds(key: SessionKey) -> Vec<Fold>;
        read find_messages(query: FindMessages) -> Vec<Message>;
        read read_steps(key: SessionKey, after: i64, limit: u32) -> Vec<Step>;
        read queue_stats() -> Vec<QueueStats>;
        read scaling(pool: &str) -> ScalingStats;
        read audit(options: AuditOptions) -> Vec<Violation>;
        }
    };
}
pub(crate) use store_methods;

macro_rules! forward {
    ($noun:ident: $($kind:ident $name:ident($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        #[async_trait]
        impl $noun for Faulty {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$out> {
                self.$kind(stringify!($name), self.inner.$name($($arg),*)).await
            })*
        }
    };
}

store_methods!(forward);
