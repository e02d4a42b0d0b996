//! Endpoints for probes and metrics collectors on a worker, which serves no API.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use mainspring_runtime::{Lifecycle, Metrics};
use mainspring_shared::queue::Queue;
use mainspring_shared::store::{self, ReadOnly, ServerInfo, Store};
use mainspring_shared::time::Clock;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use crate::failure::Failure;

#[derive(Debug)]
struct Process {
    store: Arc<dyn Store>,
    queue: Arc<dyn Queue>,
    metrics: Metrics,
    lifecycle: Lifecycle,
    clock: Arc<dyn Clock>,
    /// When the database was last asked, and what it said. Held while it is being asked, so that
    /// any number of probes make one question.
    checked: Mutex<Option<(Duration, Result<(), String>)>>,
}

/// How long the database's answer to a probe counts.
const CHECKED_FOR: Duration = Duration::from_secs(1);

impl Process {
    /// Why it is not ready, if it is not.
    async fn readiness(&self) -> Result<(), String> {
        let mut checked = self.checked.lock().await;
        let now = self.clock.monotonic();
        if let Some((at, answer)) = &*checked
            && now.saturating_sub(*at) < CHECKED_FOR
        {
            return answer.clone();
        }
        let answer = self.store.check().await.and_then(ServerInfo::writable);
        let answer = answer.map(|_| ()).map_err(|error| {
            tracing::debug!(%error, "not ready");
            match &error {
                store::Error::Unavailable { source } if source.is::<ReadOnly>() => {
                    format!("{source}\n")
                }
                _ => "the database is unavailable\n".to_owned(),
            }
        });
        *checked = Some((self.clock.monotonic(), answer.clone()));
        answer
    }
}

/// Serves `/livez`, `/readyz` and `/metrics` until it is dropped, so that a draining worker can
/// still be monitored.
pub(crate) async fn serve(
    listener: TcpListener,
    (store, queue): (Arc<dyn Store>, Arc<dyn Queue>),
    metrics: Metrics,
    lifecycle: Lifecycle,
    clock: Arc<dyn Clock>,
) -> Result<(), Failure> {
    let process = Arc::new(Process {
        store,
        queue,
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
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    match process.readiness().await {
        Ok(()) => (StatusCode::OK, process.said()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

impl Process {
    /// `ok`, and what works only in part.
    fn said(&self) -> String {
        let trouble = self.queue.trouble();
        let lines = [
            Some("ok\n".to_owned()),
            trouble.map(|trouble| format!("{trouble}; polling the database meanwhile\n")),
            self.store.went_back().map(|told| format!("{told}\n")),
        ];
        lines.into_iter().flatten().collect()
    }
}

async fn metrics_text(State(process): State<Arc<Process>>) -> impl IntoResponse {
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (kind, process.metrics.render())
}
