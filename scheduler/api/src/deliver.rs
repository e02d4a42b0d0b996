//! Words for a session that may be busy, and its inbox.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use mainspring_shared::inbox::InboxItem;
use mainspring_shared::send::{SendRecord, SendView};
use mainspring_shared::store::ReadInbox;
use serde::Serialize;

use super::extract::{Params, SessionPath, parameter};
use super::problem::Problem;
use super::respond::{self, Begin};
use crate::router::Api;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::accept::Submitted;

/// A send as it was accepted, or the one that took the words in.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = AcceptedSend)]
pub(super) struct AcceptedSend {
    #[serde(flatten)]
    send: SendView,
    /// The item in the session's inbox, where the words went to a send under way (`on_busy`). Not
    /// there when an earlier request had brought them.
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
    /// A send that took words in.
    pub(super) fn joined(send: SendRecord, item: InboxItem) -> Self {
        Self {
            send: SendView::from(send),
            inbox_item: Some(item),
        }
    }
}

/// `GET /v1/sessions/{id}/inbox`
pub(super) async fn inbox(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    mut params: Params,
) -> Result<Response, Problem> {
    let limit = params.limit()?;
    let after = params.parsed::<i64>("cursor", "must be a next_cursor")?;
    let pending = match params.take("fate").as_deref() {
        None => false,
        Some("pending") => true,
        Some(_) => return Err(parameter("fate", "must be pending").into()),
    };
    params.finish()?;
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found().into());
    }
    let begin = Begin {
        cursor: after,
        limit,
    };
    let read = async |after: Option<i64>, limit: u32| {
        // One more than asked for tells whether there is more.
        let query = ReadInbox {
            key,
            pending,
            after: after.unwrap_or(0),
            limit: limit + 1,
        };
        let mut items = app.store.read_inbox(query).await?;
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        Ok((items, more))
    };
    respond::page(&app, begin, read, |item| item.n, |item| item).await
}
