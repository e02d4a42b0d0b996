//! The Agent2Agent protocol, 1.0: a published agent is an agent with a card, a send a task, a session a context.
//!
//! Both bindings, JSON-RPC and HTTP with JSON, are forms of the same operations. Each agent has its own address, below
//! which is its card.

mod card;
mod fault;
mod say;
mod stream;
mod tasks;
mod view;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::Resolver;
use mainspring_shared::agent::{AgentQuery, AgentVersion};
use mainspring_shared::error::Code;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::fault::Refusal;
use self::stream::Form;
use crate::access::Caller;
use crate::codes::{AgentNotFound, Starts};
use crate::extract::json_body;
use crate::faces::base;
use crate::faces::rpc::{self, Fault, RpcMessage};
use crate::gate::Admission;
use crate::problem::Problem;
use crate::respond;
use crate::router::Api;

/// The version that is spoken.
const VERSION: &str = "1.0";

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(card))
        .routes(routes!(extended))
        .routes(routes!(post))
        .routes(routes!(send))
        .routes(routes!(stream))
        .routes(routes!(list))
        .routes(routes!(show, act))
        .routes(routes!(list_configs, create_config))
        .routes(routes!(show_config, delete_config))
}

/// The agent that a request is for, and who makes it.
pub(super) struct Door {
    app: Arc<Api>,
    caller: Caller,
    agent: AgentQuery,
    base: String,
    /// The version that the client speaks.
    version: Option<String>,
}

impl FromRequestParts<Arc<Api>> for Door {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Api>) -> Result<Self, Problem> {
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, app).await;
        let named = path.map(|Path(pairs)| pairs).unwrap_or_default();
        let named = named.into_iter().find(|(name, _)| name == "agent");
        let agent = named.and_then(|(_, text)| text.parse().ok());
        let agent = agent
            .ok_or_else(|| Error::new(Code::AgentNotFound, "no published agent has this name"))?;
        let caller = Caller::from_request_parts(parts, app).await?;
        let asked = parts.uri.query().unwrap_or_default().split('&');
        let mut asked = asked.filter_map(|pair| pair.strip_prefix("A2A-Version="));
        let header = parts.headers.get("a2a-version");
        let header = header.and_then(|value| value.to_str().ok());
        Ok(Self {
            caller,
            app: app.clone(),
            agent,
            base: base(&parts.uri, &parts.headers),
            version: header.or(asked.next_back()).map(str::to_owned),
        })
    }
}

impl Door {
    /// The agent, unless the client speaks another version. What says none speaks an older one.
    async fn enter(&self) -> Result<AgentVersion, Refusal> {
        let version = self.version.as_deref().unwrap_or("0.3");
        if version.trim() != VERSION {
            let detail = format!(
                "this agent speaks A2A {VERSION}, and not {version}; A2A-Version says which"
            );
            return Err(Refusal::of(fault::VERSION_NOT_SUPPORTED, detail));
        }
        self.found().await
    }

    async fn found(&self) -> Result<AgentVersion, Refusal> {
        let binding = self.caller.binding();
        if binding.is_some_and(|binding| !binding.has_agent(&self.agent.name)) {
            return Err(crate::agents::not_found().into());
        }
        let mut agents = Resolver::new(&self.app, self.caller.tenant, self.caller.allowed());
        Ok(agents.find(&self.agent).await?)
    }
}

/// The card of a published agent
#[utoipa::path(
    get,
    path = "/a2a/{agent}/.well-known/agent-card.json",
    operation_id = "getA2aCard",
    responses((status = 200, body = Value), AgentNotFound)
)]
pub(super) async fn card(door: Door) -> Result<Response, Problem> {
    match door.found().await {
        Ok(agent) => respond::json(StatusCode::OK, &card::of(&door, &agent)),
        Err(refusal) => Ok(refusal.into_response()),
    }
}

/// Refused: an agent has no other card than the one that everyone sees who may see it
#[utoipa::path(
    get,
    path = "/a2a/{agent}/extendedAgentCard",
    operation_id = "getA2aExtendedCard",
    responses((status = 200, body = Value), AgentNotFound)
)]
pub(super) async fn extended(_: Door) -> Response {
    Refusal::of(fault::NO_EXTENDED_CARD, "there is no extended card").into_response()
}

