//! Clients that send and record what they were told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use mainspring_benches::client::Answer;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::caller::RetryingClient;
use super::evidence::{Ended, Told};
use super::stream;
use super::{any_of, fault_duration, monotonic, now, pause};
use crate::history::{self, Book, Seen};

/// How many sessions a client sends to before it waits for answers.
const SESSIONS_AT_ONCE: usize = 3;

/// One in this many requests is repeated at once, although it was answered.
const REPEATED: usize = 4;

/// One in this many sends takes two rounds.
const CALLING: usize = 3;

/// How long an accepted send may take once faults are no longer injected.
const END: Duration = Duration::from_mins(1);

/// The shape of the load.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Number of clients, each with one request in flight.
    pub clients: usize,
    /// Number of sessions; several clients send to each.
    pub sessions: usize,
    /// Sends to a session before the first is answered.
    pub burst: usize,
    /// Number of sessions whose events are followed throughout.
    pub watched: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            clients: 4,
            sessions: 8,
            burst: 2,
            watched: 2,
        }
    }
}

/// What a reader saw of a session, in order of arrival.
pub(super) type Events = Arc<Mutex<Vec<Seen>>>;

/// The running clients.
#[derive(Debug)]
pub struct Load {
    stop: CancellationToken,
    clients: JoinSet<Result<Vec<Told>>>,
    watchers: JoinSet<()>,
    pub(super) seen: BTreeMap<String, Events>,
    pub(super) sessions: Vec<String>,
    done: Arc<Mutex<usize>>,
    /// What clients asked and were told.
    pub(super) book: Book,
}

impl Load {
    /// Creates the sessions and starts the clients.
    pub async fn start(urls: Vec<String>, shape: Shape) -> Result<Self> {
        let mut caller = RetryingClient::new(urls.clone(), 0);
        let mut sessions = Vec::new();
        for n in 0..shape.sessions {
            let body = json!({ "agent": { "system_prompt": format!("[[session s{n}]]") } });
            let answer = caller
                .post("/v1/sessions", &body, &format!("session-{n}"))
                .await?;
            ensure!(answer.status == 201, "a session: {:?}", answer.body);
            sessions.push(text(&answer.json()?, "id")?);
        }
        let stop = CancellationToken::new();
        let done = Arc::new(Mutex::new(0));
        let book = Book::default();
        let mut clients = JoinSet::new();
        for number in 0..shape.clients {
            let client = Client {
                number,
                caller: RetryingClient::new(urls.clone(), number),
                sessions: sessions.clone(),
                burst: shape.burst,
                stop: stop.clone(),
                done: done.clone(),
                book: book.clone(),
                told: Vec::new(),
            };
            clients.spawn(client.run());
        }
        let mut watchers = JoinSet::new();
        let mut seen = BTreeMap::new();
        for session in sessions.iter().take(shape.watched) {
            let ids = Events::default();
            seen.insert(session.clone(), ids.clone());
            watchers.spawn(watch(urls.clone(), session.clone(), ids));
        }
        Ok(Self {
            stop,
            clients,
            watchers,
            seen,
            sessions,
            done,
            book,
        })
    }

    /// The number of sends whose end clients have seen so far.
    pub fn done(&self) -> usize {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets clients finish what they started, and returns what they were told.
    pub(super) async fn finish(&mut self) -> Result<Vec<Told>> {
        self.stop.cancel();
        let mut told = Vec::new();
        while let Some(client) = self.clients.join_next().await {
            told.extend(client??);
        }
        Ok(told)
    }

    /// Waits until the event readers have seen every step of their sessions.
    pub(super) async fn watched(&mut self, steps: &BTreeMap<String, i64>) -> Result<()> {
        let limit = monotonic() + Duration::from_secs(20);
        for (session, ids) in &self.seen {
            let wanted = steps.get(session).copied().unwrap_or_default();
            loop {
                let last = ids.lock().ok().and_then(|seen| last_id(&seen));
                let last = last.as_deref().and_then(|id| id.split_once('.'));
                let reached: i64 = last.map_or(0, |(n, _)| n.parse().unwrap_or_default());
                if reached >= wanted {
                    break;
                }
                ensure!(
                    monotonic() < limit,
                    "the reader of {session} is at step {reached} of {wanted}"
                );
                pause(Duration::from_millis(50)).await;
            }
        }
        self.watchers.shutdown().await;
        Ok(())
    }
}

struct Client {
    number: usize,
    caller: RetryingClient,
    sessions: Vec<String>,
    burst: usize,
    stop: CancellationToken,
    done: Arc<Mutex<usize>>,
    book: Book,
    told: Vec<Told>,
}

impl Client {
    async fn run(mut self) -> Result<Vec<Told>> {
        let mut turn = self.number;
        while !self.stop.is_cancelled() {
            let begin = self.told.len();
            for step in 0..SESSIONS_AT_ONCE {
                let session = self.sessions[(turn + step) % self.sessions.len()].clone();
                for place in 0..self.burst {
                    self.send(&session, place + 1 == self.burst).await?;
                }
            }
            for n in begin..self.told.len() {
                self.wait(n).await?;
            }
            turn += SESSIONS_AT_ONCE;
        }
        Ok(self.told)
    }

