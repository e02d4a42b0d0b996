//! Calls of a session, and of the agents below it, that wait for an answer from outside.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_shared::id::{SendId, SessionId, SessionKey};
use mainspring_shared::message::Arguments;
use mainspring_shared::send::WaitingOn;
use mainspring_shared::store::ReadMessages;
use mainspring_shared::time::Timestamp;
use mainspring_shared::tool::{Approval, Asked, CallRecord, Inquiry, Repeat, Wants};
use serde::Serialize;
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond::{self, List};
use crate::codes::SessionNotFound;
use crate::extract::{NoQuery, Query, SessionPath};
use crate::router::Api;

/// Maximum number of sessions of one tree that are checked.
const SESSIONS_MAX: usize = 1_000;

/// A call that waits for an answer.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct WaitingCall {
    /// The id with which its result is posted.
    call_id: String,
    /// The session of the call: the requested one, or one below it.
    #[schema(value_type = String)]
    session_id: SessionId,
    /// The send that asks.
    #[schema(value_type = String)]
    send_id: SendId,
    /// The tool's name.
    name: String,
    /// The arguments.
    #[schema(value_type = Object)]
    arguments: Arguments,
    /// `answer` takes any JSON, `permission` takes `{"approved": true | false, "note"?}`, `reply` what `asks` says.
    wants: &'static str,
    /// What the tool asks, if it `wants` a `reply`.
    #[serde(skip_serializing_if = "Option::is_none")]
    asks: Option<Asks>,
    /// `human` or `tool`.
    waiting_on: WaitingOn,
    /// When it was asked.
    #[schema(value_type = String, format = DateTime)]
    requested_at: Timestamp,
    /// When an answer is too late.
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline_at: Option<Timestamp>,
    /// Whether the call may be made again after a program that claimed it died.
    repeat: Repeat,
    /// Until when a program has it that claimed it; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, required = false)]
    claimed_until: Option<Timestamp>,
}

/// What a tool asks while its call is made.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Asks {
    /// Its number among the questions of the call, which the answer names.
    question: usize,
    /// What a person reads.
    message: String,
    /// `form`, answered with `{"action": "accept", "content": {…}}`, or `url`, answered with `{"action": "accept"}`
    /// when the person has opened the address; both also with the actions `decline` and `cancel`.
    mode: &'static str,
    /// The schema of the content, with text, number, boolean and choice members.
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_schema: Option<Value>,
    /// The address to open. The tool chose it, so show it before it is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

impl Asks {
    fn of(question: usize, asked: &Asked) -> Self {
        let Inquiry { message, wants } = asked.inquiry.clone();
        let (mode, requested_schema, url) = match wants {
            Wants::Form(schema) => ("form", Some(schema), None),
            Wants::Url(url) => ("url", None, Some(url)),
        };
        Self {
            question,
            message,
            mode,
            requested_schema,
            url,
        }
    }
}

impl From<CallRecord> for WaitingCall {
    fn from(call: CallRecord) -> Self {
        let asks_permission = call.approval == Approval::Asked;
        let asks = call
            .open_question()
            .map(|(question, asked)| Asks::of(question, asked));
        Self {
            wants: match (&asks, asks_permission) {
                (Some(_), _) => "reply",
                (None, true) => "permission",
                (None, false) => "answer",
            },
            asks,
            waiting_on: call.waits_on.unwrap_or(WaitingOn::Tool),
            call_id: call.call_id,
            session_id: call.session,
            send_id: call.send_id,
            name: call.name,
            arguments: call.arguments,
            requested_at: call.requested_at,
            deadline_at: call.deadline_at,
            repeat: call.repeat,
            claimed_until: call.claim.map(|claim| claim.until),
        }
    }
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Calls of the session, and of the sessions below it, that wait for a person or a client
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/calls",
    operation_id = "listWaitingCalls",
    responses((status = 200, body = List<WaitingCall>), SessionNotFound)
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found().into());
    }
    let found = below(&app, key).await?;
    let found = found.into_iter().map(WaitingCall::from).collect();
    respond::json(StatusCode::OK, &List::whole(found))
}

/// The calls of a session, and of the sessions below it, that can be answered from outside.
pub(super) async fn below(app: &App, key: SessionKey) -> Result<Vec<CallRecord>, Error> {
    let mut found = Vec::new();
    let mut ahead = VecDeque::from([key]);
    let mut seen = 0;
    while let Some(session) = ahead.pop_front().filter(|_| seen < SESSIONS_MAX) {
        seen += 1;
        found.extend(waiting(app, session).await?);
        ahead.extend(app.store.list_children(session).await?);
    }
    Ok(found)
}

/// The calls of one session that can be answered from outside. A round is open only while the
/// message with its calls is the last of the transcript.
async fn waiting(app: &App, key: SessionKey) -> Result<Vec<CallRecord>, Error> {
    let Some(session) = app.store.get_session(key).await? else {
        return Ok(Vec::new());
    };
    let query = ReadMessages {
        key,
        after: session.last_seq() - 1,
        limit: 1,
    };
    let last = app.store.read_messages(query).await?.pop();
    let Some(asking) = last.filter(|last| !last.tool_calls.is_empty()) else {
        return Ok(Vec::new());
    };
    let calls = app.store.read_round(key, asking.send_id, asking.round);
    let answerable = calls.await?.into_iter().filter(|call| {
        let outside = matches!(call.waits_on, Some(WaitingOn::Human | WaitingOn::Tool));
        outside && call.result.is_none()
    });
    Ok(answerable.collect())
}
