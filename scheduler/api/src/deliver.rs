//! Messages to a session that may be busy, and its inbox.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::Submitted;
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::send::{SendRecord, SendView};
use mainspring_shared::store::ReadInbox;
use serde::Deserialize;
use serde::Serialize;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond::{self, Begin, List};
use crate::codes::SessionNotFound;
use crate::extract::{FromText, Limit, Query, SessionPath, cursor, text};
use crate::openapi::form;
use crate::router::Api;

/// The accepted send, or the open send to which the message was delivered.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = AcceptedSend)]
pub(super) struct AcceptedSend {
    #[serde(flatten)]
    send: SendView,
    /// The item in the session's inbox, if the message was delivered to an open send (`on_busy`). Absent if
    /// an earlier request with the same key delivered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    inbox_item: Option<InboxItem>,
}

impl From<Submitted> for AcceptedSend {
    fn from(submitted: Submitted) -> Self {
        Self {
            send: submitted.send,
            inbox_item: submitted.inbox_item,
        }
    }
}

impl From<SendView> for AcceptedSend {
    fn from(send: SendView) -> Self {
        Self {
            send,
            inbox_item: None,
        }
    }
}

impl AcceptedSend {
    /// A send that took the message into its inbox.
    pub(super) fn joined(send: SendRecord, item: InboxItem) -> Self {
        Self {
            send: SendView::from(send),
            inbox_item: Some(item),
        }
    }
}

/// Which items, in the order in which they came.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct InboxQuery {
    /// Maximum number of items on the page.
    #[serde(default)]
    #[param(inline)]
    limit: Limit,
    /// The `next_cursor` of the page before.
    #[serde(default, deserialize_with = "cursor")]
    #[param(value_type = Option<form::Number>, inline)]
    cursor: Option<i64>,
    /// `pending`: only undelivered items.
    #[serde(default, deserialize_with = "text")]
    #[param(inline)]
    fate: Option<Pending>,
}

/// The only value of `fate` that can be filtered by.
#[derive(Debug)]
struct Pending;

impl utoipa::PartialSchema for Pending {
    fn schema() -> RefOr<Schema> {
        let word = ObjectBuilder::new().schema_type(Type::String);
        word.enum_values(Some(["pending"])).build().into()
    }
}

impl utoipa::ToSchema for Pending {}

impl FromText for Pending {
    const EXPECTED: &'static str = "must be pending";

    fn from_text(text: &str) -> Option<Self> {
        (text == "pending").then_some(Self)
    }
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(inbox))
}

/// Messages and results for a busy session, with their outcomes
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/inbox",
    operation_id = "listInbox",
    params(InboxQuery),
    responses((status = 200, body = List<InboxItem>), SessionNotFound)
)]
pub(super) async fn inbox(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    Query(query): Query<InboxQuery>,
) -> Result<Response, Problem> {
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found().into());
    }
    let begin = Begin {
        cursor: query.cursor,
        limit: query.limit.0,
    };
    let read = async |after: Option<i64>, limit: u32| {
        // Read one more than requested to see whether there are more.
        let wanted = ReadInbox {
            key,
            pending: query.fate.is_some(),
            after: after.unwrap_or(0),
            limit: limit + 1,
        };
        let mut items = app.store.read_inbox(wanted).await?;
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        Ok((items, more))
    };
    respond::page(&app, begin, read, |item| item.n, |item| item).await
}
