//! Follows a send to its end.

use std::time::Duration;

use mainspring_shared::error::Code;
use mainspring_shared::time::Clock;
use serde_json::Value;

use crate::client::{Client, Event, Events, Request};
use crate::failure::{Exit, Failure, next_of};
use crate::output;

/// How long one request waits for a send's end.
const WAIT: Duration = Duration::from_secs(30);

/// Poll interval for a send that waits for a person or a tool, because the server then responds at
/// once.
const LOOK: Duration = Duration::from_secs(1);

/// Whether a send is in a final state.
pub(crate) fn is_final(send: &Value) -> bool {
    matches!(
        send["status"].as_str(),
        Some("completed" | "failed" | "cancelled")
    )
}

/// Waits for a send's end, without reading its events.
pub(crate) async fn wait_for(client: &Client, id: &str) -> Result<Value, Failure> {
    loop {
        let send = client
            .ask(Request::get(format!("/v1/sends/{id}")).wait(WAIT))
            .await?;
        if is_final(&send) {
            return Ok(send);
        }
        if send["status"] == "waiting" {
            client.clock.sleep(LOOK).await;
        }
    }
}

/// Passes every event of a send to `show`; returns the send once it has ended.
pub(crate) async fn events(
    client: &Client,
    id: &str,
    after: Option<String>,
    mut show: impl FnMut(&Event) -> Result<(), Failure>,
) -> Result<Value, Failure> {
    let mut events = Events::new(client, format!("/v1/sends/{id}/events"), after);
    loop {
        if let Some(event) = events.next().await? {
            show(&event)?;
            if event.is_final() {
                return Ok(event.data);
            }
            continue;
        }
        // Either the server is shutting down, or all events were seen before: the send itself tells
        // which.
        let send = client.ask(Request::get(format!("/v1/sends/{id}"))).await?;
        if is_final(&send) {
            return Ok(send);
        }
        events.reconnect().await?;
    }
}

/// Turns the outcome of a send into the outcome of the command.
pub(crate) fn verdict(send: &Value) -> Result<(), Failure> {
    match send["status"].as_str() {
        Some("failed") => {
            let error = &send["error"];
            let code = error["code"].as_str().unwrap_or_default();
            let message = error["message"].as_str().unwrap_or("no reason was given");
            let message = format!("the send failed: {} ({code})", output::harmless(message));
            let failure = Failure::new(Exit::SendFailed, message);
            Err(match Code::parse(code) {
                Some(code) => failure.next(next_of(code)),
                None => failure,
            })
        }
        Some("cancelled") => Err(Failure::new(Exit::SendCancelled, "the send was cancelled")),
        _ => Ok(()),
    }
}

/// An object's id.
pub(crate) fn id(object: &Value) -> &str {
    object["id"].as_str().unwrap_or_default()
}
