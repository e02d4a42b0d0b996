//! A store whose database can be taken away.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mainspring_queue_local::LocalBus;
use mainspring_runtime::SystemClock;
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
    DeleteOutcome, DeleteTenantOutcome, DeletedSession, DeliverItem, DeliverOutcome, Dump,
    EndExtraction, EraseMemories, Erased, ErasedMemories, Error, Extraction, Extractions,
    FindMessages, Fired, IdempotencyKey, ImportSession, Inspect, KeyOutcome, Leases,
    ListAgentVersions, ListAgents, ListKeys, ListMemories, ListOccurrences, ListOutcome, ListRuns,
    ListSends, ListSessions, ListSkills, ListTenants, ListTimers, Lists, Memories, NewBlob,
    NewBoot, NewExtraction, NewKey, NewRun, NewSession, NewTenant, NewTimer, Orphans, Owned, Page,
    ParkOutcome, ParkSend, PoolTools, PostOutcome, PostResult, PruneOutcome, PruneSession,
    PublishAgent, PublishOutcome, PublishSkill, PublishSkillOutcome, QueueStats, ReadInbox,
    ReadMessages, ReadNodes, Reads, ReleaseSession, Renewal, ReportOutcome, Result, RetireBlobs,
    RetireSends, Retired, RetiredBlobs, RotateKey, RunStep, Runs, SaveMemory, SaveMemoryOutcome,
    ScalingStats, SearchMemories, Sends, ServerInfo, SessionPatch, SessionUsage, Sessions,
    SetAlias, SkillVersion, Skills, SweepOrphans, SweepReady, Sweeps, Swept, TenantPatch, Tenants,
    Timers, UpdateOutcome, UpdateTenantOutcome, Violation, WriteList,
};
use mainspring_shared::tenant::{KeyRecord, Tenant};
use mainspring_shared::time::Timestamp;
use mainspring_shared::timer::{Occurrence, TimerRecord};
use mainspring_shared::tool::CallRecord;
use mainspring_shared::workflow::run::{NodeRecord, RunAsk, RunRecord};
use mainspring_store_model::ModelStore;

use crate::world::World;

/// Passes everything on, unless it is away.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn Inspect>,
    away: AtomicBool,
    /// Calls left whose first item is answered as that of a locked session.
    locked: AtomicUsize,
    calls: Mutex<BTreeMap<&'static str, usize>>,
    /// Calls left of methods that fail, and whether because of a row.
    failing: Mutex<BTreeMap<&'static str, (usize, bool)>>,
}

impl Faulty {
    pub(crate) fn over(inner: Arc<dyn Inspect>) -> Self {
        Self {
            inner,
            away: AtomicBool::new(false),
            locked: AtomicUsize::new(0),
            calls: Mutex::default(),
            failing: Mutex::default(),
        }
    }

    /// A world over one, with nothing in it.
    pub(crate) async fn world() -> (World, Arc<Self>) {
        let store = Arc::new(ModelStore::open(Arc::new(SystemClock::new())));
        let faulty = Arc::new(Self::over(store));
        let world = World::over(faulty.clone(), Arc::new(LocalBus::new())).await;
        (world, faulty)
    }

    /// So many calls of a method find the database away.
    pub(crate) fn fail_next(&self, name: &'static str, calls: usize) {
        let mut failing = self.failing.lock().expect("nobody panics under it");
        failing.insert(name, (calls, false));
    }

    /// So many calls of a method meet a row that cannot be read.
    pub(crate) fn corrupt_next(&self, name: &'static str, calls: usize) {
        let mut failing = self.failing.lock().expect("nobody panics under it");
        failing.insert(name, (calls, true));
    }

