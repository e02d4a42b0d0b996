//! Requests to a server that may be away for a while.

use std::time::Duration;

use mainspring_shared::time::Clock;
use serde_json::{Value, json};

use crate::client::{Client, Request};
use crate::commands::lists;
use crate::failure::{Exit, Failure};

/// How often something is looked at that is waited for.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// How long processes may take to start, to stop, and to come back after harm was done.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Asks a server that may be away for a while. What creates something has to have a key.
pub(super) async fn ask(client: &Client, request: &Request) -> Result<Value, Failure> {
    let until = client.clock.monotonic() + PATIENCE;
    loop {
        match client.ask(request.clone()).await {
            Err(failure)
                if failure.exit == Exit::Unavailable && client.clock.monotonic() < until =>
            {
                client.clock.sleep(LOOK * 2).await;
            }
            other => return other,
        }
    }
}

/// The id of what a server returned.
pub(super) fn id(made: &Value) -> String {
    made["id"].as_str().unwrap_or_default().to_owned()
}

/// Sends a text, and waits for the end of the send.
pub(super) async fn send(client: &Client, session: &str, input: &str) -> Result<Value, Failure> {
    let accepted = accept(client, session, &json!({ "input": input })).await?;
    settled(client, &id(&accepted)).await
}

/// Sends something.
pub(super) async fn accept(client: &Client, session: &str, body: &Value) -> Result<Value, Failure> {
    let request = Request::post(format!("/v1/sessions/{session}/sends")).body(body.clone());
    ask(client, &request.key(client.fresh_key())).await
}

/// Waits for the end of a send.
pub(super) async fn settled(client: &Client, send: &str) -> Result<Value, Failure> {
    let until = client.clock.monotonic() + PATIENCE * 2;
    while client.clock.monotonic() < until {
        let request = Request::get(format!("/v1/sends/{send}")).wait(Duration::from_secs(5));
        let send = ask(client, &request).await?;
        if is_final(&send) {
            return Ok(send);
        }
    }
    Err(late("the end of a send"))
}

/// Whether a send has ended.
pub(super) fn is_final(send: &Value) -> bool {
    matches!(
        send["status"].as_str(),
        Some("completed" | "failed" | "cancelled")
    )
}

/// A session's messages as role and text.
pub(super) async fn messages(
    client: &Client,
    session: &str,
) -> Result<Vec<(String, String)>, Failure> {
    let request = Request::get(format!("/v1/sessions/{session}/messages"));
    let rows = lists::rows(client, &request, u32::MAX).await?;
    Ok(rows
        .iter()
        .map(|row| {
            let parts = row["content"].as_array().into_iter().flatten();
            let text = parts.filter_map(|part| part["text"].as_str()).collect();
            (row["role"].as_str().unwrap_or_default().to_owned(), text)
        })
        .collect())
}

/// A session's sends, oldest first.
pub(super) async fn sends(client: &Client, session: &str) -> Result<Vec<Value>, Failure> {
    let request = Request::get("/v1/sends").query("session_id", Some(session));
    let mut rows = lists::rows(client, &request, u32::MAX).await?;
    rows.sort_by_key(|row| row["position"].as_i64());
    Ok(rows)
}

/// The failure of something that took too long.
pub(super) fn late(what: &str) -> Failure {
    Failure::new(Exit::Unavailable, format!("not within 30 s: {what}"))
        .next("the machine may be too busy: try again")
}
