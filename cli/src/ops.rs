//! Endpoints for probes and metrics collectors on a worker, which serves no API.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use mainspring_runtime::{Lifecycle, Metrics};
use mainspring_shared::queue::Queue;
use mainspring_shared::store::{self, ReadOnly, ServerInfo, Store};
use tokio::net::TcpListener;

use crate::failure::{Exit, Failure};

#[derive(Debug)]
struct Process {
    store: Arc<dyn Store>,
    queue: Arc<dyn Queue>,
    metrics: Metrics,
    lifecycle: Lifecycle,
}

/// Serves `/livez`, `/readyz` and `/metrics` until it is dropped, so that a draining worker can
/// still be monitored.
pub(crate) async fn serve(
    listener: TcpListener,
    (store, queue): (Arc<dyn Store>, Arc<dyn Queue>),
    metrics: Metrics,
    lifecycle: Lifecycle,
) -> Result<(), Failure> {
    let process = Arc::new(Process {
        store,
        queue,
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
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    match process.store.check().await.and_then(ServerInfo::writable) {
        Ok(_) => (StatusCode::OK, process.said()),
        Err(error) => {
            tracing::debug!(%error, "not ready");
            let why = match &error {
                store::Error::Unavailable { source } if source.is::<ReadOnly>() => {
                    format!("{source}\n")
                }
                _ => "the database is unavailable\n".to_owned(),
            };
            (StatusCode::SERVICE_UNAVAILABLE, why)
        }
    }
}

impl Process {
    /// `ok`, and what works only in part.
    fn said(&self) -> String {
        let trouble = self.queue.trouble();
        trouble.map_or_else(
            || "ok\n".to_owned(),
            |trouble| format!("ok\n{trouble}; polling the database meanwhile\n"),
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
