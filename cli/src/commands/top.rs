//! `mainspring top`: what the installation is doing, again and again.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::lists;
use super::live::{self, Names};
use crate::args::{Format, TopArgs};
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure};
use crate::output::{self, Column};

/// The tenant of operators that name no other.
const FIRST_TENANT: &str = "ten_1";

/// How many sends of each status are shown, the newest first.
const SENDS_MAX: usize = 10;

/// How many pools and workers are shown on a screen.
const ROWS_MAX: usize = 8;

/// Statuses of sends that are not at their end.
const STATUSES: [&str; 3] = ["running", "waiting", "queued"];

const WORKERS: [Column; 4] = [
    ("WORKER", "name"),
    ("POOL", "pool"),
    ("SLOTS", "slots"),
    ("STARTED", "started_at"),
];

const SENDS: [Column; 6] = [
    ("STATUS", "status"),
    ("AGENT", "agent"),
    ("AGE", "created_at"),
    ("WAITS FOR", "waiting_on"),
    ("SEND", "id"),
    ("SESSION", "session_id"),
];

pub(crate) async fn run(args: &TopArgs, format: Format, client: Client) -> Result<(), Failure> {
    let mut source = Source {
        client: &client,
        names: Names::default(),
        refused: BTreeSet::new(),
    };
    if format != Format::Table {
        return output::object(format, &source.look().await?);
    }
    if args.once || !output::is_terminal() {
        let lines = drawn(client.shown(), &source.look().await?, None);
        return output::line(&live::fitted(&lines, output::width()).join("\n"));
    }
    let look = async || source.look().await;
    let draw = |seen: &Value, rows| drawn(client.shown(), seen, rows);
    live::on_screen(&client, args.interval.0, look, draw).await
}

/// Where the view comes from.
struct Source<'c> {
    client: &'c Client,
    names: Names,
    /// What this caller may not read.
    refused: BTreeSet<&'static str>,
}

impl Source<'_> {
    /// All that is shown, as one object. What the caller may not read is null.
    async fn look(&mut self) -> Result<Value, Failure> {
        let tenant = self.client.tenant().unwrap_or(FIRST_TENANT);
        let usage = format!("/v1/tenants/{tenant}/usage?days=1");
        let (pools, workers, usage, inbox, [running, waiting, queued]) = tokio::try_join!(
            self.allowed("pools", "/v1/queue"),
            self.allowed("workers", "/v1/workers"),
            self.allowed("today", &usage),
            self.client
                .ask(Request::get("/v1/calls").query("waiting_on", Some("human"))),
            self.sends(),
        )?;
        // Only now, since a server that is going away refuses everything.
        let read = [("pools", &pools), ("workers", &workers), ("today", &usage)];
        let refused = read.into_iter().filter(|(_, read)| read.is_null());
        self.refused.extend(refused.map(|(name, _)| name));
        let mut sends = json!({ "running": running, "waiting": waiting, "queued": queued });
        let rows = STATUSES
            .iter()
            .flat_map(|status| rows(&sends[status]["data"]));
        self.names.learn(self.client, rows).await?;
        for status in STATUSES {
            for send in sends[status]["data"].as_array_mut().into_iter().flatten() {
                send["agent"] = self.names.of(send);
            }
        }
        Ok(json!({
            "at": output::now(),
            "pools": pools["data"],
            "workers": workers["data"],
            "sends": sends,
            "inbox": counted(&inbox),
            "today": usage["days"][0],
        }))
    }

    /// Asks for what not every caller may read; null if this one may not.
    async fn allowed(&self, name: &str, path: &str) -> Result<Value, Failure> {
        if self.refused.contains(name) {
            return Ok(Value::Null);
        }
        match self.client.ask(Request::get(path)).await {
            Err(failure) if matches!(failure.exit, Exit::Unauthorised | Exit::NotFound) => {
                Ok(Value::Null)
            }
            answer => answer,
        }
    }

    /// How many sends have each status, and the newest of them.
    async fn sends(&self) -> Result<[Value; 3], Failure> {
        let asked = STATUSES.map(async |status| {
            let request = Request::get("/v1/sends").query("status", Some(status));
            let page = self.client.ask(request).await?;
            let mut sends = counted(&page);
            let newest: Vec<&Value> = rows(&page["data"]).take(SENDS_MAX).collect();
            sends["data"] = json!(newest);
            Ok(sends)
        });
        let [running, waiting, queued] = asked;
        tokio::try_join!(running, waiting, queued).map(|(a, b, c)| [a, b, c])
    }
}

