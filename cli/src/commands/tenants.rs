//! `mainspring tenants …`

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::lists;
use crate::args::{Format, TenantsCommand, TermsArgs};
use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::output::{self, Column};

const COLUMNS: [Column; 5] = [
    ("ID", "id"),
    ("NAME", "name"),
    ("REQUESTS/S", "limits.requests_per_second"),
    ("OPEN SENDS", "limits.sends_open"),
    ("CREATED", "created_at"),
];

const USAGE: [Column; 6] = [
    ("DAY", "day"),
    ("SENDS", "sends"),
    ("CALLS", "calls"),
    ("INPUT", "usage.input_tokens"),
    ("OUTPUT", "usage.output_tokens"),
    ("USD", "usage.cost_usd"),
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
        TenantsCommand::Create { name, terms } => {
            let request = Request::post("/v1/tenants")
                .body(body(Some(name), terms))
                .key(client.fresh_key());
            output::object(format, &client.ask(request).await?)
        }
        TenantsCommand::Update { id, name, terms } => {
            let request = Request::new(Method::PATCH, format!("/v1/tenants/{id}"));
            let request = request.body(body(name.as_ref(), terms));
            output::object(format, &client.ask(request).await?)
        }
        TenantsCommand::Usage { id, days } => {
            let request = Request::get(format!("/v1/tenants/{id}/usage?days={days}"));
            let used = client.ask(request).await?;
            match format {
                Format::Table => {
                    let rows = used.get("days").and_then(Value::as_array);
                    output::list(format, &USAGE, rows.map_or(&[][..], Vec::as_slice))
                }
                Format::Json | Format::Jsonl => output::object(format, &used),
            }
        }
        // They use the databases directly, not a server.
        TenantsCommand::Move { .. } | TenantsCommand::Places => Ok(()),
        TenantsCommand::Delete { id } => {
            let request = Request::new(Method::DELETE, format!("/v1/tenants/{id}"));
            client.ask(request).await.map(drop)
        }
    }
}

fn body(name: Option<&String>, terms: &TermsArgs) -> Value {
    let mut body = Map::new();
    let TermsArgs {
        limits,
        weight,
        retention,
        pools,
    } = terms;
    let has_pools = !pools.allowed.is_empty() || !pools.own.is_empty();
    if has_pools || pools.any_pool {
        let members = [("allowed", &pools.allowed), ("own", &pools.own)];
        let members = members.into_iter().filter(|(_, names)| !names.is_empty());
        let members = members.map(|(name, names)| (name.to_owned(), json!(names)));
        body.insert("pools".to_owned(), Value::Object(members.collect()));
    }
    if let Some(weight) = weight {
        body.insert("weight".to_owned(), json!(weight));
    }
    let retention = [
        (
            "sends",
            retention.keep_sends.as_ref().map(|keep| json!(keep)),
        ),
        ("runs", retention.keep_runs.as_ref().map(|keep| json!(keep))),
        (
            "sessions",
            retention.keep_sessions.as_ref().map(|keep| json!(keep)),
        ),
        ("hold", retention.hold.map(Value::from)),
    ];
    if retention.iter().any(|(_, member)| member.is_some()) {
        let set = retention.into_iter();
        let set = set.filter_map(|(name, member)| Some((name.to_owned(), member?)));
        body.insert("retention".to_owned(), Value::Object(set.collect()));
    }
    if let Some(name) = name {
        body.insert("name".to_owned(), json!(name));
    }
    let limits = [
        (
            "requests_per_second",
            limits.requests_per_second.map(Value::from),
        ),
        ("sends_open", limits.sends_open.map(Value::from)),
        ("sends_running", limits.sends_running.map(Value::from)),
        ("leaves_running", limits.leaves_running.map(Value::from)),
        (
            "tokens_per_minute",
            limits.tokens_per_minute.map(Value::from),
        ),
        ("tokens_per_day", limits.tokens_per_day.map(Value::from)),
        ("tokens_per_month", limits.tokens_per_month.map(Value::from)),
        ("usd_per_minute", limits.usd_per_minute.map(Value::from)),
        ("usd_per_day", limits.usd_per_day.map(Value::from)),
        ("usd_per_month", limits.usd_per_month.map(Value::from)),
        ("bytes", limits.bytes.map(Value::from)),
    ];
    if limits.iter().any(|(_, limit)| limit.is_some()) {
        let set = limits.into_iter().filter_map(|(name, limit)| {
            let limit = limit.filter(|limit| limit.as_f64() != Some(0.0))?;
            Some((name.to_owned(), limit))
        });
        let set: Map<String, Value> = set.collect();
        body.insert("limits".to_owned(), Value::Object(set));
    }
    Value::Object(body)
}
