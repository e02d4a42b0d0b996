//! The only process is killed at random moments while clients send: each send is answered once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::try_join_all;
use mainspring_shared::time::Clock;
use serde_json::{Value, json};

use super::asking::{self, ask, id, is_final, settled};
use super::model::{Model, Prompt, Reply};
use super::stage::{Stage, nth, times};
use super::tools::Tools;
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure};

/// How long to kill by default.
const SECONDS: u64 = 15;

/// Clients, each with a session of its own.
const CLIENTS: usize = 6;

/// How long one request waits for the answer.
const WAIT: Duration = Duration::from_secs(10);

/// How long a client waits before it repeats a request.
const PAUSE: Duration = Duration::from_millis(50);

/// What one client was told of one question.
#[derive(Debug)]
struct Told {
    key: String,
    input: String,
    send: String,
    output: String,
    status: String,
    /// Requests until there was a response.
    requests: usize,
}

fn script(prompt: &Prompt) -> Reply {
    if prompt.input.ends_with("noted") && prompt.results.is_empty() {
        return Reply {
            calls: vec![("note", json!({ "what": prompt.input }))],
            delay: Duration::from_millis(50),
            ..Reply::default()
        };
    }
    Reply {
        delay: Duration::from_millis(100),
        pause: Duration::from_millis(20),
        ..Reply::text(answer(&prompt.input))
    }
}

fn answer(input: &str) -> String {
    format!("the answer to {input}")
}

pub(super) async fn prove(stage: &mut Stage) -> Result<(), Failure> {
    let tools = stage.tools(Duration::from_millis(200)).await?;
    let model = stage.model(script).await?;
    let mut server = stage.serve().await?;
    let seed = stage.args.seed.unwrap_or_default();
    stage.say(&format!("started Mainspring; seed {seed}"))?;
    let agent = json!({
        "system_prompt": "You answer.", "tools": [tools.declared("note", "keyed")],
    });
    let mut sessions = Vec::new();
    for _ in 0..CLIENTS {
        sessions.push(stage.session(&server.client, &agent).await?);
    }
    let client = server.client.clone();
    let is_over = AtomicBool::new(false);
    let has_keys = !stage.plants();
    let load = sessions
        .iter()
        .enumerate()
        .map(|(place, session)| chatter(&client, place, session, has_keys, &is_over));
    let load = try_join_all(load);
    let harm = async {
        let until = stage.clock.monotonic() + stage.seconds(SECONDS);
        let mut kills = 0;
        while stage.clock.monotonic() < until {
            let wait = 900 + stage.draw(900);
            stage.clock.sleep(Duration::from_millis(wait)).await;
            stage
                .until("the model is asked", || model.is_answering())
                .await?;
            server.kill().await;
            kills += 1;
            stage.say(&format!("killed the server ({} time)", nth(kills)))?;
            stage.again(&mut server).await?;
        }
        is_over.store(true, Ordering::Relaxed);
        stage.say("no more harm; waiting for what was accepted")?;
        Ok::<usize, Failure>(kills)
    };
    let (told, kills) = tokio::try_join!(load, harm)?;
    let mut told: Vec<Told> = told.into_iter().flatten().collect();

    if has_keys {
        repeat(stage, &client, &sessions, &told).await?;
    }
    let (mut stored, mut transcripts) = (BTreeMap::new(), Vec::new());
    for session in &sessions {
        for send in asking::sends(&client, session).await? {
            let ended = settled(&client, &id(&send)).await?;
            stored.insert(id(&ended), ended);
        }
        transcripts.push(asking::messages(&client, session).await?);
    }
    stage.audit(vec![server]).await?;
    compare(stage, &told, &stored);
    for messages in &transcripts {
        transcript(stage, messages);
    }

    witnesses(stage, &mut told, &model, &tools);
    stage.figure("kills", kills);
    stage.figure("questions", told.len());
    stage.figure("sends", stored.len());
    stage.expect(!told.is_empty(), || "nothing was accepted".to_owned());
    Ok(())
}

/// Each client repeats what it asked, under the same keys.
async fn repeat(
    stage: &mut Stage,
    client: &Client,
    sessions: &[String],
    told: &[Told],
) -> Result<(), Failure> {
    stage.say("each client repeats every request under its key")?;
    let mut other = 0;
    for told in told {
        let session = sessions.get(client_of(&told.key));
        let path = format!("/v1/sessions/{}/sends", session.map_or("", String::as_str));
        let body = json!({ "input": told.input });
        let again = ask(
            client,
            &Request::post(path).body(body).key(told.key.clone()),
        )
        .await?;
        other += usize::from(id(&again) != told.send);
    }
    stage.expect(other == 0, || {
        format!("{other} repeated requests made another send")
    });
    Ok(())
}

