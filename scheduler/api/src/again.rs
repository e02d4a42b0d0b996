//! Sends that ended without an answer, tried again.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::Resolver;
use mainspring_shared::agent::SendOptions;
use mainspring_shared::error::Code;
use mainspring_shared::id::SendId;
use mainspring_shared::send::{SendRecord, SendStatus};
use mainspring_shared::store::{AcceptSend, Target};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::deliver::AcceptedSend;
use super::idempotency;
use super::problem::Problem;
use super::sends::accept;
use crate::access::Caller;
use crate::codes::{SendNotFound, SendNotRetryable, Starts};
use crate::extract::{Json, Key, Nothing, Query, SendPath, SendWaitQuery};
use crate::router::Api;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(retry))
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
pub(super) async fn again(
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

/// Whether a send can be tried again by itself.
pub(super) fn admit(send: &SendRecord) -> Result<(), Error> {
    let detail = match (send.status, &send.run, &send.reports_to) {
        (_, Some(_), _) => "a run made this send: retry the run, or its node",
        (_, _, Some(_)) => "another agent waits for this send, and is told how it ended",
        (SendStatus::Failed | SendStatus::Cancelled, None, None) => return Ok(()),
        _ => "only a send that failed or was cancelled can be retried",
    };
    Err(Error::new(Code::SendNotRetryable, detail))
}
