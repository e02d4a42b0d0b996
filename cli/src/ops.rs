//! Endpoints for probes and metrics collectors on a worker, which serves no API.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use mainspring_runtime::{Lifecycle, Metrics};
use mainspring_shared::store::Store;
use tokio::net::TcpListener;

use crate::failure::{Exit, Failure};

#[derive(Debug)]
struct Process {
    store: Arc<dyn Store>,
    metrics: Metrics,
    lifecycle: Lifecycle,
}

/// Serves `/livez`, `/readyz` and `/metrics` until it is dropped, so that a draining worker can
/// still be monitored.
pub(crate) async fn serve(
    listener: TcpListener,
    store: Arc<dyn Store>,
    metrics: Metrics,
    lifecycle: Lifecycle,
) -> Result<(), Failure> {
    let process = Arc::new(Process {
        store,
        metrics,
        lifecycle,
    });
    let router = Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_text))
        .with_state(process);
    axum::serve(listener, router)
        .await
        .map_err(|error| Failure::new(Exit::Failure, format!("ops_listen: {error}")))
}

async fn ready(State(process): State<Arc<Process>>) -> impl IntoResponse {
    if process.lifecycle.is_stopping() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    match process.store.check().await {
        Ok(_) => (StatusCode::OK, "ok\n"),
        Err(error) => {
            tracing::debug!(%error, "not ready");
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "the database is unavailable\n",
            )
        }
    }
}

async fn metrics_text(State(process): State<Arc<Process>>) -> impl IntoResponse {
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (kind, process.metrics.render())
}
