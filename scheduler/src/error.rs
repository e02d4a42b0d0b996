//! Errors of services: a stable code, a human-readable detail, and the invalid members of the
//! request.
//!
//! The API decides how they are rendered over HTTP.

use std::fmt::Write as _;
use std::time::Duration;

use mainspring_shared::error::{Class, Code, Coded};
use mainspring_shared::store::{self, RefuseReason, RefuseTimer};
use mainspring_shared::tenant::{Outside, Right};
use serde::Serialize;

use crate::loops::causes;
use crate::metrics::{LIMITS_HIT, OVERLOADED};
use crate::services::pressure::Work;

/// The detail for bodies that nest too deeply.
const TOO_DEEP: &str = "nests too deeply: at most 127 levels";

/// How many invalid members a response lists, and how many bytes of each text it includes, so that
/// the error response stays short however large the request was.
const MEMBERS_MAX: usize = 100;
const SAID_BYTES_MAX: usize = 2_000;

/// A problem with one member of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// A JSON pointer into the body, preceded by `LINE:` in a body of JSON lines; for a query parameter or
    /// a header, its name preceded by `?` or `#`.
    pub pointer: String,
    /// A human-readable description.
    pub detail: String,
}

impl FieldError {
    /// The same error, with overlong texts truncated.
    fn bounded(mut self) -> Self {
        for text in [&mut self.pointer, &mut self.detail] {
            if text.len() > SAID_BYTES_MAX {
                text.truncate(text.floor_char_boundary(SAID_BYTES_MAX));
                text.push('…');
            }
        }
        self
    }
}

/// A limit, as reported to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Its name.
    pub name: &'static str,
    /// The unit that is counted, unless it is requests.
    pub unit: Option<&'static str>,
    /// How many units are allowed.
    pub quota: u64,
    /// The time window of the quota; none if it limits how many there are at a time.
    pub window: Option<Duration>,
    /// How many are left.
    pub left: u64,
    /// How long until more are available.
    pub reset: Duration,
}

impl Quota {
    /// The value of the header `RateLimit-Policy`, as defined by
    /// draft-ietf-httpapi-ratelimit-headers-10.
    pub fn policy(&self) -> String {
        let mut text = format!("{:?};q={}", self.name, self.quota);
        if let Some(unit) = self.unit {
            // Writing to a string cannot fail.
            let _ = write!(text, ";qu={unit:?}");
        }
        if let Some(window) = self.window {
            let _ = write!(text, ";w={}", window.as_secs().max(1));
        }
        text
    }

    /// The value of the header `RateLimit`, as defined by the same draft.
    pub fn state(&self) -> String {
        let reset = self.reset.as_millis().div_ceil(1_000);
        format!("{:?};r={};t={reset}", self.name, self.left)
    }
}

/// The error of a request or of a background step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: Code,
    detail: String,
    errors: Vec<FieldError>,
    retry_after: Option<Duration>,
    quota: Option<Box<Quota>>,
}

