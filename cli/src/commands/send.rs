//! `mainspring send`

use std::cell::Cell;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use mainspring_shared::agent::{AgentQuery, DEFAULT_POOL};
use mainspring_shared::time::{Clock, Span};
use mainspring_tools::{PRESETS, built_in};
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::{agents, follow};
use crate::args::{AgentArgs, Format, SendArgs};
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure, usage_text};
use crate::output;

/// How long a send may be queued before checking whether any worker serves its pool.
const QUEUED: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: &SendArgs, format: Format, client: Client) -> Result<(), Failure> {
    let start = client.clock.monotonic();
    let text = if args.text == "-" {
        stdin()?
    } else {
        args.text.clone()
    };
    let key = args
        .idempotency_key
        .clone()
        .unwrap_or_else(|| client.fresh_key());
    let request = request(&text, args.session.as_deref(), &choices(&args.agent)?)?;
    let posting = client.ask(request.key(key.clone()));
    let limit = args.timeout.map(|Span(limit)| limit);
    let send = match limit {
        None => posting.await?,
        Some(limit) => tokio::time::timeout(limit, posting)
            .await
            .unwrap_or_else(|_| Err(not_accepted_in_time(limit, &key)))?,
    };
    output::warnings(&send);
    if !args.wait {
        return accepted(&send, format);
    }
    let left = limit.map(|limit| {
        let gone = client.clock.monotonic().saturating_sub(start);
        (limit, limit.saturating_sub(gone))
    });
    answer_within(&client, &send, format, left).await
}

fn not_accepted_in_time(limit: Duration, key: &str) -> Failure {
    let message = format!("the server did not accept the send within {}", Span(limit));
    Failure::new(Exit::Unavailable, message).next(format!(
        "the outcome is unknown: repeating the command with --idempotency-key {key} is safe"
    ))
}

/// Shows the answer; gives up when the remaining time is over.
async fn answer_within(
    client: &Client,
    send: &Value,
    format: Format,
    left: Option<(Duration, Duration)>,
) -> Result<(), Failure> {
    let nobody = Cell::new(None);
    let patience = left.map_or(QUEUED, |(_, left)| QUEUED.min(left / 2));
    let work = async {
        let looking = async {
            client.clock.sleep(patience).await;
            match (pool_without_worker(client, send).await, left) {
                (Some(pool), None) => output::note(&format!(
                    "{}; `mainspring worker` starts one",
                    no_worker(&pool)
                )),
                (pool, _) => nobody.set(pool),
            }
        };
        let answering = answer(client, send, format);
        tokio::pin!(looking, answering);
        tokio::select! {
            result = &mut answering => return result,
            () = &mut looking => {}
        }
        answering.await
    };
    let Some((limit, left)) = left else {
        return work.await;
    };
    tokio::time::timeout(left, work).await.unwrap_or_else(|_| {
        let id = follow::id(send);
        let follows = format!("`mainspring sends tail {id}` follows it");
        let message = format!("no answer within {}", Span(limit));
        Err(match nobody.take() {
            Some(pool) => {
                let message = format!("{message}: {}", no_worker(&pool));
                Failure::new(Exit::Unavailable, message).next(format!(
                    "`mainspring worker` starts one; the send waits, {follows}"
                ))
            }
            None => Failure::new(Exit::Unavailable, message)
                .next(format!("the send continues: {follows}")),
        })
    })
}

fn no_worker(pool: &str) -> String {
    format!("no worker of pool {} is alive", output::harmless(pool))
}

/// The pool of a send that is still queued, if no live worker serves that pool.
async fn pool_without_worker(client: &Client, send: &Value) -> Option<String> {
    let now = Request::get(format!("/v1/sends/{}", follow::id(send)));
    if client.ask(now).await.ok()?["status"] != "queued" {
        return None;
    }
    let session = send["session_id"].as_str()?;
    let session = client
        .ask(Request::get(format!("/v1/sessions/{session}")))
        .await
        .ok()?;
    let pool = session["agent"]["pool"].as_str().unwrap_or(DEFAULT_POOL);
    let workers = client.ask(Request::get("/v1/workers")).await.ok()?;
    let served = workers["data"].as_array()?.iter();
    let mut served = served.map(|worker| &worker["pool"]);
    (!served.any(|served| served == pool)).then(|| pool.to_owned())
}

/// The agent settings given on the command line.
#[derive(Debug, Clone)]
pub(super) struct Choices {
    /// An agent's members, which are named as in the options of a send, or the name of a published
    /// agent.
    agent: Value,
    /// Values of the agent's variables.
    variables: Map<String, Value>,
}

impl Choices {
    /// The members of the session to create.
    pub(super) fn session(&self) -> Value {
        let mut session = json!({ "agent": self.agent });
        if !self.variables.is_empty() {
            session["variables"] = json!(self.variables);
        }
        session
    }

