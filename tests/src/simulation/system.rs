//! The whole system of one world: what its processes share, and what happens to them.

mod processes;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mainspring_shared::entropy::Entropy;
use mainspring_shared::id::TenantId;
use mainspring_shared::store::{Inspect, Result, TenantPatch};
use mainspring_shared::tenant::{Limits, Usd};
use mainspring_shared::time::Timestamp;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use self::processes::Slot;
use super::actors::Ledger;
use super::chance::mixed;
use super::gate::{EPOCH_MS, Virtual};
use super::plan::{Fault, Harm, Plan, Trouble};
use super::wires::{Jobs, QueueMood, SharedBus};
use crate::world::Acts;

/// The tenant's limit of money in a day, in millionths of a dollar.
const LIMIT: u64 = 1_000_000_000_000;

/// Entropy that derives values from the seed in the order in which they are drawn.
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

/// The record of a world's course: a digest of everything, and the lines if requested.
#[derive(Debug, Default)]
struct Trace {
    digest: Sha256,
    lines: Option<Vec<String>>,
}

/// What the processes of a world share.
pub(super) struct Core {
    pub(super) plan: Plan,
    pub(super) time: Virtual,
    pub(super) store: Arc<dyn Inspect>,
    /// The runtime of a store that has its own threads. Each of its calls completes before anything
    /// else happens in the world.
    pub(super) threads: Option<tokio::runtime::Handle>,
    pub(super) jobs: Jobs,
    pub(super) shared_bus: SharedBus,
    pub(super) ledger: Arc<Ledger>,
    pub(super) acts: Arc<Acts>,
    entropy: Arc<Drawn>,
    counts: Mutex<BTreeMap<&'static str, usize>>,
    queue_mood: Mutex<QueueMood>,
    bus_away: AtomicU32,
    /// Outages in progress, of all processes and of each.
    outages: AtomicU32,
    partitions: Vec<AtomicU32>,
    /// How far the database's clock has jumped.
    jumped_ms: AtomicI64,
    skews: Vec<Arc<AtomicI64>>,
    slots: Mutex<Vec<Slot>>,
    trace: Mutex<Trace>,
    /// When the last trouble known so far is over.
    over_ms: AtomicU64,
    /// Whether new troubles are suppressed, so that the final reads succeed.
    calm: AtomicBool,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl Core {
    pub(super) fn new(
        plan: &Plan,
        time: Virtual,
        store: Arc<dyn Inspect>,
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
            shared_bus: SharedBus::default(),
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

    // The event log.

    /// Logs something that happened.
    pub(super) fn say(&self, what: impl FnOnce() -> String) {
        let line = format!("{} {}", self.time.ms(), what());
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        trace.digest.update(line.as_bytes());
        if let Some(lines) = &mut trace.lines {
            lines.push(line);
        }
    }

    /// Logs a store call.
    pub(super) fn trace(&self, slot: usize, method: &'static str, went_well: bool) {
        self.say(|| format!("{slot} {method} {went_well}"));
    }

    /// The digest of everything that happened, and the log lines.
    pub(super) fn told(&self) -> (String, Vec<String>) {
        use std::fmt::Write as _;

        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        let digest = trace.digest.clone().finalize();
        let mut hex = String::new();
        for byte in digest {
            // Writing to a string cannot fail.
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

    /// Suppresses new troubles; those in progress continue.
    pub(super) fn calm(&self) {
        self.calm.store(true, Ordering::SeqCst);
    }

    /// Counts a store call; returns its number among the calls of its method, and the fault that
    /// strikes it.
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

    /// Whether a named point in the code fails on this pass.
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

    /// When the last trouble known so far is over, in virtual milliseconds.
    pub(super) fn over_ms(&self) -> u64 {
        self.over_ms.load(Ordering::SeqCst)
    }

    /// Makes a store call.
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

    /// Reads from the store, bypassing all faults.
    pub(super) async fn read<T: Send>(&self, call: impl Future<Output = Result<T>> + Send) -> T {
        let read = self.made(call).await;
        read.unwrap_or_else(|error| panic!("the store itself fails: {error}"))
    }

    /// Gives the tenant a limit of money that it will not reach.
    pub(super) async fn limit_money(&self) {
        let patch = TenantPatch {
            limits: Some(Limits {
                usd_per_day: Some(Usd(LIMIT)),
                ..Limits::default()
            }),
            ..TenantPatch::default()
        };
        self.read(self.store.update_tenant(TenantId::DEFAULT, patch))
            .await;
    }

    /// Whether a process cannot reach the database.
    pub(super) fn is_cut_off(&self, slot: usize) -> bool {
        self.outages.load(Ordering::SeqCst) > 0 || self.partitions[slot].load(Ordering::SeqCst) > 0
    }

    // The queue and the bus.

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

    /// A number in an inclusive range.
    pub(super) fn between(&self, least: u64, most: u64) -> u64 {
        least + self.entropy.next() % (most - least + 1)
    }

    /// Schedules each trouble in the plan.
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
                self.shared_bus.gap();
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
