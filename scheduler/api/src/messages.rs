//! Transcripts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use mainspring_shared::store::ReadMessages;

use super::extract::{Params, SessionPath, parameter};
use super::problem::Problem;
use super::respond::{self, Begin};
use crate::router::Api;
use mainspring_scheduler::error::Error;

/// `GET /v1/sessions/{id}/messages`
pub(super) async fn list(
    State(app): State<Arc<Api>>,
    SessionPath(key): SessionPath,
    mut params: Params,
) -> Result<Response, Problem> {
    let limit = params.limit()?;
    let expected = "must be a message's seq";
    let after = params.parsed::<i64>("after", expected)?;
    let cursor = params.parsed::<i64>("cursor", expected)?;
    // Nothing is folded yet: what was said is all there is to show, either way.
    params.parsed::<bool>("folded", "must be true or false")?;
    params.finish()?;
    for (name, seq) in [("after", after), ("cursor", cursor)] {
        if seq.is_some_and(|seq| seq < 0) {
            return Err(parameter(name, expected).into());
        }
    }
    let after = cursor.or(after).unwrap_or(0);
    if app.store.get_session(key).await?.is_none() {
        return Err(Error::session_not_found().into());
    }
    let begin = Begin {
        cursor: Some(after),
        limit,
    };
    let read = async |after: Option<i64>, limit: u32| {
        // One more than asked for tells whether there is more.
        let query = ReadMessages {
            key,
            after: after.unwrap_or(0),
            limit: limit + 1,
        };
        let mut messages = app.store.read_messages(query).await?;
        let more = messages.len() > limit as usize;
        messages.truncate(limit as usize);
        Ok((messages, more))
    };
    respond::page(&app, begin, read, |message| message.seq, |message| message).await
}
