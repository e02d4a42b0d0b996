//! Calls of tools: messages to agents.

use axum::http::Method;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::new_session;
use mainspring_scheduler::services::cancel;
use mainspring_shared::agent::{AgentName, AgentQuery, AgentSpec, Pick, SendOptions};
use mainspring_shared::id::SendId;
use mainspring_shared::message::ContentPart;
use mainspring_shared::send::{SendStatus, SendView};
use mainspring_shared::store::{AcceptOutcome, AcceptSend, IdempotencyKey, Target};
use serde_json::{Map, Value, json};

use super::held::{Held, Place};
use super::peer::Peer;
use super::{Answer, Request, ask, tasks, tools};
use crate::access::{Caller, Needs};
use crate::faces::rpc::{self, Fault};
use crate::faces::sent::Sent;
use crate::faces::start::{Message, To, once, start};
use crate::idempotency;
use crate::problem::Problem;
use crate::router::Api;

/// The route under which calls are found again that a client cancels.
const ROUTE: &str = "POST /mcp call";

/// The arguments of a call.
#[derive(Debug, Default)]
struct Arguments {
    message: String,
    session: Option<String>,
    send: Option<String>,
    variables: Map<String, Value>,
}

impl Arguments {
    fn read(given: &Value) -> Result<Self, Error> {
        let mut read = Self::default();
        let members = match given {
            Value::Null => return Ok(read),
            Value::Object(members) => members,
            _ => return Err(Error::invalid("/arguments", "must be an object")),
        };
        for (name, value) in members {
            let text = || value.as_str().map(str::to_owned);
            let fits = match (name.as_str(), value) {
                (_, Value::Null) => true,
                ("message", Value::String(text)) => {
                    read.message.clone_from(text);
                    true
                }
                ("session_id", Value::String(_)) => {
                    read.session = text();
                    true
                }
                ("send_id", Value::String(_)) => {
                    read.send = text();
                    true
                }
                ("variables", Value::Object(values)) => {
                    read.variables.clone_from(values);
                    true
                }
                _ => false,
            };
            if !fits {
                let pointer = format!("/arguments/{name}");
                return Err(Error::invalid(pointer, "is not what the input schema says"));
            }
        }
        Ok(read)
    }
}

/// Calls a tool: the answer is a stream with its result, or a task.
pub(super) async fn call(request: Request<'_>) -> Result<Answer, Fault> {
    let name = request.text("name")?;
    let unknown = || Fault::new(rpc::INVALID_PARAMS, format!("there is no tool {name}"));
    let name: AgentName = name.parse().map_err(|_| unknown())?;
    let agent = AgentQuery {
        name,
        pick: Pick::Newest,
    };
    let found = request
        .app
        .store
        .find_agents(request.caller.tenant, vec![agent.clone()]);
    if found.await?.into_iter().flatten().next().is_none() {
        return Err(unknown());
    }
    let as_task = request.params["task"].is_object() || request.peer.tasks;
    let Said { sent, turns, own } = match said(&request, agent, as_task).await {
        Ok(said) => said,
        // The model that calls may do better, so it is told.
        Err(problem) if matches!(problem.status(), 400 | 404 | 409 | 413 | 422) => {
            let text = Fault::from(problem).message;
            return Ok(failed(&text).into());
        }
        Err(problem) => return Err(Fault::from(problem)),
    };
    if as_task {
        return Ok(tasks::created(&request, &sent).await?.into());
    }
    let place = Place {
        send: sent.send.id,
        id: request.id.clone(),
        token: request.params["_meta"]["progressToken"].clone(),
        rounds: sent.send.rounds,
        asked: Vec::new(),
        is_task: false,
        turns,
    };
    let held = Held::new(request.app.clone(), request.peer.clone(), sent, place);
    // A client without a handshake cancels by closing the stream.
    let held = held.cancelled_when_left(own && request.peer.is_modern);
    Ok(Answer::Stream(held.stream(request.admission)))
}

/// The send that a call is about.
struct Said {
    sent: Sent,
    /// How often it was asked about.
    turns: u32,
    /// Whether the call began it, or goes on with it, and so may end it.
    own: bool,
}

