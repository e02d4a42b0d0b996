//! A worker's life: start, take work from the queue or the database, stop in order.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use mainspring_runtime::Lifecycle;
use mainspring_shared::blob::Depot;
use mainspring_shared::bus::Bus;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::queue::Queue;
use mainspring_shared::store::{self, Store, SweepReady};
use mainspring_shared::time::Clock;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admit::{self, Admission, Running};
use crate::boot::Boot;
use crate::cache::Cache;
use crate::config::WorkerConfig;
use crate::content::Content;
use crate::extracting::Ended;
use crate::fold::Fold;
use crate::fold::resting::Resting;
use crate::hook::Hooks;
use crate::live::Live;
use crate::llm::Providers;
use crate::memory::{Memories, embedding};
use crate::money::{self, Money};
use crate::slots::Slots;
use crate::suspects::Suspects;
use crate::tool::Tools;
use crate::writes::{Room, Writes};
use crate::{dispatched, extracting, learning, metrics, pauses, preview, signals, strays};

/// The dependencies of a worker.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The database, the only source of truth.
    pub store: Arc<dyn Store>,
    /// The queue that activations come from.
    pub queue: Arc<dyn Queue>,
    /// The bus for notices and signals.
    pub bus: Arc<dyn Bus>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The source of ids, fences and jitter.
    pub entropy: Arc<dyn Entropy>,
    /// The model providers.
    pub providers: Arc<Providers>,
    /// The tools.
    pub tools: Arc<Tools>,
    /// Sources of what the model is shown besides rows.
    pub sources: Sources,
    /// Hooks, which are called at fixed points of each send.
    pub hooks: Arc<Hooks>,
    /// The limits.
    pub config: Arc<WorkerConfig>,
}

/// Sources of what the model is shown, besides rows.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Blob content by its hash.
    pub blobs: Arc<Depot>,
    /// The memory providers.
    pub memories: Arc<Memories>,
    /// A custom way to fold transcripts, which replaces the strategy `summary`.
    pub fold: Option<Arc<dyn Fold>>,
}

/// State shared by all runs.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) parts: Parts,
    pub(crate) boot: Arc<Boot>,
    pub(crate) writes: Writes,
    pub(crate) live: Live,
    pub(crate) kept: Kept,
    pub(crate) pauses: pauses::Known,
    pub(crate) money: Arc<Money>,
    pub(crate) running: Running,
    pub(crate) tasks: Tasks,
    pub(crate) lifecycle: Lifecycle,
    /// The life of the whole process.
    pub(crate) outer: Lifecycle,
}

/// State kept from one send to the next.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Windows of sessions.
    pub(crate) cache: Cache,
    /// Cached contents of blobs.
    pub(crate) content: Arc<Content>,
    /// Sends during which workers crashed.
    pub(crate) suspects: Arc<Suspects>,
    /// Sessions whose folds are being written while none of their sends runs.
    pub(crate) resting: Resting,
    /// Ended sends whose memory entries are still to be extracted.
    pub(crate) ended: Ended,
}

/// The tasks that sends run in.
#[derive(Debug)]
pub(crate) struct Tasks {
    /// One slot for each session that is being worked on.
    pub(crate) slots: Arc<Slots>,
    pub(crate) runs: TaskTracker,
    /// Cancelled when the last run has ended.
    pub(crate) done: CancellationToken,
}

/// Runs a worker until `lifecycle` stops it. A stopping worker claims nothing more, waits for the
/// answers in flight up to the drain timeout, releases the remaining sessions, and ends its lease.
///
/// Fails only when the database cannot be reached at the start.
pub async fn run(parts: Parts, lifecycle: Lifecycle) -> store::Result<()> {
    run_counted(parts, lifecycle, watch::Sender::new(0)).await
}

