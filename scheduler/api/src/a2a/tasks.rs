//! Tasks: those sends that an agent serves.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use mainspring_scheduler::services::cancel;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SendId, SessionId};
use mainspring_shared::send::SendStatus;
use mainspring_shared::session::SessionRecord;
use mainspring_shared::store::ListSends;
use serde_json::{Value, json};

use super::fault::{self, Refusal};
use super::view::{self, CONTEXT, Shown};
use super::{Door, rpc};
use crate::access::Needs;
use crate::faces::sent::Sent;
use crate::faces::start::{To, find, session_named};

/// How long the end of a cancelled task is waited for.
const CANCELLING: Duration = Duration::from_secs(5);

const PAGE: u64 = 50;
const PAGE_MAX: u64 = 100;

fn unknown() -> Refusal {
    Refusal::of(fault::TASK_NOT_FOUND, "there is no task with this id")
}

/// A task of this agent.
pub(super) async fn named(door: &Door, id: &str) -> Result<Sent, Refusal> {
    let id: SendId = id.parse().map_err(|_| unknown())?;
    let sent = Sent::read(&door.app, &door.caller, id).await?;
    if serves(door, &sent) {
        Ok(sent)
    } else {
        Err(unknown())
    }
}

/// Whether this agent serves a send.
fn serves(door: &Door, sent: &Sent) -> bool {
    let agent = sent.send.options.agent_in(sent.session.agent.clone());
    agent
        .reference()
        .is_some_and(|agent| agent.name == door.agent.name)
}

/// A task that has not ended.
pub(super) async fn open(door: &Door, id: &str) -> Result<Sent, Refusal> {
    let sent = named(door, id).await?;
    if sent.is_final() {
        return Err(Refusal::of(fault::UNSUPPORTED, "the task has ended"));
    }
    Ok(sent)
}

/// How many messages of a task are wanted.
pub(super) fn history(params: &Value) -> Result<Option<usize>, Refusal> {
    match &params["historyLength"] {
        Value::Null => Ok(None),
        length => {
            let length = length
                .as_u64()
                .and_then(|length| usize::try_from(length).ok());
            let refused = || {
                Refusal::of(
                    rpc::INVALID_PARAMS,
                    "historyLength must be a number, 0 or more",
                )
            };
            length.map(Some).ok_or_else(refused)
        }
    }
}

pub(super) async fn get(door: &Door, id: &str, params: &Value) -> Result<Value, Refusal> {
    let sent = named(door, id).await?;
    let shown = Shown {
        history: history(params)?,
        artifacts: true,
    };
    view::task(&door.app, &sent, shown).await
}

pub(super) async fn cancel(door: &Door, id: &str) -> Result<Value, Refusal> {
    let mut sent = named(door, id).await?;
    Needs::of(&Method::POST, "/v1/sends/{id}/cancel").check(&door.caller)?;
    let tenant = door.caller.tenant;
    match cancel::send(&door.app, tenant, sent.send.id, Some(CANCELLING)).await {
        Ok(_) => {}
        Err(error) if error.code() == Code::SendNotCancellable => {
            return Err(Refusal::of(
                fault::NOT_CANCELABLE,
                error.detail().to_owned(),
            ));
        }
        Err(error) => return Err(error.into()),
    }
    sent.again(&door.app).await?;
    let shown = Shown {
        history: None,
        artifacts: true,
    };
    view::task(&door.app, &sent, shown).await
}

/// The sends that have this state, as far as their status says it.
fn with_state(state: &str) -> Result<Option<SendStatus>, Refusal> {
    Ok(match state {
        "TASK_STATE_SUBMITTED" => Some(SendStatus::Queued),
        // Some of those that wait are at work.
        ""
        | "TASK_STATE_UNSPECIFIED"
        | "TASK_STATE_WORKING"
        | "TASK_STATE_INPUT_REQUIRED"
        | "TASK_STATE_REJECTED"
        | "TASK_STATE_AUTH_REQUIRED" => None,
        "TASK_STATE_COMPLETED" => Some(SendStatus::Completed),
        "TASK_STATE_FAILED" => Some(SendStatus::Failed),
        "TASK_STATE_CANCELED" => Some(SendStatus::Cancelled),
        _ => return Err(Refusal::of(rpc::INVALID_PARAMS, "there is no such status")),
    })
}

/// A page of tasks, newest first.
pub(super) async fn list(door: &Door, params: &Value) -> Result<Value, Refusal> {
    let (app, caller) = (&door.app, &door.caller);
    Needs::of(&Method::GET, "/v1/sends").check(caller)?;
    let invalid = |detail: &str| Refusal::of(rpc::INVALID_PARAMS, detail);
    let size = match params["pageSize"].as_u64().unwrap_or(0) {
        0 => PAGE,
        size @ 1..=PAGE_MAX => size,
        _ => return Err(invalid("pageSize must be 1 to 100")),
    };
    let before: Option<SendId> = match params["pageToken"].as_str().filter(|text| !text.is_empty())
    {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| invalid("there is no such page"))?),
    };
    let wanted_state = params["status"].as_str().unwrap_or_default();
    let status = with_state(wanted_state)?;
    let after = params["statusTimestampAfter"].as_str().unwrap_or_default();
    let shown = Shown {
        history: Some(history(params)?.unwrap_or(0)),
        artifacts: params["includeArtifacts"] == true || params["includeArtifacts"] == "true",
    };
    let context = params["contextId"].as_str().filter(|text| !text.is_empty());
    let session = match context.map(|name| session_named(CONTEXT, name)) {
        None | Some(To::New) => None,
        Some(To::Session(session)) => Some(session),
        Some(To::Named { member, name }) => match find(app, caller, member, &name).await? {
            Some(key) => Some(key.session),
            None => return Ok(page(&[], None)),
        },
    };
    let wanted = ListSends {
        tenant: caller.tenant,
        session,
        status,
        before,
        limit: size as u32,
    };
    let found = app.store.list_sends(wanted).await?;
    let next = found.data.last().filter(|_| found.more).map(|send| send.id);
    let mut sessions: BTreeMap<SessionId, Option<SessionRecord>> = BTreeMap::new();
    let mut tasks = Vec::new();
    for send in found.data {
        let key = send.key;
        let session = if let Some(session) = sessions.get(&key.session) {
            session.clone()
        } else {
            let read = app.store.get_session(key).await?;
            sessions.insert(key.session, read.clone());
            read
        };
        let binding = caller.binding();
        let session =
            session.filter(|session| binding.is_none_or(|binding| binding.holds(session)));
        let Some(session) = session else {
            continue;
        };
        let sent = Sent { send, session };
        if !serves(door, &sent) {
            continue;
        }
        let task = view::task(app, &sent, shown).await?;
        let state = &task["status"];
        let is_wanted = wanted_state.is_empty()
            || wanted_state == "TASK_STATE_UNSPECIFIED"
            || state["state"] == wanted_state;
        if is_wanted && state["timestamp"].as_str().unwrap_or_default() > after {
            tasks.push(task);
        }
    }
    Ok(page(&tasks, next))
}

fn page(tasks: &[Value], next: Option<SendId>) -> Value {
    let count = tasks.len();
    json!({
        "tasks": tasks,
        "nextPageToken": next.map(|id| id.to_string()).unwrap_or_default(),
        "pageSize": count,
        "totalSize": count + usize::from(next.is_some()),
    })
}
