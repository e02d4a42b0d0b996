//! apalis' worker of one line, restarted whenever it ends.

use std::sync::Arc;
use std::time::Duration;

use apalis::layers::WorkerBuilderExt as _;
use apalis::layers::limit::GlobalConcurrencyLimitLayer;
use apalis_core::backend::ext::BackendExt as _;
use apalis_core::error::WorkerError;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use apalis_core::worker::ext::parallelize::ParallelizeExt as _;
use apalis_redis::RedisStorage;
use mainspring_shared::queue::Activation;
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::doorbell::Doorbell;
use crate::intake::{Intake, on_job};
use crate::job::JobCodec;
use crate::lane::{Keys, Line};
use crate::link::{Backoff, Live};
use crate::queue::Core;
use crate::refusal::Refusal;
use crate::scripts;
use crate::tracked::Tracked;

/// How long a stop waits for handlers in admission.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// After a life of at least this length, the backoff starts over.
const GOOD_LIFE: Duration = Duration::from_secs(10);
/// A life of this length has fetched: its line works.
const PROVEN_LIFE: Duration = Duration::from_secs(3);
/// After this many short lives in a row although Redis responds, something is wrong.
const SHORT_LIVES: u32 = 5;
/// Time limit for ending a worker in Redis.
const RETIRE_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of ended lives that are remembered until Redis can be told. The janitor finds the
/// rest.
const UNTOLD_MAX: usize = 32;
/// How long apalis' description of a worker is kept. Nobody here reads it, and apalis never removes
/// it.
const METADATA_SECONDS: u64 = 3_600;

type Running = AbortOnDropHandle<Result<(), WorkerError>>;

/// Works on a line until `stop` is cancelled. Each life has its own name, since apalis refuses a
/// name that it has seen lately. Running handlers outlive the life that called them.
pub(crate) async fn supervise(
    core: Arc<Core>,
    intake: Intake,
    handlers: usize,
    stop: CancellationToken,
) {
    let _closed = intake.closed.clone().drop_guard();
    let keys = core.keys(&intake.line);
    // Shared by all lives: a handler that outlives its life keeps its permit.
    let slots = Arc::new(Semaphore::new(handlers));
    let mut backoff = Backoff::new(core.sources.clone(), 100, 2_000);
    let mut untold: Vec<String> = Vec::new();
    let mut short = 0;
    let line = intake.line.clone();
    loop {
        let live = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            live = core.link.available() => live,
        };
        retire(&core, &keys, live.clone(), &mut untold).await;
        let name = format!("w-{}", core.sources.entropy.ordered_id().as_simple());
        if untold.len() < UNTOLD_MAX {
            untold.push(name.clone());
        }
        core.counters.lives.add(1);
        let begun = core.sources.clock.monotonic();
        let running = start(&core, &keys, &intake, &name, live.clone(), &slots).await;
        let why = match attend(&core, running, live, &intake, &stop).await {
            Ended::Stopped => break,
            Ended::Refused(why) => why.cause(),
            Ended::Lost => "jobs could not be fetched",
        };
        if core.sources.clock.monotonic() >= begun + GOOD_LIFE {
            backoff.reset();
            short = 0;
        } else if core.link.is_available() {
            short += 1;
        }
        if short == SHORT_LIVES {
            core.refuses(&line, Some(why));
            tracing::warn!(
                ?line,
                reason = why,
                "could not fetch jobs although redis answers: polling the database for work; \
                 still retrying"
            );
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = backoff.wait() => {}
        }
    }
    core.refuses(&line, None);
    if let Some(live) = core.link.live() {
        retire(&core, &keys, live, &mut untold).await;
    }
}

/// A worker and the handle to stop it.
struct Life {
    context: WorkerContext,
    running: Running,
}

