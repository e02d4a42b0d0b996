//! `mainspring sessions …`

use reqwest::Method;
use serde_json::{Value, json};

use super::answer::text_of;
use super::tail::print_event;
use super::{archives, lists, send};
use crate::args::{AgentArgs, Format, PruneArgs, SessionsCommand};
use crate::client::{Client, Events, Request};
use crate::failure::Failure;
use crate::output::{self, Column};

const COLUMNS: [Column; 5] = [
    ("ID", "id"),
    ("STATUS", "status"),
    ("AGENT", "agent.name"),
    ("MESSAGES", "messages"),
    ("CREATED", "created_at"),
];

const INBOX: [Column; 7] = [
    ("N", "n"),
    ("MODE", "mode"),
    ("FATE", "fate"),
    ("SEQ", "seq"),
    ("CREATED", "created_at"),
    ("SEND", "send_id"),
    ("TEXT", "content.0.text"),
];

pub(crate) async fn run(
    command: &SessionsCommand,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    let at = |id: &str| format!("/v1/sessions/{id}");
    match command {
        SessionsCommand::List {
            status,
            agent,
            metadata,
            created,
            then,
            page,
        } => {
            let request = lists::request("/v1/sessions", then.as_deref())
                .query("status", status.as_ref())
                .query("agent", agent.as_ref())
                .metadata(metadata);
            let asked = (created.of(request), then.is_some());
            lists::show(&client, asked, page.limit, format, &COLUMNS).await
        }
        SessionsCommand::Create {
            name,
            agent,
            metadata,
        } => {
            let session = create(&client, name.as_deref(), agent, metadata).await?;
            output::warnings(&session);
            output::object(format, &session)
        }
        SessionsCommand::Show { id } => {
            output::object(format, &client.ask(Request::get(at(id))).await?)
        }
        SessionsCommand::Usage { id } => usage(&client, format, at(id)).await,
        SessionsCommand::Context { id, input, request } => {
            context(&client, format, at(id), input.as_deref(), *request).await
        }
        SessionsCommand::Messages { id, after, page } => {
            let path = format!("{}/messages", at(id));
            let request = Request::get(path).query("after", Some(after));
            let rows = lists::rows(&client, &request, page.limit).await?;
            messages(format, &rows)
        }
        SessionsCommand::Tail { id, after } => {
            let mut events = Events::new(&client, format!("{}/events", at(id)), after.clone());
            loop {
                match events.next().await? {
                    Some(event) => print_event(&event, format)?,
                    // A session's stream never ends on its own, so this server is shutting down.
                    None => events.reconnect().await?,
                }
            }
        }
        SessionsCommand::Fork { id, seq } => {
            let body = seq.map_or_else(|| json!({}), |seq| json!({ "seq": seq }));
            let request = Request::post(format!("{}/fork", at(id)));
            let request = request.body(body).key(client.fresh_key());
            output::object(format, &client.ask(request).await?)
        }
        SessionsCommand::Export { id, file, no_blobs } => {
            let query = if *no_blobs { "?blobs=false" } else { "" };
            let request = Request::get(format!("{}/export{query}", at(id)));
            archives::export(&client, request, file.as_deref()).await
        }
        SessionsCommand::Import { file } => {
            let request = Request::post("/v1/sessions:import").lines(archives::read(file)?);
            let request = request.key(client.fresh_key());
            output::object(format, &client.ask(request).await?)
        }
        SessionsCommand::Prune { id, to, dry_run } => {
            let path = format!("{}/prune", at(id));
            let request = Request::post(path).body(pruning(to, *dry_run));
            output::object(format, &client.ask(request).await?)
        }
        SessionsCommand::Close { id } => set_closed(&client, format, at(id), true).await,
        SessionsCommand::Reopen { id } => set_closed(&client, format, at(id), false).await,
        SessionsCommand::Inbox { id, pending, page } => {
            let fate = pending.then_some("pending");
            let request = Request::get(format!("{}/inbox", at(id))).query("fate", fate);
            let rows = lists::rows(&client, &request, page.limit).await?;
            output::list(format, &INBOX, &rows)
        }
        SessionsCommand::Delete { id } => {
            client.ask(Request::new(Method::DELETE, at(id))).await?;
            output::note("deleted");
            Ok(())
        }
        SessionsCommand::Resume { id } => post(&client, format, at(id) + "/resume").await,
        SessionsCommand::Abort { id } => post(&client, format, at(id) + "/abort").await,
    }
}

async fn set_closed(
    client: &Client,
    format: Format,
    path: String,
    closed: bool,
) -> Result<(), Failure> {
    let request = Request::new(Method::PATCH, path).body(json!({ "closed": closed }));
    output::object(format, &client.ask(request).await?)
}

async fn post(client: &Client, format: Format, path: String) -> Result<(), Failure> {
    output::object(format, &client.ask(Request::post(path)).await?)
}

