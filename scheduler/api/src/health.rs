//! Endpoints for probes and operators about one process.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::error::Error;
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::{self, Problem};
use super::respond;
use crate::access::Caller;
use crate::extract::{NoQuery, Query};
use crate::router::Api;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(info))
        .routes(routes!(live))
        .routes(routes!(ready))
        .routes(routes!(metrics))
}

/// The process runs
#[utoipa::path(
    get,
    path = "/livez",
    operation_id = "getLive",
    responses((status = 200, body = String))
)]
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// Requests can be served
// The answer is `ok`, and in further lines what works only in part.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "getReady",
    responses((status = 200, body = String))
)]
pub(super) async fn ready(State(app): State<Arc<Api>>) -> Result<String, Problem> {
    if app.process.lifecycle.is_stopping() {
        return Err(Error::stopping().into());
    }
    app.store.check().await?.writable()?;
    app.boot_id()?;
    let trouble = app.notifier.queue.trouble();
    let lines = [
        Some("ok\n".to_owned()),
        trouble.map(|trouble| format!("{trouble}; workers poll the database meanwhile\n")),
        app.store.went_back().map(|told| format!("{told}\n")),
    ];
    Ok(lines.into_iter().flatten().collect())
}

/// Figures in the Prometheus text format
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "getMetrics",
    responses((status = 200, body = String))
)]
pub(super) async fn metrics(State(app): State<Arc<Api>>) -> Response {
    match &app.metrics {
        Some(render) => {
            let headers = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
            (headers, render()).into_response()
        }
        None => problem::nothing_here().await.into_response(),
    }
}

/// Versions of this server and its database, and who asks
#[utoipa::path(
    get,
    path = "/v1/info",
    operation_id = "getInfo",
    responses((status = 200, body = serde_json::Value))
)]
pub(super) async fn info(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let server = app.store.check().await?;
    let mut info = json!({
        "name": "mainspring",
        "version": env!("CARGO_PKG_VERSION"),
        "scheduler": { "name": app.config.name, "boot_id": app.process.registration.id() },
        "store": { "server": server.server, "schema": server.schema },
        "queue": {
            "available": app.notifier.queue.is_available(),
            "trouble": app.notifier.queue.trouble(),
        },
        "bus": { "available": app.bus().is_available() },
        "now": server.now,
        "caller": {
            "tenant_id": caller.tenant.to_string(),
            "operates": caller.operates,
            "scopes": caller.scopes,
            "bound": caller.binding().is_some(),
        },
    });
    if let Some(key) = caller.key_id() {
        info["caller"]["key_id"] = json!(key);
    }
    respond::json(StatusCode::OK, &info)
}
