//! `mainspring timers …`

use mainspring_runtime::OsEntropy;
use mainspring_shared::entropy::Entropy;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::lists;
use crate::args::{Format, RuleArgs, TimersCommand};
use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::output::{self, Column};

const COLUMNS: [Column; 7] = [
    ("ID", "id"),
    ("STATUS", "status"),
    ("NEXT", "next.0"),
    ("TIMES", "occurrences"),
    ("FAILURES", "failures"),
    ("CREATED", "created_at"),
    ("SESSION", "session_id"),
];

const OCCURRENCE_COLUMNS: [Column; 5] = [
    ("N", "n"),
    ("FATE", "fate"),
    ("DUE", "due_at"),
    ("FIRED", "fired_at"),
    ("SEND", "send_id"),
];

pub(crate) async fn run(
    command: &TimersCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    match command {
        TimersCommand::List {
            session,
            status,
            created,
            page,
        } => {
            let request = Request::get("/v1/timers")
                .query("session_id", session.as_ref())
                .query("status", status.as_ref());
            let rows = lists::rows(&client, &created.of(request), page.limit).await?;
            output::list(format, &COLUMNS, &rows)
        }
        TimersCommand::Show { id } => {
            let request = Request::get(format!("/v1/timers/{id}"));
            output::object(format, &client.ask(request).await?)
        }
        TimersCommand::Create(args) => {
            let request = Request::post("/v1/timers")
                .body(body(Some(&args.session), Some(&args.text), &args.rule))
                .key(OsEntropy.random_id().simple().to_string());
            output::object(format, &client.ask(request).await?)
        }
        TimersCommand::Set(args) => {
            let request = Request::new(Method::PATCH, format!("/v1/timers/{}", args.id))
                .body(body(None, args.text.as_ref(), &args.rule));
            output::object(format, &client.ask(request).await?)
        }
        TimersCommand::Fire { id } => {
            // With the number of the occurrence a repeat of the request fires nothing.
            let timer = client.ask(Request::get(format!("/v1/timers/{id}"))).await?;
            let n = timer["occurrences"].as_i64().map(|had| had + 1);
            let request = Request::post(format!("/v1/timers/{id}/fire")).body(json!({ "n": n }));
            output::object(format, &client.ask(request).await?)
        }
        TimersCommand::Pause { id } => act(&client, format, id, "pause").await,
        TimersCommand::Resume { id } => act(&client, format, id, "resume").await,
        TimersCommand::Cancel { id } => {
            let request = Request::new(Method::DELETE, format!("/v1/timers/{id}"));
            output::object(format, &client.ask(request).await?)
        }
        TimersCommand::Occurrences { id, page } => {
            let request = Request::get(format!("/v1/timers/{id}/occurrences"));
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &OCCURRENCE_COLUMNS, &rows)
        }
    }
}

async fn act(client: &Client, format: Format, id: &str, verb: &str) -> Result<(), Failure> {
    let request = Request::post(format!("/v1/timers/{id}/{verb}"));
    output::object(format, &client.ask(request).await?)
}

/// The body for the requested timer; the server decides what is not given.
fn body(session: Option<&String>, text: Option<&String>, args: &RuleArgs) -> Value {
    let texts = [
        ("session_id", session),
        ("input", text),
        ("at", args.at.as_ref()),
        ("after", args.after.as_ref()),
        ("every", args.every.as_ref()),
        ("cron", args.cron.as_ref()),
        ("timezone", args.timezone.as_ref()),
        ("catch_up", args.catch_up.as_ref()),
        ("until", args.until.as_ref()),
        ("jitter", args.jitter.as_ref()),
    ];
    let given = texts.into_iter().filter_map(|(name, text)| {
        let text = text?.clone();
        Some((name.to_owned(), Value::String(text)))
    });
    let mut body: Map<String, Value> = given.collect();
    if let Some(max) = args.max_occurrences {
        body.insert("max_occurrences".to_owned(), max.into());
    }
    Value::Object(body)
}
