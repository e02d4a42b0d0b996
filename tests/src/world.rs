//! A whole system in one process and in simulated time: the model store, an in-memory queue and
//! bus, scripted models, any number of workers, and faults at any position.
//!
//! Meant for `#[tokio::test(start_paused = true)]`: time jumps to the next timer whenever nothing
//! else can run, so lease expiry and parked retries cost nothing.

mod alone;
mod audits;
mod blobs;
pub(crate) mod faulty;
mod listed;
mod lookup;
mod model_behaviour;
mod normalize;
mod pauses;
mod previews;
mod replays;
mod runs;
mod script;
mod stores;
mod sweeping;
pub(crate) mod tools;
mod wires;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mainspring_providers::ProviderSettings;
use mainspring_runtime::Lifecycle;
use mainspring_scheduler::services::webhooks::WebhookParts;
use mainspring_shared::agent::{AgentSpec, OnBusy, Priority, SendOptions};
use mainspring_shared::blob::{Blobs, Depot, Timed};
use mainspring_shared::bus::{Bus as _, Topic};
use mainspring_shared::dispatch::{Dispatch, is_direct};
use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::inbox::ItemKind;
use mainspring_shared::memory::{Embedder, Memory};
use mainspring_shared::message::ContentPart;
use mainspring_shared::model::FactsOverride;
use mainspring_shared::queue::{Activation, Lane, Queue as _};
use mainspring_shared::session::{SIGNAL_INBOX, SIGNAL_INTERRUPT};
use mainspring_shared::store::{
    AcceptOutcome, AcceptSend, Accepted, CallAnswer, CancelOutcome, DeliverItem, DeliverOutcome,
    Inspect, NewBoot, NewSession, PostOutcome, PostResult, ReadySession, Role, Store, Target,
};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_tools::builtin::register_wakeups;
use mainspring_tools::http::Caller;
use mainspring_worker::hook::Hooks;
use mainspring_worker::memory::Memories;
use mainspring_worker::tool::Tools;
use mainspring_worker::{Parts, Sources, WorkerConfig};
use uuid::Uuid;

pub use alone::alone;
pub use blobs::{DyingBlobs, FaultyBlobs, Wrong};
pub use faulty::{Fault, FaultPlan, Faulty};
pub use model_behaviour::{Bill, Bills, ModelBehaviour};
pub use normalize::{differences, essence};
pub use replays::Replays;
pub use script::{Asked, Script};
pub use stores::Backing;
pub use tools::{Act, Acts};
pub use wires::{DispatchDelivery, Wire, WireBus};

/// Tokio's paused clock, which advances only when nothing can run.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedClock {
    start: tokio::time::Instant,
}

#[async_trait]
impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        // An arbitrary epoch: nothing may depend on the date.
        Timestamp(1_700_000_000_000).after(self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this clock is tokio's simulated one"
    )]
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// A clock whose wall time is off by a constant.
#[derive(Debug)]
struct Skewed {
    inner: Arc<dyn Clock>,
    by_ms: i64,
}

#[async_trait]
impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp(self.inner.now().0 + self.by_ms)
    }

    fn monotonic(&self) -> Duration {
        self.inner.monotonic()
    }

    async fn sleep(&self, duration: Duration) {
        self.inner.sleep(duration).await;
    }
}

/// Reproducible randomness: a counter, spread over the bits.
#[derive(Debug, Default)]
pub struct CountingEntropy(AtomicU64);

impl CountingEntropy {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

impl Entropy for CountingEntropy {
    fn ordered_id(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.next()))
    }

    fn random_id(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.next()) << 64 | 0xfeed)
    }

    fn fraction(&self) -> f64 {
        (self.next() % 97) as f64 / 97.0
    }
}

/// Timeout of each blob store operation.
pub const BLOB_TIMEOUT: Duration = Duration::from_secs(30);

