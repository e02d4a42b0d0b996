//! Sessions.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use mainspring_shared::error::Code;
use mainspring_shared::id::{SessionId, SessionKey, TenantId};
use mainspring_shared::send::SendView;
use mainspring_shared::session::{SessionRecord, SessionStatus, SessionView};
use mainspring_shared::store::{CreateOutcome, ListSessions, SessionPatch, UpdateOutcome};

use super::extract::{Params, SessionPath, json_body, maybe_json_body, no_body, parse};
use super::problem::Problem;
use super::respond::{self, Begin};
use super::validate::{Checks, NewSessionBody, SessionChangeBody};
use super::{idempotency, sends};
use crate::router::Api;
use mainspring_scheduler::App;
use mainspring_scheduler::deleting;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::new_session;
use mainspring_scheduler::services::recovery;

/// `POST /v1/sessions`
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    params.finish()?;
    let json = maybe_json_body(&app, &headers, body).await?;
    let key = idempotency::of_request(&headers, "POST /v1/sessions", &json)?;
    // Everything about a session has a default, so nothing at all is a valid body.
    let body: NewSessionBody = if json.trim_ascii().is_empty() {
        NewSessionBody::default()
    } else {
        parse(&json, "")?
    };
    let mut checks = Checks::new();
    let (agent, metadata) = checks.session("", body);
    checks.finish()?;
    let session = new_session(&app, agent, metadata);
    app.boot_id()?;
    let outcome = app.acceptor.create((session, key)).await?;
    answer_creation(&app, outcome).await
}

/// So much time went by between two parts of an archive that what was stored of it is gone.
pub(super) fn too_slow() -> Error {
    Error::new(
        Code::StoreUnavailable,
        "the archive was too long on its way, nothing of it is kept",
    )
}

/// The answer to a request that creates a session.
pub(super) async fn answer_creation(
    app: &App,
    outcome: CreateOutcome,
) -> Result<Response, Problem> {
    match outcome {
        CreateOutcome::Created(record) => answer_created(&view(app, *record).await),
        CreateOutcome::Mismatch => Err(Error::mismatch().into()),
        CreateOutcome::Gone => Err(too_slow().into()),
        CreateOutcome::Staged => Err(Error::internal().into()),
        CreateOutcome::Replayed(session) => {
            let key = SessionKey {
                tenant: TenantId::DEFAULT,
                session,
            };
            let found = app
                .store
                .get_session(key)
                .await?
                .ok_or_else(Error::session_not_found)?;
            let mut response = answer_created(&view(app, found).await)?;
            respond::mark_replayed(&mut response);
            Ok(response)
        }
    }
}

/// A session, with what is to be told of its agent.
async fn view(app: &App, record: SessionRecord) -> SessionView {
    let warnings = app.acceptor.lacks(app, &record.agent).await;
    SessionView {
        warnings,
        ..SessionView::from(record)
    }
}

fn answer_created(view: &SessionView) -> Result<Response, Problem> {
    respond::created(
        StatusCode::CREATED,
        &format!("/v1/sessions/{}", view.id),
        view,
    )
}

/// `GET /v1/sessions`
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    mut params: Params,
) -> Result<Response, Problem> {
    let limit = params.limit()?;
    let before = params.parsed::<SessionId>("cursor", "must be a next_cursor")?;
    let status = params.take("status").map(|text| {
        let expected = "must be idle, queued, running, waiting or closed";
        SessionStatus::parse(&text).ok_or_else(|| super::extract::parameter("status", expected))
    });
    let status = status.transpose()?;
    let agent = params.take("agent");
    let metadata = params.metadata();
    params.finish()?;
    let begin = Begin {
        cursor: before,
        limit,
    };
    let read = async |before: Option<SessionId>, limit: u32| {
        let query = ListSessions {
            tenant: TenantId::DEFAULT,
            status,
            agent: agent.clone(),
            metadata: metadata.clone(),
            before,
            limit,
        };
        let page = app.store.list_sessions(query).await?;
        Ok((page.data, page.more))
    };
    let place = |session: &SessionRecord| session.key.session;
    respond::page(&app, begin, read, place, SessionView::from).await
}

/// `GET /v1/sessions/{id}`
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    params: Params,
) -> Result<Response, Problem> {
    params.finish()?;
    let found = app
        .store
        .get_session(key)
        .await?
        .ok_or_else(Error::session_not_found)?;
    respond::json(StatusCode::OK, &view(&app, found).await)
}

/// `PATCH /v1/sessions/{id}`
pub(super) async fn change(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    params.finish()?;
    let json = json_body(&app, &headers, body, app.config.body_bytes_max).await?;
    let body: SessionChangeBody = parse(&json, "")?;
    let mut checks = Checks::new();
    if let Some(agent) = &body.agent {
        checks.agent("/agent", agent);
    }
    if let Some(metadata) = &body.metadata {
        checks.metadata("/metadata", metadata);
    }
    checks.finish()?;
    let patch = SessionPatch {
        agent: body.agent,
        metadata: body.metadata,
        closed: body.closed,
    };
    match app.store.update_session(None, key, patch).await? {
        UpdateOutcome::Updated(record) => respond::json(StatusCode::OK, &view(&app, *record).await),
        UpdateOutcome::NotFound => Err(Error::session_not_found().into()),
    }
}

/// `DELETE /v1/sessions/{id}`
pub(super) async fn remove(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    params.finish()?;
    no_body(&app, &headers, body).await?;
    if !deleting::delete(&app, app.boot_id()?, key).await? {
        return Err(Error::session_not_found().into());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `POST /v1/sessions/{id}/resume`
pub(super) async fn resume(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    params.finish()?;
    no_body(&app, &headers, body).await?;
    let record = recovery::resume(&app, key).await?;
    respond::send(StatusCode::ACCEPTED, &SendView::from(record))
}

/// `POST /v1/sessions/{id}/abort`
pub(super) async fn abort(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    params.finish()?;
    no_body(&app, &headers, body).await?;
    sends::answer(recovery::abort(&app, key).await?)
}
