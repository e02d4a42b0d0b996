//! `mainspring inbox`: what waits for people and clients, in all sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::lists;
use super::live::{self, Names};
use super::reply::{self, Answer, Words};
use crate::args::{Format, InboxArgs, InboxCommand, Verdict};
use crate::client::{Client, PAGE_MAX, Request};
use crate::failure::{Exit, Failure};
use crate::output::{self, Column};

const COLUMNS: [Column; 7] = [
    ("CALL", "call_id"),
    ("KIND", "kind"),
    ("ASKS", "words"),
    ("AGENT", "agent"),
    ("SESSION", "session_id"),
    ("AGE", "requested_at"),
    ("DEADLINE", "deadline_at"),
];

/// How often a watched inbox is looked into.
const EVERY: Duration = Duration::from_secs(2);

/// How this command approves, denies and answers.
const WORDS: Words = Words {
    approve: "`mainspring inbox approve CALL`",
    deny: "`mainspring inbox deny CALL`",
    answer: "with `mainspring inbox answer CALL TEXT`, or --json",
};

pub(crate) async fn run(
    command: Option<&InboxCommand>,
    args: &InboxArgs,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    let (call, said) = match command {
        Some(InboxCommand::Answer { call, text, json }) => {
            let verdict = Verdict {
                json: json.clone(),
                ..Verdict::default()
            };
            (call, reply::said(text.as_deref(), &verdict)?)
        }
        Some(InboxCommand::Approve { call, note }) => (call, permission(true, note)),
        Some(InboxCommand::Deny { call, note }) => (call, permission(false, note)),
        None if args.watch => return watch(&client, args, format).await,
        None => {
            let calls = Inbox::new(&client, args, format).look().await?;
            return output::list(format, &COLUMNS, &calls);
        }
    };
    let call = find(&client, call).await?;
    let session = call["session_id"].as_str().unwrap_or_default();
    reply::post(&client, format, session, &call, (said, WORDS)).await
}

fn permission(approved: bool, note: &str) -> Answer {
    let note = note.to_owned();
    Answer::Permission { approved, note }
}

/// The waiting call with this id.
async fn find(client: &Client, id: &str) -> Result<Value, Failure> {
    let mut cursor: Option<String> = None;
    loop {
        let request = Request::get("/v1/calls")
            .query("limit", Some(PAGE_MAX))
            .query("cursor", cursor.as_ref());
        let mut page = client.ask(request).await?;
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        let calls = page["data"].as_array_mut().into_iter().flatten();
        let mut found = calls.filter(|call| call["call_id"] == id);
        if let Some(call) = found.next() {
            return Ok(call.take());
        }
        if cursor.is_none() {
            let message = format!("{id} is not waiting for an answer");
            let next =
                "it was answered, has expired or never asked; `mainspring inbox` lists what waits";
            return Err(Failure::new(Exit::NotFound, message).next(next));
        }
    }
}

/// The open calls that the arguments name.
struct Inbox<'c> {
    client: &'c Client,
    request: Request,
    limit: u32,
    format: Format,
    names: Names,
}

impl<'c> Inbox<'c> {
    fn new(client: &'c Client, args: &InboxArgs, format: Format) -> Self {
        Self {
            client,
            request: Request::get("/v1/calls").query("agent", args.agent.as_ref()),
            limit: args.page.limit,
            format,
            names: Names::default(),
        }
    }

    /// The calls, the longest waiting first: for people with what they read of each, for programs unchanged.
    async fn look(&mut self) -> Result<Vec<Value>, Failure> {
        let mut calls = lists::rows(self.client, &self.request, self.limit).await?;
        if self.format == Format::Table {
            self.names.learn(self.client, calls.iter()).await?;
            for call in &mut calls {
                call["agent"] = self.names.of(call);
                call["kind"] = json!(kind(call));
                call["words"] = words(call);
            }
        }
        Ok(calls)
    }
}

/// Who can answer a call, and how.
fn kind(call: &Value) -> &'static str {
    match (call["wants"].as_str(), call["waiting_on"].as_str()) {
        (Some("permission"), _) => "approval",
        (Some("answer"), Some("tool")) => "external",
        _ => "question",
    }
}

