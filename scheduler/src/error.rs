//! Why something was not done: a stable code, what happened, and the members of the request at fault.
//!
//! Everything here speaks in these; only the API knows how they are answered over HTTP.

use std::time::Duration;

use mainspring_shared::error::{Class, Code, Coded};
use mainspring_shared::store::{self, RefuseReason, RefuseTimer};
use serde::Serialize;

use crate::loops::causes;
use crate::metrics::OVERLOADED;

/// What is said of bodies that nest too deeply.
const TOO_DEEP: &str = "nests too deeply: at most 127 levels";

/// What is wrong with one member of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// A JSON pointer into the body, in a body of lines behind the line's number and `:`; for a
    /// query parameter or a header, its name behind `?` or `#`.
    pub pointer: String,
    /// What is wrong, for people.
    pub detail: String,
}

/// Why a request or a step was not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: Code,
    detail: String,
    errors: Vec<FieldError>,
    retry_after: Option<Duration>,
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
        }
    }

    /// `request.invalid` with one member at fault.
    pub fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let (pointer, detail) = (pointer.into(), detail.into());
        Self::invalid_members(vec![FieldError { pointer, detail }])
    }

    /// A body that nests deeper than bodies are read.
    pub fn too_deep(at: &str) -> Self {
        Self::invalid(at, TOO_DEEP)
    }

    /// The same, where it is a workflow's spec that is too deep.
    #[must_use]
    pub fn of_spec(mut self, at: &str) -> Self {
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
    pub fn invalid_members(errors: Vec<FieldError>) -> Self {
        Self::with_members(Code::RequestInvalid, errors)
    }

    /// An error of several members; there is at least one.
    pub fn with_members(code: Code, errors: Vec<FieldError>) -> Self {
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
    pub fn invalid_schedule(errors: Vec<FieldError>) -> Self {
        Self {
            code: Code::TimerInvalidSchedule,
            ..Self::invalid_members(errors)
        }
    }

    /// The same error, on one line of a body of lines.
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

    /// The same error, with what it most likely means.
    #[must_use]
    pub fn because(mut self, why: &str) -> Self {
        self.detail = format!("{} ({why})", self.detail);
        self
    }

    pub fn run_not_found() -> Self {
        Self::new(Code::RunNotFound, "no run has this id")
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
        let mut error = Self::new(Code::RequestUnsupportedMediaType, detail.clone());
        let pointer = "#content-type".to_owned();
        error.errors.push(FieldError { pointer, detail });
        error
    }

    /// Too much of `kind` is under way.
    pub fn too_much(kind: &'static str) -> Self {
        metrics::counter!(OVERLOADED, "kind" => kind).increment(1);
        let detail = match kind {
            "bytes" => "the bodies of the requests under way have too many bytes together",
            "connection" => "there are too many connections",
            _ => "too many requests are under way",
        };
        Self::new(Code::LimitExceeded, detail)
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
            "something else has been at work on the session for long",
        )
    }

    pub fn internal() -> Self {
        Self::new(
            Code::Internal,
            "internal error; the server's log has the details",
        )
    }

    /// Its code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What happened, for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The members at fault; there may be none.
    pub fn members(&self) -> &[FieldError] {
        &self.errors
    }

    /// How long to wait before the same may work.
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

impl From<RefuseTimer> for Error {
    fn from(reason: RefuseTimer) -> Self {
        match reason {
            RefuseTimer::SessionNotFound => Self::session_not_found(),
            RefuseTimer::SessionClosed => Self::new(
                Code::SessionClosed,
                "the session is closed and takes no more sends",
            ),
            RefuseTimer::TooMany => Self::new(
                Code::LimitExceeded,
                "the session has as many armed timers as it may have",
            ),
            RefuseTimer::Schedule(fault) => {
                Self::new(Code::TimerInvalidSchedule, format!("the schedule {fault}"))
            }
        }
    }
}
