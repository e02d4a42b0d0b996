//! A send to a session with thousands of messages costs what it costs at the beginning: bytes to the model, and time.

use std::time::Duration;

use mainspring_shared::time::Clock;
use serde_json::{Value, json};

use super::asking::{ask, send};
use super::model::{Model, Prompt, Reply};
use super::stage::{Server, Stage};
use crate::client::Request;
use crate::failure::Failure;

/// Messages of the history.
const MESSAGES: usize = 2_000;

/// How long the history may take to grow, by default; the proof then measures what there is.
const SECONDS: u64 = 40;

/// Messages that the model is shown.
const WINDOW: usize = 20;

/// Sends in one request, and the messages that each adds.
const BATCH: usize = 50;
const ADDED: usize = 2;

/// Sends whose time is taken; the median counts.
const MEASURED: usize = 15;

/// How much longer a send may take, as a factor and beyond it.
const FACTOR: u32 = 3;
const NOISE: Duration = Duration::from_millis(15);

/// Text that makes a message as long as people write them.
const LONG: &str = "The quick brown fox jumps over the lazy dog, and then it sleeps in the sun.";

/// The cost of a send.
#[derive(Debug)]
struct Cost {
    bytes: usize,
    time: Duration,
}

fn script(_: &Prompt) -> Reply {
    Reply::text(LONG)
}

pub(super) async fn prove(stage: &mut Stage) -> Result<(), Failure> {
    let model = stage.model(script).await?;
    let mut server = stage.serve().await?;
    let mut context = json!({ "fold": { "strategy": "none" } });
    if !stage.plants() {
        context["last_messages"] = json!(WINDOW);
    }
    let agent = json!({ "system_prompt": "You listen.", "context": context });
    let session = stage.session(&server.client, &agent).await?;
    let mut count = grow(stage, &server, &session, 0, WINDOW * 2).await?;
    let early = cost(stage, &server, &model, &session).await?;
    count += MEASURED * ADDED;
    say(stage, count, &early)?;
    let early_count = count;
    count = grow(stage, &server, &session, count, MESSAGES).await?;
    let late = cost(stage, &server, &model, &session).await?;
    count += MEASURED * ADDED;
    say(stage, count, &late)?;
    server.kill().await;
    stage.again(&mut server).await?;
    let begun = stage.clock.monotonic();
    send(&server.client, &session, LONG).await?;
    let cold = stage.clock.monotonic().saturating_sub(begun);
    stage.say(&format!(
        "killed the process; the first send of the next one took {}, the lease of the dead one included",
        ms(cold)
    ))?;
    stage.audit(vec![server]).await?;

    for (count, cost) in [(early_count, &early), (count, &late)] {
        stage.beside(
            format!("answers within {} (median)", ms(cost.time)),
            format!("requests of up to {} bytes at {count} messages", cost.bytes),
        );
    }
    stage.figure("messages", count);
    stage.figure("request_bytes_early", early.bytes);
    stage.figure("request_bytes_late", late.bytes);
    stage.figure("median_ms_early", millis(early.time));
    stage.figure("median_ms_late", millis(late.time));
    stage.figure("first_after_crash_ms", millis(cold));
    // A window moves by half its length, so requests differ by as much.
    stage.expect(late.bytes <= early.bytes * 3 / 2, || {
        let (early, late) = (early.bytes, late.bytes);
        format!("a request has {late} bytes after {count} messages, and had {early}")
    });
    let most = early.time * FACTOR + NOISE;
    stage.expect(late.time <= most, || {
        format!(
            "a send takes {} after {count} messages, and took {}",
            ms(late.time),
            ms(early.time)
        )
    });
    stage.expect(count > early_count * 3, || {
        format!("the history only grew to {count} messages: give it more --seconds")
    });
    Ok(())
}

fn say(stage: &Stage, count: usize, cost: &Cost) -> Result<(), Failure> {
    stage.say(&format!(
        "at {count} messages: requests of up to {} bytes, answers within {}",
        cost.bytes,
        ms(cost.time)
    ))
}

/// Sends in batches until the session has so many messages, or the time is over.
async fn grow(
    stage: &Stage,
    server: &Server,
    session: &str,
    mut count: usize,
    wanted: usize,
) -> Result<usize, Failure> {
    let until = stage.clock.monotonic() + stage.seconds(SECONDS);
    while count < wanted && stage.clock.monotonic() < until {
        let sends = ((wanted - count) / ADDED).clamp(1, BATCH);
        let items: Vec<Value> = (0..sends)
            .map(|_| json!({ "session_id": session, "input": LONG }))
            .collect();
        let body = json!({ "sends": items });
        let request = Request::post("/v1/sends:batch").body(body);
        let key = server.client.fresh_key();
        ask(&server.client, &request.key(key)).await?;
        // Sends of a session run in order, so the next one ends last.
        send(&server.client, session, LONG).await?;
        count += (sends + 1) * ADDED;
    }
    Ok(count)
}

/// What a send costs now.
async fn cost(
    stage: &Stage,
    server: &Server,
    model: &Model,
    session: &str,
) -> Result<Cost, Failure> {
    let before = model.count();
    let mut times = Vec::new();
    for _ in 0..MEASURED {
        let begun = stage.clock.monotonic();
        send(&server.client, session, LONG).await?;
        times.push(stage.clock.monotonic().saturating_sub(begun));
    }
    times.sort();
    let asked = model.asked();
    let sizes = asked.iter().skip(before).map(|asked| asked.body.len());
    Ok(Cost {
        bytes: sizes.max().unwrap_or_default(),
        time: times.get(MEASURED / 2).copied().unwrap_or_default(),
    })
}

/// Milliseconds with one digit.
fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", millis(time))
}
