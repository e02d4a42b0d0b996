//! The console: a page for browsers that uses the API as any client does, and the sessions of those who sign in to it.
//! Its files are built from `console/` by `cargo xtask console`, and are part of the program.

mod files;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, SET_COOKIE, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use serde::Deserialize;

use self::files::{File, PAGE, SCRIPT, SHEET};
use crate::access::{FORGET, SignIn, is_of_console};
use crate::extract::{NoQuery, Query, json_body, parse};
use crate::problem::Problem;
use crate::router::Api;

/// What the page may do: run its own script and talk to this server. No other page may show or open it, and no text
/// becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Maximum bytes of the body with a key.
const BODY_BYTES_MAX: usize = 16 << 10;

/// The routes of this module, which the description of the API does not have: they are for one page only.
pub(crate) fn routes() -> Router<Arc<Api>> {
    let file = |file: &'static LazyLock<File>| {
        get(move |headers: HeaderMap| async move { file.answer(&headers) })
    };
    Router::new()
        .route("/", file(&PAGE))
        .route("/console/app.js", file(&SCRIPT))
        .route("/console/app.css", file(&SHEET))
        .route("/console/session", post(sign_in).delete(sign_out))
        .layer(map_response(guarded))
}

/// Adds what tells a browser to keep other pages away from a response.
async fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
        (X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Who signs in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignInBody {
    /// What would be sent as a bearer token.
    key: String,
}

/// Verifies a key and answers with a cookie that stands for it.
async fn sign_in(
    State(app): State<Arc<Api>>,
    _: Query<NoQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    refuse_other_pages(&parts.headers)?;
    // Looking up a key counts as a request in flight, as it does in the gate.
    let _place = app.requests.enter("request")?;
    let body = json_body(&app, &parts.headers, body, BODY_BYTES_MAX).await?;
    let SignInBody { key } = parse(&body, "")?;
    let key = key.trim();
    app.gatekeeper.verify(&app.scheduler, key).await?;
    let cookie = SignIn::cookie(&app.scheduler, key.to_owned()).await?;
    Ok(done(cookie))
}

/// Takes the cookie back. Whoever has a copy of it can use it until it expires or its key is revoked.
async fn sign_out(_: Query<NoQuery>, headers: HeaderMap) -> Result<Response, Problem> {
    refuse_other_pages(&headers)?;
    Ok(done(FORGET))
}

/// A response that only sets a cookie.
fn done(cookie: HeaderValue) -> Response {
    let no_store = HeaderValue::from_static("no-store");
    let headers = [(SET_COOKIE, cookie), (CACHE_CONTROL, no_store)];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Refuses what the console's own page did not send: another one could sign its visitor in or out.
fn refuse_other_pages(headers: &HeaderMap) -> Result<(), Error> {
    if is_of_console(headers) {
        return Ok(());
    }
    Err(Error::new(
        Code::RequestOriginNotAllowed,
        "only the console's own page signs in and out; programs send a key as Authorization: Bearer KEY",
    ))
}