/// Says what a call says: in a new send, or to one that an earlier call began.
async fn said(request: &Request<'_>, agent: AgentQuery, as_task: bool) -> Result<Said, Problem> {
    let (app, caller) = (request.app.as_ref(), request.caller);
    if let Some(state) = request.params["requestState"].as_str() {
        let unknown = || Error::invalid("/requestState", "is none of this server's");
        Needs::of(&Method::POST, "/v1/sends/{id}/cancel").check(caller)?;
        let (send, turns) = state.split_once('.').ok_or_else(unknown)?;
        let send: SendId = send.parse().map_err(|_| unknown())?;
        let turns: u32 = turns.parse().map_err(|_| unknown())?;
        let mut sent = Sent::read(app, caller, send).await?;
        ask::inputs(app, caller, &sent, &request.params["inputResponses"]).await?;
        sent.again(app).await?;
        return Ok(Said {
            sent,
            turns: turns.saturating_add(1),
            own: true,
        });
    }
    let arguments = Arguments::read(&request.params["arguments"])?;
    if let Some(send) = &arguments.send {
        let send = send.parse().map_err(|_| Error::send_not_found())?;
        return Ok(Said {
            sent: Sent::read(app, caller, send).await?,
            turns: 0,
            own: false,
        });
    }
    let to = match &arguments.session {
        None => To::New,
        Some(session) => To::Session(session.parse().map_err(|_| Error::session_not_found())?),
    };
    let given = idempotency::header(request.headers)?;
    let once = match given {
        Some(key) => Some(once(caller, ROUTE, key)),
        None => key(caller, request.peer, request.id, as_task),
    };
    let message = Message {
        agent,
        variables: arguments.variables,
        to,
        input: vec![ContentPart::text(arguments.message)],
        options: SendOptions::default(),
        once,
    };
    let submitted = start(app, caller, message).await?;
    Ok(Said {
        sent: Sent::read(app, caller, submitted.send.id).await?,
        turns: 0,
        own: true,
    })
}

/// The idempotency key of a request, which has an id that no other request of its session has.
fn key(caller: &Caller, peer: &Peer, id: &Value, as_task: bool) -> Option<IdempotencyKey> {
    let session = peer.session.as_ref()?;
    let kind = if as_task { "task" } else { "call" };
    Some(once(caller, ROUTE, &format!("{kind} {session} {id}")))
}

/// Cancels the send of a call that its client does not wait for any more. A task is not bound to its call.
pub(super) async fn cancelled(
    app: &Api,
    caller: &Caller,
    peer: &Peer,
    id: &Value,
) -> Result<(), Problem> {
    let Some(key) = key(caller, peer, id, false) else {
        return Ok(());
    };
    Needs::of(&Method::POST, "/v1/sends/{id}/cancel").check(caller)?;
    if app.store.keyed_resource(key.clone()).await?.is_none() {
        return Ok(());
    }
    // A repeat of the call finds its send, and creates nothing.
    let session = new_session(app, caller.tenant, AgentSpec::default(), Map::new());
    let repeat = AcceptSend {
        id: SendId(app.entropy.ordered_id()),
        target: Target::New(Box::new(session)),
        input: Vec::new(),
        options: SendOptions::default(),
        reports_to: None,
        run: None,
        idempotency: Some(key),
        queued_max: app.config.queued_max,
        keeper: None,
    };
    let AcceptOutcome::Replayed(send) = app.acceptor.accept(repeat).await? else {
        return Ok(());
    };
    // If it has ended meanwhile, there is nothing to cancel.
    let _ = cancel::send(app, caller.tenant, send, None).await;
    Ok(())
}

/// The result of a call that could not be made.
fn failed(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": true })
}

/// The result of a call whose send has ended.
pub(super) fn result(peer: &Peer, sent: &Sent) -> Value {
    let view = sent.view();
    let text = view.output_text.clone().unwrap_or_default();
    let mut result = match view.status {
        SendStatus::Failed => {
            let why = view.error.as_ref();
            let why = why.map(|error| format!("{}: {}", error.code, error.message));
            failed(&why.unwrap_or_else(|| "the send failed".to_owned()))
        }
        SendStatus::Cancelled => failed("the send was cancelled"),
        _ => json!({ "content": [{ "type": "text", "text": text }] }),
    };
    let agent = sent.send.options.agent_in(sent.session.agent.clone());
    if tools::output(&agent, peer.is_modern).is_some() {
        match &view.output {
            Some(output) => result["structuredContent"] = output.clone(),
            // Clients insist on a value, unless the call has failed.
            None => result["isError"] = json!(true),
        }
    }
    told(&mut result, &view);
    result
}

/// The result of a call whose send goes on.
pub(super) fn unfinished(sent: &Sent, why: &str) -> Value {
    let view = sent.view();
    let text = format!(
        "{why} Call this tool again with \"send_id\": \"{}\" to wait for the answer.",
        view.id
    );
    let mut result = json!({ "content": [{ "type": "text", "text": text }] });
    told(&mut result, &view);
    result
}

/// Adds by which ids a send and its session are found.
fn told(result: &mut Value, view: &SendView) {
    let text = format!("session_id: {}", view.session_id);
    if let Some(content) = result["content"].as_array_mut() {
        let annotations = json!({ "audience": ["assistant"], "priority": 0.1 });
        content.push(json!({ "type": "text", "text": text, "annotations": annotations }));
    }
    result["_meta"] = json!({
        ask::RELATED: { "taskId": view.id },
        "mainspring/send_id": view.id,
        "mainspring/session_id": view.session_id,
        "mainspring/status": view.status,
    });
}
