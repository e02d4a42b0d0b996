//! Lists: their pages, and the short ones whole.

use serde_json::Value;

use crate::args::Format;
use crate::client::{Client, Request};
use crate::failure::Failure;
use crate::output::{self, Column};

/// What a server gives at most at once.
const PAGE_MAX: usize = 200;

/// Asks for pages until there are enough rows.
pub(super) async fn rows(
    client: &Client,
    request: &Request,
    limit: u32,
) -> Result<Vec<Value>, Failure> {
    let limit = limit as usize;
    let mut rows: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = (limit - rows.len()).min(PAGE_MAX);
        let question = request
            .clone()
            .query("limit", Some(page))
            .query("cursor", cursor.as_ref());
        let mut answer = client.ask(question).await?;
        if let Value::Array(more) = answer["data"].take() {
            rows.extend(more);
        }
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() || rows.len() >= limit {
            rows.truncate(limit);
            return Ok(rows);
        }
    }
}

async fn whole(
    client: &Client,
    format: Format,
    path: &str,
    columns: &[Column],
) -> Result<(), Failure> {
    let mut answer = client.ask(Request::get(path)).await?;
    let rows = match answer["data"].take() {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    };
    output::list(format, columns, &rows)
}

/// `mainspring workers`
pub(crate) async fn workers(format: Format, client: Client) -> Result<(), Failure> {
    let columns = [
        ("NAME", "name"),
        ("POOL", "pool"),
        ("IN FLIGHT", "in_flight"),
        ("CONCURRENCY", "concurrency"),
        ("STARTED", "started_at"),
        ("ALIVE UNTIL", "lease_until"),
        ("ID", "id"),
    ];
    whole(&client, format, "/v1/workers", &columns).await
}

/// `mainspring queue`
pub(crate) async fn queue(format: Format, client: Client) -> Result<(), Failure> {
    let columns = [
        ("POOL", "pool"),
        ("READY", "ready"),
        ("RUNNING", "running"),
        ("OLDEST MS", "oldest_ready_ms"),
        ("JOBS", "depth"),
    ];
    whole(&client, format, "/v1/queue", &columns).await
}