fn pruning(to: &PruneArgs, dry_run: bool) -> Value {
    let mut body = json!({ "dry_run": dry_run });
    if let Some(seq) = to.before {
        body["before_seq"] = json!(seq);
    }
    if let Some(count) = to.keep_last {
        body["keep_last"] = json!(count);
    }
    body
}

async fn create(
    client: &Client,
    name: Option<&str>,
    agent: &AgentArgs,
    metadata: &[(String, String)],
) -> Result<Value, Failure> {
    let mut choices = send::choices(agent)?;
    if let Some(name) = name {
        choices.label(name)?;
    }
    let metadata: serde_json::Map<String, Value> = metadata
        .iter()
        .map(|(name, text)| (name.clone(), json!(text)))
        .collect();
    let mut session = choices.session();
    session["metadata"] = json!(metadata);
    let request = Request::post("/v1/sessions")
        .body(session)
        .key(client.fresh_key());
    client.ask(request).await
}

/// Prints a transcript; as a table, like a conversation.
fn messages(format: Format, rows: &[Value]) -> Result<(), Failure> {
    if format != Format::Table {
        return output::list(format, &[], rows);
    }
    for row in rows {
        let role = row["role"].as_str().unwrap_or_default();
        let text = output::harmless(&text_of(row));
        output::line(&format!(
            "{:>5}  {role}: {}",
            row["seq"],
            text.replace('\n', "\n       ")
        ))?;
    }
    Ok(())
}

/// Shows the request of the session's next model call, with tokens and cost by part.
async fn context(
    client: &Client,
    format: Format,
    session: String,
    input: Option<&str>,
    with_request: bool,
) -> Result<(), Failure> {
    let path = session + "/context";
    let request = match input {
        Some(input) => {
            let body = json!({ "input": input, "request": with_request });
            Request::post(path).body(body)
        }
        None => Request::get(path).query("request", with_request.then_some(true)),
    };
    let found = client.ask(request).await?;
    if format != Format::Table {
        return output::object(format, &found);
    }
    let columns = [
        ("PART", "kind"),
        ("COUNT", "count"),
        ("TOKENS", "tokens"),
        ("CACHED", "cached"),
        ("USD", "cost_usd"),
    ];
    let parts = found["parts"].as_array().cloned().unwrap_or_default();
    output::list(format, &columns, &parts)?;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let number = |name: &str| found[name].as_u64().unwrap_or_default();
    output::note(&format!(
        "{} tokens, {} of them cached, of {} that fit; {}/{}",
        number("tokens"),
        number("cached"),
        number("budget"),
        word(&found["provider"]),
        word(&found["model"]),
    ));
    if let (Some(input), Some(answer)) = (
        found["cost"]["input_usd"].as_f64(),
        found["cost"]["answer_max_usd"].as_f64(),
    ) {
        output::note(&format!(
            "${input:.6} for the request, at most ${answer:.6} for the answer"
        ));
    }
    let fold = &found["next_fold"];
    if let (Some(from), Some(to)) = (fold["from_seq"].as_i64(), fold["to_seq"].as_i64()) {
        let (strategy, tokens) = (word(&fold["strategy"]), fold["tokens"].as_u64());
        let when = match fold["when"].as_str() {
            Some("before") => "before the call",
            Some("beside") => "beside the send",
            _ => "once the send has ended",
        };
        output::note(&format!(
            "{when}, messages {from} to {to} are folded ({strategy}, {} tokens)",
            tokens.unwrap_or_default()
        ));
    }
    output::note(&word(&found["digest"]));
    for limit in found["limits"].as_array().into_iter().flatten() {
        let (code, detail) = (word(&limit["code"]), word(&limit["detail"]));
        output::note(&output::harmless(&format!("limit: {code}: {detail}")));
    }
    if with_request {
        output::line(&serde_json::to_string_pretty(&found["request"]).unwrap_or_default())?;
    }
    Ok(())
}

async fn usage(client: &Client, format: Format, session: String) -> Result<(), Failure> {
    let found = client.ask(Request::get(session + "/usage")).await?;
    if format != Format::Table {
        return output::object(format, &found);
    }
    let mut rows = Vec::new();
    for (of, part) in [("session", &found["own"]), ("tree", &found["tree"])] {
        for (parts, name) in [("models", "model"), ("purposes", "purpose")] {
            for one in part[parts].as_array().into_iter().flatten() {
                rows.push(json!({
                    "of": of,
                    "model": one[name],
                    "calls": one["calls"],
                    "input": one["usage"]["input_tokens"],
                    "output": one["usage"]["output_tokens"],
                    "usd": one["usage"]["cost_usd"],
                }));
            }
        }
    }
    let columns = [
        ("OF", "of"),
        ("MODEL OR PURPOSE", "model"),
        ("CALLS", "calls"),
        ("INPUT", "input"),
        ("OUTPUT", "output"),
        ("USD", "usd"),
    ];
    output::list(format, &columns, &rows)
}
