//! Sends cancelled, resumed and sent again.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::submit;
use mainspring_scheduler::services::{blobs, cancel, recovery};
use mainspring_shared::send::{SendRecord, WaitingOn};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ActedShape, on, refuse_all};
use crate::access::Caller;
use crate::again::{admit, again};
use crate::extract::{Json, Nothing, Query};
use crate::problem::Problem;
use crate::router::Api;
use crate::sends::SendsQuery;

/// The routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(retry))
        .routes(routes!(cancel_all))
        .routes(routes!(resume))
}

/// Sends again what a list of sends with the same parameters shows, of those that failed or were cancelled
///
/// Each in a step of its own, up to `limit` of them, and once: a send that was sent again within two days is not sent again. Without
/// a filter nothing is.
#[utoipa::path(
    post,
    path = "/v1/sends:retry",
    operation_id = "retrySends",
    params(SendsQuery),
    responses((status = 200, body = ActedShape))
)]
async fn retry(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<SendsQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let act = async |send: SendRecord| {
        let mut item = again(&app, &caller, send, None).await?;
        blobs::prepare_send(&app, &mut item, "").await?;
        let limited = caller.limited_sends();
        submit(&app, item, (), None, limited).await.map(drop)
    };
    act_on(&app, &caller, &query, |send| admit(send).is_ok(), act).await
}

/// Cancels the sends that a list with the same parameters shows, of those that have not ended
///
/// Each in a step of its own, up to `limit` of them: at once, or at its worker's next safe point. Without a filter nothing is
/// cancelled.
#[utoipa::path(
    post,
    path = "/v1/sends:cancel",
    operation_id = "cancelSends",
    params(SendsQuery),
    responses((status = 200, body = ActedShape))
)]
async fn cancel_all(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<SendsQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let act = async |send: SendRecord| {
        let (tenant, id) = (send.key.tenant, send.id);
        cancel::send(&app, tenant, id, None).await.map(drop)
    };
    let fits = |send: &SendRecord| !send.status.is_final();
    act_on(&app, &caller, &query, fits, act).await
}

/// Resumes the sends that a list with the same parameters shows, of those that wait for recovery
///
/// Each in a step of its own, up to `limit` of them. Without a filter nothing is resumed.
#[utoipa::path(
    post,
    path = "/v1/sends:resume",
    operation_id = "resumeSends",
    params(SendsQuery),
    responses((status = 200, body = ActedShape))
)]
async fn resume(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<SendsQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let act = async |send: SendRecord| recovery::resume(&app, send.key).await.map(drop);
    let fits = |send: &SendRecord| send.waiting_on == Some(WaitingOn::Recovery);
    act_on(&app, &caller, &query, fits, act).await
}

async fn act_on<A: Future<Output = Result<(), Error>>>(
    app: &Api,
    caller: &Caller,
    query: &SendsQuery,
    fits: impl Fn(&SendRecord) -> bool,
    act: impl Fn(SendRecord) -> A,
) -> Result<Response, Problem> {
    refuse_all(query.is_filtered())?;
    let inside = query.inside(app, caller);
    let read = async |before, limit| query.read(&inside, before, limit).await;
    on(app, query.begin(), read, |send| send.id, fits, act).await
}
