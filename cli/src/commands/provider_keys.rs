//! `mainspring provider-keys …`

use std::path::Path;

use mainspring_runtime::Environment;
use reqwest::Method;
use serde_json::json;

use super::lists;
use crate::args::{Format, ProviderKeysCommand};
use crate::client::{Client, Request, segment};
use crate::failure::{Failure, usage_text};
use crate::output::{self, Column};

const COLUMNS: [Column; 3] = [
    ("PROVIDER", "provider"),
    ("ENDS WITH", "hint"),
    ("SET", "set_at"),
];

pub(crate) async fn run(
    command: &ProviderKeysCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    match command {
        ProviderKeysCommand::List { page } => {
            let request = Request::get("/v1/provider-keys");
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &COLUMNS, &rows)
        }
        ProviderKeysCommand::Set {
            provider,
            key_env,
            key_file,
        } => {
            let key = hidden(("key", key_env.as_deref(), key_file.as_deref()))?;
            let body = json!({ "key": key.trim() });
            let request = Request::new(Method::PUT, path(provider)).body(body);
            output::object(format, &client.ask(request).await?)
        }
        ProviderKeysCommand::Delete { provider } => {
            let request = Request::new(Method::DELETE, path(provider));
            client.ask(request).await.map(drop)
        }
    }
}

fn path(provider: &str) -> String {
    format!("/v1/provider-keys/{}", segment(provider))
}

/// Reads a key or another value; never from an argument, which other users of the machine could see.
pub(super) fn hidden(
    (what, variable, file): (&str, Option<&str>, Option<&Path>),
) -> Result<String, Failure> {
    let unreadable = |place: &str, error: &dyn std::fmt::Display| {
        usage_text(
            format!("{place} cannot be read: {error}"),
            format!(
                "the {what} is read from stdin, or from --{what}-env VARIABLE or --{what}-file FILE"
            ),
        )
    };
    if let Some(name) = variable {
        let value = Environment::read().get(name).map(str::to_owned);
        return value.ok_or_else(|| unreadable(name, &"the variable is not set"));
    }
    if let Some(file) = file {
        let read = std::fs::read_to_string(file);
        return read.map_err(|error| unreadable(&file.display().to_string(), &error));
    }
    std::io::read_to_string(std::io::stdin()).map_err(|error| unreadable("stdin", &error))
}
