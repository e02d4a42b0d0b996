//! Builds responses.

use std::fmt::Display;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use mainspring_scheduler::App;
use mainspring_scheduler::error::Error;
use mainspring_shared::send::SendView;
use serde::Serialize;

use super::problem::Problem;

/// The header that marks the response to a repeated request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Rows of a list per read. It bounds how much of a page is in memory beyond its bytes.
const PIECE: u32 = 50;

/// Maximum number of rows that a page skips before it ends early. Each may belong to another
/// session, which is read to check it.
const PASSED_MAX: u32 = 1_000;

/// A page of a list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct List<T> {
    data: Vec<T>,
    /// The `cursor` of the next page; null at the end.
    next_cursor: Option<String>,
}

impl<T> List<T> {
    pub(super) fn whole(data: Vec<T>) -> Self {
        Self {
            data,
            next_cursor: None,
        }
    }
}

/// Where a page of a list begins, and its maximum size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin<C> {
    /// The `next_cursor` of the previous page.
    pub(super) cursor: Option<C>,
    /// Maximum number of items.
    pub(super) limit: u32,
}

/// One page of a list: at most `limit` items, fewer if they do not fit, but at least one. `read`
/// returns up to the given number of rows after a cursor, and whether there are more. `place`
/// returns the cursor of a row, and `view` what is shown of it.
pub(super) async fn page<C, T, V, R>(
    app: &App,
    from: Begin<C>,
    mut read: impl FnMut(Option<C>, u32) -> R,
    place: impl Fn(&T) -> C,
    view: impl Fn(T) -> V,
) -> Result<Response, Problem>
where
    C: Clone + Display,
    V: Serialize,
    R: Future<Output = Result<(Vec<T>, bool), Error>>,
{
    let read = |after: Option<C>, limit: u32| {
        let rows = read(after, limit);
        async move {
            let (rows, more) = rows.await?;
            let rows = rows.into_iter().map(|row| (row, true));
            Ok((rows.collect(), more))
        }
    };
    page_of_some(app, from, read, place, view).await
}

/// Like `page`, but some rows are left out: `read` tells for each whether it is shown. After many
/// rows a page ends early, with fewer items or none, so that no request reads a whole table.
pub(super) async fn page_of_some<C, T, V, R>(
    app: &App,
    from: Begin<C>,
    mut read: impl FnMut(Option<C>, u32) -> R,
    place: impl Fn(&T) -> C,
    view: impl Fn(T) -> V,
) -> Result<Response, Problem>
where
    C: Clone + Display,
    V: Serialize,
    R: Future<Output = Result<(Vec<(T, bool)>, bool), Error>>,
{
    let mut page = Page::new(app.config.page_bytes_max);
    let (mut last, mut left) = (from.cursor, from.limit);
    let mut passed = 0;
    loop {
        let wanted = if passed == 0 { left.min(PIECE) } else { PIECE };
        let (rows, more) = read(last.clone(), wanted).await?;
        let more = more && !rows.is_empty();
        for (row, is_shown) in rows {
            let at = place(&row);
            if is_shown {
                if left == 0 || !page.push(&view(row))? {
                    return Ok(page.end(last));
                }
                left -= 1;
            } else {
                passed += 1;
            }
            last = Some(at);
        }
        if !more || left == 0 || passed >= PASSED_MAX {
            return Ok(page.end(last.filter(|_| more)));
        }
    }
}

/// The serialized bytes of a page.
struct Page {
    bytes: Vec<u8>,
    items: u32,
    bytes_max: usize,
}

impl Page {
    fn new(bytes_max: usize) -> Self {
        let mut bytes = Vec::with_capacity(512);
        bytes.extend_from_slice(b"{\"data\":[");
        Self {
            bytes,
            items: 0,
            bytes_max,
        }
    }

    /// Appends an item unless it does not fit. The first item always fits.
    fn push<V: Serialize>(&mut self, item: &V) -> Result<bool, Error> {
        let before = self.bytes.len();
        if self.items > 0 {
            self.bytes.push(b',');
        }
        write(&mut self.bytes, item)?;
        let fits = self.items == 0 || self.bytes.len() <= self.bytes_max;
        if fits {
            self.items += 1;
        } else {
            self.bytes.truncate(before);
        }
        Ok(fits)
    }

    fn end<C: Display>(mut self, next: Option<C>) -> Response {
        let next = next.map_or(serde_json::Value::Null, |next| next.to_string().into());
        let end = format!("],\"next_cursor\":{next}}}");
        self.bytes.extend_from_slice(end.as_bytes());
        whole(StatusCode::OK, self.bytes)
    }
}

fn write<T: Serialize>(bytes: &mut Vec<u8>, value: &T) -> Result<(), Error> {
    serde_json::to_writer(bytes, value).map_err(|error| {
        tracing::error!(error = %error, "a response could not be serialized");
        Error::internal()
    })
}

/// A JSON response.
pub(super) fn json<T: Serialize>(status: StatusCode, value: &T) -> Result<Response, Problem> {
    let mut bytes = Vec::with_capacity(512);
    write(&mut bytes, value)?;
    Ok(whole(status, bytes))
}

fn whole(status: StatusCode, bytes: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A JSON response with the location of the item.
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

/// Marks the response to a repeated request.
pub(super) fn mark_replayed(response: &mut Response) {
    response
        .headers_mut()
        .insert(REPLAYED, HeaderValue::from_static("true"));
}

/// The status for a send requested with `?wait`: 200 if it is final, else 202.
pub(super) fn status_of(send: &SendView) -> StatusCode {
    if send.status.is_final() {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    }
}

/// The response for a send, with its location.
pub(super) fn send(status: StatusCode, view: &SendView) -> Result<Response, Problem> {
    created(status, &format!("/v1/sends/{}", view.id), view)
}
