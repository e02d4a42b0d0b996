//! What is queued is lost again and again under load, and nothing else is: Redis is emptied, or the process restarted.

use std::collections::BTreeSet;
use std::time::Duration;

use mainspring_shared::time::Clock;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::asking::{self, accept, id, settled};
use super::model::{Prompt, Reply};
use super::stage::{Stage, nth};
use crate::client::{Client, Request};
use crate::commands::lists;
use crate::failure::{Exit, Failure, usage_text};

/// How long to burn by default.
const SECONDS: u64 = 10;

/// Sessions, and sends that are queued in each before every burn.
const SESSIONS: usize = 8;
const EACH: usize = 3;

/// Slots of the worker: fewer than sessions, so that most of them wait in the queue.
const SLOTS: &str = "2";

/// How long to wait between two burns.
const PAUSE: Duration = Duration::from_millis(600);

fn script(prompt: &Prompt) -> Reply {
    Reply {
        delay: Duration::from_millis(60),
        ..Reply::text(format!("the answer to {}", prompt.input))
    }
}

pub(super) async fn prove(stage: &mut Stage) -> Result<(), Failure> {
    let model = stage.model(script).await?;
    let redis = stage.args.redis_url.clone();
    prepare(stage, redis.as_deref()).await?;
    let mut server = stage.serve().await?;
    let agent = json!({ "system_prompt": "You answer." });
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(stage.session(&server.client, &agent).await?);
    }
    let until = stage.clock.monotonic() + stage.seconds(SECONDS);
    let (mut accepted, mut burns, mut open) = (Vec::new(), 0, 0);
    while burns == 0 || stage.clock.monotonic() < until {
        for place in 0..SESSIONS * EACH {
            let session = &sessions[place % SESSIONS];
            let input = format!("question {}", accepted.len() + 1);
            let body = json!({ "input": input });
            let send = accept(&server.client, session, &body).await?;
            if stage.plants() && place == 0 {
                // The client takes it for lost, and asks once more.
                accept(&server.client, session, &body).await?;
            }
            accepted.push((id(&send), input));
        }
        burns += 1;
        let left = waiting(&server.client).await?;
        open += left;
        if let Some(url) = &redis {
            redis_says(url, "FLUSHALL").await?;
            stage.say(&format!(
                "emptied Redis ({} time) with {left} sends queued",
                nth(burns)
            ))?;
        } else {
            server.kill().await;
            stage.again(&mut server).await?;
            stage.say(&format!(
                "killed the process ({} time) with {left} sends queued",
                nth(burns)
            ))?;
        }
        stage.clock.sleep(PAUSE).await;
    }
    stage.say(&format!(
        "{} sends were accepted; waiting for them",
        accepted.len()
    ))?;
    let (mut completed, mut wrong) = (0, 0);
    for (send, input) in &accepted {
        let ended = settled(&server.client, send).await?;
        completed += usize::from(ended["status"] == "completed");
        wrong += usize::from(ended["output_text"] != format!("the answer to {input}"));
    }
    let mut stored = BTreeSet::new();
    for session in &sessions {
        let sends = asking::sends(&server.client, session).await?;
        for send in &sends {
            settled(&server.client, &id(send)).await?;
        }
        stored.extend(sends.iter().map(id));
    }
    stage.audit(vec![server]).await?;
    if let Some(url) = &redis {
        // As it was found.
        redis_says(url, "FLUSHALL").await?;
    }

    let inputs: BTreeSet<String> = model.asked().into_iter().map(|asked| asked.input).collect();
    stage.beside(
        format!("{} sends accepted, {completed} completed", accepted.len()),
        format!("{} questions, {} calls", inputs.len(), model.count()),
    );
    stage.figure("burns", burns);
    stage.figure("queued_when_burned", open);
    stage.expect(open > 0, || {
        "nothing was queued when it was burned".to_owned()
    });
    stage.figure("accepted", accepted.len());
    stage.figure("completed", completed);
    stage.figure("model_calls", model.count());
    stage.expect(completed == accepted.len(), || {
        format!(
            "{} of {} sends were lost",
            accepted.len() - completed,
            accepted.len()
        )
    });
    stage.expect(wrong == 0, || {
        format!("{wrong} sends have another's answer")
    });
    stage.expect(stored.len() == accepted.len(), || {
        let (stored, accepted) = (stored.len(), accepted.len());
        format!("{stored} sends are stored, and clients meant {accepted}")
    });
    Ok(())
}

/// Chooses the shape, and leaves the worker few slots.
async fn prepare(stage: &mut Stage, redis: Option<&str>) -> Result<(), Failure> {
    if let Some(url) = stage.args.database_url.clone() {
        stage.on_database(&url);
    }
    if let Some(url) = redis {
        let held = redis_says(url, "DBSIZE").await?;
        if held.trim() != ":0" {
            return Err(usage_text(
                "this Redis holds keys, and the proof would delete them",
                "give --redis-url of a Redis that is empty",
            ));
        }
        stage.set("MAINSPRING_REDIS_URL", url);
        stage.shape = "one process on a database server and Redis";
    } else {
        stage.shape = "one process whose queue is in its memory, so that restarting burns it; \
                       with --redis-url and --database-url a queue in Redis";
    }
    stage.set("MAINSPRING_WORKER_CONCURRENCY", SLOTS);
    // Otherwise sends may find their worker without the queue.
    stage.set("MAINSPRING_WORKER_DIRECT_PERCENT", "0");
    Ok(())
}

/// How many sends are queued.
async fn waiting(client: &Client) -> Result<usize, Failure> {
    let request = Request::get("/v1/sends").query("status", Some("queued"));
    Ok(lists::rows(client, &request, u32::MAX).await?.len())
}

/// What a Redis without a password answers to a command.
async fn redis_says(url: &str, command: &str) -> Result<String, Failure> {
    let address = url.strip_prefix("redis://").unwrap_or(url);
    let address = address.split('/').next().unwrap_or_default();
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Unavailable, format!("Redis at {address}: {error}"))
            .next("give --redis-url as redis://HOST:PORT, without a password and TLS")
    };
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    let line = format!("{command}\r\n");
    stream.write_all(line.as_bytes()).await.map_err(failed)?;
    let mut answer = [0; 256];
    let read = stream.read(&mut answer).await.map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    if answer.starts_with('-') {
        return Err(failed(std::io::Error::other(answer.trim().to_owned())));
    }
    Ok(answer)
}
