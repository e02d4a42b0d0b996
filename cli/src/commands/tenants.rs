//! `mainspring tenants …`

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::lists;
use crate::args::{Format, LimitsArgs, TenantsCommand};
use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::output::{self, Column};

const COLUMNS: [Column; 4] = [
    ("ID", "id"),
    ("NAME", "name"),
    ("REQUESTS/S", "limits.requests_per_second"),
    ("CREATED", "created_at"),
];

pub(crate) async fn run(
    command: &TenantsCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    match command {
        TenantsCommand::List { page } => {
            let request = Request::get("/v1/tenants");
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &COLUMNS, &rows)
        }
        TenantsCommand::Show { id } => {
            let request = Request::get(format!("/v1/tenants/{id}"));
            output::object(format, &client.ask(request).await?)
        }
        TenantsCommand::Create { name, limits } => {
            let request = Request::post("/v1/tenants")
                .body(body(Some(name), limits))
                .key(client.fresh_key());
            output::object(format, &client.ask(request).await?)
        }
        TenantsCommand::Update { id, name, limits } => {
            let request = Request::new(Method::PATCH, format!("/v1/tenants/{id}"));
            let request = request.body(body(name.as_ref(), limits));
            output::object(format, &client.ask(request).await?)
        }
        TenantsCommand::Delete { id } => {
            let request = Request::new(Method::DELETE, format!("/v1/tenants/{id}"));
            client.ask(request).await.map(drop)
        }
    }
}

fn body(name: Option<&String>, limits: &LimitsArgs) -> Value {
    let mut body = Map::new();
    if let Some(name) = name {
        body.insert("name".to_owned(), json!(name));
    }
    match limits.requests_per_second {
        None => {}
        Some(0) => {
            body.insert("limits".to_owned(), json!({}));
        }
        Some(rate) => {
            body.insert("limits".to_owned(), json!({ "requests_per_second": rate }));
        }
    }
    Value::Object(body)
}
