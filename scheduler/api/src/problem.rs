//! Error responses: problem documents of RFC 9457, derived from error codes.

use std::any::Any;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::error::{Error, Quota};
use mainspring_shared::error::{Class, Code};
use mainspring_shared::store;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::router::Api;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// An error as the response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem(Error);

impl Problem {
    /// The HTTP status of the response.
    pub(crate) fn status(&self) -> u16 {
        self.0.code().http_status()
    }

    /// The class of its code.
    pub(crate) fn class(&self) -> Class {
        self.0.code().class()
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Self {
        Self(Error::from(error))
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let code = self.0.code();
        let errors = self.0.members();
        let shown = !errors.is_empty();
        let mut document = serializer.serialize_struct("Problem", 6 + usize::from(shown))?;
        document.serialize_field("type", &format!("/errors/{code}"))?;
        document.serialize_field("title", &title(code))?;
        document.serialize_field("status", &self.status())?;
        document.serialize_field("detail", self.0.detail())?;
        document.serialize_field("code", &code)?;
        document.serialize_field("retryable", &code.retryable())?;
        if shown {
            document.serialize_field("errors", errors)?;
        }
        document.end()
    }
}

/// The first sentence of the code's advice page.
fn title(code: Code) -> &'static str {
    let page = code.advice();
    let text = page
        .split_once("\n\n")
        .map_or(page, |(_, text)| text)
        .trim();
    let ends = [". ", ".\n", "; "]
        .into_iter()
        .filter_map(|end| text.find(end))
        .min();
    ends.map_or(text.trim_end_matches('.'), |end| &text[..end])
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let json = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(json));
        *response.status_mut() = status;
        self.0.count_if_limit();
        // For the request's span.
        response.extensions_mut().insert(self.0.code());
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.0.retry_after() {
            headers.insert(
                RETRY_AFTER,
                HeaderValue::from(wait.as_millis().div_ceil(1_000).max(1) as u64),
            );
        }
        if let Some(quota) = self.0.quota() {
            mark_quota(headers, quota);
        }
        response
    }
}

/// Adds the headers for a limit, as defined by draft-ietf-httpapi-ratelimit-headers-10.
pub(crate) fn mark_quota(headers: &mut HeaderMap, quota: &Quota) {
    let fields = [
        (RATE_LIMIT_POLICY, quota.policy()),
        (RATE_LIMIT, quota.state()),
    ];
    for (name, text) in fields {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.append(name, value);
        }
    }
}

/// The response to an unknown path.
pub(crate) async fn nothing_here() -> Problem {
    Problem(Error::new(Code::RequestNotFound, "no such path"))
}

/// The response to a known path with an unsupported method; the router adds `Allow`.
pub(crate) async fn method_not_allowed() -> Problem {
    Problem(Error::new(
        Code::RequestMethodNotAllowed,
        "this path does not support this method",
    ))
}

/// The response to a request whose handler panicked. The panic hook has already printed the cause.
pub(crate) fn panicked(_payload: Box<dyn Any + Send>) -> Response {
    tracing::error!("a handler panicked");
    Problem(Error::internal()).into_response()
}

/// The routes of this module.
pub(crate) fn routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new().routes(routes!(advice))
}

/// What an error code means and what to do about it
#[utoipa::path(
    get,
    path = "/errors/{code}",
    operation_id = "getAdvice",
    responses((status = 200, body = String, content_type = "text/markdown"))
)]
pub(crate) async fn advice(code: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let found = code.ok().and_then(|Path(code)| Code::parse(&code));
    let Some(code) = found else {
        return Err(nothing_here().await);
    };
    let headers = [(CONTENT_TYPE, "text/markdown; charset=utf-8")];
    Ok((headers, code.advice()).into_response())
}

/// A problem document.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ProblemDocument {
    /// The address of a page with advice.
    #[schema(rename = "type")]
    kind: String,
    /// What the code means.
    title: String,
    /// The HTTP status.
    status: u16,
    /// What happened here.
    detail: String,
    /// The stable code.
    code: String,
    /// Whether the same request may work later.
    retryable: bool,
    /// The invalid members, if the code is about members.
    errors: Option<Vec<MemberDocument>>,
}

/// What is wrong with one member of a request.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = FieldError)]
#[expect(dead_code, reason = "only its schema is used")]
struct MemberDocument {
    /// A JSON pointer into the body, preceded by `LINE:` in a body of JSON lines; for a query parameter or a
    /// header, its name preceded by `?` or `#`.
    pointer: String,
    /// A message for people.
    detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_title() {
        for code in Code::ALL {
            let title = title(*code);
            assert!(
                !title.is_empty() && !title.contains('\n'),
                "{code}: {title:?}"
            );
        }
    }

    #[test]
    fn a_limit_asks_to_come_back_and_an_invalid_request_does_not() {
        let retry = |error: Error| {
            Problem(error)
                .into_response()
                .headers()
                .get(RETRY_AFTER)
                .cloned()
        };
        assert_eq!(
            retry(Error::too_much("request")),
            Some(HeaderValue::from_static("1"))
        );
        assert_eq!(
            retry(Error::stopping()),
            Some(HeaderValue::from_static("1"))
        );
        assert_eq!(retry(Error::invalid("/input", "is empty")), None);
    }

    #[test]
    fn one_invalid_member_is_named_in_the_detail() {
        let json =
            serde_json::to_value(Problem(Error::invalid("/input", "is empty"))).expect("json");
        insta::assert_json_snapshot!(json);
    }
}
