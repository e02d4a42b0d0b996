//! The whole system of one world: what its processes share, and the processes.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use mainspring_runtime::Lifecycle;
use mainspring_scheduler::SchedulerConfig;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::store::{Result, Store};
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_worker::hook::Hooks;
use mainspring_worker::llm::{Kind, ProviderSettings, Providers};
use mainspring_worker::tool::Tools;
use mainspring_worker::{Parts, WorkerConfig};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::actors::{Hand, Ledger, Mind};
use super::chance::mixed;
use super::gate::{EPOCH_MS, Gate, ProcessClock, Virtual};
use super::plan::{Fault, Harm, Plan, Trouble};
use super::store::Link;
use super::wires::{Air, Jobs, Line, QueueMood, Radio};
use crate::world::Acts;
use crate::world::tools::fakes;

/// Chance that goes through the seed's numbers in the order in which it is asked.
#[derive(Debug)]
struct Drawn {
    seed: u64,
    count: AtomicU64,
    time: Virtual,
}

impl Drawn {
    fn next(&self) -> u64 {
        let count = self.count.fetch_add(1, Ordering::SeqCst);
        mixed(self.seed ^ mixed(count.wrapping_add(0x5eed)))
    }
}

impl Entropy for Drawn {
    fn ordered_id(&self) -> Uuid {
        let count = self.count.fetch_add(1, Ordering::SeqCst);
        let ms = EPOCH_MS.unsigned_abs() + self.time.ms();
        Uuid::from_u128(u128::from(ms) << 80 | u128::from(count))
    }

