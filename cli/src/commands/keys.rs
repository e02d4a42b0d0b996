//! `mainspring keys …`

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::lists;
use crate::args::{BindingArgs, Format, KeysCommand};
use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::output::{self, Column};

const COLUMNS: [Column; 8] = [
    ("ID", "id"),
    ("NAME", "name"),
    ("SCOPES", "scopes"),
    ("BOUND TO", "binding"),
    ("CREATED", "created_at"),
    ("LAST USED", "last_used_at"),
    ("EXPIRES", "expires_at"),
    ("REVOKED", "revoked_at"),
];

pub(crate) async fn run(
    command: &KeysCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    match command {
        KeysCommand::List { page } => {
            let request = Request::get("/v1/keys");
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &COLUMNS, &rows)
        }
        KeysCommand::Create {
            name,
            scopes,
            binding,
            requests_per_second,
            sends_open,
            expires_at,
            print_key,
        } => {
            let mut body = Map::from_iter([
                ("name".to_owned(), json!(name)),
                ("scopes".to_owned(), json!(scopes)),
            ]);
            if let Some(binding) = bound(binding) {
                body.insert("binding".to_owned(), binding);
            }
            let limits = [
                ("requests_per_second", requests_per_second),
                ("sends_open", sends_open),
            ];
            let limits = limits.into_iter();
            let limits =
                limits.filter_map(|(name, limit)| Some((name.to_owned(), json!(*limit.as_ref()?))));
            let limits: Map<String, Value> = limits.collect();
            if !limits.is_empty() {
                body.insert("limits".to_owned(), Value::Object(limits));
            }
            if let Some(time) = expires_at {
                body.insert("expires_at".to_owned(), json!(time));
            }
            // Without an idempotency key, because a replayed response would not contain the secret.
            let request = Request::post("/v1/keys").body(Value::Object(body));
            let key = client.ask(request).await?;
            if *print_key {
                return output::line(key["key"].as_str().unwrap_or_default());
            }
            reveal(format, &key)
        }
        KeysCommand::Rotate { id, overlap } => {
            let body = overlap
                .as_ref()
                .map_or_else(|| json!({}), |overlap| json!({ "overlap": overlap }));
            let request = Request::post(format!("/v1/keys/{id}/rotate")).body(body);
            reveal(format, &client.ask(request).await?)
        }
        KeysCommand::Revoke { id } => {
            let request = Request::new(Method::DELETE, format!("/v1/keys/{id}"));
            client.ask(request).await.map(drop)
        }
    }
}

/// The binding of a key; `None` if no argument sets one.
fn bound(args: &BindingArgs) -> Option<Value> {
    let mut binding = Map::new();
    if !args.agents.is_empty() {
        binding.insert("agents".to_owned(), json!(args.agents));
    }
    if !args.metadata.is_empty() {
        let pairs = args.metadata.iter();
        let pairs: Map<_, _> = pairs
            .map(|(name, text)| (name.clone(), json!(text)))
            .collect();
        binding.insert("metadata".to_owned(), Value::Object(pairs));
    }
    if let Some(namespace) = &args.namespace {
        binding.insert("namespace".to_owned(), json!(namespace));
    }
    (!binding.is_empty()).then_some(Value::Object(binding))
}

/// Prints a key that was just created.
fn reveal(format: Format, key: &Value) -> Result<(), Failure> {
    output::note("note: keep the key now, it cannot be shown again");
    output::object(format, key)
}
