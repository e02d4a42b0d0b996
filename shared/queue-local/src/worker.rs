//! apalis' workers of one pool, on its in-process storage.

use std::sync::Arc;
use std::time::Duration;

use apalis::layers::WorkerBuilderExt as _;
use apalis::layers::limit::GlobalConcurrencyLimitLayer;
use apalis_core::backend::memory::{MemorySink, MemoryStorage, MemoryStorageError};
use apalis_core::error::WorkerError;
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::task::data::Data;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use apalis_core::worker::ext::parallelize::ParallelizeExt as _;
use futures::{Sink, SinkExt, StreamExt};
use mainspring_shared::agent::Priority;
use mainspring_shared::queue::{Activation, Disposition, Handler};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::pool::{Line, Pool};

/// Handlers that may wait for admission. A handler is quick unless every slot is taken; then more
/// handlers would only reorder waiting jobs.
const HANDLERS: usize = 8;
/// The same for jobs that overtake others. Sessions of tenants that already have their share are
/// moved behind, so these jobs wait for the next slot at most.
const AHEAD_HANDLERS: usize = 2;
/// How long a stop waits for handlers in admission.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// How long a job that a stopping worker turned away waits until the worker has stopped fetching.
const CLOSING_LIMIT: Duration = Duration::from_secs(5);
/// The pause before a worker that ended by itself is replaced. It is not expected to end.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

type Job = (Activation, Line);
type Running = AbortOnDropHandle<Result<(), WorkerError>>;

/// The jobs that a worker takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Takes {
    /// Jobs of the lanes.
    Lanes,
    /// Jobs that overtake the lanes.
    Ahead,
}

/// The context of every job.
#[derive(Clone)]
struct Intake {
    takes: Takes,
    handler: Arc<dyn Handler>,
    pool: Arc<Pool>,
    /// Cancelled once nothing more is taken from the pool.
    closed: CancellationToken,
}

/// Works on a pool until `stop` is cancelled.
pub(crate) async fn supervise(
    pool: Arc<Pool>,
    takes: Takes,
    handler: Arc<dyn Handler>,
    stop: CancellationToken,
) {
    let closed = CancellationToken::new();
    let _closed = closed.clone().drop_guard();
    let slots = Arc::new(Semaphore::new(match takes {
        Takes::Lanes => HANDLERS,
        Takes::Ahead => AHEAD_HANDLERS,
    }));
    let intake = Intake {
        takes,
        handler,
        pool,
        closed,
    };
    loop {
        let (context, mut running) = start(&intake, &slots);
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                if context.stop().is_ok() {
                    intake.closed.cancel();
                    // Handlers that take longer end by themselves.
                    let _ = tokio::time::timeout(STOP_LIMIT, &mut running).await;
                }
                return;
            }
            ended = &mut running => {
                let failed = !matches!(ended, Ok(Ok(())));
                tracing::error!(failed, "a queue worker ended unexpectedly; restarting it");
            }
        }
        if tokio::time::timeout(RESTART_PAUSE, stop.cancelled())
            .await
            .is_ok()
        {
            return;
        }
    }
}

fn start(intake: &Intake, slots: &Arc<Semaphore>) -> (WorkerContext, Running) {
    let takes = intake.takes;
    let jobs = futures::stream::unfold(Arc::clone(&intake.pool), move |pool| async move {
        let job = match takes {
            Takes::Lanes => Arc::clone(&pool).take().await,
            Takes::Ahead => Arc::clone(&pool).take_ahead().await,
        };
        Some((TaskBuilder::new(job).build(), pool))
    });
    let context = WorkerContext::new("local");
    // The first layer is the outermost.
    let worker = WorkerBuilder::new(&context)
        .backend(MemoryStorage::new_with(no_sink(), jobs.boxed()))
        .data(intake.clone())
        .parallelize(tokio::spawn)
        .layer(GlobalConcurrencyLimitLayer::with_semaphore(Arc::clone(
            slots,
        )))
        .catch_panic()
        .build(on_job);
    let running = AbortOnDropHandle::new(tokio::spawn(worker.run()));
    (context, running)
}

/// The function that apalis calls.
async fn on_job((activation, line): Job, intake: Data<Intake>) {
    let handler = &intake.handler;
    let disposition = if line == Line::Ahead {
        let (disposition, sessions) = handler.handle_ahead(activation.clone()).await;
        if disposition == Disposition::Done && !sessions.is_empty() {
            // Sessions that do not fit there are found by the sweep.
            let behind = Line::Lane(Priority::High);
            intake.pool.push(behind, &[Activation { sessions }]);
        }
        disposition
    } else {
        handler.handle(activation.clone()).await
    };
    match disposition {
        Disposition::Done => {}
        Disposition::Stopping => {
            // Leave the job to another worker of this pool: earlier, this one would get it again at
            // once.
            let closed = tokio::time::timeout(CLOSING_LIMIT, intake.closed.cancelled()).await;
            if closed.is_ok() {
                intake.pool.push(line, &[activation]);
            }
        }
    }
}

type AnySink = Box<dyn Sink<Task<Job>, Error = MemoryStorageError> + Send + Sync + Unpin>;

/// A sink that is always ready: the storage polls its sink even if nothing is pushed through it.
/// Jobs come from the pool instead, because apalis' own sink fails under concurrent pushes.
fn no_sink() -> MemorySink<Job> {
    let sink: AnySink =
        Box::new(futures::sink::drain::<Task<Job>>().sink_map_err(|never| match never {}));
    MemorySink::new(Arc::new(futures::lock::Mutex::new(sink)))
}