impl Error {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
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
            quota: None,
        }
    }

    /// Counts an error of the class `Limit` when it is reported to the caller.
    pub fn count_if_limit(&self) {
        if self.code.class() == Class::Limit {
            metrics::counter!(LIMITS_HIT, "limit" => self.code.as_str()).increment(1);
        }
    }

    /// `request.invalid` with one invalid member.
    pub fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let (pointer, detail) = (pointer.into(), detail.into());
        Self::invalid_members(vec![FieldError { pointer, detail }])
    }

    /// The same error, with something else said of those invalid members of which more is known.
    #[must_use]
    pub fn saying(self, more: impl Fn(&FieldError) -> Option<String>) -> Self {
        let says = |field: &FieldError| FieldError {
            pointer: field.pointer.clone(),
            detail: more(field).unwrap_or_else(|| field.detail.clone()),
        };
        let errors: Vec<FieldError> = self.errors.iter().map(says).collect();
        if errors == self.errors {
            return self;
        }
        Self::with_members(self.code, errors)
    }

    /// A body that nests too deeply.
    pub fn too_deep(at: &str) -> Self {
        Self::invalid(at, TOO_DEEP)
    }

    /// Turns [`Self::too_deep`] into `spec.invalid`, for a workflow's spec.
    #[must_use]
    pub fn of_spec(mut self, at: &str) -> Self {
        let is_in_spec = |pointer: &str| {
            let below = pointer.strip_prefix(at);
            pointer.is_empty()
                || below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        if let [error] = self.errors.as_slice()
            && error.detail == TOO_DEEP
            && is_in_spec(&error.pointer)
        {
            let pointer = at.to_owned();
            let detail =
                "nests too deeply: at most 64 levels of nodes, fewer where their members nest"
                    .to_owned();
            self = Self::with_members(Code::SpecInvalid, vec![FieldError { pointer, detail }]);
        }
        self
    }

    /// `request.invalid` with all invalid members; there is at least one.
    pub fn invalid_members(errors: Vec<FieldError>) -> Self {
        Self::with_members(Code::RequestInvalid, errors)
    }

    /// An error with invalid members; there is at least one.
    pub fn with_members(code: Code, errors: Vec<FieldError>) -> Self {
        let all = errors.len();
        let errors = errors.into_iter().take(MEMBERS_MAX);
        let errors: Vec<FieldError> = errors.map(FieldError::bounded).collect();
        let detail = match errors.as_slice() {
            // The detail of a parameter or header already names it.
            [one] if one.pointer.starts_with('/') => format!("{}: {}", one.pointer, one.detail),
            [one] => one.detail.clone(),
            _ => format!("{all} members are invalid"),
        };
        Self {
            errors,
            ..Self::new(code, detail)
        }
    }

    /// `timer.invalid_schedule` with all invalid members; there is at least one.
    pub fn invalid_schedule(errors: Vec<FieldError>) -> Self {
        Self {
            code: Code::TimerInvalidSchedule,
            ..Self::invalid_members(errors)
        }
    }

    /// The same error, located on a line of a JSON-lines body.
    #[must_use]
    pub fn on_line(mut self, line: usize) -> Self {
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

    /// The same error, attributed to a member of the request unless it already names some.
    #[must_use]
    pub fn at(mut self, pointer: &str) -> Self {
        if self.errors.is_empty() {
            self.errors.push(FieldError {
                pointer: pointer.to_owned(),
                detail: self.detail.clone(),
            });
        }
        self
    }

    /// The same error, with its likely cause.
    #[must_use]
    pub fn because(mut self, why: &str) -> Self {
        self.detail = format!("{} ({why})", self.detail);
        self
    }

    pub fn run_not_found() -> Self {
        Self::new(Code::RunNotFound, "no run has this id")
    }

    /// The request would create something outside what its API key is bound to.
    pub fn outside(outside: &Outside) -> Self {
        Self::new(
            Code::AuthBinding,
            format!("the API key is bound to other resources: {outside}"),
        )
    }

    /// The API key does not allow what the request does.
    pub fn lacking(right: Right) -> Self {
        let scopes = right.scopes().iter().map(|scope| scope.as_str());
        let scope = scopes.collect::<Vec<_>>().join(" or ");
        let what = match right {
            Right::Define => ", and without it requests name published agents, as they are",
            Right::Read
            | Right::Use
            | Right::Publish
            | Right::Answer
            | Right::Manage
            | Right::Administer => "",
        };
        let detail = format!("the API key lacks the scope {scope}{what}");
        Self::new(Code::AuthForbidden, detail)
    }

    pub fn session_not_found() -> Self {
        Self::new(Code::SessionNotFound, "no session has this id")
    }

    pub fn send_not_found() -> Self {
        Self::new(Code::SendNotFound, "no send has this id")
    }

    pub fn mismatch() -> Self {
        Self::new(
            Code::IdempotencyMismatch,
            "this Idempotency-Key was used with another request body",
        )
    }

    pub fn too_large(bytes_max: usize) -> Self {
        Self::new(
            Code::RequestTooLarge,
            format!("the request body exceeds the limit of {bytes_max} bytes"),
        )
    }

    pub fn media_type(detail: String) -> Self {
        Self::unsupported("#content-type", detail)
    }

    /// The body has a content encoding such as `gzip`.
    pub fn content_encoding() -> Self {
        let detail = "the body must be sent unencoded: without Content-Encoding, or with identity";
        Self::unsupported("#content-encoding", detail.to_owned())
    }

    fn unsupported(pointer: &str, detail: String) -> Self {
        let mut error = Self::new(Code::RequestUnsupportedMediaType, detail.clone());
        let pointer = pointer.to_owned();
        error.errors.push(FieldError { pointer, detail });
        error
    }

    /// `limit.exceeded`: too much of `kind` is in flight.
    pub fn too_much(kind: &'static str) -> Self {
        metrics::counter!(OVERLOADED, "kind" => kind).increment(1);
        let detail = match kind {
            "bytes" => "the bodies of the requests in flight are too large in total",
            "connection" => "too many connections",
            _ => "too many requests are in flight",
        };
        Self::new(Code::LimitExceeded, detail)
    }

    /// `limit.exceeded`: the caller's tenant or key has its share of the requests in flight.
    pub fn too_much_of_one(kind: &'static str) -> Self {
        let detail = match kind {
            "waiter" => {
                "your tenant or key has its share of the requests that wait or stream: end some of them"
            }
            _ => "your tenant or key has its share of the requests in flight: send fewer at a time",
        };
        Self::new(Code::LimitExceeded, detail)
    }

    /// `limit.exceeded`: the database is slow, and this kind of work is shed before other kinds.
    pub fn shed(work: Work) -> Self {
        metrics::counter!(OVERLOADED, "kind" => work.as_str()).increment(1);
        let what = match work {
            Work::Bulk => "batches and archives",
            Work::List => "lists",
            Work::Single => "sends",
        };
        let detail =
            format!("the database is slow, or too many sends wait for it: no {what} for now");
        Self::new(Code::LimitExceeded, detail).after(work.retry_after())
    }

    pub fn not_registered() -> Self {
        Self::new(
            Code::StoreUnavailable,
            "this scheduler is not registered in the database yet",
        )
    }

    pub fn stopping() -> Self {
        Self::new(Code::StoreUnavailable, "this scheduler is stopping")
    }

    pub fn locked() -> Self {
        Self::new(
            Code::StoreUnavailable,
            "the session has been locked by another transaction for too long",
        )
    }

    pub fn internal() -> Self {
        Self::new(
            Code::Internal,
            "internal server error; see the server's log",
        )
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// A human-readable description.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The invalid members of the request, if any.
    pub fn members(&self) -> &[FieldError] {
        &self.errors
    }

    /// The same error, with the time after which a retry may succeed.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }

    /// The same error, with the limit that was hit.
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Self {
        Self {
            quota: Some(Box::new(quota)),
            ..self
        }
    }

    /// The limit that was hit, if any.
    pub fn quota(&self) -> Option<&Quota> {
        self.quota.as_deref()
    }

    /// How long to wait before a retry may succeed.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl From<&store::Error> for Error {
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
        let failed = Self::new(code, detail);
        Self {
            retry_after: error.retry_after().or(failed.retry_after),
            ..failed
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Self::from(&error)
    }
}

impl From<RefuseReason> for Error {
    fn from(reason: RefuseReason) -> Self {
        match reason {
            RefuseReason::SessionNotFound => Self::session_not_found(),
            RefuseReason::SessionClosed => Self::new(
                Code::SessionClosed,
                "the session is closed and accepts no more sends",
            ),
            RefuseReason::Busy => Self::new(Code::SessionBusy, "the session has an open send"),
            RefuseReason::QueueFull => {
                Self::new(Code::LimitExceeded, "the session has too many queued sends")
            }
        }
    }
}

impl From<RefuseTimer> for Error {
    fn from(reason: RefuseTimer) -> Self {
        match reason {
            RefuseTimer::SessionNotFound => Self::session_not_found(),
            RefuseTimer::SessionClosed => Self::new(
                Code::SessionClosed,
                "the session is closed and accepts no more sends",
            ),
            RefuseTimer::TooMany => Self::new(
                Code::LimitExceeded,
                "the session has reached its limit of armed timers",
            ),
            RefuseTimer::Schedule(fault) => {
                Self::new(Code::TimerInvalidSchedule, format!("the schedule {fault}"))
            }
        }
    }
}
