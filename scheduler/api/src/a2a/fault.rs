//! Errors, in the form of either binding.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Code;
use mainspring_shared::store;
use serde_json::{Value, json};

use crate::faces::rpc::{self, Fault};
use crate::problem::Problem;

pub(super) const TASK_NOT_FOUND: i64 = -32001;
pub(super) const NOT_CANCELABLE: i64 = -32002;
pub(super) const NO_PUSH: i64 = -32003;
pub(super) const UNSUPPORTED: i64 = -32004;
pub(super) const CONTENT_TYPE_NOT_SUPPORTED: i64 = -32005;
pub(super) const NO_EXTENDED_CARD: i64 = -32007;
pub(super) const VERSION_NOT_SUPPORTED: i64 = -32009;

/// The errors of the protocol: the code of JSON-RPC, and how the other binding says it.
const KINDS: [(i64, u16, &str, &str); 11] = [
    (TASK_NOT_FOUND, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    (
        NOT_CANCELABLE,
        400,
        "FAILED_PRECONDITION",
        "TASK_NOT_CANCELABLE",
    ),
    (
        NO_PUSH,
        400,
        "FAILED_PRECONDITION",
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
    ),
    (
        UNSUPPORTED,
        400,
        "FAILED_PRECONDITION",
        "UNSUPPORTED_OPERATION",
    ),
    (
        CONTENT_TYPE_NOT_SUPPORTED,
        400,
        "INVALID_ARGUMENT",
        "CONTENT_TYPE_NOT_SUPPORTED",
    ),
    (
        NO_EXTENDED_CARD,
        400,
        "FAILED_PRECONDITION",
        "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    ),
    (
        VERSION_NOT_SUPPORTED,
        400,
        "FAILED_PRECONDITION",
        "VERSION_NOT_SUPPORTED",
    ),
    (
        rpc::INVALID_PARAMS,
        400,
        "INVALID_ARGUMENT",
        "INVALID_PARAMS",
    ),
    (
        rpc::INVALID_REQUEST,
        400,
        "INVALID_ARGUMENT",
        "INVALID_REQUEST",
    ),
    (rpc::PARSE, 400, "INVALID_ARGUMENT", "INVALID_REQUEST"),
    (rpc::NO_METHOD, 404, "NOT_FOUND", "METHOD_NOT_FOUND"),
];

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refusal {
    fault: Fault,
    /// The status of the native API, if the refusal is one of it.
    status: Option<u16>,
}

impl Refusal {
    pub(super) fn of(code: i64, detail: impl Into<String>) -> Self {
        Fault::new(code, detail).into()
    }

    fn kind(&self) -> (u16, &'static str, &'static str) {
        let found = KINDS.iter().find(|(code, ..)| *code == self.fault.code);
        let (status, state, reason) = found.map_or((500, "INTERNAL", "INTERNAL_ERROR"), |kind| {
            (kind.1, kind.2, kind.3)
        });
        match self.status {
            // The protocol has no errors of its own for these.
            Some(403) => (403, "PERMISSION_DENIED", reason),
            Some(429 | 402) => (429, "RESOURCE_EXHAUSTED", reason),
            Some(503) => (503, "UNAVAILABLE", reason),
            Some(404) => (404, "NOT_FOUND", reason),
            Some(409) => (409, "ABORTED", reason),
            _ => (status, state, reason),
        }
    }

    /// As the answer to a request of JSON-RPC.
    pub(super) fn answer(&self, id: &Value) -> Response {
        // Whoever is between here and the client acts on these, too.
        let acted_on = self
            .status
            .filter(|status| matches!(status, 403 | 429 | 503));
        let status = acted_on.and_then(|status| StatusCode::from_u16(status).ok());
        let status = status.unwrap_or(StatusCode::OK);
        rpc::respond(status, &self.fault.answer(id))
    }

    /// As the answer in the other binding.
    pub(super) fn shown(&self) -> (u16, Value) {
        let (status, state, reason) = self.kind();
        let ours = self.fault.data.as_ref().map(|data| data["code"].clone());
        let info = json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason,
            "domain": "a2a-protocol.org",
            "metadata": ours.filter(Value::is_string).map_or_else(|| json!({}), |code| json!({ "code": code })),
        });
        let error = json!({
            "code": status, "status": state, "message": self.fault.message, "details": [info],
        });
        (status, json!({ "error": error }))
    }
}

/// Says that a body is one of the protocol.
pub(super) fn mark(response: &mut Response) {
    let kind = HeaderValue::from_static("application/a2a+json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, body) = self.shown();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = rpc::respond(status, &body);
        mark(&mut response);
        response
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            status: None,
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        if error.code() == Code::SendNotFound {
            return Self::of(TASK_NOT_FOUND, "there is no task with this id");
        }
        Self::from(Problem::from(error))
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self {
            status: Some(problem.status()),
            fault: problem.into(),
        }
    }
}

impl From<store::Error> for Refusal {
    fn from(error: store::Error) -> Self {
        Self::from(Error::from(error))
    }
}
