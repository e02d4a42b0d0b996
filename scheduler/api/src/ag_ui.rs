//! The Agent-User Interaction protocol, 1.0: a run of an agent as a stream of events.
//!
//! A thread is a session, a run is a send, or the part of one behind what was asked. It is a second encoder over the
//! events of the send: nothing is stored for it but the name that a client has for its thread.

mod encode;
mod input;
mod messages;
mod stream;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::agent::{AgentQuery, OnBusy, SendOptions};
use mainspring_shared::error::Code;
use mainspring_shared::id::SessionKey;
use mainspring_shared::store::ListSends;
use serde_json::Value;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::input::RunInput;
use self::stream::Run;
use crate::access::Caller;
use crate::calls::ResultBody;
use crate::codes::Starts;
use crate::extract::{json_body, parse};
use crate::faces::asks;
use crate::faces::sent::Sent;
use crate::faces::start::{Message, To, find, once, session_named, start};
use crate::gate::Admission;
use crate::problem::Problem;
use crate::router::Api;

/// The version that is spoken.
const VERSION: &str = "1.0";

/// The member of a session's metadata by which a client calls it.
const THREAD: &str = "ag_ui_thread";

/// How many sends of a session are looked through for the one that waits.
const SENDS: u32 = 100;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(run))
}

/// What a run is asked for with.
#[derive(Debug, utoipa::ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct RunAgentInput {
    /// The conversation: the id of a session, or what the client calls it.
    #[schema(rename = "threadId")]
    thread_id: String,
    /// What the client calls the run. The same name is the same run.
    #[schema(rename = "runId")]
    run_id: String,
    /// The conversation so far. What is new of it is at its end.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
}

/// Runs a published agent, with the events of the Agent-User Interaction protocol
#[utoipa::path(
    post,
    path = "/ag-ui/{agent}",
    operation_id = "runAgUi",
    request_body = RunAgentInput,
    responses((status = 200, body = Value), Starts)
)]
pub(super) async fn run(
    State(app): State<Arc<Api>>,
    caller: Caller,
    agent: Path<String>,
    Extension(admission): Extension<Admission>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let unknown = || Error::new(Code::AgentNotFound, "no published agent has this name");
    let agent: AgentQuery = agent.0.parse().map_err(|_| unknown())?;
    let whole = json_body(&app, &headers, body, app.config.body_bytes_max).await?;
    let input = RunInput::read(&parse::<Value>(&whole, "")?)?;
    drop(whole);
    let (sent, is_behind) = begin(&app, &caller, agent, &input).await?;
    let run = Run::open(app, sent, input, is_behind).await?;
    Ok(run.stream(admission))
}

/// The send of a run, and whether something of it was told before.
async fn begin(
    app: &Api,
    caller: &Caller,
    agent: AgentQuery,
    input: &RunInput,
) -> Result<(Sent, bool), Problem> {
    if !input.answers.is_empty() || !input.results.is_empty() {
        return Ok((go_on(app, caller, input).await?, true));
    }
    input.offers(app, caller, &agent).await?;
    let message = Message {
        agent,
        variables: input.variables.clone(),
        to: session_named(THREAD, &input.thread),
        input: input.said.clone(),
        options: SendOptions {
            on_busy: OnBusy::Reject,
            ..SendOptions::default()
        },
        once: Some(once(
            caller,
            "POST ag-ui",
            &format!("{}\n{}", input.thread, input.run),
        )),
    };
    let submitted = start(app, caller, message).await?;
    let sent = Sent::read(app, caller, submitted.send.id).await?;
    Ok((sent, submitted.replayed))
}

/// Answers what the run before has ended with, so that the send goes on.
async fn go_on(app: &Api, caller: &Caller, input: &RunInput) -> Result<Sent, Problem> {
    let no_thread = || Error::new(Code::SessionNotFound, "there is no such thread");
    let key = match session_named(THREAD, &input.thread) {
        To::Session(session) => SessionKey {
            tenant: caller.tenant,
            session,
        },
        To::Named { member, name } => find(app, caller, member, &name)
            .await?
            .ok_or_else(no_thread)?,
        To::New => return Err(no_thread().into()),
    };
    let wanted = ListSends {
        tenant: caller.tenant,
        session: Some(key.session),
        status: None,
        before: None,
        limit: SENDS,
    };
    let found = app.store.list_sends(wanted).await?.data;
    // The oldest that has not ended; if all have, the answers are repeats, and the newest had them.
    let open = found.iter().rev().find(|send| !send.status.is_final());
    let send = open.or(found.first()).ok_or_else(no_thread)?;
    let mut sent = Sent::read(app, caller, send.id).await?;
    let open = sent.asks(app).await?;
    let mut answers = Vec::new();
    for (place, answer) in input.answers.iter().enumerate() {
        if let Some(ask) = open.iter().find(|ask| ask.id() == answer.id) {
            let said = ask.read(&answer.payload, answer.is_cancelled);
            let said =
                said.map_err(|detail| Error::invalid(format!("/resume/{place}/payload"), detail))?;
            answers.push((answer.id.clone(), said));
        }
    }
    asks::answer(app, caller, &sent, answers).await?;
    let results = input.results.iter();
    let results = results.filter(|(call, _)| open.iter().any(|ask| ask.call.call_id == *call));
    let results = results.map(|(call, parts)| ResultBody::of_parts(call.clone(), parts.clone()));
    asks::results(app, caller, &sent, results.collect()).await?;
    sent.again(app).await?;
    Ok(sent)
}
