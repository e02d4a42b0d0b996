//! The documentation, as pages for browsers.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use mainspring_scheduler::error::Error;
use serde::Deserialize;

use crate::extract::{NoQuery, Query};
use crate::problem::{self, Problem};
use crate::router::Api;

/// What a page may do: look like it should, and ask this server for another one. There is no script in it.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Renders the documentation.
#[derive(Debug, Clone, Copy)]
pub struct Documents {
    /// The page at a path below `/docs/`, as HTML; the empty path is the first page. None if there is none.
    pub page: fn(&str) -> Option<String>,
    /// A page with the places where a text is found.
    pub search: fn(&str) -> String,
    /// Maximum bytes of that text.
    pub query_bytes_max: usize,
}

/// The routes of this module, which the description of the API does not have: they are for people.
pub(crate) fn routes(documents: Option<Documents>) -> Router<Arc<Api>> {
    let Some(documents) = documents else {
        return Router::new();
    };
    let first = move |query| async move { first(documents, query) };
    let page = move |path, query| page(documents, path, query);
    Router::new()
        .route("/docs", get(|| async { moved() }))
        .route("/docs/", get(first))
        .route("/docs/{*path}", get(page))
        .layer(map_response(guarded))
}

/// Links in a page are relative to the folder.
fn moved() -> Response {
    let headers = [(LOCATION, HeaderValue::from_static("docs/"))];
    (StatusCode::PERMANENT_REDIRECT, headers).into_response()
}

/// What the first page can be asked for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    /// Words to find in all pages.
    q: Option<String>,
}

fn first(documents: Documents, Query(Search { q }): Query<Search>) -> Result<Response, Problem> {
    let html = match q.as_deref().map(str::trim) {
        None | Some("") => (documents.page)("").ok_or_else(Error::internal)?,
        Some(text) if text.len() > documents.query_bytes_max => {
            let detail = format!("must have at most {} bytes", documents.query_bytes_max);
            return Err(Error::invalid("?q", detail).into());
        }
        Some(text) => (documents.search)(text),
    };
    Ok(shown(html))
}

async fn page(
    documents: Documents,
    path: Result<Path<String>, PathRejection>,
    _: Query<NoQuery>,
) -> Response {
    let found = path.ok().and_then(|Path(path)| (documents.page)(&path));
    match found {
        Some(html) => shown(html),
        None => problem::nothing_here().await.into_response(),
    }
}

fn shown(html: String) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, html).into_response()
}

/// Adds what tells a browser to keep other pages away from a response.
async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER_POLICY, "same-origin"),
        (X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
