//! `mainspring memories …`

use reqwest::Method;
use serde_json::{Value, json};

use super::lists;
use crate::args::{Format, MemoriesCommand};
use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::output::{self, Column};

const PATH: &str = "/v1/memories";

const COLUMNS: [Column; 5] = [
    ("ID", "id"),
    ("NAMESPACE", "namespace"),
    ("TEXT", "text"),
    ("UPDATED", "updated_at"),
    ("EXPIRES", "expires_at"),
];

const ERASURES: [Column; 4] = [
    ("ID", "id"),
    ("ERASED", "erased_at"),
    ("BY", "by"),
    ("DELETED", "deleted"),
];

pub(crate) async fn run(
    command: &MemoriesCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    match command {
        MemoriesCommand::List { namespace, page } => {
            let request = Request::get(PATH).query("namespace", namespace.as_ref());
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &COLUMNS, &rows)
        }
        MemoriesCommand::Search {
            query,
            namespace,
            limit,
        } => {
            let request = Request::get(PATH)
                .query("namespace", Some(namespace))
                .query("q", Some(query))
                .query("limit", Some(limit));
            let mut answer = client.ask(request).await?;
            let rows = match answer["data"].take() {
                Value::Array(rows) => rows,
                _ => Vec::new(),
            };
            output::list(format, &COLUMNS, &rows)
        }
        MemoriesCommand::Show { id } => {
            let request = Request::get(format!("{PATH}/{id}"));
            output::object(format, &client.ask(request).await?)
        }
        MemoriesCommand::Add {
            text,
            namespace,
            expires_at,
        } => {
            let mut body = json!({ "namespace": namespace, "text": text });
            if let Some(time) = expires_at {
                body["expires_at"] = json!(time);
            }
            let request = Request::post(PATH).body(body).key(client.fresh_key());
            output::object(format, &client.ask(request).await?)
        }
        MemoriesCommand::Edit { id, text } => {
            let request = Request::new(Method::PATCH, format!("{PATH}/{id}"));
            let request = request.body(json!({ "text": text }));
            output::object(format, &client.ask(request).await?)
        }
        MemoriesCommand::Delete { id } => {
            let request = Request::new(Method::DELETE, format!("{PATH}/{id}"));
            client.ask(request).await?;
            output::note("deleted");
            Ok(())
        }
        MemoriesCommand::Export { namespace } => {
            let request = Request::get(PATH).query("namespace", namespace.as_ref());
            let rows = lists::rows(&client, &request, u32::MAX).await?;
            output::list(Format::Jsonl, &COLUMNS, &rows)
        }
        MemoriesCommand::Erasures { namespace, page } => {
            let path = format!("{PATH}/erasures");
            let request = Request::get(path).query("namespace", namespace.as_ref());
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &ERASURES, &rows)
        }
        MemoriesCommand::Erase { namespace } => {
            let request = Request::new(Method::DELETE, PATH).query("namespace", Some(namespace));
            output::object(format, &client.ask(request).await?)
        }
    }
}
