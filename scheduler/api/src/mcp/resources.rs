//! Sessions and runs as resources.

use axum::http::Method;
use mainspring_scheduler::error::Error;
use mainspring_shared::id::{RunId, RunKey, SessionId, SessionKey};
use mainspring_shared::message::Message;
use mainspring_shared::session::SessionView;
use mainspring_shared::store::{ListRuns, ListSessions, ReadMessages};
use mainspring_shared::workflow::view::RunView;
use serde::Serialize;
use serde_json::{Value, json};

use super::Request;
use crate::access::Needs;
use crate::access::reach::Inside;
use crate::faces::rpc::{self, Fault};

const SESSIONS: &str = "mainspring://sessions/";
const RUNS: &str = "mainspring://runs/";

/// Resources per page.
const PAGE: u32 = 50;

/// How much of a transcript is read, from its end.
const MESSAGES: i64 = 200;

/// What the cursor of runs begins with; that of sessions is an id alone.
const IN_RUNS: &str = "runs";

/// Patterns of the addresses.
pub(super) fn templates() -> Value {
    json!({
        "resourceTemplates": [
            { "uriTemplate": format!("{SESSIONS}{{id}}"), "name": "session", "mimeType": "application/json",
              "description": "A conversation: the session, and the end of its transcript." },
            { "uriTemplate": format!("{RUNS}{{id}}"), "name": "run", "mimeType": "application/json",
              "description": "A run of a workflow, with its result." },
        ],
        "ttlMs": 0, "cacheScope": "private",
    })
}

/// The newest sessions, and behind them the newest runs.
pub(super) async fn list(request: &Request<'_>) -> Result<Value, Fault> {
    let unknown = || Fault::new(rpc::INVALID_PARAMS, "no such cursor");
    let cursor = match &request.params["cursor"] {
        Value::Null => None,
        cursor => Some(cursor.as_str().ok_or_else(unknown)?),
    };
    let (resources, next) = match cursor {
        None => sessions(request, None).await?,
        Some(IN_RUNS) => runs(request, None).await?,
        Some(text) => match (text.parse(), text.parse()) {
            (Ok(before), _) => sessions(request, Some(before)).await?,
            (_, Ok(before)) => runs(request, Some(before)).await?,
            _ => return Err(unknown()),
        },
    };
    let mut shown = json!({ "resources": resources });
    if let Some(next) = next {
        shown["nextCursor"] = json!(next);
    }
    Ok(request.peer.listed(shown))
}

type Listed = (Vec<Value>, Option<String>);

async fn sessions(request: &Request<'_>, before: Option<SessionId>) -> Result<Listed, Fault> {
    let (app, caller) = (request.app, request.caller);
    Needs::of(&Method::GET, "/v1/sessions").check(caller)?;
    let binding = caller.binding();
    let wanted = ListSessions {
        tenant: caller.tenant,
        status: None,
        agent: None,
        metadata: binding
            .map(|binding| binding.metadata.clone().into_iter().collect())
            .unwrap_or_default(),
        before,
        limit: PAGE,
    };
    let page = app.store.list_sessions(wanted).await?;
    let next = page.data.last().filter(|_| page.more);
    let next = next.map_or_else(
        || IN_RUNS.to_owned(),
        |session| session.key.session.to_string(),
    );
    let inside = page.data.into_iter();
    let inside = inside.filter(|session| binding.is_none_or(|binding| binding.holds(session)));
    let shown = inside.map(|session| {
        let id = session.key.session;
        let agent = session.agent.name.as_deref().unwrap_or("agent");
        json!({
            "uri": format!("{SESSIONS}{id}"), "name": id, "title": format!("Session with {agent}"),
            "mimeType": "application/json",
        })
    });
    Ok((shown.collect(), Some(next)))
}

async fn runs(request: &Request<'_>, before: Option<RunId>) -> Result<Listed, Fault> {
    let (app, caller) = (request.app, request.caller);
    Needs::of(&Method::GET, "/v1/runs").check(caller)?;
    let wanted = ListRuns {
        tenant: caller.tenant,
        status: None,
        session: None,
        before,
        limit: PAGE,
    };
    let page = app.store.list_runs(wanted).await?;
    let next = page.data.last().filter(|_| page.more);
    let next = next.map(|run| run.key.run.to_string());
    let rows = Inside::of(app, caller)
        .mark(page.data, |run| run.session)
        .await?;
    let rows = rows.into_iter().filter(|(_, is_shown)| *is_shown);
    let shown = rows.map(|(run, _)| {
        let id = run.key.run;
        json!({
            "uri": format!("{RUNS}{id}"), "name": id, "title": format!("Run {id}"),
            "mimeType": "application/json",
        })
    });
    Ok((shown.collect(), next))
}

/// One of them.
pub(super) async fn read(request: &Request<'_>) -> Result<Value, Fault> {
    let uri = request.text("uri")?;
    let shown = if let Some(id) = uri.strip_prefix(SESSIONS) {
        session(request, id).await?
    } else if let Some(id) = uri.strip_prefix(RUNS) {
        run(request, id).await?
    } else {
        None
    };
    let Some(shown) = shown else {
        // Before 2026-07-28 this had a code of its own.
        let code = if request.peer.is_modern {
            rpc::INVALID_PARAMS
        } else {
            -32002
        };
        return Err(
            Fault::new(code, "there is no resource with this address").with(json!({ "uri": uri }))
        );
    };
    let contents = json!([{ "uri": uri, "mimeType": "application/json", "text": shown }]);
    Ok(request.peer.listed(json!({ "contents": contents })))
}

async fn session(request: &Request<'_>, id: &str) -> Result<Option<String>, Fault> {
    let (app, caller) = (request.app, request.caller);
    Needs::of(&Method::GET, "/v1/sessions/{id}/messages").check(caller)?;
    let Ok(session) = id.parse() else {
        return Ok(None);
    };
    let key = SessionKey {
        tenant: caller.tenant,
        session,
    };
    let found = app.store.get_session(key).await?;
    let found = found.filter(|found| caller.binding().is_none_or(|binding| binding.holds(found)));
    let Some(found) = found else {
        return Ok(None);
    };
    let wanted = ReadMessages {
        key,
        after: (found.last_seq() - MESSAGES).max(0),
        limit: MESSAGES as u32,
    };
    let messages = app.store.read_messages(wanted).await?;
    let shown = Transcript {
        session: SessionView::from(found),
        messages,
    };
    written(&shown)
}

/// A session with the end of what was said in it.
#[derive(Serialize)]
struct Transcript {
    session: SessionView,
    messages: Vec<Message>,
}

/// As text, since a value would not have the numbers that a model wrote.
fn written<T: Serialize>(shown: &T) -> Result<Option<String>, Fault> {
    let text = serde_json::to_string(shown);
    text.map(Some).map_err(|_| Fault::from(Error::internal()))
}

async fn run(request: &Request<'_>, id: &str) -> Result<Option<String>, Fault> {
    let (app, caller) = (request.app, request.caller);
    Needs::of(&Method::GET, "/v1/runs/{id}").check(caller)?;
    let Ok(run) = id.parse() else {
        return Ok(None);
    };
    let key = RunKey {
        tenant: caller.tenant,
        run,
    };
    let found = app.store.get_runs(vec![key]).await?;
    let rows = Inside::of(app, caller)
        .mark(found.into_iter().flatten().collect(), |run| run.session)
        .await?;
    let found = rows.into_iter().find(|(_, is_shown)| *is_shown);
    match found {
        Some((run, _)) => written(&RunView::from(run)),
        None => Ok(None),
    }
}
