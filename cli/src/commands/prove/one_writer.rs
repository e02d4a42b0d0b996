//! A process hangs past its lease in the middle of an answer and then wakes up: the transcript has one answer.

use mainspring_shared::time::Clock;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::asking::{self, accept, id, settled};
use super::model::{Model, Prompt, Reply};
use super::stage::{self, LEASE, Server, Stage, nth, times};
use crate::failure::Failure;

/// What the client asks.
const QUESTION: &str = "What do you say?";

/// Each answer says which one it is, so that it is known whose was stored.
fn script(prompt: &Prompt) -> Reply {
    Reply {
        pause: LEASE / 20,
        ..Reply::text(format!(
            "This is what the model said when it was asked the {} time.",
            nth(prompt.before + 1)
        ))
    }
}

pub(super) async fn prove(stage: &mut Stage) -> Result<(), Failure> {
    let model = stage.model(script).await?;
    match stage.args.database_url.clone() {
        Some(url) => {
            stage.on_database(&url);
            stage.shape = "two processes on one database server";
            on_server(stage, &model).await
        }
        None => on_one_file(stage, &model).await,
    }
}

/// Begins an answer, and suspends its process in the middle of it. Returns the session and the send.
async fn suspended(
    stage: &Stage,
    model: &Model,
    server: &Server,
) -> Result<(String, String), Failure> {
    let agent = json!({ "system_prompt": "You answer." });
    let session = stage.session(&server.client, &agent).await?;
    let body = json!({ "input": QUESTION });
    let send = id(&accept(&server.client, &session, &body).await?);
    stage
        .until("the model is asked", || model.is_answering())
        .await?;
    stage.clock.sleep(LEASE / 5).await;
    server.signal(Signal::STOP);
    stage.say(&format!(
        "suspended process {} in the middle of an answer",
        server.id()
    ))?;
    Ok((session, send))
}

/// Two processes on a database server: one takes over from the other.
async fn on_server(stage: &mut Stage, model: &Model) -> Result<(), Failure> {
    let first = stage.serve().await?;
    let second = stage.serve().await?;
    stage.say("started two processes on one database")?;
    let (session, send) = suspended(stage, model, &first).await?;
    if stage.plants() {
        let body = json!({ "input": QUESTION });
        accept(&second.client, &session, &body).await?;
        stage.say("its client asks the other process the same under another key")?;
    }
    let told = settled(&second.client, &send).await?;
    stage.say("the other process took over and answered")?;
    first.signal(Signal::CONT);
    stage.say("woke the first one up, whose model had finished, too")?;
    stage.clock.sleep(LEASE * 2).await;
    let again = asking::send(&first.client, &session, "And now?").await?;
    stage.expect(again["status"] == "completed", || {
        "the process that woke up completes nothing any more".to_owned()
    });
    for send in asking::sends(&second.client, &session).await? {
        settled(&second.client, &id(&send)).await?;
    }
    let later = settled(&second.client, &send).await?;
    compare(stage, model, &second, &session, [&told, &later]).await?;
    let count = model.count();
    stage.expect(count >= 3, || {
        format!("nobody took over: the model was asked {}", times(count))
    });
    stage.audit(vec![first, second]).await
}

/// One file: a second process is refused as long as the first one lives, however long it hangs.
async fn on_one_file(stage: &mut Stage, model: &Model) -> Result<(), Failure> {
    stage.shape = "one process at a time on one SQLite file; \
                   with --database-url two processes on a database server";
    let first = stage.serve().await?;
    let (session, send) = suspended(stage, model, &first).await?;
    stage.clock.sleep(LEASE * 3 / 2).await;
    stage.say("its lease has run out")?;
    if stage.plants() {
        // What keeps a second process from the data.
        let lock = stage.data().join("mainspring.lock");
        std::fs::remove_file(lock).map_err(|error| stage::no_room(&error))?;
        stage.say("removed the lock of the data folder")?;
    }
    let second = stage.try_serve().await?;
    let second = match second {
        Ok(second) => {
            stage.say(&format!("process {} uses the same data", second.id()))?;
            let hung = first.id();
            stage.expect(false, || {
                format!("a second process uses the data of process {hung}, which still lives")
            });
            Some(second)
        }
        Err((code, said)) => {
            let said = said.lines().next().unwrap_or_default().to_owned();
            stage.say(&format!("a second process is refused ({code}): {said}"))?;
            stage.beside(
                "a second process on the data is refused",
                "the model is asked by one process",
            );
            None
        }
    };
    first.signal(Signal::CONT);
    stage.say("woke the first one up")?;
    let told = settled(&first.client, &send).await?;
    let later = asking::send(&first.client, &session, "And now?").await?;
    stage.expect(later["status"] == "completed", || {
        "the process that woke up completes nothing any more".to_owned()
    });
    let again = settled(&first.client, &send).await?;
    compare(stage, model, &first, &session, [&told, &again]).await?;
    let mut servers = vec![first];
    servers.extend(second);
    stage.audit(servers).await
}

/// The transcript has one answer to the question: the one that the client was told.
async fn compare(
    stage: &mut Stage,
    model: &Model,
    server: &Server,
    session: &str,
    told: [&Value; 2],
) -> Result<(), Failure> {
    let messages = asking::messages(&server.client, session).await?;
    let asked = model.asked();
    let asked = asked.iter().filter(|asked| asked.input == QUESTION);
    let asked = asked.count();
    let [first, later] = told.map(|send| send["output_text"].as_str().unwrap_or_default());
    stage.beside(
        format!("“{first}”"),
        format!("asked {} for this answer", times(asked)),
    );
    stage.figure("times_asked", asked);
    stage.figure("messages", messages.len());
    stage.expect(first == later, || {
        format!("the client was told “{first}”, and later “{later}”")
    });
    let stored: Vec<&str> = messages
        .iter()
        .filter(|(role, text)| role == "assistant" && !text.is_empty())
        .map(|(_, text)| text.as_str())
        .collect();
    stage.expect(stored.len() == 2, || {
        format!(
            "the transcript has {} answers to two questions",
            stored.len()
        )
    });
    stage.expect(stored.first() == Some(&first), || {
        "the stored answer is not the one that the client was told".to_owned()
    });
    Ok(())
}
