//! Blobs.

use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH, RANGE,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_scheduler::services::spending::admit_bytes;
use mainspring_shared::blob::{BlobHash, BlobRef};
use mainspring_shared::error::Code;
use mainspring_shared::message::is_media_type;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::respond;
use crate::access::Caller;
use crate::codes::{BlobCorrupt, BlobNotFound, BlobTooLarge, BlobUnavailable, LimitBytes};
use crate::extract::{NoQuery, Query, read_body};
use crate::router::Api;

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(put))
        .routes(routes!(show))
}

/// Stores the body under its SHA-256: 201, or 200 if it was stored before
///
/// The media type of stored bytes remains the first one. A bound key gets 201 in either case. Parts of
/// messages can name it. What nothing names is removed after a day, which begins anew with every request
/// that stores it.
#[utoipa::path(
    post,
    path = "/v1/blobs",
    operation_id = "createBlob",
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 201, body = BlobRef), (status = 200, body = BlobRef), BlobTooLarge, BlobUnavailable, LimitBytes)
)]
pub(super) async fn put(
    State(app): State<Arc<Api>>,
    caller: Caller,
    _: Query<NoQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let media_type = media_type(&parts.headers)?;
    let bytes_max = app.outside.blobs.bytes_max();
    let body = read_body(&app, &parts.headers, body, bytes_max).await;
    let body = body.map_err(|error| match error.code() {
        Code::RequestTooLarge => {
            let detail = format!("a blob has at most {bytes_max} bytes");
            Error::new(Code::BlobTooLarge, detail)
        }
        _ => error,
    })?;
    let tenant = caller.tenant;
    admit_bytes(&app, tenant, body.bytes().len()).await?;
    let stored = app
        .outside
        .blobs
        .put(tenant, None, &media_type, body.bytes())
        .await;
    let mut stored = stored.map_err(Error::from)?;
    // A bound key must not find out whether others have stored the same bytes, nor as what.
    let is_known = stored.known && caller.binding().is_none();
    if is_known {
        let found = app.outside.blobs.find(tenant, stored.blob.sha256).await;
        if let Some(found) = found.map_err(Error::from)? {
            stored.blob.media_type = found.media_type;
        }
    }
    let status = if is_known {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let path = format!("/v1/blobs/{}", stored.blob.sha256);
    respond::created(status, &path, &stored.blob)
}

/// The media type of the body, without parameters such as a character set.
fn media_type(headers: &HeaderMap) -> Result<String, Error> {
    let Some(given) = headers.get(CONTENT_TYPE) else {
        return Err(Error::media_type("Content-Type is missing".to_owned()));
    };
    let text = given.to_str().unwrap_or_default();
    let text = text.split(';').next().unwrap_or_default().trim();
    let text = text.to_ascii_lowercase();
    if is_media_type(&text) {
        Ok(text)
    } else {
        Err(Error::invalid(
            "#content-type",
            "Content-Type must be like image/png",
        ))
    }
}

/// The content of a blob, or the part that `Range` names
#[utoipa::path(
    get,
    path = "/v1/blobs/{sha256}",
    operation_id = "getBlob",
    responses(
        (status = 200, body = String, content_type = "application/octet-stream"),
        (status = 206, body = String, content_type = "application/octet-stream"),
        (status = 304),
        (status = 416), BlobCorrupt, BlobNotFound, BlobUnavailable)
)]
pub(super) async fn show(
    State(app): State<Arc<Api>>,
    caller: Caller,
    Path(sha256): Path<String>,
    _: Query<NoQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let not_found = || Error::new(Code::BlobNotFound, "no blob has this SHA-256");
    let sha256: BlobHash = sha256.parse().map_err(|_| not_found())?;
    let tenant = caller.tenant;
    let found = app
        .outside
        .blobs
        .find(tenant, sha256)
        .await
        .map_err(Error::from)?;
    let record = found.ok_or_else(not_found)?;
    let tag = format!("\"{sha256}\"");
    if is_known(&headers, &tag) {
        return Ok(marked(StatusCode::NOT_MODIFIED, Body::empty(), &tag, None));
    }
    let media_type = Some(record.media_type.as_str());
    match range(&headers, record.bytes) {
        Requested::Whole => {
            let data = app
                .outside
                .blobs
                .read(tenant, sha256)
                .await
                .map_err(Error::from)?;
            let data = data.ok_or_else(not_found)?;
            Ok(marked(StatusCode::OK, Body::from(data), &tag, media_type))
        }
        Requested::Part(range) => {
            let said = format!("bytes {}-{}/{}", range.start, range.end - 1, record.bytes);
            let data = app.outside.blobs.read_range(&record, range).await;
            let data = data.map_err(Error::from)?.ok_or_else(not_found)?;
            let body = Body::from(data);
            let mut response = marked(StatusCode::PARTIAL_CONTENT, body, &tag, media_type);
            insert(&mut response, CONTENT_RANGE, &said);
            Ok(response)
        }
        Requested::Nothing => {
            let status = StatusCode::RANGE_NOT_SATISFIABLE;
            let mut response = marked(status, Body::empty(), &tag, None);
            insert(
                &mut response,
                CONTENT_RANGE,
                &format!("bytes */{}", record.bytes),
            );
            Ok(response)
        }
    }
}

