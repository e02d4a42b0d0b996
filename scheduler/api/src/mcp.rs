//! The Model Context Protocol: published agents as tools, sends as tasks, sessions and runs as resources.
//!
//! The versions with a handshake (up to 2025-11-25) and without (2026-07-28) differ in their envelopes and in how a
//! client is asked something; `peer` knows what a client speaks, everything else is the same. No request depends on
//! what a scheduler remembers of an earlier one: the id of a session of the transport says what the client can do, an
//! event's id where its stream goes on, the id of a question which call it is about.

mod ask;
mod call;
mod held;
mod peer;
mod resources;
mod tasks;
mod tools;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{HeaderName, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::held::Held;
use self::peer::Peer;
use crate::access::Caller;
use crate::extract::json_body;
use crate::faces::rpc::{self, Fault, RpcMessage};
use crate::faces::{base, sent::Sent};
use crate::gate::Admission;
use crate::problem::{Problem, method_not_allowed};
use crate::respond;
use crate::router::Api;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Where it says who lets clients in.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(post, resume))
        .routes(routes!(metadata))
        .routes(routes!(metadata_of_path))
}

/// Tells a client that is not let in where to read how it could be.
pub(crate) fn challenge(base: &str, response: &mut Response) {
    if response.status() != StatusCode::UNAUTHORIZED {
        return;
    }
    let text = format!("Bearer resource_metadata=\"{base}{METADATA}/mcp\"");
    if let Ok(value) = HeaderValue::try_from(text) {
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
    }
}

/// What a request is answered with.
enum Answer {
    Result(Value),
    Stream(Response),
}

impl From<Value> for Answer {
    fn from(result: Value) -> Self {
        Self::Result(result)
    }
}

/// A message of the Model Context Protocol: a request, a notification or an answer
#[utoipa::path(
    post,
    path = "/mcp",
    operation_id = "postMcp",
    request_body = RpcMessage,
    responses((status = 200, body = Value), (status = 202, body = Value))
)]
pub(super) async fn post(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Extension(admission): Extension<Admission>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let whole = json_body(&app, &headers, body, app.config.body_bytes_max).await?;
    let Ok(message) = serde_json::from_slice::<Value>(&whole) else {
        let fault = Fault::new(rpc::PARSE, "the body is not JSON");
        let answer = fault.answer(&Value::Null);
        return Ok(rpc::respond(StatusCode::BAD_REQUEST, &answer));
    };
    drop(whole);
    let id = message["id"].clone();
    let refuse = |status, fault: Fault| Ok(rpc::respond(status, &fault.answer(&id)));
    if !message.is_object() || message["jsonrpc"] != "2.0" {
        let fault = Fault::new(rpc::INVALID_REQUEST, "must be one message of JSON-RPC 2.0");
        return refuse(StatusCode::BAD_REQUEST, fault);
    }
    let peer = match Peer::of(&headers, &message) {
        Ok(peer) => peer,
        Err(fault) => return refuse(StatusCode::BAD_REQUEST, fault),
    };
    let Some(method) = message["method"].as_str() else {
        if id.is_null() || (message["result"].is_null() && message["error"].is_null()) {
            let fault = Fault::new(rpc::INVALID_REQUEST, "has neither a method nor a result");
            return refuse(StatusCode::BAD_REQUEST, fault);
        }
        ask::answered(&app, &caller, &id, &message["result"]).await?;
        return Ok(StatusCode::ACCEPTED.into_response());
    };
    if id.is_null() {
        if method == "notifications/cancelled" {
            call::cancelled(&app, &caller, &peer, &message["params"]["requestId"]).await?;
        }
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    if !(id.is_string() || id.is_number()) {
        let fault = Fault::new(rpc::INVALID_REQUEST, "an id is a text or a number");
        return refuse(StatusCode::BAD_REQUEST, fault);
    }
    let request = Request {
        app: &app,
        caller: &caller,
        peer: &peer,
        id: &id,
        params: &message["params"],
        headers: &headers,
        admission,
    };
    match request.answer(method).await {
        Ok(Answer::Stream(response)) => Ok(response),
        Ok(Answer::Result(result)) => {
            let result = peer.completed(result);
            let mut response = rpc::respond(StatusCode::OK, &rpc::result(&id, &result));
            if method == "initialize"
                && let Ok(value) = HeaderValue::try_from(peer.session_id(&app))
            {
                response.headers_mut().insert(SESSION, value);
            }
            Ok(response)
        }
        Err(fault) => {
            let status = peer.status_of(&fault);
            refuse(status, fault)
        }
    }
}

/// A request, with all that its answer depends on.
struct Request<'a> {
    app: &'a Arc<Api>,
    caller: &'a Caller,
    peer: &'a Peer,
    id: &'a Value,
    params: &'a Value,
    headers: &'a HeaderMap,
    admission: Admission,
}