async fn start(
    core: &Arc<Core>,
    keys: &Keys,
    intake: &Intake,
    name: &str,
    mut live: Live,
    slots: &Arc<Semaphore>,
) -> Life {
    describe(keys, name, &mut live).await;
    let tracked = Tracked::new(live.connection);
    let doorbell = Doorbell::new(Arc::clone(core), keys.clone(), tracked.in_flight());
    let context = WorkerContext::new(name);
    let backend = RedisStorage::<Activation, Tracked>::new(tracked)
        .with_config(keys.config())
        .with_codec(JobCodec)
        .poll_with_strategy(doorbell);
    // The first layer is the outermost.
    let worker = WorkerBuilder::new(&context)
        .backend(backend)
        .data(intake.clone())
        .parallelize(tokio::spawn)
        .layer(GlobalConcurrencyLimitLayer::with_semaphore(Arc::clone(
            slots,
        )))
        .catch_panic()
        .build(on_job);
    let running = AbortOnDropHandle::new(tokio::spawn(worker.run()));
    Life { context, running }
}

/// Writes a worker's description before apalis does, with an expiry.
async fn describe(keys: &Keys, name: &str, live: &mut Live) {
    let key = keys.worker_metadata(name);
    let mut pipe = redis::pipe();
    pipe.cmd("HSET")
        .arg(&key)
        .arg("service")
        .arg("mainspring")
        .ignore();
    pipe.cmd("EXPIRE").arg(&key).arg(METADATA_SECONDS).ignore();
    let described = pipe.query_async::<()>(&mut live.connection);
    // If it fails, the new life will be short anyway.
    let _ = tokio::time::timeout(RETIRE_LIMIT, described).await;
}

/// Why a life ended.
enum Ended {
    /// It was told to.
    Stopped,
    /// The server did not do what apalis asked it to.
    Refused(Refusal),
    /// Anything else, such as a lost connection.
    Lost,
}

/// Waits for the end of a life.
async fn attend(
    core: &Core,
    mut life: Life,
    live: Live,
    intake: &Intake,
    stop: &CancellationToken,
) -> Ended {
    let proven = core.sources.clock.sleep(PROVEN_LIFE);
    tokio::pin!(proven);
    let mut is_proven = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                if life.context.stop().is_ok() {
                    intake.closed.cancel();
                    // Handlers that take longer end by themselves; their jobs are given to others.
                    let _ = tokio::time::timeout(STOP_LIMIT, &mut life.running).await;
                }
                return Ended::Stopped;
            }
            ended = &mut life.running => return why(&intake.line, ended),
            // Its commands would only fail later, one by one.
            () = core.link.ended(&live) => return Ended::Lost,
            () = &mut proven, if !is_proven => {
                is_proven = true;
                core.refuses(&intake.line, None);
            }
        }
    }
}

/// Why the task of a life ended.
fn why(line: &Line, ended: Result<Result<(), WorkerError>, JoinError>) -> Ended {
    match ended {
        Ok(Ok(())) => tracing::debug!(?line, "a queue worker ended"),
        Ok(Err(error)) => {
            let refusal = Refusal::behind(&error);
            let reason = refusal.map_or("its connection", Refusal::cause);
            // Losing Redis ends every worker; the link logs that.
            tracing::debug!(?line, reason, "a queue worker ended");
            if let Some(refusal) = refusal {
                return Ended::Refused(refusal);
            }
        }
        Err(_) => tracing::error!(?line, "a queue worker panicked"),
    }
    Ended::Lost
}

/// Tells Redis that some workers have ended, and returns the jobs that they held.
async fn retire(core: &Core, keys: &Keys, mut live: Live, untold: &mut Vec<String>) {
    while let Some(name) = untold.last() {
        let retired = scripts::retire(&mut live.connection, keys, name);
        match tokio::time::timeout(RETIRE_LIMIT, retired).await {
            Ok(Ok(_)) => {
                untold.pop();
            }
            Ok(Err(error)) => {
                core.link.report(&live, &error);
                return;
            }
            Err(_) => {
                core.link.suspect();
                return;
            }
        }
    }
}
