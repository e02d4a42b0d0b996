//! A client reads a long answer while its server is killed: it gets the text whole, and each durable event once.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use mainspring_shared::time::Clock;
use serde_json::json;

use super::asking::{accept, id, settled};
use super::model::{Prompt, Reply};
use super::stage::{Server, Stage, nth, times};
use crate::client::{Client, Event, Events};
use crate::failure::{Exit, Failure};

/// How long the whole answer takes by default.
const SECONDS: u64 = 6;

/// The pause after each word.
const PAUSE: Duration = Duration::from_millis(20);

/// How often the server is killed.
const KILLS: usize = 2;

/// What a client has read.
#[derive(Debug, Default)]
struct Read {
    /// The ids of durable events with their names, as they came.
    durable: Vec<(String, String)>,
    /// The text by round and attempt, put together by offsets.
    texts: BTreeMap<(u64, u64), String>,
    /// Pieces of text.
    deltas: usize,
    last: Option<String>,
}

impl Read {
    fn take(&mut self, event: &Event) {
        if let Some(id) = &event.id {
            self.durable.push((id.clone(), event.name.clone()));
            self.last = Some(id.clone());
        }
        if event.name != "message.delta" {
            return;
        }
        self.deltas += 1;
        let number = |name: &str| event.data[name].as_u64().unwrap_or_default();
        let text = self
            .texts
            .entry((number("round"), number("attempt")))
            .or_default();
        text.truncate(number("offset") as usize);
        text.push_str(event.data["text"].as_str().unwrap_or_default());
    }

    /// The text of the newest attempt.
    fn text(&self) -> &str {
        self.texts.values().next_back().map_or("", String::as_str)
    }
}

/// As many words as the model says in this time.
fn words(lasting: Duration) -> String {
    let count = lasting.as_millis() / PAUSE.as_millis();
    (0..count).fold(String::new(), |mut text, number| {
        // Writing to a string cannot fail.
        let _ = write!(text, "word-{number} ");
        text
    })
}

pub(super) async fn prove(stage: &mut Stage) -> Result<(), Failure> {
    let whole = words(stage.seconds(SECONDS));
    let said = whole.clone();
    let script = move |_: &Prompt| Reply {
        pause: PAUSE,
        ..Reply::text(said.clone())
    };
    let model = stage.model(script).await?;
    let mut server = stage.serve().await?;
    let agent = json!({ "system_prompt": "You tell long stories." });
    let session = stage.session(&server.client, &agent).await?;
    let body = json!({ "input": "Tell me a long story." });
    let send = id(&accept(&server.client, &session, &body).await?);
    stage.say(&format!(
        "the model begins an answer of {} characters; a client reads it",
        whole.len()
    ))?;
    let read = follow(stage, &mut server, &send, whole.len()).await?;
    let ended = settled(&server.client, &send).await?;
    let mut later = Read::default();
    let mut events = Events::new(&server.client, path(&send), None);
    while let Some(event) = events.next().await? {
        later.take(&event);
        if event.is_final() {
            break;
        }
    }
    drop(events);
    stage.audit(vec![server]).await?;

    let stored = ended["output_text"].as_str().unwrap_or_default();
    let attempts: Vec<String> = read
        .texts
        .iter()
        .map(|((_, attempt), text)| format!("{} of attempt {attempt}", text.len()))
        .collect();
    stage.beside(
        format!("{} pieces: {} characters", read.deltas, attempts.join(", ")),
        format!(
            "asked {} times for {} characters",
            model.count(),
            whole.len()
        ),
    );
    stage.beside(
        format!("{} durable events", read.durable.len()),
        format!("{} durable events are stored", later.durable.len()),
    );
    stage.figure("kills", KILLS);
    stage.figure("characters", read.text().len());
    stage.figure("durable_events", read.durable.len());
    stage.expect(read.text() == stored, || {
        let (got, stored) = (read.text().len(), stored.len());
        format!("the client assembled {got} characters, and {stored} are stored")
    });
    stage.expect(stored == whole.trim_end() || stored == whole, || {
        "what is stored is not what the model said".to_owned()
    });
    let mut twice = BTreeMap::new();
    for (id, name) in &read.durable {
        *twice.entry((id, name)).or_insert(0) += 1;
    }
    for ((id, name), count) in twice {
        stage.expect(count == 1, || {
            format!("the client got event {id} ({name}) {}", times(count))
        });
    }
    stage.expect(read.durable == later.durable || has_repeats(&read), || {
        "the client's durable events are not the stored ones in order".to_owned()
    });
    Ok(())
}

/// Whether an event came twice, which is said by itself.
fn has_repeats(read: &Read) -> bool {
    let mut ids: Vec<&String> = read.durable.iter().map(|(id, _)| id).collect();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    ids.len() < all
}

fn path(send: &str) -> String {
    format!("/v1/sends/{send}/events")
}

/// Reads to the end, and kills the server at a third of the text of each attempt.
async fn follow(
    stage: &mut Stage,
    server: &mut Server,
    send: &str,
    length: usize,
) -> Result<Read, Failure> {
    let (mut read, mut kills) = (Read::default(), 0);
    let mut events = Events::new(&server.client, path(send), None);
    loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            Ok(None) => {
                events.reconnect().await?;
                continue;
            }
            Err(failure) if failure.exit == Exit::Unavailable => {
                events = connected(&server.client, send, read.last.clone()).await?;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        read.take(&event);
        if event.is_final() {
            return Ok(read);
        }
        if kills < KILLS && read.texts.len() > kills && read.text().len() > length / 3 {
            kills += 1;
            server.kill().await;
            stage.say(&format!(
                "killed the server ({} time) after {} characters",
                nth(kills),
                read.text().len()
            ))?;
            stage.again(server).await?;
            let after = read.last.clone().filter(|_| !stage.plants());
            let from = after.as_deref().unwrap_or("the beginning");
            stage.say(&format!("the client reads on after {from}"))?;
            events = connected(&server.client, send, after).await?;
        }
    }
}

/// A stream that is open.
async fn connected(client: &Client, send: &str, after: Option<String>) -> Result<Events, Failure> {
    let mut left = 20;
    loop {
        let mut events = Events::new(client, path(send), after.clone());
        match events.open().await {
            Ok(()) => return Ok(events),
            Err(failure) if failure.exit == Exit::Unavailable && left > 0 => {
                left -= 1;
                client.clock.sleep(Duration::from_millis(250)).await;
            }
            Err(failure) => return Err(failure),
        }
    }
}
