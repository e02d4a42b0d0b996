//! Code shared by the tools: typed arguments, and blocking work on its own threads.

use mainspring_shared::error::Code;
use mainspring_shared::wording::plain;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use mainspring_worker::tool::ToolError;

/// Parses the arguments into the tool's own type. They match its schema, which covers all but a few
/// constraints.
pub(crate) fn arguments<T: DeserializeOwned>(given: Map<String, Value>) -> Result<T, ToolError> {
    serde_json::from_value(Value::Object(given)).map_err(|error| invalid(plain(&error.to_string())))
}

/// The error of a call whose arguments make no sense.
pub(crate) fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::Reply {
        code: Code::ToolInvalidArguments,
        message: message.into(),
    }
}

/// The error of a call that was told to stop before it did anything.
pub(crate) fn stopped() -> ToolError {
    ToolError::Reply {
        code: Code::ToolInterrupted,
        message: "the call was stopped and changed nothing".to_owned(),
    }
}

/// Runs blocking work. Its token is cancelled when the call is to stop or when nobody waits for it
/// any more; the work must check the token, since a thread cannot be killed from outside.
pub(crate) async fn blocking<T: Send + 'static>(
    stop: &CancellationToken,
    work: impl FnOnce(&CancellationToken) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let stop = stop.child_token();
    let _dropped = stop.clone().drop_guard();
    let done = tokio::task::spawn_blocking(move || {
        if stop.is_cancelled() {
            return Err(stopped());
        }
        work(&stop)
    });
    match done.await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(stopped()),
    }
}
