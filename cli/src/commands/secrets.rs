//! `mainspring secrets …`

use reqwest::Method;
use serde_json::json;

use super::lists;
use super::provider_keys::hidden;
use crate::args::{Format, SecretsCommand};
use crate::client::{Client, Request, segment};
use crate::failure::Failure;
use crate::output::{self, Column};

const COLUMNS: [Column; 3] = [("NAME", "name"), ("HOSTS", "hosts"), ("SET", "set_at")];

pub(crate) async fn run(
    command: &SecretsCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    match command {
        SecretsCommand::List { page } => {
            let request = Request::get("/v1/secrets");
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &COLUMNS, &rows)
        }
        SecretsCommand::Show { name } => {
            let request = Request::get(path(name));
            output::object(format, &client.ask(request).await?)
        }
        SecretsCommand::Set {
            name,
            hosts,
            value_env,
            value_file,
        } => {
            let value = hidden(("value", value_env.as_deref(), value_file.as_deref()))?;
            let body = json!({ "value": value.trim(), "hosts": hosts });
            let request = Request::new(Method::PUT, path(name)).body(body);
            output::object(format, &client.ask(request).await?)
        }
        SecretsCommand::Delete { name } => {
            let request = Request::new(Method::DELETE, path(name));
            client.ask(request).await.map(drop)
        }
    }
}

fn path(name: &str) -> String {
    format!("/v1/secrets/{}", segment(name))
}
