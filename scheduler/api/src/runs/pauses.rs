//! Runs that start nothing more until they are resumed.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::services::runs;
use mainspring_shared::id::RunKey;
use mainspring_shared::workflow::run::RunAsk;
use mainspring_shared::workflow::view::RunView;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{RunPath, answer, asked, conflict};
use crate::codes::{RunNotFound, WorkflowNotResumable};
use crate::extract::{Json, NoQuery, Nothing, Query};
use crate::problem::Problem;
use crate::router::Api;

/// The routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(pause))
        .routes(routes!(resume))
}

/// Lets a run start no leaf until it is resumed
///
/// Leaves in flight go on to their end, and all times go on: those of nodes that wait, and the limits of the run. It can
/// be cancelled. A run that is paused stays so since then.
#[utoipa::path(
    post,
    path = "/v1/runs/{id}/pause",
    operation_id = "pauseRun",
    responses((status = 200, body = RunView), (status = 202, body = RunView), RunNotFound, WorkflowNotResumable)
)]
async fn pause(
    State(app): State<Arc<Api>>,
    RunPath(key): RunPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let at = app.clock.now();
    set(&app, key, RunAsk::Pause { at }).await
}

/// Lets a run go on after a pause
#[utoipa::path(
    post,
    path = "/v1/runs/{id}/resume",
    operation_id = "resumeRun",
    responses((status = 200, body = RunView), (status = 202, body = RunView), RunNotFound, WorkflowNotResumable)
)]
async fn resume(
    State(app): State<Arc<Api>>,
    RunPath(key): RunPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    set(&app, key, RunAsk::Resume).await
}

/// Asks the run's owner for it: 202, or 200 if nothing is left to do.
async fn set(app: &App, key: RunKey, ask: RunAsk) -> Result<Response, Problem> {
    let record = runs::read(app, key).await?;
    if record.status.is_final() {
        return Err(conflict(&record, "starts nothing more").into());
    }
    let is_paused = record.options.paused_at.is_some();
    if is_paused == matches!(ask, RunAsk::Pause { .. }) {
        return answer(StatusCode::OK, record);
    }
    asked(app, key, ask, None).await
}