/// What the model and the tool saw of each question.
fn witnesses(stage: &mut Stage, told: &mut [Told], model: &Model, tools: &Tools) {
    let mut calls: BTreeMap<(String, usize), usize> = BTreeMap::new();
    for asked in model.asked() {
        *calls.entry((asked.input, asked.results)).or_default() += 1;
    }
    let repeated: usize = calls.values().map(|count| count - 1).sum();
    let noted = tools.of("note");
    let mut keys: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for called in &noted {
        let what = called.arguments["what"].to_string();
        keys.entry(what).or_default().insert(&called.key);
    }
    let several = keys.values().filter(|keys| keys.len() > 1).count();
    let has_keys = !stage.plants();
    stage.expect(several == 0 || !has_keys, || {
        format!("{several} calls of the tool were repeated under another key")
    });
    let requests: usize = told.iter().map(|told| told.requests).sum();
    told.sort_by_key(|told| std::cmp::Reverse(calls.get(&(told.input.clone(), 0)).copied()));
    for told in told.iter() {
        let rounds = calls.iter().filter(|((input, _), _)| *input == told.input);
        let rounds: Vec<String> = rounds.map(|(_, count)| times(*count)).collect();
        stage.beside(
            format!("{}: “{}”", told.status, told.output),
            format!("asked {}", rounds.join(", and with a result ")),
        );
    }
    stage.figure("requests_of_clients", requests);
    stage.figure("model_calls_repeated", repeated);
    stage.figure("tool_calls_repeated", noted.len() - keys.len());
}

/// Sends one question after the other until it is over, each until there is an answer.
async fn chatter(
    client: &Client,
    place: usize,
    session: &str,
    has_keys: bool,
    is_over: &AtomicBool,
) -> Result<Vec<Told>, Failure> {
    let mut told = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let number = told.len();
        let noted = if number % 3 == 2 { ", noted" } else { "" };
        let input = format!("question {}.{}{noted}", place + 1, number + 1);
        let key = format!("{place}-{number}");
        let path = format!("/v1/sessions/{session}/sends");
        let body = json!({ "input": input });
        let mut request = Request::post(path).body(body).wait(WAIT);
        if has_keys {
            request = request.key(key.clone());
        }
        let mut requests = 0;
        let send = loop {
            requests += 1;
            match client.ask(request.clone()).await {
                Ok(send) => break send,
                Err(failure) if failure.exit == Exit::Unavailable => {
                    client.clock.sleep(PAUSE).await;
                }
                Err(failure) => return Err(failure),
            }
        };
        let send = if is_final(&send) {
            send
        } else {
            settled(client, &id(&send)).await?
        };
        told.push(Told {
            key,
            input,
            send: id(&send),
            output: send["output_text"].as_str().unwrap_or_default().to_owned(),
            status: send["status"].as_str().unwrap_or_default().to_owned(),
            requests,
        });
    }
    Ok(told)
}

/// The client that a key is of.
fn client_of(key: &str) -> usize {
    let place = key.split('-').next().and_then(|place| place.parse().ok());
    place.unwrap_or(usize::MAX)
}

/// Each question and each answer stands once.
fn transcript(stage: &mut Stage, messages: &[(String, String)]) {
    let mut seen: BTreeMap<&(String, String), usize> = BTreeMap::new();
    for message in messages {
        if matches!(message.0.as_str(), "user" | "assistant") && !message.1.is_empty() {
            *seen.entry(message).or_default() += 1;
        }
    }
    for ((role, text), count) in seen {
        stage.expect(count == 1, || {
            format!(
                "a transcript has {} what the {role} said: “{text}”",
                times(count)
            )
        });
    }
}

/// What clients were told is what is stored, and nothing else is.
fn compare(stage: &mut Stage, told: &[Told], stored: &BTreeMap<String, Value>) {
    stage.expect(stored.len() == told.len(), || {
        let (sends, questions) = (stored.len(), told.len());
        format!("{questions} questions made {sends} sends: clients were answered more than once")
    });
    for told in told {
        let is_right = told.status == "completed" && told.output == answer(&told.input);
        stage.expect(is_right, || {
            let Told {
                input,
                status,
                output,
                ..
            } = told;
            format!("“{input}” is {status} with “{output}”")
        });
        let found = stored.get(&told.send).map(|send| &send["output_text"]);
        stage.expect(found == Some(&json!(told.output)), || {
            format!("“{}” is not stored as its client was told", told.input)
        });
    }
}
