//! One scheduler and its API, from start to stop.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use mainspring_runtime::Lifecycle;
use mainspring_scheduler::{Parts, start};
use tokio::net::TcpListener;

use crate::access::Access;
use crate::connections;
use crate::router::router;

/// Prints the process's metrics in the Prometheus text format.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Called once with the address, when the first request can be answered.
pub type OnAccepting = Box<dyn FnOnce(SocketAddr) + Send>;

/// What the API does beside serving the scheduler.
#[derive(Default)]
pub struct Serving {
    /// What `/metrics` shows; without it the path does not exist.
    pub metrics: Option<RenderMetrics>,
    /// Notified once requests are accepted.
    pub on_accepting: Option<OnAccepting>,
    /// Who may use the API; everyone who reaches it unless set.
    pub access: Access,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

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
    parts: Parts,
    serving: Serving,
    listener: TcpListener,
    lifecycle: Lifecycle,
) -> Result<(), Error> {
    let address = listener
        .local_addr()
        .map_err(|source| Error::Listener { source })?;
    let (app, loops) = start(parts, &lifecycle);
    tracing::info!(net.address = %address, "scheduler accepts requests");
    if let Some(tell) = serving.on_accepting {
        tell(address);
    }
    let router = router(app.clone(), serving.metrics, serving.access);
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
    let (app, loops) = start(parts, &lifecycle);
    let until_stopped = async move {
        lifecycle.stopping().await;
        loops.end().await;
    };
    (router(app, None, Access::Open), until_stopped)
}