    pub(crate) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::SeqCst);
    }

    /// The first items of so many calls find their sessions locked.
    pub(crate) fn lock_first(&self, calls: usize) {
        self.locked.store(calls, Ordering::SeqCst);
    }

    /// Takes the first item out where its session is to be found locked.
    fn part<T>(&self, mut items: Vec<T>) -> (bool, Vec<T>) {
        let left = |calls: usize| calls.checked_sub(1);
        let locks = self
            .locked
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, left);
        if locks.is_ok() {
            items.remove(0);
        }
        (locks.is_ok(), items)
    }

    /// How often a method was called.
    pub(crate) fn calls(&self, name: &str) -> usize {
        let calls = self.calls.lock().expect("nobody panics under it");
        calls.get(name).copied().unwrap_or(0)
    }

    fn inner(&self, name: &'static str) -> Result<&dyn Inspect> {
        *self
            .calls
            .lock()
            .expect("nobody panics under it")
            .entry(name)
            .or_default() += 1;
        let mut failing = self.failing.lock().expect("nobody panics under it");
        let fails = failing.get_mut(name).filter(|(left, _)| *left > 0);
        let fails = fails.map(|(left, of_a_row)| {
            *left -= 1;
            *of_a_row
        });
        if fails == Some(true) {
            return Err(Error::Corrupt {
                table: "sessions",
                column: "lifecycle",
                row: name.to_owned(),
                detail: "it is torn".to_owned(),
            });
        }
        if fails.is_some() || self.away.load(Ordering::SeqCst) {
            return Err(Error::Unavailable {
                source: "the cable is out".into(),
            });
        }
        Ok(self.inner.as_ref())
    }
}

macro_rules! pass_on {
    (
        $noun:ident:
        $($name:ident($($arg:ident: $kind:ty),*) -> $out:ty;)*
        $(@ $($parted:ident($($before:ident: $of:ty,)* [$items:ident: $item:ty]) -> $told:ty;)*)?
    ) => {
        #[async_trait]
        impl $noun for Faulty {
            $(async fn $name(&self, $($arg: $kind),*) -> Result<$out> {
                self.inner(stringify!($name))?.$name($($arg),*).await
            })*
            $($(async fn $parted(
                &self, $($before: $of,)* $items: Vec<$item>
            ) -> Result<Vec<$told>> {
                let inner = self.inner(stringify!($parted))?;
                let (locked, left) = self.part($items);
                let told = inner.$parted($($before,)* left).await?;
                Ok(locked.then_some(<$told>::Locked).into_iter().chain(told).collect())
            })*)?
        }
    };
}

pass_on! { Agents:
    publish_agent(item: PublishAgent) -> PublishOutcome;
    set_alias(item: SetAlias) -> AliasOutcome;
    archive_agent(key: AgentKey, archived: bool) -> Option<NamedAgent>;
    get_agent(key: AgentKey) -> Option<NamedAgent>;
    list_agents(query: ListAgents) -> Page<NamedAgent>;
    get_agent_version(key: AgentKey, n: i32) -> Option<AgentVersion>;
    list_agent_versions(query: ListAgentVersions) -> Page<AgentVersion>;
    find_agents(
        tenant: TenantId, queries: Vec<AgentQuery>
    ) -> Vec<Option<AgentVersion>>;
}

pass_on! { Boots:
    register_boot(boot: NewBoot) -> ();
    renew_boot(boot: BootId, ttl: Duration, in_flight: u32) -> Renewal;
    stop_boot(boot: BootId) -> ();
    owned_sessions(
        boot: BootId, after: Option<(Timestamp, SessionKey)>, limit: u32
    ) -> Owned;
    list_boots() -> Vec<BootRecord>;
    list_tools() -> Vec<PoolTools>;
}

pass_on! { Sessions:
    create_sessions(items: Vec<(NewSession, Option<IdempotencyKey>)>) -> Vec<CreateOutcome>;
    import_session(item: ImportSession) -> CreateOutcome;
    prune_session(item: PruneSession) -> PruneOutcome;
    update_session(key: SessionKey, patch: SessionPatch) -> UpdateOutcome;
    delete_session(key: SessionKey, boot: BootId) -> DeleteOutcome;
    deleted_sessions(after: Option<DeletedSession>, limit: u32) -> Vec<DeletedSession>;
    erase_session(key: SessionKey, limit: u32) -> Erased;
    get_session(key: SessionKey) -> Option<SessionRecord>;
    list_sessions(query: ListSessions) -> Page<SessionRecord>;
    list_children(key: SessionKey) -> Vec<SessionKey>;
    session_usage(key: SessionKey) -> Option<SessionUsage>;
    open_children(key: SessionKey) -> u64;
}