/// A request of the Agent2Agent protocol, as JSON-RPC
#[utoipa::path(
    post,
    path = "/a2a/{agent}",
    operation_id = "postA2a",
    request_body = RpcMessage,
    responses((status = 200, body = Value), Starts)
)]
pub(super) async fn post(
    door: Door,
    Extension(admission): Extension<Admission>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let message = match json(&door, &headers, body).await? {
        Ok(message) => message,
        Err(refusal) => return Ok(refusal.answer(&Value::Null)),
    };
    let id = &message["id"];
    if message["jsonrpc"] != "2.0" || !(id.is_string() || id.is_number()) {
        let fault = Fault::new(rpc::INVALID_REQUEST, "must be one request of JSON-RPC 2.0");
        return Ok(Refusal::from(fault).answer(&Value::Null));
    }
    let params = &message["params"];
    let done = async {
        door.enter().await?;
        let method = message["method"].as_str().unwrap_or_default();
        let result = match method {
            "SendMessage" => json!({ "task": Box::pin(say::and_wait(&door, params)).await? }),
            "SendStreamingMessage" => {
                let sent = say::say(&door, params).await?;
                return stream::answer(&door, sent, Form::Rpc(id.clone()), admission).await;
            }
            "GetTask" => tasks::get(&door, text(params, "id")?, params).await?,
            "ListTasks" => tasks::list(&door, params).await?,
            "CancelTask" => tasks::cancel(&door, text(params, "id")?).await?,
            "SubscribeToTask" => {
                let sent = tasks::open(&door, text(params, "id")?).await?;
                return stream::answer(&door, sent, Form::Rpc(id.clone()), admission).await;
            }
            "CreateTaskPushNotificationConfig"
            | "GetTaskPushNotificationConfig"
            | "ListTaskPushNotificationConfigs"
            | "DeleteTaskPushNotificationConfig" => return Err(no_push()),
            "GetExtendedAgentCard" => {
                return Err(Refusal::of(
                    fault::NO_EXTENDED_CARD,
                    "there is no extended card",
                ));
            }
            _ => {
                return Err(Refusal::of(
                    rpc::NO_METHOD,
                    format!("there is no method {method}"),
                ));
            }
        };
        Ok(rpc::respond(StatusCode::OK, &rpc::result(id, &result)))
    };
    let done: Result<Response, Refusal> = Box::pin(done).await;
    Ok(done.unwrap_or_else(|refusal| refusal.answer(id)))
}

/// A text in the parameters.
fn text<'a>(params: &'a Value, name: &str) -> Result<&'a str, Refusal> {
    let text = params[name].as_str();
    text.ok_or_else(|| Refusal::of(rpc::INVALID_PARAMS, format!("{name} must be a text")))
}

fn no_push() -> Refusal {
    let detail =
        "push notifications are not supported: webhooks of the tenant tell of the ends of sends";
    Refusal::of(fault::NO_PUSH, detail)
}

/// The body of a request.
async fn json(
    door: &Door,
    headers: &HeaderMap,
    body: Body,
) -> Result<Result<Value, Refusal>, Problem> {
    let whole = json_body(&door.app, headers, body, door.app.config.body_bytes_max).await?;
    let read = serde_json::from_slice(&whole);
    Ok(read.map_err(|_| Refusal::of(rpc::PARSE, "the body is not JSON")))
}

/// The same in the other binding.
fn answered(result: Result<Value, Refusal>) -> Response {
    match result {
        Ok(value) => {
            let mut response = rpc::respond(StatusCode::OK, &value);
            fault::mark(&mut response);
            response
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Says something to an agent: in a new task, or in one that waits or works; waits for the end, or for a question
#[utoipa::path(
    post,
    path = "/a2a/{agent}/message:send",
    operation_id = "sendA2aMessage",
    request_body = A2aBody,
    responses((status = 200, body = Value), Starts)
)]
pub(super) async fn send(door: Door, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let params = json(&door, &headers, body).await?;
    let done = async {
        let params = params?;
        door.enter().await?;
        Ok(json!({ "task": Box::pin(say::and_wait(&door, &params)).await? }))
    };
    Ok(answered(done.await))
}

/// What is said.
#[derive(Debug, utoipa::ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct A2aBody {
    /// A message of the protocol.
    #[schema(value_type = Object)]
    message: Value,
    /// How it is answered.
    #[schema(value_type = Option<Object>)]
    configuration: Option<Value>,
}

/// Says something to an agent, and streams what becomes of it
#[utoipa::path(
    post,
    path = "/a2a/{agent}/message:stream",
    operation_id = "streamA2aMessage",
    request_body = A2aBody,
    responses((status = 200, body = Value), Starts)
)]
pub(super) async fn stream(
    door: Door,
    Extension(admission): Extension<Admission>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let params = json(&door, &headers, body).await?;
    let done = async {
        let params = params?;
        door.enter().await?;
        let sent = say::say(&door, &params).await?;
        stream::answer(&door, sent, Form::Plain, admission).await
    };
    let done: Result<Response, Refusal> = done.await;
    Ok(done.unwrap_or_else(Refusal::into_response))
}

/// The tasks of an agent, newest first
#[utoipa::path(
    get,
    path = "/a2a/{agent}/tasks",
    operation_id = "listA2aTasks",
    responses((status = 200, body = Value), AgentNotFound)
)]
pub(super) async fn list(door: Door, uri: axum::http::Uri) -> Response {
    let done = async {
        door.enter().await?;
        tasks::list(&door, &query(&uri)).await
    };
    answered(done.await)
}

