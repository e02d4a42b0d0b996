//! Answers.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use mainspring_shared::send::{SendRecord, SendView};
use serde::Serialize;

use super::problem::Problem;

/// Says that a request had been served before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// One page of a list.
#[derive(Debug, Serialize)]
pub(super) struct List<T> {
    /// The items.
    pub(super) data: Vec<T>,
    /// What the next question passes as `cursor`; null at the end.
    pub(super) next_cursor: Option<String>,
}

impl<T> List<T> {
    /// A list without further pages.
    pub(super) fn whole(data: Vec<T>) -> Self {
        Self {
            data,
            next_cursor: None,
        }
    }
}

/// A JSON answer.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Result<Response, Problem> {
    let mut bytes = Vec::with_capacity(512);
    if let Err(error) = serde_json::to_writer(&mut bytes, value) {
        tracing::error!(error = %error, "an answer could not be written");
        return Err(Problem::internal());
    }
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// A JSON answer that says where the thing is.
pub(super) fn created<T: Serialize>(
    status: StatusCode,
    path: &str,
    value: &T,
) -> Result<Response, Problem> {
    let mut response = json(status, value)?;
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    Ok(response)
}

/// Marks an answer as a repeated one.
pub(super) fn mark_replayed(response: &mut Response) {
    response
        .headers_mut()
        .insert(REPLAYED, HeaderValue::from_static("true"));
}

/// A send that was asked for with `?wait`: 200 when it is final, else 202.
pub(super) fn status_of(send: &SendRecord) -> StatusCode {
    if send.status.is_final() {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    }
}

/// A send with its place.
pub(super) fn send(status: StatusCode, view: &SendView) -> Result<Response, Problem> {
    created(status, &format!("/v1/sends/{}", view.id), view)
}