fn insert(response: &mut Response, name: axum::http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// A response that browsers neither interpret nor display, whatever its media type is.
fn marked(status: StatusCode, body: Body, tag: &str, media_type: Option<&str>) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    insert(&mut response, ETAG, tag);
    insert(&mut response, ACCEPT_RANGES, "bytes");
    insert(&mut response, CONTENT_DISPOSITION, "attachment");
    if let Some(media_type) = media_type {
        insert(&mut response, CONTENT_TYPE, media_type);
    }
    response
}

/// Whether the caller already has the content.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get(IF_NONE_MATCH);
    let known = known.and_then(|value| value.to_str().ok());
    known.is_some_and(|known| {
        let mut tags = known.split(',').map(str::trim);
        tags.any(|known| known == "*" || known.trim_start_matches("W/") == tag)
    })
}

/// The requested part of the content.
#[derive(Debug, PartialEq, Eq)]
enum Requested {
    Whole,
    Part(Range<u64>),
    /// A range beyond the end.
    Nothing,
}

/// Parses `Range`. Only a single range of bytes is served; several ranges or another unit get the
/// whole content.
fn range(headers: &HeaderMap, bytes: u64) -> Requested {
    let asked = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let asked = asked.and_then(|text| text.trim().strip_prefix("bytes="));
    let Some((first, last)) = asked.and_then(|text| text.split_once('-')) else {
        return Requested::Whole;
    };
    match (first.trim().parse::<u64>(), last.trim()) {
        (Ok(first), _) if first >= bytes => Requested::Nothing,
        (Ok(first), "") => Requested::Part(first..bytes),
        (Ok(first), last) => match last.parse::<u64>() {
            Ok(last) if last >= first => Requested::Part(first..bytes.min(last.saturating_add(1))),
            Ok(_) | Err(_) => Requested::Whole,
        },
        // The last `last` bytes.
        (Err(_), last) if first.trim().is_empty() => match last.parse::<u64>() {
            Ok(0) => Requested::Nothing,
            Ok(_) if bytes == 0 => Requested::Nothing,
            Ok(last) => Requested::Part(bytes.saturating_sub(last)..bytes),
            Err(_) => Requested::Whole,
        },
        (Err(_), _) => Requested::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_read_and_everything_else_is_the_whole() {
        for (text, asked) in [
            ("bytes=0-3", Requested::Part(0..4)),
            ("bytes=2-", Requested::Part(2..10)),
            ("bytes=2-99", Requested::Part(2..10)),
            ("bytes=-3", Requested::Part(7..10)),
            ("bytes=-30", Requested::Part(0..10)),
            ("bytes=10-", Requested::Nothing),
            ("bytes=-0", Requested::Nothing),
            ("bytes=3-2", Requested::Whole),
            ("bytes=0-1,3-4", Requested::Whole),
            ("bytes=-", Requested::Whole),
            ("bytes=x-1", Requested::Whole),
            ("lines=0-1", Requested::Whole),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, HeaderValue::from_static(text));
            assert_eq!(range(&headers, 10), asked, "{text}");
        }
        assert_eq!(range(&HeaderMap::new(), 10), Requested::Whole);
    }
}