/// The text of a question, or the tool and its arguments.
fn words(call: &Value) -> Value {
    match reply::asks(call) {
        Value::String(text) => json!(text),
        arguments => {
            let name = call["name"].as_str().unwrap_or_default();
            json!(format!("{name} {arguments}"))
        }
    }
}

/// Shows the calls until the user has enough.
async fn watch(client: &Client, args: &InboxArgs, format: Format) -> Result<(), Failure> {
    let mut inbox = Inbox::new(client, args, format);
    let look = async || inbox.look().await;
    if format == Format::Table && live::is_possible() {
        return live::on_screen(client, EVERY, look, |calls, rows| drawn(calls, rows)).await;
    }
    let mut told = Told::default();
    let show = |calls: &Vec<Value>, trouble: Option<&str>| told.tell(calls, trouble, format);
    live::watch(client, EVERY, None, look, show).await
}

/// The calls as lines of a screen with so many rows.
fn drawn(calls: &[Value], rows: Option<usize>) -> Vec<String> {
    let table = output::table(&COLUMNS, calls);
    let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
    if calls.is_empty() {
        lines.push("(nothing)".to_owned());
    }
    let rows = rows.unwrap_or(usize::MAX);
    if lines.len() > rows && rows > 0 {
        let left = lines.len() + 1 - rows;
        lines.truncate(rows - 1);
        lines.push(format!("… and {left} more"));
    }
    lines
}

/// What lines were printed of.
#[derive(Debug, Default)]
struct Told {
    calls: BTreeMap<String, Value>,
    /// The server is away.
    away: bool,
}

impl Told {
    /// Prints a line for each call that has come or gone.
    fn tell(
        &mut self,
        calls: &[Value],
        trouble: Option<&str>,
        format: Format,
    ) -> Result<(), Failure> {
        if let Some(trouble) = trouble {
            if !std::mem::replace(&mut self.away, true) {
                output::note(trouble);
            }
            return Ok(());
        }
        if std::mem::take(&mut self.away) {
            output::note("the server is there again");
        }
        let told = std::mem::take(&mut self.calls);
        for call in calls {
            let question = question(call);
            if !told.contains_key(&question) {
                print(call, format)?;
            }
            self.calls.insert(question, call.clone());
        }
        let gone = told.into_iter();
        let mut gone = gone.filter(|(question, _)| !self.calls.contains_key(question));
        gone.try_for_each(|(_, mut call)| {
            call["gone"] = json!(true);
            print(&call, format)
        })
    }
}

/// Which question a call asks: it may ask several, one after the other.
fn question(call: &Value) -> String {
    let (id, wants) = (&call["call_id"], &call["wants"]);
    format!("{id} {wants} {}", call["asks"]["question"])
}

/// Prints a call on a line of its own.
fn print(call: &Value, format: Format) -> Result<(), Failure> {
    let line = match (format, call["gone"] == true) {
        (Format::Json | Format::Jsonl, _) => output::compact(call),
        (Format::Table, false) => output::words(&COLUMNS, call),
        (Format::Table, true) => output::words(&COLUMNS[..1], call) + "  gone",
    };
    output::line(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_of_the_kind_that_its_answer_is() {
        let call = |wants: &str, on: &str| json!({ "name": "pay", "wants": wants, "waiting_on": on, "arguments": { "euro": 5 } });
        for (wants, on, expected) in [
            ("permission", "human", "approval"),
            ("answer", "human", "question"),
            ("answer", "tool", "external"),
            ("reply", "human", "question"),
        ] {
            assert_eq!(kind(&call(wants, on)), expected, "{wants} {on}");
        }
        assert_eq!(words(&call("permission", "human")), "pay {\"euro\":5}");
        let mut asking = call("answer", "human");
        asking["name"] = json!("ask_person");
        asking["arguments"] = json!({ "question": "go on?" });
        assert_eq!(words(&asking), "go on?");
    }

    #[test]
    fn what_does_not_fit_the_screen_is_counted() {
        let calls: Vec<Value> = (0..5).map(|n| json!({ "call_id": n })).collect();
        assert_eq!(drawn(&calls, Some(6)).len(), 6);
        let lines = drawn(&calls, Some(4));
        assert_eq!((lines.len(), lines[3].as_str()), (4, "… and 3 more"));
        assert_eq!(drawn(&[], None)[1], "(nothing)");
    }
}
