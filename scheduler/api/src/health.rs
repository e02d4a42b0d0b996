//! What probes and operators ask of one process.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::problem::{self, Problem};
use super::respond;
use crate::extract::{NoQuery, Query};
use crate::router::Api;
use mainspring_scheduler::error::Error;

/// `GET /livez`: the process runs.
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: requests can be served.
pub(super) async fn ready(State(app): State<Arc<Api>>) -> Result<&'static str, Problem> {
    if app.lifecycle.is_stopping() {
        return Err(Error::stopping().into());
    }
    app.store.check().await?;
    app.boot_id()?;
    Ok("ok\n")
}

/// `GET /metrics`, in the Prometheus text format.
pub(super) async fn metrics(State(app): State<Arc<Api>>) -> Response {
    match &app.metrics {
        Some(render) => {
            let headers = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
            (headers, render()).into_response()
        }
        None => problem::nothing_here().await.into_response(),
    }
}

/// `GET /v1/info`
pub(super) async fn info(
    State(app): State<Arc<Api>>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let server = app.store.check().await?;
    let info = json!({
        "name": "mainspring",
        "version": env!("CARGO_PKG_VERSION"),
        "scheduler": { "name": app.config.name, "boot_id": app.registration.id() },
        "store": { "server": server.server, "schema": server.schema },
        "queue": { "available": app.notifier.queue.is_available() },
        "bus": { "available": app.bus.is_available() },
        "now": server.now,
    });
    respond::json(StatusCode::OK, &info)
}