impl Request<'_> {
    async fn answer(self, method: &str) -> Result<Answer, Fault> {
        let is_modern = self.peer.is_modern;
        match method {
            "initialize" if !is_modern => {
                Ok(Peer::initialized(&self.params["protocolVersion"]).into())
            }
            "server/discover" if is_modern => Ok(Peer::discovered().into()),
            "ping" => Ok(json!({}).into()),
            "tools/list" => tools::list(&self).await.map(Answer::Result),
            "tools/call" => call::call(self).await,
            "tasks/get" => tasks::get(&self).await.map(Answer::Result),
            "tasks/cancel" => tasks::cancel(&self).await.map(Answer::Result),
            "tasks/list" if !is_modern => tasks::list(&self).await.map(Answer::Result),
            "tasks/result" if !is_modern => tasks::result(self).await,
            "tasks/update" if is_modern => tasks::update(&self).await.map(Answer::Result),
            "resources/list" => resources::list(&self).await.map(Answer::Result),
            "resources/templates/list" => Ok(resources::templates().into()),
            "resources/read" => resources::read(&self).await.map(Answer::Result),
            _ => Err(Fault::new(
                rpc::NO_METHOD,
                format!("there is no method {method}"),
            )),
        }
    }

    /// A text in the parameters.
    fn text(&self, name: &str) -> Result<&str, Fault> {
        let text = self.params[name].as_str();
        text.ok_or_else(|| Fault::new(rpc::INVALID_PARAMS, format!("{name} must be a text")))
    }
}

/// The rest of a stream of the Model Context Protocol that broke off, behind the event with the id in `Last-Event-ID`
#[utoipa::path(
    get,
    path = "/mcp",
    operation_id = "resumeMcp",
    responses((status = 200, body = Value))
)]
pub(super) async fn resume(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Extension(admission): Extension<Admission>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let place = headers.get("last-event-id");
    let place = place.and_then(|value| held::Place::read(value.to_str().ok()?));
    let Some(place) = place else {
        // Nothing is said to clients outside the streams of their requests.
        return Err(method_not_allowed().await);
    };
    // Without a handshake nothing is read on.
    let peer = Peer::of(&headers, &json!({})).ok();
    let Some(peer) = peer.filter(|peer| !peer.is_modern) else {
        return Err(method_not_allowed().await);
    };
    let sent = Sent::read(&app, &caller, place.send).await?;
    Ok(Held::new(app, peer, sent, place).stream(admission))
}

/// What clients of the Model Context Protocol are told of keys
#[utoipa::path(
    get,
    path = "/.well-known/oauth-protected-resource",
    operation_id = "getProtectedResource",
    responses((status = 200, body = Value))
)]
pub(super) async fn metadata(
    State(app): State<Arc<Api>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let issuers = app.gatekeeper.issuers();
    let mut shown = json!({
        "resource": format!("{}/mcp", base(&uri, &headers)),
        "resource_name": "Mainspring",
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["read", "use", "answer"],
    });
    if !issuers.is_empty() {
        shown["authorization_servers"] = json!(issuers);
    }
    respond::json(StatusCode::OK, &shown)
}

/// The same, where clients look for it first
#[utoipa::path(
    get,
    path = "/.well-known/oauth-protected-resource/mcp",
    operation_id = "getProtectedResourceOfMcp",
    responses((status = 200, body = Value))
)]
pub(super) async fn metadata_of_path(
    state: State<Arc<Api>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    metadata(state, uri, headers).await
}
