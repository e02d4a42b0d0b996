//! Errors as answers: problem documents of RFC 9457, made from codes.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use mainspring_shared::error::{Class, Code, Coded};
use mainspring_shared::store::{self, RefuseReason};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::loops::causes;
use crate::metrics::OVERLOADED;

/// What is said of bodies that nest too deeply.
const TOO_DEEP: &str = "nests too deeply: at most 127 levels";

/// What is wrong with one member of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct FieldError {
    /// A JSON pointer into the body, in a body of lines behind the line's number and `:`; for a
    /// query parameter or a header, its name behind `?` or `#`.
    pub(crate) pointer: String,
    /// What is wrong, for people.
    pub(crate) detail: String,
}

/// A request that was not served, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    code: Code,
    detail: String,
    errors: Vec<FieldError>,
    retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        let retry_after = match code.class() {
            Class::Limit | Class::Unavailable => Some(Duration::from_secs(1)),
            Class::Invalid | Class::NotFound | Class::Conflict | Class::Corrupt | Class::Bug => {
                None
            }
        };
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            retry_after,
        }
    }

    /// `request.invalid` with one member at fault.
    pub(crate) fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let (pointer, detail) = (pointer.into(), detail.into());
        Self::invalid_members(vec![FieldError { pointer, detail }])
    }

    /// A body that nests deeper than bodies are read.
    pub(crate) fn too_deep(at: &str) -> Self {
        Self::invalid(at, TOO_DEEP)
    }

    /// The same, where it is a workflow's spec that is too deep.
    pub(crate) fn of_spec(mut self, at: &str) -> Self {
        if let [error] = self.errors.as_slice()
            && error.detail == TOO_DEEP
        {
            let pointer = at.to_owned();
            let detail =
                "nests too deeply: at most 64 levels of nodes, fewer where their members nest"
                    .to_owned();
            self = Self::with_members(Code::SpecInvalid, vec![FieldError { pointer, detail }]);
        }
        self
    }

    /// `request.invalid` with every member at fault; there is at least one.
    pub(crate) fn invalid_members(errors: Vec<FieldError>) -> Self {
        Self::with_members(Code::RequestInvalid, errors)
    }

    /// A problem of several members; there is at least one.
    pub(crate) fn with_members(code: Code, errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            // What is no member of the body names itself.
            [one] if one.pointer.starts_with('/') => format!("{}: {}", one.pointer, one.detail),
            [one] => one.detail.clone(),
            many => format!("{} members are invalid", many.len()),
        };
        Self {
            errors,
            ..Self::new(code, detail)
        }
    }

    /// `timer.invalid_schedule` with every member at fault; there is at least one.
    pub(crate) fn invalid_schedule(errors: Vec<FieldError>) -> Self {
        Self {
            code: Code::TimerInvalidSchedule,
            ..Self::invalid_members(errors)
        }
    }

    /// The same problem, on one line of a body of lines.
    pub(crate) fn on_line(mut self, line: usize) -> Self {
        self.detail = format!("line {line}: {}", self.detail);
        for error in &mut self.errors {
            error.pointer = format!("{line}:{}", error.pointer);
        }
        if self.errors.is_empty() {
            self.errors.push(FieldError {
                pointer: format!("{line}:"),
                detail: self.detail.clone(),
            });
        }
        self
    }

    /// The same problem, with what it most likely means.
    pub(crate) fn because(mut self, why: &str) -> Self {
        self.detail = format!("{} ({why})", self.detail);
        self
    }

    pub(crate) fn run_not_found() -> Self {
        Self::new(Code::RunNotFound, "no run has this id")
    }

    pub(crate) fn session_not_found() -> Self {
        Self::new(Code::SessionNotFound, "no session has this id")
    }

    pub(crate) fn send_not_found() -> Self {
        Self::new(Code::SendNotFound, "no send has this id")
    }

    pub(crate) fn mismatch() -> Self {
        Self::new(
            Code::IdempotencyMismatch,
            "this Idempotency-Key was used with another request body",
        )
    }

    pub(crate) fn too_large(bytes_max: usize) -> Self {
        Self::new(
            Code::RequestTooLarge,
            format!("the request body exceeds the limit of {bytes_max} bytes"),
        )
    }

    pub(crate) fn media_type(detail: String) -> Self {
        let mut problem = Self::new(Code::RequestUnsupportedMediaType, detail.clone());
        let pointer = "#content-type".to_owned();
        problem.errors.push(FieldError { pointer, detail });
        problem
    }

    /// Too much of `kind` is under way.
    pub(crate) fn too_much(kind: &'static str) -> Self {
        metrics::counter!(OVERLOADED, "kind" => kind).increment(1);
        let detail = match kind {
            "bytes" => "the bodies of the requests under way have too many bytes together",
            "connection" => "there are too many connections",
            _ => "too many requests are under way",
        };
        Self::new(Code::LimitExceeded, detail)
    }

    pub(crate) fn not_registered() -> Self {
        Self::new(
            Code::StoreUnavailable,
            "this scheduler is not registered in the database yet",
        )
    }

    pub(crate) fn stopping() -> Self {
        Self::new(Code::StoreUnavailable, "this scheduler is stopping")
    }

    pub(crate) fn locked() -> Self {
        Self::new(
            Code::StoreUnavailable,
            "something else has been at work on the session for long",
        )
    }

    pub(crate) fn internal() -> Self {
        Self::new(
            Code::Internal,
            "internal error; the server's log has the details",
        )
    }

    /// Its code.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// The status that it is answered with.
    pub(crate) fn status(&self) -> u16 {
        self.code.http_status()
    }
}

