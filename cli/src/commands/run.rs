//! `mainspring run`: runs a workflow to its end, on a server or entirely in this process.

use std::time::Duration;

use crate::config::{Config, Migrate};
use mainspring_api::Access;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::progress::Progress;
use super::runs;
use super::server_process::{Base, bind};
use crate::args::{Format, RunArgs};
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure, causes, usage_text};
use crate::{output, wiring};

/// How long stopping the embedded roles may take.
const STOP: Duration = Duration::from_secs(10);

/// Starts the run on a server and follows it.
pub(crate) async fn on_server(
    args: &RunArgs,
    format: Format,
    client: Client,
) -> Result<(), Failure> {
    let spec = read(&args.spec)?;
    follow(args, format, &client, &spec).await
}

/// Does the same with a scheduler and a worker in this process, on the embedded database.
pub(crate) async fn embedded(
    args: &RunArgs,
    format: Format,
    config: &Config,
) -> Result<(), Failure> {
    let spec = read(&args.spec)?;
    let mut config = super::dev::embedded(config);
    let store = match wiring::store(&config, Migrate::Create).await {
        Err(failure) if failure.exit == Exit::Unavailable => {
            return beside(args, format, &mut config, &spec, failure).await;
        }
        other => other?,
    };
    let base = Base::prepare()?;
    let listener = bind("127.0.0.1:0", "--server").await?;
    let wires = wiring::local(&base.clock);
    let worker = base.worker(&config, store.clone(), &wires)?;
    let (tell, told) = oneshot::channel();
    let accepting = move |address| {
        // The receiver may be gone already.
        let _ = tell.send(address);
    };
    let scheduler = base.scheduler(&config, store, &wires, listener, Access::Open, accepting)?;
    let lifecycle = base.lifecycle.clone();
    let work = async {
        let address = told.await.map_err(|error| {
            Failure::new(
                Exit::Failure,
                format!("nothing was started: {}", causes(&error)),
            )
        })?;
        config.server = format!("http://{address}");
        let client = Client::new(&config)?;
        follow(args, format, &client, &spec).await
    };
    let serving = base.run(vec![scheduler, worker], STOP);
    tokio::pin!(work, serving);
    tokio::select! {
        result = &mut work => {
            lifecycle.stop();
            // The outcome of the run takes precedence over how the roles ended.
            let stopped = serving.await;
            result.and(stopped)
        }
        stopped = &mut serving => {
            stopped?;
            Err(Failure::new(Exit::Failure, "stopped before the run ended")
                .next("`mainspring dev` in the same folder continues it"))
        }
    }
}

/// If another process is using the folder and serves, starts the run there.
async fn beside(
    args: &RunArgs,
    format: Format,
    config: &mut Config,
    spec: &Value,
    failure: Failure,
) -> Result<(), Failure> {
    let Some(url) = super::dev::served_at(config) else {
        return Err(failure);
    };
    if config.server != url {
        // The key is one of the configured server, and the folder may be anyone's.
        config.api_key = None;
    }
    config.server.clone_from(&url);
    let client = Client::new(config)?;
    if client.ask(Request::get("/v1/info")).await.is_err() {
        return Err(failure);
    }
    let folder = config.data_dir.display();
    output::note(&format!("{folder} is served at {url}: running there"));
    follow(args, format, &client, spec).await
}

fn read(path: &std::path::Path) -> Result<Value, Failure> {
    let shown = path.display();
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.map_err(|error| {
        usage_text(
            format!("{shown}: {error}"),
            "name a file that holds a workflow as JSON",
        )
    })?;
    serde_json::from_str(&text).map_err(|error| {
        usage_text(
            format!("{shown} is not JSON: {error}"),
            "docs/WORKFLOWS.md describes its format",
        )
    })
}

async fn follow(
    args: &RunArgs,
    format: Format,
    client: &Client,
    spec: &Value,
) -> Result<(), Failure> {
    let mut body = json!({ "spec": spec });
    if let Some(input) = &args.input {
        body["input"] = json!(input);
    }
    if let Some(session) = &args.session {
        body["session_id"] = json!(session);
    }
    if let Some(tokens) = args.max_tokens {
        body["options"] = json!({ "max_tokens": tokens });
    }
    let request = Request::post("/v1/runs").body(body);
    let run = client.ask(request.key(client.fresh_key())).await?;
    let id = super::follow::id(&run);
    if args.detach {
        return match format {
            Format::Table => output::line(id),
            Format::Json | Format::Jsonl => output::object(format, &run),
        };
    }
    let mut progress = Progress::new(&run);
    let ended = runs::events(client, id, None, |event| {
        progress.event(event);
        Ok(())
    });
    let ended = ended.await;
    progress.finish();
    let run = ended?;
    match format {
        Format::Table => match &run["result"] {
            Value::Null => {}
            Value::String(text) => output::line(&output::harmless(text))?,
            other => match other["text"].as_str() {
                Some(text) => output::line(&output::harmless(text))?,
                None => output::line(&other.to_string())?,
            },
        },
        Format::Json | Format::Jsonl => output::object(format, &run)?,
    }
    runs::verdict(&run)
}
