//! `mainspring send`

use std::io::Read;

use mainspring_shared::time::Span;
use serde_json::{Value, json};

use super::answer::Answer;
use super::follow;
use crate::args::{AgentArgs, Format, SendArgs};
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure, usage_text};
use crate::output;

pub(crate) async fn run(args: &SendArgs, format: Format, client: Client) -> Result<(), Failure> {
    let text = if args.text == "-" {
        stdin()?
    } else {
        args.text.clone()
    };
    let key = args
        .idempotency_key
        .clone()
        .unwrap_or_else(|| client.fresh_key());
    let request = request(&text, args.session.as_deref(), &args.agent).key(key);
    let send = client.ask(request).await?;
    if !args.wait {
        return accepted(&send, format);
    }
    let work = answer(&client, &send, format);
    match args.timeout {
        None => work.await,
        Some(Span(limit)) => tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
            let message = format!("no answer within {}", Span(limit));
            let next = format!(
                "the send goes on: `mainspring sends tail {}`",
                follow::id(&send)
            );
            Err(Failure::new(Exit::Unavailable, message).next(next))
        }),
    }
}

/// The request that creates a send: in a session, or with a new one.
pub(super) fn request(text: &str, session: Option<&str>, agent: &AgentArgs) -> Request {
    let choices = choices(agent);
    match session {
        Some(session) => Request::post(format!("/v1/sessions/{session}/sends"))
            .body(json!({ "input": text, "options": choices })),
        None => Request::post("/v1/sends")
            .body(json!({ "input": text, "session": { "agent": choices } })),
    }
}

/// What was said about the agent; members with the same names in an agent and in options.
pub(super) fn choices(agent: &AgentArgs) -> Value {
    let mut members = serde_json::Map::new();
    for (name, value) in [
        ("model", &agent.model),
        ("system_prompt", &agent.system_prompt),
    ] {
        members.extend(value.as_ref().map(|value| (name.to_owned(), json!(value))));
    }
    Value::Object(members)
}

fn stdin() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| usage_text(format!("stdin: {error}"), "text in UTF-8 is expected"))?;
    Ok(text)
}

fn accepted(send: &Value, format: Format) -> Result<(), Failure> {
    let id = follow::id(send);
    match format {
        Format::Table => output::line(id)?,
        Format::Json | Format::Jsonl => output::object(format, send)?,
    }
    output::note(&format!(
        "accepted; `mainspring sends tail {id}` follows it"
    ));
    continue_with(send);
    Ok(())
}

fn continue_with(send: &Value) {
    let session = send["session_id"].as_str().unwrap_or_default();
    output::note(&format!(
        "`mainspring send --session {session} TEXT` continues"
    ));
}

async fn answer(client: &Client, send: &Value, format: Format) -> Result<(), Failure> {
    let id = follow::id(send);
    // Only someone who watches wants to see it grow.
    let live = format == Format::Table && output::is_terminal();
    let send = if live {
        let mut answer = Answer::new(true);
        follow::events(client, id, None, |event| answer.event(event)).await?
    } else {
        follow::wait_for(client, id).await?
    };
    match format {
        Format::Table if live => {}
        Format::Table => {
            if let Some(text) = send["output_text"].as_str() {
                output::line(text)?;
            }
        }
        Format::Json | Format::Jsonl => output::object(format, &send)?,
    }
    continue_with(&send);
    follow::verdict(&send)
}