    /// Sends until it is accepted or, if the request itself waits, possibly ended.
    async fn send(&mut self, session: &str, wait: bool) -> Result<()> {
        let n = self.told.len();
        let marker = format!("c{}n{n}", self.number);
        let calls_tool = n.is_multiple_of(CALLING);
        let tool = if calls_tool { "[[tool look {}]] " } else { "" };
        let words = format!("[[send {marker}]] {tool}say {n}");
        let body = json!({ "input": words });
        let path = format!("/v1/sessions/{session}/sends");
        let query = if wait { "?wait=2s" } else { "" };
        let begun = self.book.moment();
        let answer = self
            .caller
            .post(&format!("{path}{query}"), &body, &marker)
            .await?;
        let send = accepted(&answer)?;
        let op = history::Op::Send {
            key: marker.clone(),
            session: session.to_owned(),
            in_order: true,
        };
        let heard = history::Told::Yes(send.clone());
        self.book.note(self.number, begun, op, heard);
        let mut told = Told {
            client: self.number,
            key: marker,
            session: session.to_owned(),
            text: words,
            calls_tool,
            ids: vec![text(&send, "id")?],
            ended: None,
        };
        if answer.status == 200 {
            told.ended = Some(Ended { at: now(), send });
            self.count();
        }
        if any_of(REPEATED) == 0 {
            let again = self.caller.post(&path, &body, &told.key).await?;
            told.ids.push(text(&accepted(&again)?, "id")?);
        }
        self.told.push(told);
        Ok(())
    }

    /// Polls a send until it has ended.
    async fn wait(&mut self, n: usize) -> Result<()> {
        let limit = monotonic() + fault_duration() + END;
        while self.told[n].ended.is_none() {
            let path = format!("/v1/sends/{}?wait=10s", self.told[n].ids[0]);
            let begun = self.book.moment();
            let send = self.caller.get(&path).await?;
            let op = history::Op::Read {
                send: self.told[n].ids[0].clone(),
            };
            let heard = history::Told::Yes(send.clone());
            self.book.note(self.number, begun, op, heard);
            if is_final(&send) {
                self.told[n].ended = Some(Ended { at: now(), send });
                self.count();
            } else {
                ensure!(monotonic() < limit, "a send does not end: {send}");
            }
        }
        Ok(())
    }

    fn count(&self) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }
}

/// The ID of the last durable event.
fn last_id(seen: &[Seen]) -> Option<String> {
    seen.iter().rev().find_map(|event| event.id.clone())
}

/// Follows a session throughout, moving from replica to replica as a browser would.
async fn watch(urls: Vec<String>, session: String, seen: Events) {
    let path = format!("/v1/sessions/{session}/events");
    let mut at = 0;
    loop {
        let last = seen.lock().ok().and_then(|seen| last_id(&seen));
        if let Ok(mut events) =
            stream::Events::open(&urls[at % urls.len()], &path, last.as_deref()).await
        {
            // The end of a stream and a broken connection are treated alike: resume elsewhere.
            while let Ok(Some(event)) = events.next().await {
                if let Ok(mut seen) = seen.lock() {
                    seen.push(Seen {
                        id: event.id,
                        name: event.name,
                        data: event.data,
                    });
                }
            }
        }
        at += 1;
        pause(Duration::from_millis(50)).await;
    }
}

/// The send in a response that accepted it.
pub(super) fn accepted(answer: &Answer) -> Result<Value> {
    if !matches!(answer.status, 200 | 202) {
        bail!("a send was answered {} {:?}", answer.status, answer.body);
    }
    let send = answer.json()?;
    ensure!(
        answer.status == 202 || is_final(&send),
        "200 and not final: {send}"
    );
    Ok(send)
}

/// Whether a send is in a final state.
pub(super) fn is_final(send: &Value) -> bool {
    matches!(
        send["status"].as_str(),
        Some("completed" | "failed" | "cancelled")
    )
}

/// A string member of an object.
pub(super) fn text(value: &Value, member: &str) -> Result<String> {
    let found = value[member].as_str().map(str::to_owned);
    found.with_context(|| format!("{member} is missing in {value}"))
}
