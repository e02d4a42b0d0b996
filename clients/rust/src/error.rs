//! What goes wrong, by kind.

use std::fmt;

use crate::question::Question;
use crate::types::{Code, FieldError, Problem, RunView, SendView};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server refused a request, or something else answered in its place.
    #[error(transparent)]
    Api(Box<ApiError>),
    /// No answer, after all repeats.
    #[error("no answer: {0}")]
    Unreachable(String),
    /// The send ended as `failed`.
    #[error("{} failed with {}", .0.id, code_of(.0.error.as_ref().map(|it| it.code.as_str())))]
    SendFailed(Box<SendView>),
    /// The send ended as `cancelled`.
    #[error("{} was cancelled", .0.id)]
    SendCancelled(Box<SendView>),
    /// The send waits for a person, who is asked these questions. With none, it waits to be resumed or aborted.
    #[error("{} waits for a person", .send.id)]
    Waiting {
        /// The send.
        send: Box<SendView>,
        /// What is to be answered.
        questions: Vec<Question>,
    },
    /// The run ended as `failed`: the nodes with the state `failed` say where.
    #[error("{} failed with {}", .0.id, code_of(.0.error.as_ref().map(|it| it.code.as_str())))]
    RunFailed(Box<RunView>),
    /// The run ended as `cancelled`.
    #[error("{} was cancelled", .0.id)]
    RunCancelled(Box<RunView>),
    /// The caller's own time is over. What was waited for goes on.
    #[error("{0} has not ended in time")]
    Timeout(String),
    /// A value does not fit the type that was asked for.
    #[error("{0}")]
    Mismatch(String),
    /// The client, a tool or a workflow is set up in a way that cannot work.
    #[error("{0}")]
    Setup(String),
}

fn code_of(code: Option<&str>) -> &str {
    code.unwrap_or("internal")
}

impl Error {
    /// The stable code, if the server gave one: that of a refusal, or of the failure of a send or run.
    pub fn code(&self) -> Option<Code> {
        let failure = match self {
            Self::Api(error) => return Some(error.code.clone()),
            Self::SendFailed(send) => send.error.as_ref(),
            Self::RunFailed(run) => run.error.as_ref(),
            _ => return None,
        };
        Some(Code::of(failure.map_or("internal", |it| it.code.as_str())))
    }

    /// The kind of a refusal.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Self::Api(error) => Some(error.kind),
            _ => None,
        }
    }

    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Api(error) => error.kind != Kind::Denied && error.retryable,
            Self::Unreachable(_) => true,
            _ => false,
        }
    }
}

/// Kinds of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The request is wrong: 400, 413, 415, 422.
    Invalid,
    /// The key is missing, not accepted, or has no right to do this: 401, 403.
    Denied,
    /// There is nothing with this id: 404, 410.
    NotFound,
    /// The state of something does not allow it now: 409.
    Conflict,
    /// A limit is still reached after all repeats: 402, 408, 429.
    Limited,
    /// The server cannot do it, also after all repeats: 5xx.
    Unavailable,
    /// Not an answer of this API: most likely of a proxy, or of another server at this address.
    Unexpected,
}

impl Kind {
    pub(crate) const fn of(status: u16) -> Self {
        match status {
            401 | 403 => Self::Denied,
            404 | 410 => Self::NotFound,
            409 => Self::Conflict,
            402 | 408 | 429 => Self::Limited,
            500.. => Self::Unavailable,
            400..500 => Self::Invalid,
            _ => Self::Unexpected,
        }
    }
}

/// A refusal.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ApiError {
    /// Its kind, by the status.
    pub kind: Kind,
    /// The stable code.
    pub code: Code,
    /// The HTTP status.
    pub status: u16,
    /// For people.
    pub detail: String,
    /// The members that are invalid, with a JSON pointer each.
    pub errors: Vec<FieldError>,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// Name it when you ask those who run the server.
    pub request_id: Option<String>,
}

impl ApiError {
    pub(crate) fn of(problem: Problem, request_id: Option<String>) -> Self {
        let status = u16::try_from(problem.status).unwrap_or_default();
        Self {
            kind: Kind::of(status),
            code: Code::of(&problem.code),
            status,
            detail: problem.detail,
            errors: problem.errors.unwrap_or_default(),
            retryable: problem.retryable,
            request_id,
        }
    }

    pub(crate) fn made(kind: Kind, code: &str, status: u16, detail: String) -> Self {
        Self {
            kind,
            code: Code::of(code),
            status,
            detail,
            errors: Vec::new(),
            retryable: false,
            request_id: None,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for ApiError {}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Self {
        Self::Api(Box::new(error))
    }
}

impl Code {
    /// The code that is written so.
    pub fn of(text: &str) -> Self {
        serde_json::from_value(text.into()).unwrap_or_else(|_| Self::Other(text.to_owned()))
    }
}