pass_on! { BlobRows:
    begin_blob(blob: NewBlob) -> BeginBlob;
    finish_blob(place: BlobPlace, owner: Option<BlobOwner>) -> bool;
    hold_blobs(
        tenant: TenantId, owner: BlobOwner, hashes: Vec<BlobHash>
    ) -> Vec<Option<BlobRecord>>;
    get_blobs(tenant: TenantId, hashes: Vec<BlobHash>) -> Vec<Option<BlobRecord>>;
    retire_blobs(query: RetireBlobs) -> RetiredBlobs;
    forget_blob(place: BlobPlace) -> ();
    write_blob_chunk(place: BlobPlace, n: i32, data: Bytes) -> ();
    read_blob_chunk(place: BlobPlace, n: i32) -> Option<Bytes>;
    drop_blob_chunks(place: BlobPlace, limit: u32) -> u64;
}

pass_on! { Lists:
    write_list(item: WriteList) -> ListOutcome;
    read_list(tenant: TenantId, name: ListName) -> List;
}

pass_on! { Skills:
    publish_skill(item: PublishSkill) -> PublishSkillOutcome;
    note_broken_skill(
        tenant: TenantId, folder: String, faults: Vec<SkillFault>
    ) -> ();
    remove_skill(tenant: TenantId, name: String, versions: bool) -> bool;
    find_skills(
        tenant: TenantId, refs: Vec<SkillRef>
    ) -> Vec<Option<SkillRecord>>;
    list_skills(query: ListSkills) -> Page<SkillRecord>;
    skill_versions(tenant: TenantId, name: String) -> Vec<SkillVersion>;
    broken_skills(tenant: TenantId) -> Vec<BrokenSkill>;
    read_skill_files(
        tenant: TenantId, name: String, hash: SkillHash, paths: Vec<String>
    ) -> BTreeMap<String, Vec<u8>>;
}

pass_on! { Extractions:
    owe_extraction(item: NewExtraction) -> ();
    claim_extractions(claim: ClaimExtractions) -> Vec<Extraction>;
    end_extraction(item: EndExtraction) -> bool;
}

pass_on! { Memories:
    save_memory(item: SaveMemory) -> SaveMemoryOutcome;
    change_memory(item: ChangeMemory) -> Option<MemoryEntry>;
    delete_memory(tenant: TenantId, within: Option<Namespace>, id: MemoryId) -> bool;
    erase_memories(item: EraseMemories) -> ErasedMemories;
    expire_memories(limit: u32) -> u64;
    get_memory(tenant: TenantId, id: MemoryId) -> Option<MemoryEntry>;
    list_memories(query: ListMemories) -> Page<MemoryEntry>;
    search_memories(query: SearchMemories) -> Vec<MemoryEntry>;
}

pass_on! { Tenants:
    create_tenant(tenant: NewTenant, key: Option<IdempotencyKey>) -> CreateTenantOutcome;
    get_tenant(id: TenantId) -> Option<Tenant>;
    list_tenants(query: ListTenants) -> Page<Tenant>;
    update_tenant(id: TenantId, patch: TenantPatch) -> UpdateTenantOutcome;
    delete_tenant(id: TenantId) -> DeleteTenantOutcome;
    create_key(key: NewKey, idempotency: Option<IdempotencyKey>) -> CreateKeyOutcome;
    find_key(id: KeyId) -> Option<KeyRecord>;
    list_keys(query: ListKeys) -> Page<KeyRecord>;
    rotate_key(item: RotateKey) -> Option<KeyRecord>;
    revoke_key(tenant: TenantId, id: KeyId) -> bool;
    touch_keys(ids: Vec<KeyId>) -> ();
}

pass_on! { Sends:
    accept_sends(boot: BootId, items: Vec<AcceptSend>) -> Vec<AcceptOutcome>;
    take_key(key: IdempotencyKey) -> KeyOutcome;
    has_key(key: IdempotencyKey) -> bool;
    resume_recovery(boot: BootId, key: SessionKey) -> Option<SendId>;
    retire_sends(query: RetireSends) -> Retired;
    get_sends(ids: Vec<(TenantId, SendId)>) -> Vec<Option<SendRecord>>;
    list_sends(query: ListSends) -> Page<SendRecord>;
    @
    cancel_sends(boot: BootId, [items: (TenantId, SendId)]) -> CancelOutcome;
    deliver_items(boot: BootId, [items: DeliverItem]) -> DeliverOutcome;
}

