//! Sessions.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::App;
use mainspring_scheduler::deleting;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::agents::Resolver;
use mainspring_scheduler::services::recovery;
use mainspring_scheduler::services::skills::pin;
use mainspring_shared::error::Code;
use mainspring_shared::id::{SessionId, SessionKey, TenantId};
use mainspring_shared::send::SendView;
use mainspring_shared::session::{SessionRecord, SessionStatus, SessionView};
use mainspring_shared::store::{CreateOutcome, IdempotencyKey, ListSessions, UpdateOutcome};
use mainspring_shared::time::Timestamp;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::bodies::{NewSessionBody, SessionChangeBody};
use super::problem::Problem;
use super::respond::{self, Begin, List};
use super::sends;
use crate::access::{Caller, refuse_held};
use crate::codes::{
    AgentNotFound, BudgetNoPrice, SessionNotFound, SessionNotWaiting, Starts, TenantHeld,
};
use crate::created::Created;
use crate::extract::{Json, Key, Limit, NoQuery, Nothing, Query, SessionPath, cursor, text};
use crate::openapi::form;
use crate::router::Api;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, change, remove))
        .routes(routes!(resume))
        .routes(routes!(abort))
}

/// Creates a session, or returns the one with its `key`
#[utoipa::path(
    post,
    path = "/v1/sessions",
    operation_id = "createSession",
    params(Key),
    request_body = Option<NewSessionBody>,
    responses((status = 200, body = SessionView), (status = 201, body = SessionView), Starts)
)]
pub(super) async fn create(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    mut json: Json<NewSessionBody>,
) -> Result<Response, Problem> {
    let name = json.value.name.take();
    // A request that names its session can be repeated as it is.
    let key = match &name {
        Some(name) => Some(IdempotencyKey::session(caller.tenant, name.clone())),
        None => json.idempotency("POST /v1/sessions")?,
    };
    if let Some(name) = key.as_ref().filter(|key| key.names_session())
        && let Some(session) = app.store.keyed_resource(name.clone()).await?
    {
        // Whatever the request says of a new one, this one exists.
        return existing(&app, &caller, SessionId(session)).await;
    }
    let mut agents = Resolver::new(&app, caller.tenant, caller.allowed());
    let mut session = json
        .value
        .new_session(&mut agents, &app, key.as_ref())
        .await?;
    pin(
        app.store.as_ref(),
        caller.tenant,
        &mut session.agent,
        "/agent",
    )
    .await?;
    app.boot_id()?;
    let outcome = app.acceptor.create((session, key)).await?;
    match (name, &outcome) {
        (Some(_), CreateOutcome::Replayed(session)) => existing(&app, &caller, *session).await,
        _ => answer_creation(&app, caller.tenant, outcome).await,
    }
}

/// The response to a request whose session exists.
async fn existing(app: &App, caller: &Caller, session: SessionId) -> Result<Response, Problem> {
    let key = SessionKey {
        tenant: caller.tenant,
        session,
    };
    let found = app.store.get_session(key).await?;
    let is_inside = |found: &SessionRecord| caller.binding().is_none_or(|it| it.holds(found));
    let found = found
        .filter(is_inside)
        .ok_or_else(Error::session_not_found)?;
    respond::json(StatusCode::OK, &view(app, found).await)
}

/// So much time passed between two parts of an archive that the parts stored so far are gone.
pub(super) fn too_slow() -> Error {
    Error::new(
        Code::StoreUnavailable,
        "the archive did not arrive in time; nothing was imported",
    )
}