/// The parameters of a query, as the other binding has them.
fn query(uri: &axum::http::Uri) -> Value {
    let pairs = serde_json::Map::from_iter(pairs(uri));
    Value::Object(pairs)
}

fn pairs(uri: &axum::http::Uri) -> Vec<(String, Value)> {
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
    let pairs = pairs
        .map(|axum::extract::Query(pairs)| pairs)
        .unwrap_or_default();
    let pairs = pairs.into_iter().map(|(name, text)| {
        let value = match text.parse::<u64>() {
            Ok(number) if name != "pageToken" => json!(number),
            _ => json!(text),
        };
        (name, value)
    });
    pairs.collect()
}

/// The task that a path names, and what is done with it: `ID`, `ID:cancel` or `ID:subscribe`.
pub(super) struct TaskPath {
    id: String,
    action: Option<String>,
}

impl FromRequestParts<Arc<Api>> for TaskPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<Api>) -> Result<Self, Problem> {
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, app).await;
        let named = path.map(|Path(pairs)| pairs).unwrap_or_default();
        let named = named.into_iter().find(|(name, _)| name == "task");
        let text = named.map(|(_, text)| text).unwrap_or_default();
        let (id, action) = match text.split_once(':') {
            Some((id, action)) => (id.to_owned(), Some(action.to_owned())),
            None => (text, None),
        };
        Ok(Self { id, action })
    }
}

/// A task, or with `:subscribe` behind its id the stream of it
#[utoipa::path(
    get,
    path = "/a2a/{agent}/tasks/{task}",
    operation_id = "getA2aTask",
    responses((status = 200, body = Value), AgentNotFound)
)]
pub(super) async fn show(
    door: Door,
    path: TaskPath,
    uri: axum::http::Uri,
    admission: Option<Extension<Admission>>,
) -> Response {
    let done = async {
        door.enter().await?;
        match (path.action.as_deref(), admission) {
            (None, _) => {
                let task = tasks::get(&door, &path.id, &query(&uri)).await;
                Ok(answered(task))
            }
            (Some("subscribe"), Some(Extension(admission))) => {
                let sent = tasks::open(&door, &path.id).await?;
                stream::answer(&door, sent, Form::Plain, admission).await
            }
            _ => Err(Refusal::of(rpc::NO_METHOD, "there is no such operation")),
        }
    };
    let done: Result<Response, Refusal> = done.await;
    done.unwrap_or_else(Refusal::into_response)
}

/// With `:cancel` behind its id cancels a task, with `:subscribe` streams it
#[utoipa::path(
    post,
    path = "/a2a/{agent}/tasks/{task}",
    operation_id = "actOnA2aTask",
    responses((status = 200, body = Value), AgentNotFound)
)]
pub(super) async fn act(
    door: Door,
    path: TaskPath,
    admission: Option<Extension<Admission>>,
) -> Response {
    let done = async {
        door.enter().await?;
        match (path.action.as_deref(), admission) {
            (Some("cancel"), _) => Ok(answered(tasks::cancel(&door, &path.id).await)),
            (Some("subscribe"), Some(Extension(admission))) => {
                let sent = tasks::open(&door, &path.id).await?;
                stream::answer(&door, sent, Form::Plain, admission).await
            }
            _ => Err(Refusal::of(rpc::NO_METHOD, "there is no such operation")),
        }
    };
    let done: Result<Response, Refusal> = done.await;
    done.unwrap_or_else(Refusal::into_response)
}

/// Refused: push notifications are not supported
#[utoipa::path(
    get,
    path = "/a2a/{agent}/tasks/{task}/pushNotificationConfigs",
    operation_id = "listA2aPushConfigs",
    responses((status = 200, body = Value), AgentNotFound)
)]
pub(super) async fn list_configs(_: Door) -> Response {
    no_push().into_response()
}

/// Refused: push notifications are not supported
#[utoipa::path(
    post,
    path = "/a2a/{agent}/tasks/{task}/pushNotificationConfigs",
    operation_id = "createA2aPushConfig",
    responses((status = 200, body = Value), AgentNotFound)
)]
pub(super) async fn create_config(_: Door) -> Response {
    no_push().into_response()
}

/// Refused: push notifications are not supported
#[utoipa::path(
    get,
    path = "/a2a/{agent}/tasks/{task}/pushNotificationConfigs/{config}",
    operation_id = "getA2aPushConfig",
    responses((status = 200, body = Value), AgentNotFound)
)]
pub(super) async fn show_config(_: Door) -> Response {
    no_push().into_response()
}

/// Refused: push notifications are not supported
#[utoipa::path(
    delete,
    path = "/a2a/{agent}/tasks/{task}/pushNotificationConfigs/{config}",
    operation_id = "deleteA2aPushConfig",
    responses((status = 200, body = Value), AgentNotFound)
)]
pub(super) async fn delete_config(_: Door) -> Response {
    no_push().into_response()
}
