//! Lists: paged ones, and short ones that come as a whole.

use std::time::Duration;

use mainspring_shared::time::Span;
use serde_json::Value;

use crate::args::{CreatedArgs, Format, WorkersCommand};
use crate::client::{Client, PAGE_MAX, Request};
use crate::failure::{Exit, Failure};
use crate::output::{self, Column};

impl CreatedArgs {
    /// A request for those only that were created then.
    pub(super) fn of(&self, request: Request) -> Request {
        request
            .query("created_from", self.since.as_ref())
            .query("created_before", self.before.as_ref())
    }
}

/// Asks for a list, or for something to be done to all that it shows.
pub(super) fn request(list: &str, then: Option<&str>) -> Request {
    match then {
        None => Request::get(list),
        Some(action) => Request::post(format!("{list}:{action}")),
    }
}

/// Fetches pages until there are enough rows.
pub(super) async fn rows(
    client: &Client,
    request: &Request,
    limit: u32,
) -> Result<Vec<Value>, Failure> {
    let limit = limit as usize;
    let mut rows: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = (limit - rows.len()).min(PAGE_MAX as usize);
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

/// Shows a list, or what became of those that it was to act on.
pub(super) async fn show(
    client: &Client,
    (request, acts): (Request, bool),
    limit: u32,
    format: Format,
    columns: &[Column],
) -> Result<(), Failure> {
    if acts {
        return acted(client, &request, limit, format).await;
    }
    let rows = rows(client, &request, limit).await?;
    output::list(format, columns, &rows)
}

/// Acts on what a list with these parameters shows, piece by piece, until there is nothing more or enough was acted on.
async fn acted(
    client: &Client,
    request: &Request,
    limit: u32,
    format: Format,
) -> Result<(), Failure> {
    let limit = limit as usize;
    let mut rows: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    while rows.len() < limit {
        let piece = (limit - rows.len()).min(PAGE_MAX as usize);
        let question = request
            .clone()
            .query("limit", Some(piece))
            .query("cursor", cursor.as_ref());
        let mut answer = client.ask(question).await?;
        if let Value::Array(more) = answer["results"].take() {
            rows.extend(more);
        }
        cursor = answer["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    let failed = rows.iter().filter(|row| row["done"] != true).count();
    for row in &mut rows {
        row["problem"] = row["problem"]["detail"].take();
    }
    let columns = [("ID", "id"), ("DONE", "done"), ("PROBLEM", "problem")];
    output::list(format, &columns, &rows)?;
    if failed > 0 {
        let text = format!("{failed} of {} were not done", rows.len());
        return Err(
            Failure::new(Exit::Conflict, text).next("the list says why; the others are done")
        );
    }
    Ok(())
}

/// The rows of a list that is not paged.
async fn all(client: &Client, path: &str) -> Result<Vec<Value>, Failure> {
    let mut answer = client.ask(Request::get(path)).await?;
    Ok(match answer["data"].take() {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    })
}

/// `mainspring workers`
pub(crate) async fn workers(
    command: Option<&WorkersCommand>,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    let workers = all(&client, "/v1/workers").await?;
    if let Some(WorkersCommand::Show { id }) = command {
        let found = workers.iter().find(|worker| worker["id"] == id.as_str());
        let worker = found.ok_or_else(|| {
            Failure::new(Exit::NotFound, format!("no live worker has the id {id}"))
                .next("`mainspring workers list` shows what exists")
        })?;
        return output::object(format, worker);
    }
    let columns = [
        ("NAME", "name"),
        ("POOL", "pool"),
        ("IN FLIGHT", "in_flight"),
        ("CONCURRENCY", "concurrency"),
        ("STARTED", "started_at"),
        ("ALIVE UNTIL", "lease_until"),
        ("PROTOCOL", "protocol"),
        ("ID", "id"),
    ];
    output::list(format, &columns, &workers)
}

/// `mainspring tools --workers`
pub(crate) async fn tools(format: Format, client: Client) -> Result<(), Failure> {
    let columns = [
        ("NAME", "name"),
        ("KIND", "kind"),
        ("PRESETS", "presets"),
        ("POOLS", "pools"),
        ("DOES", "description"),
    ];
    let mut rows = all(&client, "/v1/tools").await?;
    if format == Format::Table {
        for name in ["presets", "pools"] {
            for row in &mut rows {
                let words = row[name].as_array().into_iter().flatten();
                let words: Vec<&str> = words.filter_map(Value::as_str).collect();
                row[name] = Value::String(words.join(" "));
            }
        }
    }
    output::list(format, &columns, &rows)
}

/// The work of a pool.
pub(super) const QUEUE: [Column; 5] = [
    ("POOL", "pool"),
    ("READY", "ready"),
    ("RUNNING", "running"),
    ("OLDEST", "oldest"),
    ("JOBS", "depth"),
];

/// `mainspring queue`
pub(crate) async fn queue(format: Format, client: Client) -> Result<(), Failure> {
    let mut rows = all(&client, "/v1/queue").await?;
    if format == Format::Table {
        aged(&mut rows);
    }
    output::list(format, &QUEUE, &rows)
}

/// Adds to each pool how long its oldest session has waited.
pub(super) fn aged(pools: &mut [Value]) {
    for pool in pools {
        pool["oldest"] = age(&pool["oldest_ready_ms"]);
    }
}

/// How long something has waited, in readable form.
fn age(millis: &Value) -> Value {
    match millis.as_u64().map(Duration::from_millis) {
        None => Value::Null,
        Some(age) if age < Duration::from_secs(10) => Value::from(Span(age).to_string()),
        Some(age) => Value::from(Span(Duration::from_secs(age.as_secs())).to_string()),
    }
}