pass_on! { Leases:
    claim_sessions(boot: BootId, items: Vec<ClaimSession>) -> Vec<ClaimOutcome>;
    append_rounds(items: Vec<AppendRound>) -> Vec<AppendOutcome>;
    complete_sends(items: Vec<CompleteSend>) -> Vec<CompleteOutcome>;
    park_sends(items: Vec<ParkSend>) -> Vec<ParkOutcome>;
    release_sessions(items: Vec<ReleaseSession>) -> Vec<bool>;
}

pass_on! { Calls:
    report_children(
        sends: Option<Vec<(TenantId, SendId)>>, limit: u32
    ) -> Vec<ReportOutcome>;
    read_round(key: SessionKey, send: SendId, round: i32) -> Vec<CallRecord>;
    get_calls(ids: Vec<(TenantId, String)>) -> Vec<Option<CallRecord>>;
    read_inbox(query: ReadInbox) -> Vec<InboxItem>;
    @
    post_results([items: PostResult]) -> PostOutcome;
}

pass_on! { Timers:
    create_timers(items: Vec<(NewTimer, Option<IdempotencyKey>)>) -> Vec<CreateTimerOutcome>;
    change_timers(items: Vec<ChangeTimer>) -> Vec<ChangeTimerOutcome>;
    fire_timers(boot: BootId, limit: u32) -> Fired;
    sweep_timers(keep: Duration) -> u64;
    get_timers(ids: Vec<(TenantId, TimerId)>) -> Vec<Option<TimerRecord>>;
    list_timers(query: ListTimers) -> Page<TimerRecord>;
    list_occurrences(query: ListOccurrences) -> Page<Occurrence>;
}

pass_on! { Runs:
    create_runs(items: Vec<NewRun>) -> Vec<CreateRunOutcome>;
    ask_runs(items: Vec<(RunKey, RunAsk)>) -> Vec<bool>;
    claim_runs(claim: ClaimRuns) -> ClaimedRuns;
    advance_runs(
        boot: BootId, items: Vec<AdvanceRun>
    ) -> Vec<AdvanceOutcome>;
    release_runs(boot: BootId, keys: Vec<RunKey>) -> ();
    get_runs(keys: Vec<RunKey>) -> Vec<Option<RunRecord>>;
    read_asks(keys: Vec<RunKey>) -> Vec<Vec<RunAsk>>;
    list_runs(query: ListRuns) -> Page<RunRecord>;
    forget_runs(keys: Vec<RunKey>) -> u64;
    read_nodes(query: ReadNodes) -> Vec<NodeRecord>;
    live_leaves(key: RunKey) -> Vec<SendId>;
    read_run_steps(key: RunKey, after: i64, limit: u32) -> Vec<RunStep>;
}

pass_on! { Sweeps:
    sweep_orphans(query: SweepOrphans) -> Orphans;
    sweep_ready(query: SweepReady) -> Swept;
    sweep_alarms(boot: BootId, limit: u32) -> AlarmSweep;
    sweep_retention(keep: Duration) -> u64;
}

pass_on! { Reads:
    now() -> Timestamp;
    check() -> ServerInfo;
    last_steps(keys: Vec<SessionKey>) -> Vec<i64>;
    read_messages(query: ReadMessages) -> Vec<Message>;
    read_folds(key: SessionKey) -> Vec<Fold>;
    find_messages(query: FindMessages) -> Vec<Message>;
    read_steps(key: SessionKey, after: i64, limit: u32) -> Vec<Step>;
    queue_stats() -> Vec<QueueStats>;
    scaling(pool: &str) -> ScalingStats;
    audit(options: AuditOptions) -> Vec<Violation>;
}

#[async_trait]
impl Inspect for Faulty {
    /// The store behind it, which is never away.
    fn at(&self, now: Timestamp) -> Arc<dyn Inspect> {
        self.inner.at(now)
    }

    async fn dump(&self) -> Result<Dump> {
        self.inner.dump().await
    }
}
