//! Transcripts.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use mainspring_shared::store::ReadMessages;

use super::extract::{Params, SessionPath, parameter};
use super::problem::Problem;
use super::respond::{self, List};
use crate::app::App;

/// `GET /v1/sessions/{id}/messages`
pub(super) async fn list(
    State(app): State<Arc<App>>,
    SessionPath(key): SessionPath,
    mut params: Params,
) -> Result<Response, Problem> {
    let limit = params.limit()?;
    let expected = "must be a message's seq";
    let after = params.parsed::<i64>("after", expected)?;
    let cursor = params.parsed::<i64>("cursor", expected)?;
    params.finish()?;
    let after = cursor.or(after).unwrap_or(0);
    if after < 0 {
        return Err(parameter("after", expected));
    }
    if app.store.get_session(key).await?.is_none() {
        return Err(Problem::session_not_found());
    }
    // One more than asked for tells whether there is a next page.
    let query = ReadMessages {
        key,
        after,
        limit: limit + 1,
    };
    let mut data = app.store.read_messages(query).await?;
    let more = data.len() > limit as usize;
    data.truncate(limit as usize);
    let next_cursor = data
        .last()
        .filter(|_| more)
        .map(|message| message.seq.to_string());
    respond::json(StatusCode::OK, &List { data, next_cursor })
}
