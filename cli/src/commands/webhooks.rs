//! `mainspring webhooks …`

use mainspring_runtime::Environment;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::lists;
use crate::args::{Format, WebhooksCommand};
use crate::client::{Client, Request};
use crate::failure::{Failure, usage_text};
use crate::output::{self, Column};

const COLUMNS: [Column; 5] = [
    ("ID", "id"),
    ("URL", "url"),
    ("EVENTS", "events"),
    ("DISABLED", "disabled_reason"),
    ("CREATED", "created_at"),
];

const DELIVERY_COLUMNS: [Column; 8] = [
    ("ID", "id"),
    ("TYPE", "type"),
    ("SUBJECT", "subject"),
    ("STATUS", "status"),
    ("ATTEMPTS", "attempts"),
    ("ANSWER", "answer"),
    ("ERROR", "error"),
    ("NEXT", "next_attempt_at"),
];

pub(crate) async fn run(
    command: &WebhooksCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    match command {
        WebhooksCommand::List { page } => {
            let request = Request::get("/v1/webhooks");
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &COLUMNS, &rows)
        }
        WebhooksCommand::Show { id } => {
            let request = Request::get(format!("/v1/webhooks/{id}"));
            output::object(format, &client.ask(request).await?)
        }
        WebhooksCommand::Create {
            url,
            events,
            secret_env,
        } => {
            let mut body = json!({ "url": url, "events": events });
            if let Some(name) = secret_env {
                body["secret"] = json!(secret(name)?);
            }
            // Without an idempotency key, because a replayed response would not contain the secret.
            let request = Request::post("/v1/webhooks").body(body);
            reveal(format, &client.ask(request).await?)
        }
        WebhooksCommand::Update {
            id,
            url,
            events,
            disable,
            enable,
        } => {
            let mut body = Map::new();
            if let Some(url) = url {
                body.insert("url".to_owned(), json!(url));
            }
            if !events.is_empty() {
                body.insert("events".to_owned(), json!(events));
            }
            if *disable || *enable {
                body.insert("disabled".to_owned(), json!(disable));
            }
            let request = Request::new(Method::PATCH, format!("/v1/webhooks/{id}"));
            let request = request.body(Value::Object(body));
            output::object(format, &client.ask(request).await?)
        }
        WebhooksCommand::Rotate { id, overlap } => {
            let body = overlap
                .as_ref()
                .map_or_else(|| json!({}), |overlap| json!({ "overlap": overlap }));
            let request = Request::post(format!("/v1/webhooks/{id}/rotate")).body(body);
            reveal(format, &client.ask(request).await?)
        }
        WebhooksCommand::Delete { id } => {
            let request = Request::new(Method::DELETE, format!("/v1/webhooks/{id}"));
            client.ask(request).await.map(drop)
        }
        WebhooksCommand::Deliveries {
            id,
            status,
            then,
            page,
        } => {
            let list = format!("/v1/webhooks/{id}/deliveries");
            let request = lists::request(&list, then.as_deref());
            let asked = (request.query("status", status.as_ref()), then.is_some());
            lists::show(&client, asked, page.limit, format, &DELIVERY_COLUMNS).await
        }
        WebhooksCommand::Redeliver { id, delivery } => {
            let path = format!("/v1/webhooks/{id}/deliveries/{delivery}/redeliver");
            output::object(format, &client.ask(Request::post(path)).await?)
        }
    }
}

/// Reads a secret from the environment, because arguments show up in process lists.
fn secret(name: &str) -> Result<String, Failure> {
    let found = Environment::read().get(name).map(str::to_owned);
    found.ok_or_else(|| {
        usage_text(
            format!("the environment has no variable {name}"),
            "--secret-env names one that holds the secret",
        )
    })
}

/// Prints a webhook with the secret that was just generated.
fn reveal(format: Format, webhook: &Value) -> Result<(), Failure> {
    output::note("note: keep the secret now, it cannot be shown again");
    output::object(format, webhook)
}
