//! The program that `tests/processes.rs` starts several times, and kills.
//!
//! Its only argument is JSON: `{url, tools, repeat, calls, dies, sends: [{key, text, delay}], looks: [SEND]}`. It prints a line
//! `sent KEY ID` for each send that is accepted, `answer KEY TEXT` for each answer, and `SEND STATUS` for those that it is to
//! look at, in this order.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;

use mainspring::types::{Repeat, SendOptions};
use mainspring::{Agent, Mainspring, Tool, ToolCall};
use rustix::process::{Signal, getpid, kill_process};
use serde::Deserialize;
use tokio::sync::Notify;

/// What the program is told.
#[derive(Debug, Deserialize)]
struct Told {
    url: String,
    /// Whether it has the closure.
    tools: bool,
    repeat: Repeat,
    /// The file to which the tool writes the id of each of its calls.
    calls: String,
    /// Whether the process kills itself within the first call, once it has said what it sent.
    dies: bool,
    sends: Vec<ToSend>,
    looks: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ToSend {
    key: String,
    text: String,
    delay: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Article {
    article: String,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let told: Told = serde_json::from_str(&std::env::args().nth(1).ok_or("tell it what to do")?)?;
    let mut agent =
        Agent::new(if told.tools { "shop" } else { "plain" }).prompt("You help customers.");
    let said = Arc::new(Notify::new());
    if told.tools {
        let dies = told.dies.then(|| said.clone());
        agent = agent.tool(stock(told.calls, dies).repeat(told.repeat));
    }
    let name = if told.tools { "shop" } else { "plain" };
    let app = Mainspring::open(&told.url).agent(agent).await?;

    let mut sent = Vec::new();
    for one in told.sends {
        let session = app.session().agent(name).key(one.key.as_str());
        let options = SendOptions {
            delay: one.delay.map(Into::into),
            ..SendOptions::default()
        };
        let send = session
            .send(one.text)
            .options(options)
            .key(one.key.as_str())
            .await?;
        say(&format!("sent {} {}", one.key, send.id()))?;
        sent.push((one.key, send));
    }
    said.notify_one();
    for (key, send) in sent {
        say(&format!("answer {key} {}", send.wait().await?.text))?;
    }
    for id in told.looks {
        let view = app.send_by_id(&id).get().await?;
        say(&format!("{id} {}", view.status))?;
    }
    app.shutdown().await?;
    Ok(())
}

/// The tool. The process kills itself in its first call when it is given what tells it that its sends are printed: a call may
/// begin before the program knows that its send was accepted.
fn stock(calls: String, dies: Option<Arc<Notify>>) -> Tool {
    Tool::with_call(
        "stock",
        "Pieces of an article in stock.",
        move |asked: Article, call: ToolCall| {
            let noted = note(&calls, &call.id);
            let dies = dies.clone();
            async move {
                if let Some(said) = dies {
                    said.notified().await;
                    // Nothing comes after this.
                    let _ = kill_process(getpid(), Signal::KILL);
                }
                noted?;
                Ok::<_, Failed>(format!("12 of {}", asked.article))
            }
        },
    )
}

fn note(calls: &str, id: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(calls)?;
    writeln!(file, "{id}")
}

fn say(line: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{line}")
}
