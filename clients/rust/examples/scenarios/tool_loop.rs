//! A tool loop in a process of its own.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use mainspring_client::types::Repeat;
use mainspring_client::{Client, Tool, ToolCall};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Failed, text};

/// Runs until it gets SIGTERM, or until the tool that is told to die does.
pub(crate) async fn run(
    url: &str,
    key: &str,
    calls: &str,
    lease: &str,
    told: &str,
) -> Result<(), Failed> {
    let told: Value = serde_json::from_str(told)?;
    let repeat: Repeat = serde_json::from_value(told["repeat"].clone())?;
    let (name, calls) = (text(&told["name"]).to_owned(), calls.to_owned());
    let tool = Tool::with_call(
        name,
        "What the scenario says.",
        move |_: Value, call: ToolCall| {
            let made = make(&told, &calls, &call);
            async { made.map_err(|error| error.to_string()) }
        },
    );
    let mut client = Client::new(url);
    if !key.is_empty() {
        client = client.key(key);
    }
    let mut serving = client.serve([tool.repeat(repeat)]);
    if let Ok(seconds) = lease.parse() {
        serving = serving.lease(Duration::from_secs(seconds));
    }
    let mut ends = signal(SignalKind::terminate())?;
    let stopping = async move {
        ends.recv().await;
    };
    Ok(serving.run_until(stopping).await?)
}

fn make(told: &Value, calls: &str, call: &ToolCall) -> Result<Value, Failed> {
    let mut file = OpenOptions::new().append(true).create(true).open(calls)?;
    writeln!(file, "{}", call.id)?;
    if told["dies"] == true {
        kill_process(getpid(), Signal::KILL)?;
    }
    match told["error"].as_str() {
        Some(error) => Err(error.into()),
        None => Ok(told["result"].clone()),
    }
}
