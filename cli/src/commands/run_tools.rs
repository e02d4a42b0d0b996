//! `mainspring run-tools`: the process that a worker's launcher starts.

use std::sync::Arc;

use mainspring_runtime::SystemClock;
use mainspring_tools::builtin::{confine, run_child};

use crate::failure::{Exit, Failure};

/// Runs calls until the worker closes the connection.
pub(crate) async fn run() -> Result<(), Failure> {
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    let ended = run_child(input, output, Arc::new(SystemClock::new()), confine).await;
    ended.map_err(|error| Failure::new(Exit::Failure, format!("tools: {error}")))
}
