//! Runs cancelled and retried.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use mainspring_scheduler::services::runs;
use mainspring_shared::workflow::run::{RunAsk, RunRecord, RunStatus};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ActedShape, on, refuse_all};
use crate::access::Caller;
use crate::access::reach::Inside;
use crate::extract::{Json, Nothing, Query};
use crate::problem::Problem;
use crate::router::Api;
use crate::runs::RunsQuery;

/// The routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(cancel))
        .routes(routes!(retry))
}

/// Cancels the runs that a list with the same parameters shows, of those that have not ended
///
/// Each in a step of its own, up to `limit` of them. Without a filter nothing is cancelled.
#[utoipa::path(
    post,
    path = "/v1/runs:cancel",
    operation_id = "cancelRuns",
    params(RunsQuery),
    responses((status = 200, body = ActedShape))
)]
async fn cancel(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<RunsQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let ask = |_: &RunRecord| RunAsk::Cancel { reason: None };
    act_on(&app, &caller, &query, |status| !status.is_final(), ask).await
}

/// Retries the runs that a list with the same parameters shows, of those that failed or were cancelled
///
/// Each in a step of its own, up to `limit` of them. Without a filter nothing is retried.
#[utoipa::path(
    post,
    path = "/v1/runs:retry",
    operation_id = "retryRuns",
    params(RunsQuery),
    responses((status = 200, body = ActedShape))
)]
async fn retry(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<RunsQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let ask = |_: &RunRecord| RunAsk::Retry { max_tokens: None };
    let fits = |status| matches!(status, RunStatus::Failed | RunStatus::Cancelled);
    act_on(&app, &caller, &query, fits, ask).await
}

async fn act_on(
    app: &Api,
    caller: &Caller,
    query: &RunsQuery,
    fits: impl Fn(RunStatus) -> bool,
    ask: impl Fn(&RunRecord) -> RunAsk,
) -> Result<Response, Problem> {
    refuse_all(query.is_filtered())?;
    let inside = Inside::of(app, caller);
    let read = async |before, limit| query.read(&inside, before, limit).await;
    let act = async |run: RunRecord| runs::ask(app, run.key, ask(&run), None).await.map(drop);
    let place = |run: &RunRecord| run.key.run;
    on(app, query.begin(), read, place, |run| fits(run.status), act).await
}
