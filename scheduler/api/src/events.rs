//! Event streams.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::stream::{Reader, Scope, StreamEvent};
use mainspring_shared::event::EventId;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::gate::Admission;
use super::problem::Problem;
use crate::codes::{SendNotFound, SessionNotFound};
use crate::extract::{FromText, LastEventId, Query, SendPath, SessionPath, text};
use crate::openapi::form;
use crate::router::Api;
use crate::sse;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(of_session))
        .routes(routes!(of_send))
}

/// The send's events, up to its final one
#[utoipa::path(
    get,
    path = "/v1/sends/{id}/events",
    operation_id = "streamSend",
    params(EventsQuery, LastEventId),
    responses(
        (status = 200, body = crate::openapi::SendEvent, content_type = "text/event-stream"),
        (status = 204, description = "The send has ended, and nothing follows the last event read"), SendNotFound)
)]
pub(super) async fn of_send(
    State(app): State<Arc<Api>>,
    SendPath(tenant, id): SendPath,
    Query(query): Query<EventsQuery>,
    Extension(admission): Extension<Admission>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let seen = query.seen(&headers)?;
    let found = app
        .watch
        .read_send(tenant, id)
        .await?
        .ok_or_else(Error::send_not_found)?;
    let is_final = found.status.is_final();
    let scope = Scope::Send { id, is_final };
    let watcher = app.watch.session(found.key);
    let reader = Reader::open(
        app.scheduler.clone(),
        found.key,
        scope,
        found.first_step,
        seen,
        watcher,
    )
    .await;
    Ok(sse::read(reader, is_final && seen.is_some(), admission).await)
}

/// The session's events, until it is deleted
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/events",
    operation_id = "streamSession",
    params(EventsQuery, LastEventId),
    responses((status = 200, body = crate::openapi::SendEvent, content_type = "text/event-stream"), SessionNotFound)
)]
pub(super) async fn of_session(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    Query(query): Query<EventsQuery>,
    Extension(admission): Extension<Admission>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let seen = query.seen(&headers)?;
    let watcher = app.watch.session(key);
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found().into());
    }
    let reader = Reader::open(app.scheduler.clone(), key, Scope::Session, 0, seen, watcher).await;
    Ok(sse::read(reader, false, admission).await)
}

/// Where a stream begins.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Only events after the one with this id.
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<form::EventId>, inline)]
    after: Option<EventId>,
}

impl EventsQuery {
    /// The last event that the caller has. The header takes precedence: a browser that reconnects
    /// sends it along with the query of its first request.
    pub(super) fn seen(&self, headers: &HeaderMap) -> Result<Option<EventId>, Error> {
        let Some(header) = headers
            .get("last-event-id")
            .filter(|value| !value.is_empty())
        else {
            return Ok(self.after);
        };
        let id = header.to_str().ok().and_then(|text| text.parse().ok());
        id.map(Some).ok_or_else(|| {
            let detail = format!("the header Last-Event-ID {}", EventId::EXPECTED);
            Error::invalid("#last-event-id", detail)
        })
    }
}

impl sse::Source for Reader {
    async fn next(&mut self) -> Option<Vec<Event>> {
        let events = Reader::next(self).await?;
        Some(events.into_iter().map(of_stream).collect())
    }

    fn is_over(&self) -> bool {
        Reader::is_over(self)
    }
}

fn of_stream(event: StreamEvent) -> Event {
    let told = Event::default();
    let told = match event.id {
        Some(id) => told.id(id.to_string()),
        None => told,
    };
    told.event(event.name).data(event.data)
}
