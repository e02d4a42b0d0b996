//! JSON-RPC 2.0, as MCP and A2A use it.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use mainspring_scheduler::error::Error;
use mainspring_shared::error::Class;
use serde_json::{Value, json};

use crate::problem::Problem;

/// A message of JSON-RPC.
#[derive(Debug, utoipa::ToSchema)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct RpcMessage {
    /// `2.0`.
    jsonrpc: String,
    /// A text or a number; absent from notifications.
    #[schema(value_type = Option<Object>)]
    id: Option<Value>,
    /// What is asked for; absent from answers.
    method: Option<String>,
    /// What the method takes.
    #[schema(value_type = Option<Object>)]
    params: Option<Value>,
}

pub(crate) const PARSE: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const NO_METHOD: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const INTERNAL: i64 = -32603;

/// An error as the answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fault {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl Fault {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(crate) fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// The whole message.
    pub(crate) fn answer(&self, id: &Value) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::from(Problem::from(error))
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        let code = match problem.class() {
            Class::Invalid | Class::NotFound | Class::Conflict => INVALID_PARAMS,
            Class::Limit | Class::Unavailable | Class::Corrupt | Class::Bug => INTERNAL,
        };
        let shown = serde_json::to_value(&problem).unwrap_or_default();
        let detail = shown["detail"].as_str().unwrap_or_default().to_owned();
        Self::new(code, detail).with(shown)
    }
}

impl From<mainspring_shared::store::Error> for Fault {
    fn from(error: mainspring_shared::store::Error) -> Self {
        Self::from(Error::from(error))
    }
}

/// The answer with a result.
pub(crate) fn result(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// A response with a message as its body.
pub(crate) fn respond(status: StatusCode, message: &Value) -> Response {
    let mut response = Response::new(Body::from(message.to_string()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A message as an event of a stream.
pub(crate) fn event(id: Option<&str>, message: &Value) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: message\ndata: {message}\n\n")
}
