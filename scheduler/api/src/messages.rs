//! Transcripts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::store::ReadMessages;
use serde::Deserialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond::{self, Begin, List};
use crate::extract::{FromText, Limit, Query, SessionPath, text};
use crate::router::Api;

/// Which messages, in their order.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct MessagesQuery {
    #[serde(default)]
    #[param(value_type = u32)]
    limit: Limit,
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<String>)]
    cursor: Option<Seq>,
    #[serde(default, deserialize_with = "text")]
    #[param(value_type = Option<String>)]
    after: Option<Seq>,
    /// Nothing is folded yet: what was said is all there is to show, either way.
    #[serde(default, rename = "folded", deserialize_with = "text")]
    #[param(value_type = Option<String>)]
    _folded: Option<bool>,
}

/// A message's number.
#[derive(Debug, Clone, Copy)]
struct Seq(i64);

impl FromText for Seq {
    const EXPECTED: &'static str = "must be a message's seq";

    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok().filter(|seq| *seq >= 0).map(Self)
    }
}

/// Its paths.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// The transcript by seq
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/messages",
    operation_id = "listMessages",
    params(MessagesQuery),
    responses((status = 200, body = List<mainspring_shared::message::Message>))
)]
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    Query(query): Query<MessagesQuery>,
) -> Result<Response, Problem> {
    let after = query.cursor.or(query.after).unwrap_or(Seq(0)).0;
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found().into());
    }
    let begin = Begin {
        cursor: Some(after),
        limit: query.limit.0,
    };
    let read = async |after: Option<i64>, limit: u32| {
        // One more than requested shows whether there are more.
        let wanted = ReadMessages {
            key,
            after: after.unwrap_or(0),
            limit: limit + 1,
        };
        let mut messages = app.store.read_messages(wanted).await?;
        let more = messages.len() > limit as usize;
        messages.truncate(limit as usize);
        Ok((messages, more))
    };
    respond::page(&app, begin, read, |message| message.seq, |message| message).await
}