/// The same as [`run`]; `load` receives the number of sends in flight at each lease renewal.
pub async fn run_counted(
    mut parts: Parts,
    lifecycle: Lifecycle,
    load: watch::Sender<u32>,
) -> store::Result<()> {
    let limit = (parts.clock.clone(), parts.config.hook_timeout);
    parts.hooks = Arc::new(parts.hooks.within(limit));
    let boot = Arc::new(Boot::new());
    boot.begin(&parts).await?;
    let (ended, pending) = Ended::new();
    let (money, unsettled) = Money::new(&parts, &boot);
    let money = Arc::new(money);
    parts.sources.memories.pay_from(&money);
    let slots = Slots::new(parts.config.concurrency as usize, parts.clock.clone());
    let outer = lifecycle;
    let lifecycle = outer.child();
    let room = Room::new(&parts.config, slots.clone(), lifecycle.clone());
    let kernel = Arc::new(Kernel {
        writes: Writes::spawn(&parts, &boot, room),
        live: Live::spawn(parts.bus.clone(), parts.clock.clone()),
        kept: Kept {
            cache: Cache::new(parts.config.cache_bytes_max),
            content: Arc::new(Content::new(
                parts.sources.blobs.clone(),
                parts.config.blob_cache_bytes_max,
            )),
            suspects: Arc::new(Suspects::new(
                parts.clock.clone(),
                parts.config.lease_ttl,
                parts.config.crashes_max,
            )),
            resting: Resting::default(),
            ended,
        },
        pauses: pauses::Known::default(),
        money,
        running: Running::default(),
        tasks: Tasks {
            slots,
            runs: TaskTracker::new(),
            done: CancellationToken::new(),
        },
        lifecycle,
        outer,
        boot,
        parts,
    });
    introduce(&kernel.parts);
    pauses::begin(&kernel).await;
    let settler = money::run(kernel.parts.clone(), unsettled, kernel.tasks.done.clone());
    learning::begin(&kernel.parts).await;
    let mut tasks = vec![
        once(&kernel, "settlements of money", settler),
        once(
            &kernel,
            "extractions",
            extracting::run(kernel.clone(), pending),
        ),
        again(&kernel, "lease", move |kernel| {
            keep_lease(kernel, load.clone())
        }),
        again(&kernel, "pauses", pauses::run),
        again(&kernel, "signals", signals::listen),
        again(&kernel, "polls", poll),
        again(&kernel, "strays", strays::watch),
        again(&kernel, "dispatches", dispatched::listen),
        again(&kernel, "previews", preview::answer),
        again(&kernel, "embeddings", embedding::run),
        again(&kernel, "vectors", embedding::answer),
        again(&kernel, "learning", learning::run),
    ];
    let stop = Box::pin(kernel.lifecycle.stopping());
    let admission = Arc::new(Admission(kernel.clone()));
    kernel
        .parts
        .queue
        .run(&kernel.parts.config.pool, admission, stop)
        .await;
    kernel.lifecycle.stopping().await;
    drain(&kernel).await;
    // Settle while the boot is alive: otherwise the sweep counts what it left behind at its
    // maximum.
    kernel.money.settled(kernel.parts.config.lease_ttl).await;
    kernel.tasks.done.cancel();
    for task in tasks.drain(..) {
        if let Err(error) = task.await {
            tracing::error!(%error, "a background task of the worker failed");
        }
    }
    Ok(())
}

/// How long a background task that panicked waits until it starts again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Runs a background task, and again whenever it panics: without it the process would live and do
/// no work.
fn again<F>(
    kernel: &Arc<Kernel>,
    name: &'static str,
    run: impl Fn(Arc<Kernel>) -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let kernel = kernel.clone();
    tokio::spawn(async move {
        while AssertUnwindSafe(run(kernel.clone()))
            .catch_unwind()
            .await
            .is_err()
        {
            tracing::error!(
                task = name,
                "a background task of the worker panicked; it is restarted"
            );
            kernel.parts.clock.sleep(AGAIN_AFTER).await;
        }
    })
}

/// Runs a background task that cannot be started again. If it panics, the worker stops, and whoever
/// watches over the process starts a new one.
fn once(
    kernel: &Arc<Kernel>,
    name: &'static str,
    run: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let kernel = kernel.clone();
    tokio::spawn(async move {
        if AssertUnwindSafe(run).catch_unwind().await.is_err() {
            tracing::error!(
                task = name,
                "a background task of the worker panicked; stopping"
            );
            kernel.outer.stop();
        }
    })
}

/// Logs which worker starts, and with what.
fn introduce(parts: &Parts) {
    let config = &parts.config;
    let names = |names: Vec<&str>| names.join(" ");
    tracing::info!(
        worker.name = config.name,
        worker.pool = config.pool,
        concurrency = config.concurrency,
        version = env!("CARGO_PKG_VERSION"),
        providers = names(parts.providers.names().collect()),
        tools = names(parts.tools.names().collect()),
        mcp.servers = names(parts.tools.servers().collect()),
        "worker started"
    );
}

