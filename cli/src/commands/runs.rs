//! `mainspring runs …`

use mainspring_shared::error::Code;
use mainspring_shared::time::Span;
use serde_json::{Value, json};

use super::lists;
use super::tail::print_event;
use crate::args::{Format, RunsCommand};
use crate::client::{Client, Event, Events, Request, segment};
use crate::failure::{Exit, Failure, next_of};
use crate::output::{self, Column};

const RUNS: [Column; 7] = [
    ("ID", "id"),
    ("STATUS", "status"),
    ("NAME", "name"),
    ("LEAVES", "counts.leaves"),
    ("DONE", "counts.completed"),
    ("CREATED", "created_at"),
    ("SESSION", "session_id"),
];

const NODES: [Column; 6] = [
    ("PATH", "path"),
    ("KIND", "kind"),
    ("STATE", "state"),
    ("ATTEMPT", "attempt"),
    ("SEND", "send_id"),
    ("TEXT", "text"),
];

pub(crate) async fn run(
    command: &RunsCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    match command {
        RunsCommand::List {
            session,
            status,
            name,
            metadata,
            created,
            then,
            page,
        } => {
            let request = lists::request("/v1/runs", then.as_deref())
                .query("session_id", session.as_ref())
                .query("status", status.as_ref())
                .query("name", name.as_ref())
                .metadata(metadata);
            let asked = (created.of(request), then.is_some());
            lists::show(&client, asked, page.limit, format, &RUNS).await
        }
        RunsCommand::Show { id, wait } => {
            let mut request = Request::get(format!("/v1/runs/{id}"));
            if let Some(Span(wait)) = wait {
                request = request.wait(*wait);
            }
            output::object(format, &client.ask(request).await?)
        }
        RunsCommand::Nodes { id, prefix, page } => {
            let request =
                Request::get(format!("/v1/runs/{id}/nodes")).query("prefix", prefix.as_ref());
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &NODES, &rows)
        }
        RunsCommand::Cancel { id, node, reason } => {
            let request = match node {
                Some(path) => of_node(id, path, "cancel"),
                None => {
                    Request::post(format!("/v1/runs/{id}/cancel")).body(json!({ "reason": reason }))
                }
            };
            output::object(format, &client.ask(request).await?)
        }
        RunsCommand::Pause { id } => {
            let request = Request::post(format!("/v1/runs/{id}/pause"));
            output::object(format, &client.ask(request).await?)
        }
        RunsCommand::Resume { id } => {
            let request = Request::post(format!("/v1/runs/{id}/resume"));
            output::object(format, &client.ask(request).await?)
        }
        RunsCommand::Retry {
            id,
            node,
            max_tokens,
        } => {
            let request = match node {
                Some(path) => of_node(id, path, "retry"),
                None => Request::post(format!("/v1/runs/{id}/retry"))
                    .body(json!({ "max_tokens": max_tokens })),
            };
            output::object(format, &client.ask(request).await?)
        }
        RunsCommand::Steer { id, node, text } => {
            let request = of_node(id, node, "steer").body(json!({ "text": text }));
            output::object(format, &client.ask(request).await?)
        }
        RunsCommand::Amend {
            id,
            node,
            text,
            json,
        } => {
            let request =
                of_node(id, node, "amend").body(amendment(text.as_deref(), json.as_deref())?);
            output::object(format, &client.ask(request).await?)
        }
        RunsCommand::Tail { id, after } => {
            let show = |event: &Event| print_event(event, format);
            verdict(&events(&client, id, after.clone(), show).await?)
        }
        RunsCommand::Export { id } => {
            let document = client
                .ask(Request::get(format!("/v1/runs/{id}/export")))
                .await?;
            match format {
                Format::Table | Format::Json => output::object(Format::Json, &document),
                Format::Jsonl => output::object(format, &document),
            }
        }
    }
}

/// A request about one node, whose path is encoded as one segment.
fn of_node(id: &str, path: &str, verb: &str) -> Request {
    let segment = segment(path);
    Request::post(format!("/v1/runs/{id}/nodes/{segment}/{verb}"))
}

/// The body that amends a leaf's result.
fn amendment(text: Option<&str>, value: Option<&str>) -> Result<Value, Failure> {
    let mut body = json!({});
    if let Some(text) = text {
        body["text"] = json!(text);
    }
    if let Some(value) = value {
        let parsed: Result<Value, _> = serde_json::from_str(value);
        body["output"] = parsed.map_err(|error| {
            Failure::new(
                Exit::Usage,
                format!("the value of --json is not JSON: {error}"),
            )
        })?;
    }
    Ok(body)
}

/// Whether only a retry can still change the run.
fn is_final(run: &Value) -> bool {
    super::follow::is_final(run)
}

/// Passes every event of a run to `show`; returns the run once it has ended.
pub(super) async fn events(
    client: &Client,
    id: &str,
    after: Option<String>,
    mut show: impl FnMut(&Event) -> Result<(), Failure>,
) -> Result<Value, Failure> {
    let mut events = Events::new(client, format!("/v1/runs/{id}/events"), after);
    loop {
        if let Some(event) = events.next().await? {
            show(&event)?;
            continue;
        }
        // Either the server is shutting down, or all events were seen: the run itself tells which.
        let run = client.ask(Request::get(format!("/v1/runs/{id}"))).await?;
        if is_final(&run) {
            return Ok(run);
        }
        events.reconnect().await?;
    }
}

/// Turns the outcome of a run into the outcome of the command.
pub(super) fn verdict(run: &Value) -> Result<(), Failure> {
    match run["status"].as_str() {
        Some("failed") => {
            let error = &run["error"];
            let code = error["code"].as_str().unwrap_or_default();
            let message = error["message"].as_str().unwrap_or("no reason was given");
            let message = format!("the run failed: {} ({code})", output::harmless(message));
            let failure = Failure::new(Exit::SendFailed, message);
            Err(match Code::parse(code) {
                Some(code) => failure.next(next_of(code)),
                None => failure,
            })
        }
        Some("cancelled") => Err(Failure::new(Exit::SendCancelled, "the run was cancelled")),
        _ => Ok(()),
    }
}