    fn random_id(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.next()) << 64 | u128::from(self.next()))
    }

    fn fraction(&self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// What is seen of a world's course: a digest of everything, and the lines where they are asked for.
#[derive(Debug, Default)]
struct Trace {
    digest: Sha256,
    lines: Option<Vec<String>>,
}

/// What the processes of a world share.
pub(super) struct Core {
    pub(super) plan: Plan,
    pub(super) time: Virtual,
    pub(super) store: Arc<dyn Store>,
    /// Where a store lives that has threads of its own: each call of it is over before anything else
    /// happens in the world.
    pub(super) threads: Option<tokio::runtime::Handle>,
    pub(super) jobs: Jobs,
    pub(super) air: Air,
    pub(super) ledger: Arc<Ledger>,
    pub(super) acts: Arc<Acts>,
    entropy: Arc<Drawn>,
    counts: Mutex<BTreeMap<&'static str, usize>>,
    queue_mood: Mutex<QueueMood>,
    bus_away: AtomicU32,
    /// Outages that are under way: of everyone, and of each process.
    outages: AtomicU32,
    partitions: Vec<AtomicU32>,
    /// How far the database's clock has jumped.
    jumped_ms: AtomicI64,
    skews: Vec<Arc<AtomicI64>>,
    slots: Mutex<Vec<Slot>>,
    trace: Mutex<Trace>,
    /// When the last trouble is over, as far as is known.
    over_ms: AtomicU64,
    /// Whether no new trouble begins, so that what is read in the end can be read.
    calm: AtomicBool,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

/// A place for a process.
struct Slot {
    gate: Gate,
    lifecycle: Lifecycle,
    /// The API of a scheduler.
    router: Option<Router>,
    /// The task that ends with the process.
    task: Option<tokio::task::JoinHandle<()>>,
    /// Someone will start it again.
    awaited: bool,
    lives: u32,
}

impl Core {
    pub(super) fn new(
        plan: &Plan,
        time: Virtual,
        store: Arc<dyn Store>,
        threads: Option<tokio::runtime::Handle>,
        tell: bool,
    ) -> Arc<Self> {
        let processes = plan.workers + plan.schedulers;
        Arc::new(Self {
            plan: plan.clone(),
            time,
            store,
            threads,
            jobs: Jobs::default(),
            air: Air::default(),
            ledger: Arc::default(),
            acts: Arc::default(),
            entropy: Arc::new(Drawn {
                seed: plan.seed,
                count: AtomicU64::new(0),
                time,
            }),
            counts: Mutex::default(),
            queue_mood: Mutex::default(),
            bus_away: AtomicU32::new(0),
            calm: AtomicBool::new(false),
            outages: AtomicU32::new(0),
            partitions: (0..processes).map(|_| AtomicU32::new(0)).collect(),
            jumped_ms: AtomicI64::new(0),
            skews: (0..processes).map(|_| Arc::default()).collect(),
            slots: Mutex::default(),
            trace: Mutex::new(Trace {
                digest: Sha256::new(),
                lines: tell.then(Vec::new),
            }),
            over_ms: AtomicU64::new(plan.healed_ms()),
        })
    }

    // What happens, as it is told.

    /// Notes something that happened.
    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        let line = format!("{} {}", self.time.ms(), what());
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        trace.digest.update(line.as_bytes());
        if let Some(lines) = &mut trace.lines {
            lines.push(line);
        }
    }

    /// Notes a call of the store.
    pub(super) fn trace(&self, slot: usize, method: &'static str, went_well: bool) {
        self.say(|| format!("{slot} {method} {went_well}"));
    }

    /// The digest of everything that happened, and the lines.
    pub(super) fn told(&self) -> (String, Vec<String>) {
        use std::fmt::Write as _;

        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = trace.digest.clone().finalize();
        let mut hex = String::new();
        for byte in digest {
            // A text takes everything.
            let _ = write!(hex, "{byte:02x}");
        }
        (hex, trace.lines.take().unwrap_or_default())
    }

    // The database.

    /// The database's clock.
    pub(super) fn now(&self) -> Timestamp {
        let jumped = self.jumped_ms.load(Ordering::SeqCst);
        Timestamp(EPOCH_MS + jumped).after(self.time.elapsed())
    }

    /// Lets no new trouble begin; what has begun goes on.
    pub(super) fn calm(&self) {
        self.calm.store(true, Ordering::SeqCst);
    }

    /// Counts a call of the store: its number among those of its method, and what happens at it.
    pub(super) fn count(&self, method: &'static str) -> (usize, Option<Harm>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(method).or_default();
        let this = *count;
        *count += 1;
        drop(counts);
        if self.calm.load(Ordering::SeqCst) {
            return (this, None);
        }
        let harm = self.plan.faults.iter().find_map(|fault| match *fault {
            Fault::Call {
                method: at,
                nth,
                harm,
            } if at == method => {
                let more = match harm {
                    Harm::Refused(more) | Harm::Unreadable(more) => more,
                    _ => 0,
                };
                (nth..=nth + more).contains(&this).then_some(harm)
            }
            _ => None,
        });
        if let Some(
            Harm::LateBefore(ms)
            | Harm::LateAfter(ms)
            | Harm::DiesBefore(ms)
            | Harm::DiesAfter(ms)
            | Harm::StopsBefore(ms)
            | Harm::StopsAfter(ms),
        ) = harm
        {
            self.trouble_until(self.time.ms() + ms);
        }
        (this, harm)
    }

    /// Whether a named point in the code fails, this time that it is passed.
    pub(super) fn fails(&self, point: &'static str) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(point).or_default();
        let this = *count;
        *count += 1;
        drop(counts);
        let planned = |fault: &Fault| matches!(fault, Fault::Point { name, nth } if *name == point && *nth == this);
        let fails = !self.calm.load(Ordering::SeqCst) && self.plan.faults.iter().any(planned);
        if fails {
            self.say(|| format!("{point} #{this}"));
        }
        fails
    }

    fn trouble_until(&self, ms: u64) {
        self.over_ms.fetch_max(ms, Ordering::SeqCst);
    }

    /// When the last trouble is over, as far as is known.
    pub(super) fn over_ms(&self) -> u64 {
        self.over_ms.load(Ordering::SeqCst)
    }

    /// Makes a call of the store.
    pub(super) async fn made<T: Send>(&self, call: impl Future<Output = T> + Send) -> T {
        match &self.threads {
            None => call.await,
            Some(threads) => std::thread::scope(|scope| {
                let made = scope.spawn(|| threads.block_on(call));
                match made.join() {
                    Ok(answer) => answer,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }),
        }
    }

    /// Reads the store past all faults.
    pub(super) async fn read<T: Send>(&self, call: impl Future<Output = Result<T>> + Send) -> T {
        let read = self.made(call).await;
        read.unwrap_or_else(|error| panic!("the store itself fails: {error}"))
    }

    /// Whether a process does not reach the database.
    pub(super) fn is_cut_off(&self, slot: usize) -> bool {
        self.outages.load(Ordering::SeqCst) > 0 || self.partitions[slot].load(Ordering::SeqCst) > 0
    }

    // The wires.

    pub(super) fn queue_mood(&self) -> QueueMood {
        *self
            .queue_mood
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn mood(&self, change: impl FnOnce(&mut QueueMood)) {
        change(
            &mut self
                .queue_mood
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    pub(super) fn bus_away(&self) -> u32 {
        self.bus_away.load(Ordering::SeqCst)
    }

    /// A number between two, both included.
    pub(super) fn between(&self, least: u64, most: u64) -> u64 {
        least + self.entropy.next() % (most - least + 1)
    }

    // The processes.

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts every process.
    pub(super) fn start_all(self: &Arc<Self>) {
        for slot in 0..self.plan.workers + self.plan.schedulers {
            self.slots().push(Slot {
                gate: Gate::new(),
                lifecycle: Lifecycle::new(),
                router: None,
                task: None,
                awaited: false,
                lives: 0,
            });
            self.start(slot);
        }
    }

    /// Forgets its processes, whose parts hold the world in turn: else nothing of it is ever freed.
    pub(super) fn forget(&self) {
        let slots = std::mem::take(&mut *self.slots());
        drop(slots);
    }

    fn start(self: &Arc<Self>, slot: usize) {
        let (gate, lifecycle) = (Gate::new(), Lifecycle::new());
        let clock: Arc<dyn Clock> = Arc::new(ProcessClock {
            time: self.time,
            gate: gate.clone(),
            skew_ms: self.skews[slot].clone(),
        });
        let lives = self.slots()[slot].lives + 1;
        self.say(|| format!("{slot} starts, life {lives}"));
        let (router, task) = if slot < self.plan.workers {
            (None, self.worker(slot, &gate, &clock, &lifecycle))
        } else {
            let (router, task) = self.scheduler(slot, &gate, clock, &lifecycle);
            (Some(router), task)
        };
        self.slots()[slot] = Slot {
            gate,
            lifecycle,
            router,
            task: Some(task),
            awaited: false,
            lives,
        };
    }

    fn link(self: &Arc<Self>, slot: usize, gate: &Gate) -> Arc<dyn Store> {
        Arc::new(Link {
            core: self.clone(),
            slot,
            gate: gate.clone(),
        })
    }

    fn worker(
        self: &Arc<Self>,
        slot: usize,
        gate: &Gate,
        clock: &Arc<dyn Clock>,
        lifecycle: &Lifecycle,
    ) -> tokio::task::JoinHandle<()> {
        let mut tools = Tools::default();
        let slow: Arc<dyn Clock> = clock.clone();
        for tool in fakes(&slow, &self.acts) {
            let gate = gate.clone();
            let added = tools.insert(Arc::new(Hand { gate, tool }));
            added.expect("a new name");
        }
        // The name is taken by a provider that ships, and then given to the model.
        let settings = [ProviderSettings::new("model", Kind::Demo)];
        let mut providers =
            Providers::new(&settings, "model", clock).expect("the settings are complete");
        let mind = Mind {
            gate: gate.clone(),
            time: self.time,
            ledger: self.ledger.clone(),
        };
        providers
            .insert("model", Arc::new(mind), "model")
            .expect("a good name");
        let parts = Parts {
            store: self.link(slot, gate),
            queue: Arc::new(Line {
                core: self.clone(),
                gate: gate.clone(),
            }),
            bus: Arc::new(Radio {
                core: self.clone(),
                gate: gate.clone(),
            }),
            clock: clock.clone(),
            entropy: self.entropy.clone(),
            providers: Arc::new(providers),
            tools: Arc::new(tools),
            hooks: Arc::new(Hooks::default()),
            config: Arc::new(WorkerConfig {
                name: format!("worker-{slot}"),
                concurrency: self.plan.concurrency,
                drain_timeout: Duration::from_secs(5),
                ..WorkerConfig::default()
            }),
        };
        let (core, running, gate) = (self.clone(), lifecycle.clone(), gate.clone());
        tokio::spawn(async move {
            // One that cannot begin ends, and whoever started it starts it again.
            while let Err(error) = mainspring_worker::run(parts.clone(), running.clone()).await {
                core.say(|| format!("{slot} does not begin: {error}"));
                if running.is_stopping() {
                    return;
                }
                core.time.sleep(500).await;
                gate.pass().await;
            }
        })
    }

    fn scheduler(
        self: &Arc<Self>,
        slot: usize,
        gate: &Gate,
        clock: Arc<dyn Clock>,
        lifecycle: &Lifecycle,
    ) -> (Router, tokio::task::JoinHandle<()>) {
        let parts = mainspring_scheduler::Parts {
            store: self.link(slot, gate),
            queue: Arc::new(Line {
                core: self.clone(),
                gate: gate.clone(),
            }),
            bus: Arc::new(Radio {
                core: self.clone(),
                gate: gate.clone(),
            }),
            clock,
            entropy: self.entropy.clone(),
            config: SchedulerConfig {
                name: format!("scheduler-{slot}"),
                ..SchedulerConfig::default()
            },
            metrics: None,
            on_accepting: None,
        };
        let (router, loops) = mainspring_scheduler::embedded(parts, lifecycle.clone());
        (router, tokio::spawn(loops))
    }

    /// The API of a scheduler that is there, the `turn`th of them, and its gate.
    pub(super) fn api(&self, turn: usize) -> Option<(Router, Gate)> {
        let slots = self.slots();
        let open = slots.iter().filter(|slot| !slot.gate.is_dead());
        let apis: Vec<_> = open
            .filter_map(|slot| Some((slot.router.clone()?, slot.gate.clone())))
            .collect();
        let turn = turn.checked_rem(apis.len())?;
        apis.into_iter().nth(turn)
    }

    /// Kills a process; it is started again so much later.
    pub(super) fn kill(self: &Arc<Self>, slot: usize, again_ms: u64) {
        {
            let mut slots = self.slots();
            let slot = &mut slots[slot];
            slot.gate.kill();
            if let Some(task) = slot.task.take() {
                task.abort();
            }
            if std::mem::replace(&mut slot.awaited, true) {
                return;
            }
        }
        self.say(|| format!("{slot} dies"));
        let core = self.clone();
        tokio::spawn(async move {
            core.time.sleep(again_ms).await;
            core.start(slot);
        });
    }

    /// Lets a process stand still for a while.
    pub(super) fn pause(self: &Arc<Self>, slot: usize, for_ms: u64) {
        let gate = self.slots()[slot].gate.clone();
        gate.pause();
        self.say(|| format!("{slot} stands still"));
        let core = self.clone();
        tokio::spawn(async move {
            core.time.sleep(for_ms).await;
            core.say(|| format!("{slot} goes on"));
            gate.wake();
        });
    }

    /// Stops a process in order, and starts it again once it is gone.
    fn drain(self: &Arc<Self>, slot: usize) {
        let lifecycle = {
            let mut slots = self.slots();
            if std::mem::replace(&mut slots[slot].awaited, true) {
                return;
            }
            slots[slot].lifecycle.clone()
        };
        self.say(|| format!("{slot} is asked to stop"));
        lifecycle.stop();
        let core = self.clone();
        tokio::spawn(async move {
            core.time.sleep(18_000).await;
            core.slots()[slot].gate.kill();
            core.start(slot);
        });
        self.trouble_until(self.time.ms() + 18_000);
    }

    /// Lets each trouble of the plan happen at its time.
    pub(super) fn trouble(self: &Arc<Self>) {
        for fault in self.plan.faults.clone() {
            if let Fault::At {
                ms,
                for_ms,
                trouble,
            } = fault
            {
                let core = self.clone();
                tokio::spawn(async move {
                    core.time.sleep(ms).await;
                    core.say(|| format!("{trouble:?} for {for_ms}"));
                    core.suffer(trouble, for_ms).await;
                });
            }
        }
    }

    async fn suffer(self: &Arc<Self>, trouble: Trouble, for_ms: u64) {
        let slot = |n: usize| n % self.partitions.len();
        match trouble {
            Trouble::Death(n) => self.kill(slot(n), for_ms),
            Trouble::Pause(n) => self.pause(slot(n), for_ms),
            Trouble::Drain(n) => self.drain(slot(n)),
            Trouble::Skew(n, by_s) => {
                self.skews[slot(n)].fetch_add(by_s * 1_000, Ordering::SeqCst);
            }
            Trouble::Jump(ms) => {
                self.jumped_ms.fetch_add(ms as i64, Ordering::SeqCst);
            }
            Trouble::Outage => {
                self.outages.fetch_add(1, Ordering::SeqCst);
                self.time.sleep(for_ms).await;
                self.outages.fetch_sub(1, Ordering::SeqCst);
            }
            Trouble::Partition(n) => {
                self.partitions[slot(n)].fetch_add(1, Ordering::SeqCst);
                self.time.sleep(for_ms).await;
                self.partitions[slot(n)].fetch_sub(1, Ordering::SeqCst);
            }
            Trouble::BusAway => {
                self.bus_away.fetch_add(1, Ordering::SeqCst);
                self.time.sleep(for_ms).await;
                self.bus_away.fetch_sub(1, Ordering::SeqCst);
                self.air.gap();
            }
            Trouble::QueueAway => {
                self.mood(|mood| mood.away += 1);
                self.time.sleep(for_ms).await;
                self.mood(|mood| mood.away -= 1);
            }
            Trouble::RingsLost => {
                self.mood(|mood| mood.loses += 1);
                self.time.sleep(for_ms).await;
                self.mood(|mood| mood.loses -= 1);
            }
            Trouble::RingsRepeated => {
                self.mood(|mood| mood.repeats += 1);
                self.time.sleep(for_ms).await;
                self.mood(|mood| mood.repeats -= 1);
            }
            Trouble::RingsLate => {
                self.mood(|mood| mood.delays += 1);
                self.time.sleep(for_ms).await;
                self.mood(|mood| mood.delays -= 1);
            }
        }
    }
}
