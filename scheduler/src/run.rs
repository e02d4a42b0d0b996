//! One scheduler, from start to stop.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::FutureExt;
use futures::future::BoxFuture;
use mainspring_runtime::Lifecycle;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::app::{App, Http, Parts};
use crate::connections;
use crate::loops::{alarms, retention, runs, sweep, timers};
use crate::services::accept::Acceptor;
use crate::services::notify::{self, Notifier};
use crate::services::registration::{self, Registration};
use crate::services::watch::{self, Watch};

/// How long the loops may take to end once no request is under way: a push and a renewal.
const CLOSING_MAX: Duration = Duration::from_secs(2);

/// Why a scheduler could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The listener has no address.
    #[error("the listener cannot be used")]
    Listener {
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// Serves the API on `listener` and runs the background loops until `lifecycle` stops. Then no
/// new connection is taken, requests under way are answered with what is known, and streams end,
/// so that their readers go on elsewhere; a hard stop drops what is left.
///
/// A database or a queue that is away is waited for, at start too: meanwhile `/readyz` and every
/// request that needs it say so. A crash at any moment loses nothing that was answered: whoever
/// comes next finds it in the database.
pub async fn run(
    mut parts: Parts,
    listener: TcpListener,
    lifecycle: Lifecycle,
) -> Result<(), Error> {
    let address = listener
        .local_addr()
        .map_err(|source| Error::Listener { source })?;
    let on_accepting = parts.on_accepting.take();
    let (app, loops) = begin(parts, &lifecycle);
    tracing::info!(net.address = %address, "scheduler accepts requests");
    if let Some(tell) = on_accepting {
        tell(address);
    }
    let router = api::router(app.clone());
    let (config, clock) = (&app.config, app.clock.as_ref());
    let server = connections::serve(listener, router, config, clock, &lifecycle);
    tokio::select! {
        biased;
        () = lifecycle.aborting() => {}
        // Serving ends with the stop only; failures to accept are waited out.
        () = server => {}
    }
    loops.end().await;
    Ok(())
}

/// The same without a listener: requests are handed to the router by the caller, in this process.
/// The loops run until the future that is returned with it ends, after `lifecycle` stops; dropping
/// it ends them at once.
pub fn embedded(parts: Parts, lifecycle: Lifecycle) -> (Router, impl Future<Output = ()> + Send) {
    let (app, loops) = begin(parts, &lifecycle);
    let until_stopped = async move {
        lifecycle.stopping().await;
        loops.end().await;
    };
    (api::router(app), until_stopped)
}

/// The background loops of a scheduler.
struct Loops {
    tasks: JoinSet<()>,
    closing: CancellationToken,
}

impl Loops {
    /// Ends them, once no request is under way.
    async fn end(mut self) {
        self.closing.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(CLOSING_MAX, ended).await.is_err() {
            tracing::debug!("some loops did not end in time and are dropped");
        }
    }
}

fn begin(parts: Parts, lifecycle: &Lifecycle) -> (Arc<App>, Loops) {
    let closing = CancellationToken::new();
    let (notifier, ready) = Notifier::new(parts.queue.clone(), parts.bus.clone());
    let app = Arc::new_cyclic(|app| App {
        acceptor: Acceptor::new(app, parts.store.clone(), parts.clock.clone(), &parts.config),
        watch: Watch::new(parts.store.clone()),
        registration: Registration::default(),
        lifecycle: lifecycle.clone(),
        http: Http {
            requests: Arc::new(Semaphore::new(parts.config.requests_max)),
            waiters: Arc::new(Semaphore::new(parts.config.waiters_max)),
            bodies: Arc::new(Semaphore::new(parts.config.bodies_bytes_max)),
            metrics: parts.metrics,
        },
        notifier,
        store: parts.store,
        bus: parts.bus,
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
    tasks.spawn(keep(app.clone(), "sweep", |app| sweep::run(app).boxed()));
    tasks.spawn(keep(app.clone(), "alarms", |app| alarms::run(app).boxed()));
    tasks.spawn(keep(app.clone(), "timers", |app| timers::run(app).boxed()));
    tasks.spawn(keep(app.clone(), "runs", |app| runs::run(app).boxed()));
    tasks.spawn(keep(app.clone(), "retention", |app| {
        retention::run(app).boxed()
    }));
    (app, Loops { tasks, closing })
}

/// Runs a loop to its end; after a defect in it, again.
async fn keep<F>(app: Arc<App>, name: &'static str, run: F)
where
    F: for<'a> Fn(&'a App) -> BoxFuture<'a, ()> + Send + Sync,
{
    while AssertUnwindSafe(run(&app)).catch_unwind().await.is_err() {
        tracing::error!(loop.name = name, "a loop panicked and begins anew");
        app.clock.sleep(CLOSING_MAX).await;
    }
}
