//! What the tools share: typed arguments, and work on threads that may block.

use mainspring_shared::error::Code;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use mainspring_worker::tool::ToolError;

/// The arguments as the tool's own type. They fit its schema, which says all but a few things.
pub(crate) fn arguments<T: DeserializeOwned>(given: Map<String, Value>) -> Result<T, ToolError> {
    serde_json::from_value(Value::Object(given)).map_err(|error| invalid(error.to_string()))
}

/// A call that asks for what cannot be.
pub(crate) fn invalid(message: impl Into<String>) -> ToolError {
    ToolError::Reply {
        code: Code::ToolInvalidArguments,
        message: message.into(),
    }
}

/// A call that was told to stop before it did anything.
pub(crate) fn stopped() -> ToolError {
    ToolError::Reply {
        code: Code::ToolInterrupted,
        message: "the call was stopped and changed nothing".to_owned(),
    }
}

/// Does work that blocks. Its token is cancelled when the call is to stop and when nobody waits
/// for it any more: the work must look at it, since a thread cannot be ended from outside.
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
