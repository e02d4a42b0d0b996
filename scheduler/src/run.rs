//! The background loops of one scheduler, from start to stop.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use mainspring_runtime::Lifecycle;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::{App, Known, Outside, Parts, Process};
use crate::loops::{
    alarms, auditor, blobs, erasures, journal, retention, runs, sweep, timers, webhooks,
};
use crate::services::accept::Acceptor;
use crate::services::notify::{self, Notifier};
use crate::services::registration::{self, Registration};
use crate::services::watch::{self, Watch};

/// How long the loops may take to end once no request is in flight: enough for one push and one
/// lease renewal.
const CLOSING_MAX: Duration = Duration::from_secs(2);

/// Threads of the loops that no request waits for: while one is blocked, the others go on.
const ASIDE_THREADS: usize = 3;

/// The background loops of a scheduler.
#[derive(Debug)]
pub struct Loops {
    tasks: JoinSet<()>,
    closing: CancellationToken,
}

impl Loops {
    /// Stops the loops. Call it once no request is in flight. Loops that take longer than
    /// `CLOSING_MAX` are aborted.
    pub async fn end(mut self) {
        self.closing.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(CLOSING_MAX, ended).await.is_err() {
            tracing::debug!("some loops did not end in time; aborting them");
        }
    }
}

/// Starts the background loops of a scheduler. [`Loops::end`] stops them; dropping [`Loops`] aborts
/// them. If the database or the queue is unavailable, the loops retry until it is back.
pub fn start(parts: Parts, lifecycle: &Lifecycle) -> (Arc<App>, Loops) {
    let closing = CancellationToken::new();
    let (notifier, ready) = Notifier::new(parts.queue.clone(), parts.bus.clone());
    let app = Arc::new_cyclic(|app| App {
        acceptor: Acceptor::new(
            app,
            parts.store.clone(),
            parts.clock.clone(),
            parts.entropy.clone(),
            &parts.config,
        ),
        watch: Watch::new(parts.store.clone()),
        known: Known::default(),
        process: Process {
            registration: Registration::default(),
            lifecycle: lifecycle.clone(),
        },
        outside: Outside {
            blobs: parts.blobs,
            webhooks: parts.webhooks,
        },
        notifier,
        store: parts.store,
        clock: parts.clock,
        entropy: parts.entropy,
        config: parts.config,
    });

    let mut tasks = JoinSet::new();
    tasks.spawn(notify::run(parts.queue, ready, closing.clone()));
    let token = closing.clone();
    tasks.spawn(keep(app.clone(), "watch", move |app| {
        watch::run(app, token.clone()).boxed()
    }));
    let token = closing.clone();
    tasks.spawn(keep(app.clone(), "boot", move |app| {
        registration::keep(app, token.clone()).boxed()
    }));
    // Requests wait for the three above, and for none of these.
    let aside = aside();
    let mut spawn = |name, run: for<'a> fn(&'a Arc<App>) -> BoxFuture<'a, ()>| {
        tasks.spawn_on(keep(app.clone(), name, run), &aside);
    };
    spawn("sweep", |app| sweep::run(app).boxed());
    spawn("alarms", |app| alarms::run(app).boxed());
    spawn("timers", |app| timers::run(app).boxed());
    spawn("runs", |app| runs::run(app).boxed());
    spawn("retention", |app| retention::run(app).boxed());
    spawn("blobs", |app| blobs::run(app).boxed());
    spawn("auditor", |app| auditor::run(app).boxed());
    spawn("erasures", |app| erasures::run(app).boxed());
    spawn("webhooks", |app| webhooks::run(app).boxed());
    spawn("journal", |app| journal::run(app).boxed());
    (app, Loops { tasks, closing })
}

/// The runtime of the loops that no request waits for. It is not the one that serves requests, so
/// that a loop that blocks its thread blocks no request, no probe and no signal.
///
/// There is one for the whole process and for as long as it lives: connections that were opened in
/// it are used by requests too, and outlive a scheduler that stops.
fn aside() -> Handle {
    static ASIDE: OnceLock<Option<Runtime>> = OnceLock::new();
    let here = Handle::current();
    // A runtime with one thread is a test's or a simulation's, which steps the loops itself.
    if !matches!(here.runtime_flavor(), RuntimeFlavor::MultiThread) {
        return here;
    }
    let aside = ASIDE.get_or_init(|| {
        let runtime = Builder::new_multi_thread()
            .thread_name("loops")
            .worker_threads(ASIDE_THREADS)
            .enable_all()
            .build();
        let failed = |error: &_| tracing::warn!(%error, "no threads for the loops of their own");
        runtime.inspect_err(failed).ok()
    });
    aside
        .as_ref()
        .map_or(here, |runtime| runtime.handle().clone())
}

/// Runs a loop until it returns; restarts it if it panics.
async fn keep<F>(app: Arc<App>, name: &'static str, run: F)
where
    F: for<'a> Fn(&'a Arc<App>) -> BoxFuture<'a, ()> + Send + Sync,
{
    while AssertUnwindSafe(run(&app)).catch_unwind().await.is_err() {
        tracing::error!(loop.name = name, "a loop panicked and is restarted");
        app.clock.sleep(CLOSING_MAX).await;
    }
}
