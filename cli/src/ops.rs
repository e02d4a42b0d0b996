//! Endpoints for probes and metrics collectors on a worker, which serves no API.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use mainspring_runtime::{Lifecycle, Metrics};
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use crate::failure::Failure;

#[derive(Debug)]
struct Process {
    store: Arc<dyn Store>,
    metrics: Metrics,
    lifecycle: Lifecycle,
    clock: Arc<dyn Clock>,
    /// When the database was last asked, and what it said. Held while it is being asked, so that
    /// any number of probes make one question.
    checked: Mutex<Option<(Duration, bool)>>,
}

/// How long the database's answer to a probe counts.
const CHECKED_FOR: Duration = Duration::from_secs(1);

impl Process {
    async fn is_ready(&self) -> bool {
        let mut checked = self.checked.lock().await;
        let now = self.clock.monotonic();
        if let Some((at, was_ready)) = *checked
            && now.saturating_sub(at) < CHECKED_FOR
        {
            return was_ready;
        }
        let answer = self.store.check().await;
        if let Err(error) = &answer {
            tracing::debug!(%error, "not ready");
        }
        *checked = Some((self.clock.monotonic(), answer.is_ok()));
        answer.is_ok()
    }
}

/// Serves `/livez`, `/readyz` and `/metrics` until it is dropped, so that a draining worker can
/// still be monitored.
pub(crate) async fn serve(
    listener: TcpListener,
    store: Arc<dyn Store>,
    metrics: Metrics,
    lifecycle: Lifecycle,
    clock: Arc<dyn Clock>,
) -> Result<(), Failure> {
    let process = Arc::new(Process {
        store,
        metrics,
        lifecycle,
        clock: clock.clone(),
        checked: Mutex::new(None),
    });
    let router = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_text))
        .with_state(process);
    mainspring_api::serve_probes(listener, router, clock.as_ref()).await;
    Ok(())
}

async fn ready(State(process): State<Arc<Process>>) -> impl IntoResponse {
    if process.lifecycle.is_stopping() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    if process.is_ready().await {
        (StatusCode::OK, "ok\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the database is unavailable\n",
        )
    }
}

async fn metrics_text(State(process): State<Arc<Process>>) -> impl IntoResponse {
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (kind, process.metrics.render())
}