async fn keep_lease(kernel: Arc<Kernel>, load: watch::Sender<u32>) {
    let renewed = |raised: Vec<_>| {
        signals::obey(&kernel, &raised);
        drop_lapsed(&kernel);
    };
    let in_flight = || {
        let count = kernel.running.count();
        metrics::in_flight(count);
        load.send_if_modified(|known| std::mem::replace(known, count) != count);
        count
    };
    kernel
        .boot
        .keep(&kernel.parts, kernel.tasks.done.clone(), renewed, in_flight)
        .await;
}

/// Drops the runs of tenants on whose database the lease was not renewed in time: others may take
/// their sessions over, and two workers must not do the same work.
fn drop_lapsed(kernel: &Kernel) {
    let Some(life) = kernel.boot.current() else {
        return;
    };
    for (key, control) in kernel.running.controls() {
        let lost = &control.handles.lost;
        if !lost.is_cancelled() && kernel.parts.store.has_lapsed(life.id, key.tenant) {
            tracing::warn!(
                session.id = %key.session,
                "lease not renewed in time on the database of this session; dropping its run"
            );
            lost.cancel();
        }
    }
}

/// How many pages of ready sessions are read at most while slots are free.
const POLL_PAGES: usize = 8;

/// A session that has been ready for this long has been enqueued by several sweeps. If there is a
/// free slot for it nevertheless, the queue loses it, whatever it says of itself.
const OVERDUE: Duration = Duration::from_secs(5);

/// How often a worker with free slots looks for overdue sessions.
const OVERDUE_INTERVAL: Duration = Duration::from_secs(2);

/// Polls the database: for all work while the queue is down, otherwise for what the queue has not
/// brought in time.
async fn poll(kernel: Arc<Kernel>) {
    let parts = &kernel.parts;
    let mut looked = parts.clock.monotonic();
    loop {
        tokio::select! {
            biased;
            () = kernel.lifecycle.stopping() => return,
            () = parts.clock.sleep(parts.config.poll_interval) => {}
        }
        let free = kernel.tasks.slots.free();
        let held = kernel.pauses.now().holds_pool(&parts.config.pool);
        if free == 0 || held {
            continue;
        }
        let mut age = Duration::ZERO;
        if parts.queue.is_available() {
            if parts.clock.monotonic() < looked + OVERDUE_INTERVAL {
                continue;
            }
            age = OVERDUE;
        }
        looked = parts.clock.monotonic();
        let mut after = None;
        // After sessions of tenants that may have no further slot there may be sessions of others.
        for _ in 0..POLL_PAGES {
            let query = SweepReady {
                pool: Some(parts.config.pool.clone()),
                older_than_ms: i64::try_from(age.as_millis()).unwrap_or(i64::MAX),
                after,
                limit: u32::try_from(free).unwrap_or(u32::MAX).min(512),
            };
            match parts.store.sweep_ready(query).await {
                Ok(swept) => {
                    after = swept.next;
                    let keys = swept.sessions.into_iter().map(|ready| ready.key);
                    let denied = admit::admit_free(&kernel, keys);
                    if !denied || after.is_none() || kernel.tasks.slots.free() == 0 {
                        break;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "could not read ready sessions from the database");
                    break;
                }
            }
        }
    }
}

/// Waits for the runs up to the drain timeout; then aborts them, so that they release their
/// sessions.
async fn drain(kernel: &Kernel) {
    kernel.tasks.runs.close();
    let clock = &kernel.parts.clock;
    tokio::select! {
        biased;
        () = kernel.tasks.runs.wait() => return,
        () = kernel.lifecycle.aborting() => {}
        () = clock.sleep(kernel.parts.config.drain_timeout) => {}
    }
    tracing::info!(
        runs = kernel.tasks.runs.len(),
        "releasing the runs still in flight"
    );
    kernel.lifecycle.abort();
    // Each run still has one write to make; whatever does not make it is left to the lease.
    tokio::select! {
        biased;
        () = kernel.tasks.runs.wait() => {}
        () = clock.sleep(kernel.parts.config.lease_ttl) => {}
    }
}
