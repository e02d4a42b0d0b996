//! Sends that ended without an answer, tried again, and many sends acted on at once.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::submit;
use mainspring_scheduler::services::agents::Resolver;
use mainspring_scheduler::services::{blobs, cancel, recovery};
use mainspring_shared::agent::SendOptions;
use mainspring_shared::error::Code;
use mainspring_shared::id::SendId;
use mainspring_shared::send::{SendRecord, SendStatus, WaitingOn};
use mainspring_shared::store::{AcceptSend, Target};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::deliver::AcceptedSend;
use super::idempotency;
use super::problem::Problem;
use super::sends::{SendsQuery, accept};
use crate::access::Caller;
use crate::access::reach::Inside;
use crate::acts::{self, ActedShape};
use crate::codes::{SendNotFound, SendNotRetryable, Starts};
use crate::extract::{Json, Key, Nothing, Query, SendPath, SendWaitQuery};
use crate::router::Api;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(retry))
        .routes(routes!(retry_many))
        .routes(routes!(cancel_many))
        .routes(routes!(resume_many))
}

/// Sends the same once more to the same session, if it failed or was cancelled
///
/// The transcript keeps what the first one did, so that the model sees which calls were made. Without an
/// `Idempotency-Key` a repeated request gets the send that the first one created, for two days.
#[utoipa::path(
    post,
    path = "/v1/sends/{id}/retry",
    operation_id = "retrySend",
    params(SendWaitQuery, Key),
    responses((status = 200, body = AcceptedSend), (status = 202, body = AcceptedSend), Starts, SendNotFound, SendNotRetryable)
)]
pub(super) async fn retry(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SendPath(tenant, id): SendPath,
    Query(query): Query<SendWaitQuery>,
    headers: HeaderMap,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let wait = query.within(app.config.wait_max);
    let found = app.store.get_sends(vec![(tenant, id)]).await?.pop();
    let before = found.flatten().ok_or_else(Error::send_not_found)?;
    let given = idempotency::header(&headers)?;
    let item = again(&app, &caller, before, given).await?;
    accept(&app, item, (), wait, caller.limited_sends()).await
}

/// The same as a send of its own.
async fn again(
    app: &App,
    caller: &Caller,
    before: SendRecord,
    given: Option<&str>,
) -> Result<AcceptSend, Error> {
    admit(&before)?;
    let route = format!("POST /v1/sends/{}/retry", before.id);
    let given = given.unwrap_or("once");
    let key = Some(idempotency::key(caller, &route, given, [0; 32]));
    let options = SendOptions {
        delay: None,
        fired_by: None,
        ended_run: None,
        openai: None,
        ..before.options
    };
    let agents = Resolver::new(app, caller.tenant, caller.allowed());
    let admitted = agents.admit_prices(&options, (before.key, None), key.as_ref());
    admitted.await?;
    Ok(AcceptSend {
        id: SendId(app.entropy.ordered_id()),
        target: Target::Existing(before.key),
        input: before.input,
        options,
        reports_to: None,
        run: None,
        idempotency: key,
        queued_max: app.config.queued_max,
        keeper: None,
    })
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
async fn retry_many(
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
async fn cancel_many(
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
async fn resume_many(
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
    acts::refuse_all(query.is_filtered())?;
    let inside = Inside::of(app, caller);
    let read = async |before, limit| query.read(&inside, before, limit).await;
    acts::on(app, query.begin(), read, |send| send.id, fits, act).await
}

/// Whether a send can be tried again by itself.
fn admit(send: &SendRecord) -> Result<(), Error> {
    let detail = match (send.status, &send.run, &send.reports_to) {
        (_, Some(_), _) => "a run made this send: retry the run, or its node",
        (_, _, Some(_)) => "another agent waits for this send, and is told how it ended",
        (SendStatus::Failed | SendStatus::Cancelled, None, None) => return Ok(()),
        _ => "only a send that failed or was cancelled can be retried",
    };
    Err(Error::new(Code::SendNotRetryable, detail))
}
