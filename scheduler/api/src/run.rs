//! Runs one scheduler and its API, from start to stop.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use mainspring_runtime::Lifecycle;
use mainspring_scheduler::{Parts, start};
use mainspring_shared::time::Clock;
use tokio::net::TcpListener;

use crate::access::Access;
use crate::browsers;
use crate::connections::{self, ConnectionLimits};
use crate::documents::Documents;
use crate::router::router;

/// Renders the process's metrics in the Prometheus text format.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// Called once with the address when requests can be answered.
pub type OnAccepting = Box<dyn FnOnce(SocketAddr) + Send>;

/// What the API needs besides the scheduler.
#[derive(Default)]
pub struct Serving {
    /// Renders the content of `/metrics`; if absent, the path does not exist.
    pub metrics: Option<RenderMetrics>,
    /// Renders the pages below `/docs/`; if absent, the path does not exist.
    pub documents: Option<Documents>,
    /// Called once requests are accepted.
    pub on_accepting: Option<OnAccepting>,
    /// Who may use the API; by default, everyone who can reach it.
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

/// Serves the API on `listener` and runs the background loops until `lifecycle` stops. Then no new
/// connections are accepted, requests in flight are answered with what is known, and streams end so
/// that their readers can continue elsewhere. A hard stop drops what is left.
///
/// An unavailable database or queue is waited for, even at startup. In the meantime, `/readyz` and
/// every request that needs it report that it is unavailable. A crash at any moment loses nothing
/// that was acknowledged: it is in the database, where other processes find it.
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
    let Serving {
        metrics,
        documents,
        access,
        ..
    } = serving;
    let router = router(app.clone(), metrics, documents, access);
    let (limits, clock) = (ConnectionLimits::of(&app.config), app.clock.as_ref());
    let server = connections::serve(listener, router, limits, clock, &lifecycle);
    tokio::select! {
        biased;
        () = lifecycle.aborting() => {}
        // Serving ends only at the stop. Failures to accept are retried.
        () = server => {}
    }
    loops.end().await;
    Ok(())
}

/// Like `run`, but without a listener: the caller passes requests to the router within this
/// process. The loops run until `lifecycle` stops and the returned future has ended. Dropping the
/// future ends them at once.
pub fn embedded(parts: Parts, lifecycle: Lifecycle) -> (Router, impl Future<Output = ()> + Send) {
    let (app, loops) = start(parts, &lifecycle);
    let until_stopped = async move {
        lifecycle.stopping().await;
        loops.end().await;
    };
    (router(app, None, None, Access::Open), until_stopped)
}

/// How long a probe's or a collector's connection may be idle, and how long it may read nothing.
const PROBE_TIMEOUT: Duration = Duration::from_secs(75);
const PROBE_WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many connections of probes and collectors there may be, and the size of their heads.
const PROBES_MAX: usize = 64;
const PROBE_HEAD_BYTES_MAX: usize = 16 << 10;

/// Serves the few paths of a process without an API, with the same protections as the API:
/// connections are limited in number and time, and foreign web pages are turned away. Runs until it
/// is dropped.
pub async fn serve_probes(listener: TcpListener, router: Router, clock: &dyn Clock) {
    let limits = ConnectionLimits {
        connections: PROBES_MAX,
        head: PROBE_TIMEOUT,
        head_bytes: PROBE_HEAD_BYTES_MAX,
        write: PROBE_WRITE_TIMEOUT,
    };
    let router = router.layer(from_fn(browsers::turn_away));
    connections::serve(listener, router, limits, clock, &Lifecycle::new()).await;
}