/// The response to a request that creates a session.
pub(super) async fn answer_creation(
    app: &App,
    tenant: TenantId,
    outcome: CreateOutcome,
) -> Result<Response, Problem> {
    match outcome {
        CreateOutcome::Created(record) => answer_created(&view(app, *record).await),
        CreateOutcome::Mismatch => Err(Error::mismatch().into()),
        CreateOutcome::Gone => Err(too_slow().into()),
        CreateOutcome::Staged => Err(Error::internal().into()),
        CreateOutcome::Replayed(session) => {
            let key = SessionKey { tenant, session };
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

/// A session, with warnings about its agent.
async fn view(app: &App, record: SessionRecord) -> SessionView {
    let warnings = app.acceptor.missing_tools(app, &record.agent).await;
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

/// Which sessions, newest first.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionsQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::SessionId>, inline)]
    cursor: Option<SessionId>,
    /// Only those with this status.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<SessionStatus>)]
    status: Option<SessionStatus>,
    /// Only those whose agent has this name.
    agent: Option<String>,
    /// `metadata[NAME]=TEXT`, or `metadata.NAME=TEXT`: only those whose metadata say so.
    #[serde(default)]
    #[param(value_type = Option<form::Metadata>, inline, style = DeepObject, explode = true)]
    metadata: BTreeMap<String, String>,
    /// Only the one that was created with this `key`; the other filters do not count.
    #[param(value_type = Option<form::Key>, inline)]
    pub(super) key: Option<String>,
    /// Only those that were created at this time or later, like `2030-01-31T08:00:00Z`.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Time>, inline)]
    created_from: Option<Timestamp>,
    /// Only those that were created before this time.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::Time>, inline)]
    created_before: Option<Timestamp>,
}

/// Sessions, newest first
#[utoipa::path(
    get,
    path = "/v1/sessions",
    operation_id = "listSessions",
    params(SessionsQuery),
    responses((status = 200, body = List<SessionView>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Query(query): Query<SessionsQuery>,
) -> Result<Response, Problem> {
    if let Some(name) = query.key.clone() {
        let name = IdempotencyKey::session(caller.tenant, name);
        let found = match app.store.keyed_resource(name).await? {
            Some(session) => {
                let (tenant, session) = (caller.tenant, SessionId(session));
                app.store
                    .get_session(SessionKey { tenant, session })
                    .await?
            }
            None => None,
        };
        let is_inside = |found: &SessionRecord| caller.binding().is_none_or(|it| it.holds(found));
        let found = found.filter(is_inside).map(SessionView::from);
        return respond::json(StatusCode::OK, &List::whole(found.into_iter().collect()));
    }
    let begin = query.begin();
    let read = async |before, limit| query.read(&app, &caller, before, limit).await;
    let place = |session: &SessionRecord| session.key.session;
    respond::page_of_some(&app, begin, read, place, SessionView::from).await
}

impl SessionsQuery {
    fn created(&self) -> Created {
        Created {
            from: self.created_from,
            before: self.created_before,
        }
    }

    pub(super) fn begin(&self) -> Begin<SessionId> {
        self.created().begin(self.cursor, self.limit, SessionId)
    }

    pub(super) fn is_filtered(&self) -> bool {
        let is_named = self.status.is_some() || self.agent.is_some();
        is_named || self.created().is_some() || !self.metadata.is_empty()
    }

    /// The sessions before one, whether each is shown, and whether there are more.
    pub(super) async fn read(
        &self,
        app: &App,
        caller: &Caller,
        before: Option<SessionId>,
        limit: u32,
    ) -> Result<(Vec<(SessionRecord, bool)>, bool), Error> {
        let mut metadata = self.metadata.clone();
        if let Some(binding) = caller.binding() {
            // The database leaves out most sessions outside the binding. Those that it finds are
            // checked below.
            for (name, text) in &binding.metadata {
                let asked = metadata.entry(name.clone());
                asked.or_insert_with(|| text.clone());
            }
        }
        let wanted = ListSessions {
            tenant: caller.tenant,
            status: self.status,
            agent: self.agent.clone(),
            metadata,
            before,
            limit,
        };
        let mut page = app.store.list_sessions(wanted).await?;
        let id = |session: &SessionRecord| session.key.session.0;
        let more = self.created().keep(&mut page.data, page.more, id);
        let rows = page.data.into_iter().map(|session| {
            let binding = caller.binding();
            let is_shown = binding.is_none_or(|binding| binding.holds(&session));
            (session, is_shown)
        });
        Ok((rows.collect(), more))
    }
}

/// A session
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}",
    operation_id = "getSession",
    responses((status = 200, body = SessionView), SessionNotFound)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let found = app
        .store
        .get_session(key)
        .await?
        .ok_or_else(Error::session_not_found)?;
    respond::json(StatusCode::OK, &view(&app, found).await)
}

/// Replaces the agent or the metadata, closes or reopens
#[utoipa::path(
    patch,
    path = "/v1/sessions/{id}",
    operation_id = "changeSession",
    request_body = SessionChangeBody,
    responses((status = 200, body = SessionView), AgentNotFound, BudgetNoPrice, SessionNotFound)
)]
pub(super) async fn change(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
    Json { value: change, .. }: Json<SessionChangeBody>,
) -> Result<Response, Problem> {
    let patch = change.patch(&app, key, caller.allowed()).await?;
    match app.store.update_session(key, patch).await? {
        UpdateOutcome::Updated(record) => respond::json(StatusCode::OK, &view(&app, *record).await),
        UpdateOutcome::NotFound => Err(Error::session_not_found().into()),
    }
}

/// Cancels its open sends and removes its transcript
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}",
    operation_id = "deleteSession",
    responses((status = 204), SessionNotFound, TenantHeld)
)]
pub(super) async fn remove(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    refuse_held(&app, key.tenant).await?;
    if !deleting::delete(&app, app.boot_id()?, key).await? {
        return Err(Error::session_not_found().into());
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Resumes a send that waits for recovery
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/resume",
    operation_id = "resumeSession",
    responses((status = 202, body = SendView), SessionNotFound, SessionNotWaiting)
)]
pub(super) async fn resume(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    let record = recovery::resume(&app, key).await?;
    respond::send(StatusCode::ACCEPTED, &SendView::from(record))
}

/// Cancels a send that waits for recovery
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/abort",
    operation_id = "abortSession",
    responses((status = 200, body = SendView), SessionNotFound, SessionNotWaiting)
)]
pub(super) async fn abort(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
    _: Json<Nothing>,
) -> Result<Response, Problem> {
    sends::answer(&recovery::abort(&app, key).await?)
}