/// A simulated system.
#[derive(Debug)]
pub struct World {
    /// The real store, without injected faults.
    pub store: Arc<dyn Inspect>,
    /// The models' script and ledger.
    pub script: Arc<Script>,
    /// The tools' executions.
    pub acts: Arc<Acts>,
    tools: Arc<Tools>,
    /// Hooks of the workers started from now on.
    pub hooks: Hooks,
    /// Model facts that the workers started from now on are configured with.
    pub facts: BTreeMap<String, FactsOverride>,
    /// Model providers of the workers started from now on, besides the script.
    pub providers: Vec<ProviderSettings>,
    /// Memory providers of the workers started from now on, besides the store's own.
    pub memories: Vec<(String, Arc<dyn Memory>)>,
    /// The embedder of the workers started from now on, for the memory entries in the store.
    pub embedder: Option<(Arc<dyn Embedder>, Duration)>,
    /// Webhook settings of the schedulers started from now on.
    pub webhooks: WebhookParts,
    /// The blob store that holds the bytes.
    pub blobs: Arc<FaultyBlobs>,
    /// How processes started from now on reach the blobs, if not directly.
    pub blobs_of_next: Option<Arc<dyn Blobs>>,
    clock: Arc<dyn Clock>,
    /// The clock of the processes started from now on.
    process_clock: Arc<dyn Clock>,
    entropy: Arc<CountingEntropy>,
    wire: Wire,
    bus: WireBus,
    boot: BootId,
    lifecycle: Lifecycle,
    sweeps_every: Arc<Mutex<Duration>>,
    /// Whether its rows are in a database rather than in the model store.
    has_database: bool,
}

impl World {
    /// A system without workers. Its sweep loop is running.
    pub async fn new() -> Self {
        Self::with_tools(|_, _, _| {}).await
    }

    /// A new system with additional tools.
    pub async fn with_tools(
        more: impl FnOnce(&mut Tools, &Arc<dyn Inspect>, &Arc<dyn Clock>),
    ) -> Self {
        Self::over(&Backing::Model, more).await
    }