impl From<&store::Error> for Problem {
    fn from(error: &store::Error) -> Self {
        let code = error.code();
        let detail = match code.class() {
            Class::Corrupt | Class::Bug => {
                tracing::error!(error = causes(error), "the store failed");
                return Self::internal();
            }
            Class::Unavailable
            | Class::Invalid
            | Class::NotFound
            | Class::Conflict
            | Class::Limit => {
                tracing::debug!(error = causes(error), "the store failed");
                error.to_string()
            }
        };
        let mut problem = Self::new(code, detail);
        problem.retry_after = error.retry_after().or(problem.retry_after);
        problem
    }
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Self {
        Self::from(&error)
    }
}

impl From<RefuseReason> for Problem {
    fn from(reason: RefuseReason) -> Self {
        match reason {
            RefuseReason::SessionNotFound => Self::session_not_found(),
            RefuseReason::SessionClosed => Self::new(
                Code::SessionClosed,
                "the session is closed and takes no more sends",
            ),
            RefuseReason::Busy => Self::new(
                Code::SessionBusy,
                "the session has a send that is not final",
            ),
            RefuseReason::QueueFull => Self::new(
                Code::LimitExceeded,
                "too many sends of this session are queued",
            ),
        }
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = !self.errors.is_empty();
        let mut document = serializer.serialize_struct("Problem", 6 + usize::from(shown))?;
        document.serialize_field("type", &format!("/errors/{}", self.code))?;
        document.serialize_field("title", &title(self.code))?;
        document.serialize_field("status", &self.status())?;
        document.serialize_field("detail", &self.detail)?;
        document.serialize_field("code", &self.code)?;
        document.serialize_field("retryable", &self.code.retryable())?;
        if shown {
            document.serialize_field("errors", &self.errors)?;
        }
        document.end()
    }
}

/// The first sentence of the code's page of advice.
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
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        response
    }
}

/// What an unknown path answers.
pub(crate) async fn nothing_here() -> Problem {
    Problem::new(Code::RequestNotFound, "no such path")
}

/// What a known path answers to a method that it does not have; the router adds `Allow`.
pub(crate) async fn method_not_allowed() -> Problem {
    Problem::new(
        Code::RequestMethodNotAllowed,
        "this path does not have this method",
    )
}

/// Where a problem's `type` leads: the code's page of advice.
pub(crate) async fn advice(code: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let found = code.ok().and_then(|Path(code)| Code::parse(&code));
    let Some(code) = found else {
        return Err(nothing_here().await);
    };
    let headers = [(CONTENT_TYPE, "text/markdown; charset=utf-8")];
    Ok((headers, code.advice()).into_response())
}

/// The shape of a problem document.
#[derive(Debug, utoipa::ToSchema)]
#[schema(as = Problem)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct ProblemDocument {
    /// Leads to a page of advice.
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
    /// The members at fault, for `request.invalid`.
    errors: Option<Vec<FieldError>>,
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
        let retry = |problem: Problem| problem.into_response().headers().get(RETRY_AFTER).cloned();
        assert_eq!(
            retry(Problem::too_much("request")),
            Some(HeaderValue::from_static("1"))
        );
        assert_eq!(
            retry(Problem::stopping()),
            Some(HeaderValue::from_static("1"))
        );
        assert_eq!(retry(Problem::invalid("/input", "is empty")), None);
    }

    #[test]
    fn one_invalid_member_is_named_in_the_detail() {
        let json = serde_json::to_value(Problem::invalid("/input", "is empty")).expect("json");
        insta::assert_json_snapshot!(json);
    }
}