fn rows(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// How many there are on a page, and whether there are more.
fn counted(page: &Value) -> Value {
    json!({ "count": rows(&page["data"]).count(), "more": !page["next_cursor"].is_null() })
}

/// A count, with a plus if there are more.
fn shown(counted: &Value) -> String {
    let more = if counted["more"] == true { "+" } else { "" };
    format!("{}{more}", counted["count"])
}

/// The view as lines. On a screen with so many rows, sends have what the rest leaves.
fn drawn(server: &str, seen: &Value, height: Option<usize>) -> Vec<String> {
    let max = height.map_or(usize::MAX, |_| ROWS_MAX);
    let mut lines = summary(server, seen);
    if let Value::Array(pools) = &seen["pools"] {
        let mut pools = pools.clone();
        lists::aged(&mut pools);
        section(&mut lines, &lists::QUEUE, &pools, max);
    }
    if let Value::Array(workers) = &seen["workers"] {
        let mut workers = workers.clone();
        for worker in &mut workers {
            worker["slots"] = json!(format!("{}/{}", worker["in_flight"], worker["concurrency"]));
        }
        section(&mut lines, &WORKERS, &workers, max);
    }
    let sends = STATUSES
        .iter()
        .flat_map(|status| rows(&seen["sends"][status]["data"]));
    let sends: Vec<Value> = sends.cloned().collect();
    // An empty line, the header, and what is left out.
    let left = height.map(|height| height.saturating_sub(lines.len() + 3).max(1));
    section(&mut lines, &SENDS, &sends, left.unwrap_or(usize::MAX));
    lines
}

/// The lines that say how much there is of everything.
fn summary(server: &str, seen: &Value) -> Vec<String> {
    let at = seen["at"].as_str().unwrap_or_default();
    let counts = STATUSES.map(|status| format!("{} {status}", shown(&seen["sends"][status])));
    let mut lines = vec![
        format!("{} UTC  {server}", at.get(11..19).unwrap_or_default()),
        format!("sends    {}", counts.join(", ")),
        format!(
            "inbox    {} open questions and approvals",
            shown(&seen["inbox"])
        ),
    ];
    if seen["workers"].is_array() {
        let sum = |name: &str| {
            let workers = rows(&seen["workers"]);
            workers.filter_map(|it| it[name].as_u64()).sum::<u64>()
        };
        let (live, used, slots) = (
            rows(&seen["workers"]).count(),
            sum("in_flight"),
            sum("concurrency"),
        );
        lines.push(format!(
            "workers  {live} live, {used} of {slots} slots in use"
        ));
    }
    let (today, used) = (&seen["today"], &seen["today"]["usage"]);
    if today.is_object() {
        let tokens = format!(
            "{} tokens in, {} out",
            used["input_tokens"], used["output_tokens"]
        );
        let dollars = used["cost_usd"].as_f64();
        let dollars = dollars.map_or_else(String::new, |dollars| format!(", ${dollars:.4}"));
        lines.push(format!(
            "today    {} sends, {tokens}{dollars}",
            today["sends"]
        ));
    }
    lines
}

/// Adds a table, with so many rows at most.
fn section(lines: &mut Vec<String>, columns: &[Column], rows: &[Value], max: usize) {
    if rows.is_empty() {
        return;
    }
    let table = output::table(columns, &rows[..rows.len().min(max)]);
    let mut table = table.lines();
    let head = table.next().unwrap_or_default();
    lines.extend([String::new(), console::style(head).bold().to_string()]);
    lines.extend(table.map(str::to_owned));
    if rows.len() > max {
        lines.push(format!("… and {} more", rows.len() - max));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Value {
        let send = json!({ "id": "snd_1", "status": "running", "agent": "poet" });
        let sends: Vec<&Value> = std::iter::repeat_n(&send, SENDS_MAX).collect();
        let none = json!({ "count": 0, "more": false, "data": [] });
        let worker = json!({ "name": "w\u{1b}[2J", "in_flight": 3, "concurrency": 8 });
        json!({
            "at": "2030-01-31T08:09:10.000Z",
            "pools": [{ "pool": "default", "ready": 1, "running": 2, "oldest_ready_ms": 5_000 }],
            "workers": vec![worker; 9],
            "sends": {
                "running": { "count": 50, "more": true, "data": sends },
                "waiting": none, "queued": none,
            },
            "inbox": { "count": 2, "more": false },
            "today": { "sends": 7, "usage": { "input_tokens": 9, "output_tokens": 4, "cost_usd": 0.5 } },
        })
    }

    #[test]
    fn everything_is_counted_first() {
        let lines = drawn("http://x", &seen(), None);
        let expected = [
            "08:09:10 UTC  http://x",
            "sends    50+ running, 0 waiting, 0 queued",
            "inbox    2 open questions and approvals",
            "workers  9 live, 27 of 72 slots in use",
            "today    7 sends, 9 tokens in, 4 out, $0.5000",
        ];
        assert_eq!(lines[..5], expected);
        let all = lines.join("\n");
        assert!(!all.contains("\u{1b}[2J") && all.contains("w[2J"), "{all}");
        assert_eq!(all.matches("snd_1").count(), SENDS_MAX, "{all}");
    }

    #[test]
    fn sends_have_the_rows_that_the_rest_leaves() {
        let lines = drawn("http://x", &seen(), Some(26));
        assert_eq!(lines.len(), 26, "{lines:#?}");
        assert_eq!(lines.last().map(String::as_str), Some("… and 6 more"));
        assert!(lines.contains(&"… and 1 more".to_owned()), "{lines:#?}");
    }

    #[test]
    fn what_the_caller_may_not_read_is_left_out() {
        let mut seen = seen();
        for name in ["pools", "workers", "today"] {
            seen[name] = Value::Null;
        }
        let all = drawn("http://x", &seen, None).join("\n");
        for word in ["POOL", "WORKER", "workers", "today"] {
            assert!(!all.contains(word), "{word}: {all}");
        }
        assert!(all.contains("poet"), "{all}");
    }
}
