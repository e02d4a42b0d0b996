//! Sends as tasks. Every send that a key sees is one, whatever it was started by.

use mainspring_scheduler::services::cancel;
use mainspring_shared::id::SendId;
use mainspring_shared::send::{SendStatus, SendView, WaitingOn};
use mainspring_shared::store::ListSends;
use serde_json::{Value, json};

use super::held::{Held, Place};
use super::{Answer, Request, ask, call};
use crate::access::Needs;
use crate::access::reach::Inside;
use crate::faces::asks::Ask;
use crate::faces::rpc::{self, Fault};
use crate::faces::sent::Sent;

/// Tasks per page.
const PAGE: u32 = 50;

/// How long a client waits before it asks again, in milliseconds.
const POLL_MS: u64 = 500;

async fn named(request: &Request<'_>) -> Result<Sent, Fault> {
    let unknown = || Fault::new(rpc::INVALID_PARAMS, "there is no task with this id");
    let id: SendId = request.text("taskId")?.parse().map_err(|_| unknown())?;
    let sent = Sent::read(request.app, request.caller, id).await;
    sent.map_err(|error| match error.code() {
        mainspring_shared::error::Code::SendNotFound => unknown(),
        _ => Fault::from(error),
    })
}

/// A task as it is now. What a person is asked is looked up where a send may wait for one.
async fn shown(request: &Request<'_>, sent: &Sent) -> Result<Value, Fault> {
    let may_ask = matches!(
        sent.send.waiting_on,
        Some(WaitingOn::Human | WaitingOn::Agent)
    );
    let mut open = Vec::new();
    if may_ask {
        open = sent.asks(request.app).await?;
        open.retain(Ask::is_for_people);
    }
    let is_modern = request.peer.is_modern;
    let mut task = task(&sent.view(), is_modern, may_ask.then_some(&open));
    if !is_modern {
        return Ok(task);
    }
    match task["status"].as_str() {
        Some("completed") => task["result"] = call::result(request.peer, sent),
        Some("input_required") => task["inputRequests"] = ask::requests(request.peer, &open),
        _ => {}
    }
    Ok(task)
}

/// A send as a task. Unless it is known what is asked, whatever waits for a person is taken to ask; a send whose
/// questions were all answered is about to continue.
fn task(view: &SendView, is_modern: bool, open: Option<&Vec<Ask>>) -> Value {
    let (status, says) = match view.status {
        SendStatus::Completed => ("completed", None),
        // What a tool says of its failure is a result, which this version counts as an end like others.
        SendStatus::Failed if is_modern => ("completed", None),
        SendStatus::Failed => {
            let why = view.error.as_ref();
            (
                "failed",
                why.map(|error| format!("{}: {}", error.code, error.message)),
            )
        }
        SendStatus::Cancelled => ("cancelled", None),
        SendStatus::Queued | SendStatus::Running | SendStatus::Waiting => {
            match (open.map(|open| open.first()), view.waiting_on) {
                (Some(Some(ask)), _) => ("input_required", Some(ask.message())),
                (None, Some(WaitingOn::Human)) => ("input_required", None),
                (Some(None) | None, _) => ("working", None),
            }
        }
    };
    let updated = view
        .finished_at
        .or(view.started_at)
        .unwrap_or(view.created_at);
    let (ttl, poll) = if is_modern {
        ("ttlMs", "pollIntervalMs")
    } else {
        ("ttl", "pollInterval")
    };
    let mut task = json!({
        "taskId": view.id,
        "status": status,
        "createdAt": view.created_at,
        "lastUpdatedAt": updated,
        ttl: null,
        poll: POLL_MS,
    });
    if let Some(says) = says {
        task["statusMessage"] = json!(says);
    }
    task
}

/// What a call is answered with that became a task.
pub(super) async fn created(request: &Request<'_>, sent: &Sent) -> Result<Value, Fault> {
    if request.peer.is_modern {
        let mut task = task(&sent.view(), true, None);
        task["resultType"] = json!("task");
        return Ok(task);
    }
    let task = shown(request, sent).await?;
    Ok(json!({ "task": task, "_meta": { ask::RELATED: { "taskId": sent.send.id } } }))
}

pub(super) async fn get(request: &Request<'_>) -> Result<Value, Fault> {
    let sent = named(request).await?;
    shown(request, &sent).await
}

pub(super) async fn cancel(request: &Request<'_>) -> Result<Value, Fault> {
    let mut sent = named(request).await?;
    Needs::of(&axum::http::Method::POST, "/v1/sends/{id}/cancel").check(request.caller)?;
    let tenant = request.caller.tenant;
    match cancel::send(request.app, tenant, sent.send.id, None).await {
        Ok(_) => {}
        Err(_) if request.peer.is_modern && sent.is_final() => {}
        Err(error) => return Err(error.into()),
    }
    if request.peer.is_modern {
        return Ok(json!({}));
    }
    sent.again(request.app).await?;
    let mut task = shown(request, &sent).await?;
    // Its worker ends it within moments.
    if task["status"] == "working" {
        task["status"] = json!("cancelled");
    }
    Ok(task)
}

/// The newest tasks first.
pub(super) async fn list(request: &Request<'_>) -> Result<Value, Fault> {
    let (app, caller) = (request.app, request.caller);
    Needs::of(&axum::http::Method::GET, "/v1/sends").check(caller)?;
    let before: Option<SendId> = match &request.params["cursor"] {
        Value::Null => None,
        cursor => {
            let before = cursor.as_str().and_then(|text| text.parse().ok());
            Some(before.ok_or_else(|| Fault::new(rpc::INVALID_PARAMS, "no such cursor"))?)
        }
    };
    let wanted = ListSends {
        tenant: caller.tenant,
        session: None,
        status: None,
        before,
        limit: PAGE,
    };
    let page = app.store.list_sends(wanted).await?;
    let next = page.data.last().filter(|_| page.more).map(|send| send.id);
    let inside = Inside::of(app, caller);
    let rows = inside
        .mark(page.data, |send| Some(send.key.session))
        .await?;
    let rows = rows.into_iter().filter(|(_, is_shown)| *is_shown);
    let tasks = rows.map(|(send, _)| task(&SendView::from(send), false, None));
    let mut shown = json!({ "tasks": tasks.collect::<Vec<_>>() });
    if let Some(next) = next {
        shown["nextCursor"] = json!(next);
    }
    Ok(shown)
}

/// Waits for the end of a task, and asks what it wants to know meanwhile.
pub(super) async fn result(request: Request<'_>) -> Result<Answer, Fault> {
    let sent = named(&request).await?;
    let place = Place {
        send: sent.send.id,
        id: request.id.clone(),
        token: request.params["_meta"]["progressToken"].clone(),
        rounds: sent.send.rounds,
        asked: Vec::new(),
        is_task: true,
        turns: 0,
    };
    let held = Held::new(request.app.clone(), request.peer.clone(), sent, place);
    Ok(Answer::Stream(held.stream(request.admission)))
}

/// Takes the answers to what a task asks.
pub(super) async fn update(request: &Request<'_>) -> Result<Value, Fault> {
    let sent = named(request).await?;
    let responses = &request.params["inputResponses"];
    ask::inputs(request.app, request.caller, &sent, responses).await?;
    Ok(json!({}))
}