    /// A new system with additional tools, over the given store.
    pub async fn over(
        backing: &Backing,
        more: impl FnOnce(&mut Tools, &Arc<dyn Inspect>, &Arc<dyn Clock>),
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock {
            start: tokio::time::Instant::now(),
        });
        let store = backing.open(&clock);
        let boot = BootId(Uuid::from_u128(0xb007));
        let acts = Arc::new(Acts::default());
        let entropy: Arc<CountingEntropy> = Arc::default();
        let blobs = Arc::new(FaultyBlobs::new(clock.clone()));
        let timed = Timed::new(blobs.clone(), clock.clone(), BLOB_TIMEOUT);
        let depot = Depot::new(store.clone(), Arc::new(timed), entropy.clone());
        let mut tools = tools::tools(&store, &Arc::new(depot), &clock, &acts);
        let held: (Arc<dyn Store>, Arc<dyn Entropy>) = (store.clone(), entropy.clone());
        register_wakeups(&held.0, &held.1, &mut tools).expect("no name is taken");
        more(&mut tools, &store, &clock);
        // Sources that the test added take precedence.
        tools.add_source(Arc::new(Caller::default()));
        let world = Self {
            tools: Arc::new(tools),
            hooks: Hooks::default(),
            memories: Vec::new(),
            embedder: None,
            facts: BTreeMap::new(),
            providers: Vec::new(),
            webhooks: WebhookParts::default(),
            blobs,
            blobs_of_next: None,
            acts,
            script: Arc::new(Script::new(clock.clone())),
            entropy,
            wire: Wire::default(),
            bus: WireBus::default(),
            lifecycle: Lifecycle::new(),
            sweeps_every: Arc::new(Mutex::new(Duration::from_millis(250))),
            store,
            process_clock: clock.clone(),
            clock,
            boot,
            has_database: !matches!(backing, Backing::Model),
        };
        let scheduler = NewBoot {
            id: boot,
            role: Role::Scheduler,
            name: "scheduler".into(),
            pool: String::new(),
            concurrency: 0,
            // This scheduler never dies: its lease is not under test.
            ttl: Duration::from_hours(1000),
            protocol: mainspring_shared::store::PROTOCOL,
            tools: mainspring_shared::tool::Published::default(),
        };
        world
            .store
            .register_boot(scheduler)
            .await
            .expect("the store takes it");
        tokio::spawn(sweeping::sweep(
            world.store.clone(),
            world.wire.clone(),
            world.clock.clone(),
            boot,
            world.lifecycle.clone(),
            world.sweeps_every.clone(),
        ));
        world
    }

    /// The clock of this world.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Skews the wall clock of the processes started from now on; the store's clock stays right.
    pub fn skew(&mut self, by_ms: i64) {
        let inner = self.clock.clone();
        self.process_clock = Arc::new(Skewed { inner, by_ms });
    }

    /// Sets the interval between sweeps, from the next one on. Each sweep costs ten statements even
    /// if there is nothing to do.
    pub fn sweep_every(&self, interval: Duration) {
        *self.sweeps_every.lock().expect("nothing panics under it") = interval;
    }

    /// Stops this world's own sweep loop, leaving the work to schedulers that the test starts.
    pub fn leave_to_schedulers(&self) {
        self.lifecycle.stop();
    }

    /// Starts a worker over the given store, which may be a faulty one.
    pub fn worker(&self, name: &str, store: Arc<dyn Store>) -> Lifecycle {
        let config = WorkerConfig {
            name: name.into(),
            // Longer than the default, so that simulated hours have fewer renewals.
            lease_ttl: Duration::from_secs(10),
            ..WorkerConfig::default()
        };
        self.worker_with(config, store)
    }

    /// The ID source shared by all processes.
    pub fn entropy(&self) -> Arc<dyn Entropy> {
        self.entropy.clone()
    }

    /// The blob depot of a process that uses this store.
    pub(crate) fn depot(&self, store: &Arc<dyn Store>) -> Arc<Depot> {
        let (store, entropy) = (store.clone(), self.entropy.clone());
        // Each process gets its own path to the blobs.
        let blobs: Arc<dyn Blobs> = match &self.blobs_of_next {
            Some(blobs) => blobs.clone(),
            None => self.blobs.clone(),
        };
        let blobs = Timed::new(blobs, self.clock.clone(), BLOB_TIMEOUT);
        Arc::new(Depot::new(store, Arc::new(blobs), entropy))
    }

    /// From now on, the queue takes jobs, says that it works, and brings nothing.
    pub fn lose_jobs(&self) {
        self.wire.lose();
    }

    /// Starts a worker with another configuration.
    pub fn worker_with(&self, config: WorkerConfig, store: Arc<dyn Store>) -> Lifecycle {
        let mut memories = Memories::new(
            store.clone(),
            self.process_clock.clone(),
            self.embedder.clone(),
        );
        for (name, memory) in &self.memories {
            memories.insert(name, memory.clone());
        }
        let parts = Parts {
            sources: Sources {
                blobs: self.depot(&store),
                memories: Arc::new(memories),
                fold: None,
            },
            store,
            queue: Arc::new(self.wire.clone()),
            bus: Arc::new(self.bus.clone()),
            clock: self.process_clock.clone(),
            entropy: self.entropy.clone(),
            providers: Arc::new(self.providers(&config.name)),
            tools: self.tools.clone(),
            hooks: Arc::new(self.hooks.clone()),
            config: Arc::new(config),
        };
        let lifecycle = Lifecycle::new();
        let running = lifecycle.clone();
        lifecycle.spawn(async move {
            // A worker whose store never answers again does not end; a test that kills one does not
            // wait for it.
            let _ = mainspring_worker::run(parts, running).await;
        });
        lifecycle
    }

    /// Creates a session.
    pub async fn session(&self, agent: AgentSpec) -> SessionKey {
        let session = SessionId(self.entropy.ordered_id());
        let key = SessionKey {
            tenant: TenantId::DEFAULT,
            session,
        };
        let new = NewSession {
            key,
            agent,
            metadata: serde_json::Map::new(),
            parent: None,
        };
        self.store
            .create_sessions(vec![(new, None)])
            .await
            .expect("never fails");
        key
    }

    /// Accepts a send and enqueues its session.
    pub async fn send(&self, key: SessionKey, text: &str) -> SendId {
        self.send_with(key, text, SendOptions::default()).await
    }

    /// Accepts a send without enqueueing its session.
    pub async fn accept(&self, key: SessionKey, text: &str) -> SendId {
        let input = vec![ContentPart::text(text)];
        self.accepted(key, input, SendOptions::default()).await.0
    }

    /// Accepts a send with options and enqueues its session.
    pub async fn send_with(&self, key: SessionKey, text: &str, options: SendOptions) -> SendId {
        let input = vec![ContentPart::text(text)];
        self.send_parts(key, input, options).await
    }

    /// Accepts a send with any content parts and options, and enqueues its session.
    pub async fn send_parts(
        &self,
        key: SessionKey,
        input: Vec<ContentPart>,
        options: SendOptions,
    ) -> SendId {
        let (id, enqueue) = self.accepted(key, input, options).await;
        if let Some(ready) = enqueue {
            self.enqueue(ready).await;
        }
        id
    }

    async fn accepted(
        &self,
        key: SessionKey,
        input: Vec<ContentPart>,
        options: SendOptions,
    ) -> (SendId, Option<ReadySession>) {
        let id = SendId(self.entropy.ordered_id());
        let item = AcceptSend {
            id,
            target: Target::Existing(key),
            input,
            options,
            reports_to: None,
            run: None,
            idempotency: None,
            queued_max: 1000,
            keeper: None,
        };
        let item = AcceptSend {
            keeper: self.bus.keeper(key).filter(|_| is_direct(&item)),
            ..item
        };
        let outcome = self.store.accept_sends(self.boot, vec![item.clone()]).await;
        match outcome.expect("never fails").pop() {
            Some(AcceptOutcome::Accepted(mut accepted)) => {
                let untold = self.dispatch(item, &mut accepted).await;
                (id, accepted.enqueue.or(untold))
            }
            other => panic!("not accepted: {other:?}"),
        }
    }

    /// Dispatches a granted session to its keeper. If the keeper is not listening, the grant is
    /// returned and the session has to be enqueued instead.
    async fn dispatch(&self, item: AcceptSend, accepted: &mut Accepted) -> Option<ReadySession> {
        let (keeper, dispatch) = Dispatch::of(item, accepted)?;
        let json = serde_json::to_vec(&[&dispatch]).expect("it is JSON");
        let topic = Topic::Dispatches(keeper);
        if self.bus.tell(topic, Bytes::from(json)).await {
            return None;
        }
        let release = dispatch.release(keeper);
        let released = self.store.release_sessions(vec![release]).await;
        assert_eq!(released.expect("never fails"), [true]);
        accepted
            .granted
            .as_ref()
            .map(|granted| granted.ready.clone())
    }

    /// Cancels a send, as a scheduler does.
    pub async fn cancel(&self, key: SessionKey, id: SendId) {
        let items = vec![(key.tenant, id)];
        let outcome = self
            .store
            .cancel_sends(self.boot, items)
            .await
            .expect("never fails");
        match outcome.into_iter().next() {
            Some(CancelOutcome::Signalled { .. }) => self.bus.signal(key, 0),
            Some(CancelOutcome::Cancelled {
                enqueue: Some(ready),
                ..
            }) => self.enqueue(ready).await,
            Some(_) | None => {}
        }
    }

    /// Posts a result to a call, as a scheduler does.
    pub async fn post(&self, key: SessionKey, call_id: &str, answer: CallAnswer) -> PostOutcome {
        let item = PostResult {
            key,
            call_id: call_id.to_owned(),
            answer,
        };
        let outcomes = self.store.post_results(vec![item]).await;
        let outcome = outcomes.expect("never fails").pop().expect("one item");
        if let PostOutcome::Accepted {
            enqueue: Some(ready),
            ..
        } = &outcome
        {
            self.enqueue(ready.clone()).await;
        }
        outcome
    }

    /// Delivers a message to a session that may be busy, as a scheduler does.
    pub async fn deliver(&self, key: SessionKey, text: &str, mode: OnBusy) -> DeliverOutcome {
        let item = DeliverItem {
            key,
            item_id: format!("itm_{}", self.entropy.ordered_id().simple()),
            kind: ItemKind::Message,
            mode,
            content: vec![ContentPart::text(text)],
            idempotency: None,
            items_max: 1000,
        };
        let outcomes = self.store.deliver_items(self.boot, vec![item]).await;
        let outcome = outcomes.expect("never fails").pop().expect("one item");
        if let DeliverOutcome::Accepted { enqueue, owner, .. } = &outcome {
            if let Some(ready) = enqueue {
                self.enqueue(ready.clone()).await;
            }
            if owner.is_some() {
                let interrupt = i32::from(mode == OnBusy::Interrupt) * SIGNAL_INTERRUPT;
                self.bus.signal(key, SIGNAL_INBOX | interrupt);
            }
        }
        outcome
    }

    /// Resumes a send that waits for recovery, as a scheduler does; the sweep enqueues it.
    pub async fn resume(&self, key: SessionKey) -> Option<SendId> {
        let resumed = self.store.resume_recovery(self.boot, key).await;
        resumed.expect("never fails")
    }

    /// Enqueues a session in a pool, which need not be its own.
    pub async fn ring_in(&self, pool: &str, key: SessionKey) {
        let lane = Lane {
            pool: pool.to_owned(),
            priority: Priority::High,
        };
        let sessions = vec![key];
        self.wire.push(&lane, vec![Activation { sessions }]).await;
    }

    async fn enqueue(&self, ready: ReadySession) {
        let lane = Lane {
            pool: ready.pool,
            priority: ready.priority,
        };
        self.wire
            .push(
                &lane,
                vec![Activation {
                    sessions: vec![ready.key],
                }],
            )
            .await;
    }

    /// Sets what happens from now on to messages for workers that were granted sessions.
    pub fn set_dispatch_delivery(&self, delivery: DispatchDelivery) {
        self.bus.set_dispatch_delivery(delivery);
    }

    /// Notifies every worker of a session's signals.
    pub fn signal(&self, key: SessionKey, signals: i32) {
        self.bus.signal(key, signals);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.lifecycle.abort();
    }
}
