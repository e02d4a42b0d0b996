//! What belongs to a session: its children, and the lists that its agent keeps.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures::{StreamExt, TryStreamExt};
use mainspring_scheduler::error::Error;
use mainspring_shared::id::{SessionId, SessionKey};
use mainspring_shared::list::{Entry, List as Kept, ListName};
use mainspring_shared::session::{SessionRecord, SessionView};
use mainspring_shared::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond::{self, Begin, List};
use crate::access::Caller;
use crate::codes::SessionNotFound;
use crate::extract::{Limit, NoQuery, Query, SessionPath, cursor};
use crate::openapi::form;
use crate::router::Api;

/// How many sessions are read at a time.
const READ_AT_ONCE: usize = 16;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(children))
        .routes(routes!(lists))
}

/// Which children of a session to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChildrenQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::SessionId>, inline)]
    cursor: Option<SessionId>,
}

/// The sessions that a session's agent created, newest first
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/children",
    operation_id = "listChildren",
    params(ChildrenQuery),
    responses((status = 200, body = List<SessionView>), SessionNotFound)
)]
pub(super) async fn children(
    State(app): State<Arc<Api>>,
    caller: Caller,
    SessionPath(key): SessionPath,
    Query(query): Query<ChildrenQuery>,
) -> Result<Response, Problem> {
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found().into());
    }
    let mut below = app.store.list_children(key).await?;
    below.sort_unstable_by_key(|child| std::cmp::Reverse(child.session));
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |before: Option<SessionId>, limit: u32| {
        let behind = |child: &&SessionKey| before.is_none_or(|before| child.session < before);
        let rest: Vec<SessionKey> = below.iter().filter(behind).copied().collect();
        let more = rest.len() > limit as usize;
        let page = rest.into_iter().take(limit as usize);
        let read = page.map(|child| app.store.get_session(child));
        let read = futures::stream::iter(read).buffered(READ_AT_ONCE);
        let read: Vec<Option<SessionRecord>> = read.try_collect().await?;
        // One that was deleted meanwhile is left out.
        let rows = read.into_iter().flatten().map(|child| {
            let is_shown = caller.binding().is_none_or(|binding| binding.holds(&child));
            (child, is_shown)
        });
        Ok((rows.collect(), more))
    };
    let place = |session: &SessionRecord| session.key.session;
    respond::page_of_some(&app, begin, read, place, SessionView::from).await
}

/// The lists that a session's agent keeps.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SessionLists {
    /// Its to-do list.
    todo: Vec<EntryView>,
    /// Its notes.
    notes: Vec<EntryView>,
    /// The board of its tree of agents.
    board: Vec<EntryView>,
}

/// An entry of a list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ListEntry)]
pub(super) struct EntryView {
    /// Its number in the list.
    id: i64,
    /// Counts its changes, from 1.
    version: i64,
    /// Its text.
    text: String,
    /// Its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Its status.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    /// Who wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    /// Whether it is never evicted.
    pinned: bool,
    /// When it was written.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

impl From<Entry> for EntryView {
    fn from(entry: Entry) -> Self {
        Self {
            id: entry.id,
            version: entry.version,
            text: entry.text,
            kind: entry.kind,
            status: entry.status,
            author: entry.author,
            pinned: entry.pinned,
            created_at: entry.created_at,
            updated_at: entry.updated_at,
        }
    }
}

/// The to-do list, the notes and the board that a session's agent works with
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/lists",
    operation_id = "getSessionLists",
    responses((status = 200, body = SessionLists), SessionNotFound)
)]
pub(super) async fn lists(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let found = app.store.get_session(key).await?;
    let found = found.ok_or_else(Error::session_not_found)?;
    let root = found.parent.map_or(key.session, |parent| parent.root);
    let read = |name| app.store.read_list(key.tenant, name);
    let shown = |list: Kept| list.entries.into_iter().map(EntryView::from).collect();
    let lists = SessionLists {
        todo: shown(read(ListName::Todo(key.session)).await?),
        notes: shown(read(ListName::Notes(key.session)).await?),
        board: shown(read(ListName::root_board(root)).await?),
    };
    respond::json(StatusCode::OK, &lists)
}
