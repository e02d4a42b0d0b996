//! Responses.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::deleting;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::cancel;
use mainspring_shared::error::Code;
use mainspring_shared::message::Role;
use mainspring_shared::store::ListSends;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::{Form, ResponsePath, answer};
use super::body::ResponseBody;
use super::history::Transcript;
use super::items;
use super::pages::{ItemsQuery, Params, page};
use super::stream;
use super::view::Source;
use crate::access::{Caller, refuse_held};
use crate::codes::{
    CallNotFound, IdempotencyMismatch, SendNotCancellable, SendNotFound, SessionBusy, Starts,
    TenantHeld,
};
use crate::extract::{Json, NoQuery, Nothing, Query};
use crate::gate::Admission;
use crate::problem::Problem;
use crate::respond;
use crate::router::Api;

/// How long a cancelled response is waited for.
const CANCELLING: Duration = Duration::from_secs(5);

/// The routes of this module.
pub(super) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(show, remove))
        .routes(routes!(cancel_one))
        .routes(routes!(input_items))
}

/// Answers like OpenAI's Responses API, with a send: at once, at its end, or with its events
#[utoipa::path(
    post,
    path = "/v1/responses",
    operation_id = "createOpenAiResponse",
    request_body = ResponseBody,
    responses((status = 200, body = Value), Starts, CallNotFound, IdempotencyMismatch, SendNotFound)
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    Extension(admission): Extension<Admission>,
    json: Json<ResponseBody>,
) -> Result<Response, Problem> {
    Box::pin(answer(&app, &caller, (Form::Response, json), admission)).await
}

/// How a response is read.
#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "only its description is used")]
pub(super) struct ShowQuery {
    /// Whether to answer with a stream of events, from the first one on.
    stream: Option<bool>,
    /// Only events behind the one with this number.
    starting_after: Option<u64>,
}

/// A response as it is now, or the stream of its events
#[utoipa::path(
    get,
    path = "/v1/responses/{id}",
    operation_id = "getOpenAiResponse",
    params(ShowQuery),
    responses((status = 200, body = Value), SendNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    ResponsePath(source): ResponsePath,
    mut params: Params,
    admission: Option<Extension<Admission>>,
) -> Result<Response, Problem> {
    let streams = params.take("stream", "must be true or false")?;
    let after = params.take("starting_after", "must be a number")?;
    params.end()?;
    if streams == Some(true)
        && let Some(Extension(admission)) = admission
    {
        return Ok(stream::responses(&app, source, after, admission).await);
    }
    let stored = source.heard(&app).await?;
    respond::json(StatusCode::OK, &source.view(&stored))
}

/// Cancels a response
#[utoipa::path(
    post,
    path = "/v1/responses/{id}/cancel",
    operation_id = "cancelOpenAiResponse",
    responses((status = 200, body = Value), SendNotCancellable, SendNotFound)
)]
pub(super) async fn cancel_one(
    State(app): State<Arc<Api>>,
    caller: Caller,
    ResponsePath(source): ResponsePath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    cancel::send(&app, caller.tenant, source.id.send, Some(CANCELLING)).await?;
    let source = Source::read(&app, caller.tenant, source.id).await?;
    let stored = source.heard(&app).await?;
    respond::json(StatusCode::OK, &source.view(&stored))
}

/// Deletes a response with its conversation, if nothing else was said in it
#[utoipa::path(
    delete,
    path = "/v1/responses/{id}",
    operation_id = "deleteOpenAiResponse",
    responses((status = 200, body = Value), SendNotFound, SessionBusy, TenantHeld)
)]
pub(super) async fn remove(
    State(app): State<Arc<Api>>,
    caller: Caller,
    ResponsePath(source): ResponsePath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let key = source.send.key;
    let sends = ListSends {
        tenant: caller.tenant,
        session: Some(key.session),
        status: None,
        before: None,
        limit: 2,
    };
    let others = app.store.list_sends(sends).await?.data.len() > 1;
    let in_conversation = source
        .send
        .options
        .openai
        .as_ref()
        .is_some_and(|note| note.in_conversation);
    if others || in_conversation {
        let detail = format!(
            "the response is part of a conversation, and can only be deleted with it: DELETE /v1/conversations/{}",
            super::ids::conversation(key.session)
        );
        return Err(Error::new(Code::SessionBusy, detail).into());
    }
    refuse_held(&app, key.tenant).await?;
    deleting::delete(&app, app.boot_id()?, key).await?;
    let deleted = json!({ "id": source.id.to_string(), "object": "response", "deleted": true });
    respond::json(StatusCode::OK, &deleted)
}

/// What was said to a response
#[utoipa::path(
    get,
    path = "/v1/responses/{id}/input_items",
    operation_id = "listOpenAiInputItems",
    params(ItemsQuery),
    responses((status = 200, body = Value), SendNotFound)
)]
pub(super) async fn input_items(
    State(app): State<Arc<Api>>,
    ResponsePath(source): ResponsePath,
    params: Params,
) -> Result<Response, Problem> {
    let query = ItemsQuery::read(params)?;
    let all = if source.id.round == 0 {
        vec![items::user(
            source.send.id,
            None,
            source.send.effective_input(),
        )]
    } else {
        answers(&app, &source).await?
    };
    respond::json(StatusCode::OK, &page(all, &query)?)
}

/// The results of the calls that a response continues, and what the user said with them.
async fn answers(app: &Api, source: &Source) -> Result<Vec<Value>, Error> {
    let calls = app
        .store
        .read_round(source.send.key, source.send.id, source.id.round - 1)
        .await?;
    let functions = super::view::functions(&source.agent);
    let calls = calls
        .into_iter()
        .filter(|call| functions.contains(&call.name));
    let shown = calls.filter_map(|call| {
        let result = call.result?;
        Some(items::output(&call.call_id, &result.content))
    });
    let transcript = Transcript::read(app, &source.session).await?;
    let said = transcript.messages.iter().filter(|message| {
        let place = (message.role, message.send_id, message.round);
        place == (Role::User, source.send.id, source.id.round)
    });
    let said =
        said.map(|message| items::user(message.send_id, Some(message.seq), &message.content));
    Ok(shown.chain(said).collect())
}
