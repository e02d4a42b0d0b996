//! Previews of a session's next model call.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::services::agents::{OptionsAsk, Resolver};
use mainspring_scheduler::services::preview::{PreviewOf, preview};
use mainspring_shared::message::ContentPart;
use mainspring_shared::session::preview::Preview;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::bodies::{Options, object};
use super::input::{Input, input_schema};
use super::problem::Problem;
use super::respond;
use super::validate::Checks;
use crate::access::Caller;
use crate::codes::{AgentNotFound, SessionNotFound};
use crate::extract::{Json, JsonBody, NoQuery, Query, SessionPath, text};
use crate::router::Api;

/// What else to show.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ContextQuery {
    /// Adds the request as its provider would get it.
    #[serde(default, deserialize_with = "text")]
    #[param(default = false)]
    request: Option<bool>,
}

/// A hypothetical send.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ContextBody {
    /// What it would say: a text, or parts.
    #[schema(schema_with = input_schema)]
    input: Input,
    /// Its options.
    #[serde(default, deserialize_with = "object")]
    options: Option<Options>,
    /// Adds the request as its provider would get it.
    #[serde(default)]
    request: bool,
}

impl JsonBody for ContextBody {
    type Checked = (Vec<ContentPart>, OptionsAsk, bool);

    fn checked(self, checks: &mut Checks) -> Self::Checked {
        checks.input(&self.input);
        (self.input.0, checks.options(self.options), self.request)
    }
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(show, imagine))
}

/// The request of a session's next model call: that of its first send that is not final, else everything before the
/// next input
///
/// A worker of the session's pool renders it, without taking the session; 503 when none answers.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/context",
    operation_id = "getSessionContext",
    params(ContextQuery),
    responses((status = 200, body = Preview), SessionNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    Query(query): Query<ContextQuery>,
) -> Result<Response, Problem> {
    let of = PreviewOf {
        imagined: None,
        with_request: query.request.unwrap_or_default(),
    };
    respond::json(StatusCode::OK, &preview(&app, key, of).await?)
}

/// The model request of a send with this input, without sending it
///
/// The first round of the same send, if nothing happens before it, has the same digest.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/context",
    operation_id = "previewSessionContext",
    request_body = ContextBody,
    responses((status = 200, body = Preview), AgentNotFound, SessionNotFound)
)]
pub(super) async fn imagine(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
    Json {
        value: (input, ask, with_request),
        ..
    }: Json<ContextBody>,
) -> Result<Response, Problem> {
    let mut agents = Resolver::new(&app, key.tenant, caller.allowed());
    let options = agents.options_inside(ask, key, None).await?;
    let of = PreviewOf {
        imagined: Some((input, options)),
        with_request,
    };
    respond::json(StatusCode::OK, &preview(&app, key, of).await?)
}
