//! Conversations from the command line and over HTTP down to the model's wire: on one machine with
//! each transport, and across schedulers and workers that come and go.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainspring_benches::process::Program;
use mainspring_runtime::SystemClock;
use mainspring_shared::time::Clock as _;
use mainspring_tests::databases::Server;
use mainspring_tests::fake_model::{Entry, FakeModel, Options};
use mainspring_tests::faults::{
    Cluster, Event, Events, Recipe, RetryingClient, beside, binary, blocking,
};
use serde_json::{Value, json};

const MS: Duration = Duration::from_millis(1);

/// The system prompt.
const PROMPT: &str = "You are brief.";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_on_one_machine_over_openai_streamed() -> Result<()> {
    let _turn = beside()?;
    on_one_machine("openai", true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_on_one_machine_over_openai_in_one_piece() -> Result<()> {
    let _turn = beside()?;
    on_one_machine("openai", false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_on_one_machine_over_responses_streamed() -> Result<()> {
    let _turn = beside()?;
    on_one_machine("openai-responses", true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_on_one_machine_over_responses_in_one_piece() -> Result<()> {
    let _turn = beside()?;
    on_one_machine("openai-responses", false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_on_one_machine_over_anthropic_streamed() -> Result<()> {
    let _turn = beside()?;
    on_one_machine("anthropic", true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_on_one_machine_over_anthropic_in_one_piece() -> Result<()> {
    let _turn = beside()?;
    on_one_machine("anthropic", false).await
}

async fn on_one_machine(protocol: &str, stream: bool) -> Result<()> {
    let model = FakeModel::start(Options {
        keep_bodies: true,
        ..Options::default()
    })?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let settings = [
        ("MAINSPRING_LLM_PROVIDER", protocol.to_owned()),
        ("MAINSPRING_LLM_BASE_URL", model.base_url()),
        ("MAINSPRING_LLM_API_KEY", "a-key-of-the-tests".to_owned()),
        ("MAINSPRING_LLM_MODEL", "fake".to_owned()),
        ("MAINSPRING_LLM_STREAM", stream.to_string()),
        ("MAINSPRING_DATA_DIR", data.display().to_string()),
    ];
    let mut program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment: settings
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
    };
    let mut dev = blocking(|| program.dev("dev", &data))?;
    blocking(|| dev.wait_until_ready())?;
    let server = ("MAINSPRING_SERVER".to_owned(), dev.url());
    program.environment.push(server);

    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let session = opened(&mut caller).await?;
    let send = sent(&mut caller, &session, "one").await?;
    ensure!(send["output_text"] == "echo: one", "{send}");
    ensure!(send["usage"]["input_tokens"] == 4, "{send}");
    ensure!(send["usage"]["estimated"] == false, "{send}");
    said(
        &program,
        &["send", "two", "--session", &session, "--wait"],
        "",
        "echo: two\n",
    )?;
    let chat = ["chat", "--session", &session];
    said(
        &program,
        &chat,
        "three\nfour\n",
        "echo: three\necho: four\n",
    )?;

    // The conversation is still there for the next process.
    let code = blocking(|| dev.stop(Duration::from_secs(20)))?;
    ensure!(code == 0, "dev ended with {code}");
    audited(&program)?;
    drop(dev);
    let mut dev = blocking(|| program.dev("dev-again", &data))?;
    blocking(|| dev.wait_until_ready())?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    sent(&mut caller, &session, "five").await?;
    blocking(|| dev.stop(Duration::from_secs(20)))?;
    audited(&program)?;

    let calls = model.ledger().entries();
    ensure!(calls.len() == 5, "{} calls", calls.len());
    for (turn, call) in calls.iter().enumerate() {
        ensure!(call.stream == stream, "turn {turn}: {call:?}");
        heard(call, &["one", "two", "three", "four", "five"][..=turn])?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_on_mysql_answers_after_it_was_killed() -> Result<()> {
    killed_on(Server::Mysql).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_on_postgres_answers_after_it_was_killed() -> Result<()> {
    killed_on(Server::Postgres).await
}

/// `mainspring dev` on an empty database of a server, without Redis: it creates the schema, dies
/// during an answer, and completes the send once it is back.
async fn killed_on(server: Server) -> Result<()> {
    let _turn = beside()?;
    let Some(url) = server.empty_database() else {
        return Ok(());
    };
    let model = FakeModel::start(Options::default())?;
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let settings = [
        ("MAINSPRING_LLM_PROVIDER", "openai".to_owned()),
        ("MAINSPRING_LLM_BASE_URL", model.base_url()),
        ("MAINSPRING_LLM_API_KEY", "a-key-of-the-tests".to_owned()),
        ("MAINSPRING_LLM_MODEL", "fake".to_owned()),
        ("MAINSPRING_DATABASE_URL", url.clone()),
    ];
    let program = Program {
        binary: binary()?,
        logs: dir.path().join("logs"),
        environment: settings
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
    };
    let mut dev = blocking(|| program.dev_on("dev", &data, &url))?;
    blocking(|| dev.wait_until_ready())?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let session = opened(&mut caller).await?;
    sent(&mut caller, &session, "one").await?;
    let words = "[[send two]] [[stream 20x100ms]] a long answer";
    let path = format!("/v1/sessions/{session}/sends");
    let body = json!({ "input": words });
    let send = caller.post(&path, &body, "two").await?.json()?;
    let id = send["id"].as_str().context("an id")?;
    let (clock, mut looks) = (SystemClock::new(), 0);
    while model.ledger().stats().in_flight == 0 {
        ensure!(looks < 1_000, "the model is not asked within 20 s");
        looks += 1;
        clock.sleep(20 * MS).await;
    }
    blocking(|| dev.kill());
    drop(dev);

    let mut dev = blocking(|| program.dev_on("dev-again", &data, &url))?;
    blocking(|| dev.wait_until_ready())?;
    let mut caller = RetryingClient::new(vec![dev.url()], 0);
    let send = caller.get(&format!("/v1/sends/{id}?wait=30s")).await?;
    ensure!(send["status"] == "completed", "{send}");
    ensure!(
        send["output_text"] == format!("echo: {words}").as_str(),
        "{send}"
    );
    ensure!(send["attempts"] == 2, "{send}");
    let path = format!("/v1/sessions/{session}/messages");
    let messages = caller.all(&path).await?;
    ensure!(messages.len() == 4, "{messages:?}");
    let code = blocking(|| dev.stop(Duration::from_secs(20)))?;
    ensure!(code == 0, "dev ended with {code}");
    audited(&program)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_goes_on_while_workers_die_and_leave() -> Result<()> {
    let recipe = Recipe {
        workers: 2,
        script: "",
        keep_bodies: true,
        ..Recipe::default()
    };
    let Some(mut cluster) = Cluster::start(recipe).await? else {
        return Ok(());
    };
    let urls = cluster.urls();
    let mut caller = RetryingClient::new(urls.clone(), 0);
    let session = opened(&mut caller).await?;
    let wait = ["send", "one", "--session", &session, "--wait"];
    said(&cluster.program, &wait, "", "echo: one\n")?;

    let two = "[[send two]] [[stream 20x100ms]] a long answer, told slowly and twice";
    a_worker_dies(&mut cluster, &mut caller, &session, two).await?;
    let (three, four) = ("[[send three]] [[stream 10x100ms]] the third", "the fourth");
    a_worker_leaves(&mut cluster, &mut caller, &session, [three, four]).await?;

    cluster
        .program
        .environment
        .push(("MAINSPRING_SERVER".into(), urls[1].clone()));
    said(
        &cluster.program,
        &["chat", "--session", &session],
        "five\n",
        "echo: five\n",
    )?;
    let calls = cluster.model.ledger().entries();
    // The second answer was requested twice, with the same bytes.
    ensure!(calls.len() == 6, "{} calls", calls.len());
    ensure!(calls[1].body_sha256 == calls[2].body_sha256, "other words");
    let turns = ["one", two, three, four, "five"];
    for (call, last) in calls.iter().zip([0, 1, 1, 2, 3, 4]) {
        heard(call, &turns[..=last])?;
    }
    let messages = caller
        .all(&format!("/v1/sessions/{session}/messages"))
        .await?;
    ensure!(messages.len() == 10, "{messages:?}");
    audited(&cluster.program)?;
    cluster.passed();
    Ok(())
}

/// A worker is killed in the middle of an answer, while a reader watches, who then continues on
/// another scheduler.
async fn a_worker_dies(
    cluster: &mut Cluster,
    caller: &mut RetryingClient,
    session: &str,
    words: &str,
) -> Result<()> {
    let urls = cluster.urls();
    let path = format!("/v1/sessions/{session}/sends");
    let send = caller
        .post(&path, &json!({ "input": words }), "two")
        .await?
        .json()?;
    let id = send["id"].as_str().context("an id")?;
    let path = format!("/v1/sends/{id}/events");
    let mut events = Events::open(&urls[0], &path, None).await?;
    let mut last = None;
    let mut text = String::new();
    while text.chars().count() < 10 {
        let event = events.next().await?.context("the stream goes on")?;
        if event.name == "message.delta" {
            grow(&mut text, &event)?;
        }
        last = event.id.or(last);
    }
    ensure!(format!("echo: {words}").starts_with(&text), "{text}");
    let last = last.context("the send was queued with an id")?;
    // A reader that joins now, on another scheduler, gets the answer from its beginning.
    let mut late = Events::open(&urls[1], &path, None).await?;
    let told = loop {
        let event = late.next().await?.context("the stream goes on")?;
        if event.name == "message.delta" {
            break event;
        }
    };
    ensure!(told.data["offset"] == 0, "{told:?}");
    drop(late);
    let victim = cluster.busy_worker().await?;
    cluster.kill_worker(victim);
    drop(events);

    let mut events = Events::open(&urls[1], &path, Some(&last)).await?;
    let mut seen = Vec::new();
    let mut text = None;
    while let Some(event) = events.next().await? {
        match event.name.as_str() {
            "message.reset" => {
                ensure!(event.data["reason"] == "takeover", "{event:?}");
                ensure!(event.data["attempt"] == 2, "{event:?}");
                text = Some(String::new());
            }
            // Deltas before the reset, if there are any, are void.
            "message.delta" => {
                if let Some(text) = &mut text {
                    ensure!(event.data["attempt"] == 2, "{event:?}");
                    grow(text, &event)?;
                }
            }
            _ => {}
        }
        seen.push(event);
    }
    let durable: Vec<_> = seen.iter().filter(|event| event.id.is_some()).collect();
    let names: Vec<_> = durable.iter().map(|event| event.name.as_str()).collect();
    let wanted = [
        "send.resumed",
        "message.completed",
        "message.completed",
        "round.completed",
        "send.completed",
    ];
    ensure!(names == wanted, "{names:?}");
    ensure!(durable[0].data["reason"] == "takeover", "{durable:?}");
    let echo = format!("echo: {words}");
    ensure!(
        durable[4].data["output_text"] == echo.as_str(),
        "{durable:?}"
    );
    ensure!(
        text.as_deref() == Some(&echo),
        "the deltas after the reset: {text:?}"
    );
    let send = caller.get(&format!("/v1/sends/{id}")).await?;
    ensure!(send["usage"]["output_tokens"].as_u64() > Some(0), "{send}");
    ensure!(send["attempts"] == 2, "{send}");
    cluster.replace_worker(victim)?;
    cluster.all_ready()
}

/// A worker is asked to stop in the middle of an answer: it finishes it, and leaves later sends to
/// others.
async fn a_worker_leaves(
    cluster: &mut Cluster,
    caller: &mut RetryingClient,
    session: &str,
    words: [&str; 2],
) -> Result<()> {
    let path = format!("/v1/sessions/{session}/sends");
    let mut sends = Vec::new();
    for (key, words) in ["three", "four"].iter().zip(words) {
        let send = caller
            .post(&path, &json!({ "input": words }), key)
            .await?
            .json()?;
        sends.push(send["id"].as_str().context("an id")?.to_owned());
    }
    cluster
        .until("a call", 5_000 * MS, async |cluster| {
            Ok(cluster.model.ledger().stats().in_flight == 1)
        })
        .await?;
    let leaver = cluster.busy_worker().await?;
    let code = blocking(|| cluster.workers[leaver].stop(Duration::from_secs(20)))?;
    ensure!(code == 0, "the worker ended with {code}");
    // Its own answer was stored before it left; there is nothing to take over.
    let third = caller.get(&format!("/v1/sends/{}", sends[0])).await?;
    ensure!(third["status"] == "completed", "{third}");
    let fourth = caller
        .get(&format!("/v1/sends/{}?wait=10s", sends[1]))
        .await?;
    ensure!(fourth["status"] == "completed", "{fourth}");
    cluster.replace_worker(leaver)?;
    cluster.all_ready()
}

/// Creates a session with a system prompt.
async fn opened(caller: &mut RetryingClient) -> Result<String> {
    let body = json!({ "agent": { "system_prompt": PROMPT } });
    let answer = caller.post("/v1/sessions", &body, "session").await?;
    let session = answer.json()?;
    let id = session["id"].as_str().context("an id")?;
    Ok(id.to_owned())
}

/// Makes a send that must complete.
async fn sent(caller: &mut RetryingClient, session: &str, words: &str) -> Result<Value> {
    let path = format!("/v1/sessions/{session}/sends?wait=20s");
    let answer = caller
        .post(&path, &json!({ "input": words }), words)
        .await?;
    let send = answer.json()?;
    ensure!(
        answer.status == 200 && send["status"] == "completed",
        "{send}"
    );
    Ok(send)
}

/// Asserts that a command prints exactly this and succeeds.
fn said(program: &Program, arguments: &[&str], input: &str, wanted: &str) -> Result<()> {
    let (code, out, err) = blocking(|| program.run_with_input(arguments, input))?;
    ensure!(
        code == 0 && out == wanted,
        "{arguments:?}: {code} {out:?}\n{err}"
    );
    Ok(())
}

fn audited(program: &Program) -> Result<()> {
    let (code, out, err) = blocking(|| program.run(&["audit"]))?;
    ensure!(code == 0, "audit: {code}\n{out}\n{err}");
    Ok(())
}

/// Appends a piece, and asserts that its offset is right.
fn grow(text: &mut String, event: &Event) -> Result<()> {
    let offset = event.data["offset"].as_u64().context("an offset")?;
    ensure!(
        offset == text.chars().count() as u64,
        "after {text:?}: {event:?}"
    );
    text.push_str(event.data["text"].as_str().context("a text")?);
    Ok(())
}

/// Asserts that the model got the prompt, every turn so far with its answer, and the last turn.
fn heard(call: &Entry, turns: &[&str]) -> Result<()> {
    let body: Value = serde_json::from_str(call.body.as_deref().context("a body")?)?;
    let mut system = text(&body["system"]);
    if let Some(instructions) = body["instructions"].as_str() {
        instructions.clone_into(&mut system);
    }
    let messages = body["messages"].as_array();
    let messages = messages.or(body["input"].as_array());
    let mut heard = Vec::new();
    for message in messages.context("messages")? {
        let role = message["role"].as_str().context("a role")?;
        if matches!(role, "system" | "developer") {
            system = text(&message["content"]);
        } else {
            heard.push((role, text(&message["content"])));
        }
    }
    let mut wanted = Vec::new();
    for turn in turns {
        wanted.extend([
            ("user", (*turn).to_owned()),
            ("assistant", format!("echo: {turn}")),
        ]);
    }
    wanted.pop();
    ensure!(heard == wanted, "{wanted:?} expected, {heard:?} heard");
    ensure!(system == PROMPT, "{body}");
    Ok(())
}

fn text(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let parts = content.as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}