    /// The options of a send in an existing session, which already has an agent.
    pub(super) fn options(&self) -> Result<Value, Failure> {
        if self.agent.is_string() {
            // Only this send runs with the agent.
            let mut options = json!({ "agent": self.agent });
            if !self.variables.is_empty() {
                options["variables"] = json!(self.variables);
            }
            return Ok(options);
        }
        if !self.variables.is_empty() {
            let next = "with --session, leave out --variable or name the agent with --agent NAME";
            return Err(usage_text(
                "a session keeps the variables that it has",
                next,
            ));
        }
        Ok(self.agent.clone())
    }

    /// Sets the name of a new session's agent.
    pub(super) fn label(&mut self, name: &str) -> Result<(), Failure> {
        if self.agent.is_string() {
            let next = "leave out --name with --agent NAME";
            return Err(usage_text("a published agent has a fixed name", next));
        }
        self.agent["name"] = json!(name);
        Ok(())
    }
}

/// The request that creates a send in an existing session.
pub(super) fn in_session(text: &str, session: &str, options: &Value) -> Request {
    Request::post(format!("/v1/sessions/{session}/sends"))
        .body(json!({ "input": text, "options": options }))
}

/// The request that creates a send in an existing session or in a new one.
pub(super) fn request(
    text: &str,
    session: Option<&str>,
    choices: &Choices,
) -> Result<Request, Failure> {
    Ok(match session {
        Some(session) => in_session(text, session, &choices.options()?),
        None => {
            Request::post("/v1/sends").body(json!({ "input": text, "session": choices.session() }))
        }
    })
}

/// The agent settings: a published agent, or the content of a file with the flags applied on top.
pub(super) fn choices(agent: &AgentArgs) -> Result<Choices, Failure> {
    let variables = agent.variables.iter();
    let variables = variables.map(|(name, text)| (name.clone(), json!(text)));
    let variables = variables.collect();
    let mut members = match &agent.agent {
        Some(file) if agents::is_file(file) => agents::read_one(Path::new(file))?,
        Some(name) => {
            let agent = published(name, agent)?;
            return Ok(Choices { agent, variables });
        }
        None => Map::new(),
    };
    for (name, value) in [
        ("model", &agent.model),
        ("system_prompt", &agent.system_prompt),
    ] {
        members.extend(value.as_ref().map(|value| (name.to_owned(), json!(value))));
    }
    for name in agent.tools.iter().filter(|name| !ships(name)) {
        output::note(&format!(
            "note: {name} is not a built-in tool or preset (`mainspring tools` lists them): it \
             works only if the workers have a tool of that name"
        ));
    }
    if !agent.tools.is_empty() {
        let tools = members.entry("tools").or_insert_with(|| json!([]));
        let Value::Array(tools) = tools else {
            return Err(usage_text(
                "the agent's tools are not a list",
                "with --tool, leave them out of the file or make them a list",
            ));
        };
        tools.extend(agent.tools.iter().map(|tool| json!(tool)));
    }
    Ok(Choices {
        agent: Value::Object(members),
        variables,
    })
}

/// A reference to a published agent, whose settings are fixed.
fn published(name: &str, agent: &AgentArgs) -> Result<Value, Failure> {
    let query: Result<AgentQuery, _> = name.parse();
    let query = query.map_err(|fault| {
        let next = "a file is named by a path, like ./agent.json";
        usage_text(format!("--agent {name}: {fault}"), next)
    })?;
    if agent.model.is_some() || agent.system_prompt.is_some() || !agent.tools.is_empty() {
        let next = "leave out --model, --system-prompt and --tool, or publish another version";
        return Err(usage_text("a published agent has fixed settings", next));
    }
    Ok(json!(query))
}

/// Whether there is a built-in tool or preset with this name.
fn ships(name: &str) -> bool {
    PRESETS.contains(&name) || built_in().iter().any(|tool| tool.name == name)
}

fn stdin() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| usage_text(format!("stdin: {error}"), "text in UTF-8 is expected"))?;
    Ok(text)
}

fn accepted(send: &Value, format: Format) -> Result<(), Failure> {
    let id = follow::id(send);
    match format {
        Format::Table => output::line(id)?,
        Format::Json | Format::Jsonl => return output::object(format, send),
    }
    output::note(&format!(
        "accepted; `mainspring sends tail {id}` follows it"
    ));
    continue_with(send);
    Ok(())
}

fn continue_with(send: &Value) {
    let session = send["session_id"].as_str().unwrap_or_default();
    output::note(&format!(
        "`mainspring send --session {session} TEXT` continues"
    ));
}

async fn answer(client: &Client, send: &Value, format: Format) -> Result<(), Failure> {
    let id = follow::id(send);
    // Only show the answer as it grows if someone is watching.
    let live = format == Format::Table && output::is_terminal();
    let send = if live {
        let mut answer = Answer::new(true);
        follow::events(client, id, None, |event| answer.event(event)).await?
    } else {
        follow::wait_for(client, id).await?
    };
    match format {
        Format::Table if live => {}
        Format::Table => {
            if let Some(text) = send["output_text"].as_str() {
                output::line(text)?;
            }
        }
        Format::Json | Format::Jsonl => {
            output::object(format, &send)?;
            return follow::verdict(&send);
        }
    }
    continue_with(&send);
    follow::verdict(&send)
}
