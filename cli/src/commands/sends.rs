//! `mainspring sends …`

use mainspring_shared::time::Span;

use super::tail::print_event;
use super::{follow, lists, reply};
use crate::args::{Format, SendsCommand};
use crate::client::{Client, Event, Request};
use crate::failure::Failure;
use crate::output::{self, Column};

const COLUMNS: [Column; 7] = [
    ("ID", "id"),
    ("STATUS", "status"),
    ("REASON", "stop_reason"),
    ("ROUNDS", "rounds"),
    ("CREATED", "created_at"),
    ("SESSION", "session_id"),
    ("ANSWER", "output_text"),
];

pub(crate) async fn run(
    command: &SendsCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    match command {
        SendsCommand::List {
            session,
            status,
            agent,
            metadata,
            text,
            created,
            then,
            page,
        } => {
            let request = lists::request("/v1/sends", then.as_deref())
                .query("session_id", session.as_ref())
                .query("status", status.as_ref())
                .query("agent", agent.as_ref())
                .query("text", text.as_ref())
                .metadata(metadata);
            let asked = (created.of(request), then.is_some());
            lists::show(&client, asked, page.limit, format, &COLUMNS).await
        }
        SendsCommand::Show { id, wait } => {
            let mut request = Request::get(format!("/v1/sends/{id}"));
            if let Some(Span(wait)) = wait {
                request = request.wait(*wait);
            }
            output::object(format, &client.ask(request).await?)
        }
        SendsCommand::Cancel { id } => {
            let send = client
                .ask(Request::post(format!("/v1/sends/{id}/cancel")))
                .await?;
            if !follow::is_final(&send) {
                output::note("it ends at the next safe point");
            }
            output::object(format, &send)
        }
        SendsCommand::Answer {
            id,
            text,
            call,
            verdict,
        } => {
            let said = reply::said(text.as_deref(), verdict)?;
            reply::run(&client, format, id, call.as_deref(), said).await
        }
        SendsCommand::Tail { id, after } => {
            let show = |event: &Event| print_event(event, format);
            let send = follow::events(&client, id, after.clone(), show).await?;
            follow::verdict(&send)
        }
    }
}
