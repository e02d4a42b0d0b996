//! A provider over a socket that continues a task from whatever it is shown of it, including folds,
//! and records what it bills.
//!
//! `task NAME steps N` in a user's message makes it call `look` with `NAME-1` to `NAME-N`, one
//! after the other, depending on the results that it is shown, and then answer. It answers a
//! request to fold a transcript with the results in it, and an extraction with the facts to be
//! remembered.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures::stream;
use mainspring_tests::fake_model::listen;
use mainspring_tests::faults::pause;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Pause between two pieces of an answer.
const PAUSE: Duration = Duration::from_millis(40);

/// Characters of a long tool result.
const LONG: usize = 60_000;

/// An answer that was read to its end, and is billed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bill {
    pub(super) purpose: &'static str,
    pub(super) read: u64,
    pub(super) written: u64,
}

#[derive(Debug, Default)]
struct Book {
    bills: Mutex<Vec<Bill>>,
    /// Number of answers that were not read to their end.
    broken: AtomicUsize,
    /// Whether embedding calls hang.
    is_silent: AtomicBool,
}

impl Book {
    fn bills(&self) -> MutexGuard<'_, Vec<Bill>> {
        self.bills.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Provider {
    address: SocketAddr,
    book: Arc<Book>,
    task: JoinHandle<io::Result<()>>,
}

impl Provider {
    pub(super) fn start() -> io::Result<Self> {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = listener.local_addr()?;
        let book = Arc::new(Book::default());
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/v1/embeddings", post(embed))
            .route("/tools/{tool}", post(act))
            .with_state(book.clone());
        let serve = async move { axum::serve(listener, router).await };
        Ok(Self {
            address,
            book,
            task: tokio::spawn(serve),
        })
    }

    pub(super) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(super) fn tool_url(&self, tool: &str) -> String {
        format!("http://{}/tools/{tool}", self.address)
    }

    pub(super) fn bills(&self) -> Vec<Bill> {
        self.book.bills().clone()
    }

    pub(super) fn broken(&self) -> usize {
        self.book.broken.load(Ordering::Relaxed)
    }

    pub(super) fn silence(&self, is_silent: bool) {
        self.book.is_silent.store(is_silent, Ordering::Relaxed);
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn words(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

/// The texts of a message.
fn texts(message: &Value) -> Vec<&str> {
    match &message["content"] {
        Value::String(text) => vec![text],
        Value::Array(parts) => parts.iter().filter_map(|it| it["text"].as_str()).collect(),
        _ => Vec::new(),
    }
}

/// An answer.
#[derive(Debug)]
struct Said {
    purpose: &'static str,
    text: String,
    /// The mark of a call of `look`, if any.
    call: Option<String>,
}

fn said(messages: &[Value]) -> Said {
    let users = messages.iter().filter(|it| it["role"] == "user");
    let users: Vec<&str> = users.flat_map(texts).collect();
    let last = users.last().copied().unwrap_or_default();
    let all = messages
        .iter()
        .flat_map(texts)
        .collect::<Vec<_>>()
        .join("\n");
    if last.contains("<transcript>") {
        let done = all.split("look did ").skip(1);
        let done = done.filter_map(|rest| rest.split('.').next());
        let done: BTreeSet<&str> = done.filter(|mark| mark.len() < 20).collect();
        let done: Vec<String> = done.iter().map(|it| format!("look did {it}.")).collect();
        return Said {
            purpose: "fold",
            text: format!("All that was found so far: {}", done.join(" ")),
            call: None,
        };
    }
    if last.starts_with("<known>") {
        let asked = last.split("User: task ").skip(1);
        let names = asked.filter_map(|rest| rest.split_whitespace().next());
        // No two facts are alike.
        let fact = |name: &str| json!({"text": format!("{name}wood {name}stone {name}leaf")});
        let facts: Vec<Value> = names.map(fact).collect();
        return Said {
            purpose: "extract",
            text: json!({ "memories": facts }).to_string(),
            call: None,
        };
    }
    let task = users
        .iter()
        .rev()
        .find_map(|text| text.strip_prefix("task "));
    let mut task = task.unwrap_or("nothing steps 0").split_whitespace();
    let name = task.next().unwrap_or_default();
    let steps: usize = task.nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    let is_done = |n: &usize| all.contains(&format!("look did {name}-{n}."));
    let done = (1..=steps).rev().find(is_done).unwrap_or(0);
    let call = (done < steps).then(|| format!("{name}-{}", done + 1));
    let text = match &call {
        Some(mark) => format!("I look for {mark} and what belongs to it"),
        None => format!("{name} is done in {steps} steps, as it was asked for"),
    };
    Said {
        purpose: "round",
        text,
        call,
    }
}

/// An answer being streamed: if dropped before its end, it counts as broken.
struct Open {
    book: Arc<Book>,
    bill: Option<Bill>,
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.bill.is_some() {
            self.book.broken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn complete(State(book): State<Arc<Book>>, Json(body): Json<Value>) -> Response {
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let said = said(&messages);
    let bill = Bill {
        purpose: said.purpose,
        read: messages.iter().flat_map(texts).map(words).sum(),
        written: words(&said.text) + u64::from(said.call.is_some()),
    };
    let usage = json!({
        "prompt_tokens": bill.read,
        "completion_tokens": bill.written,
        "total_tokens": bill.read + bill.written,
    });
    let delta = |delta: Value, finish: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "model": "fake", "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let mut events: Vec<String> = said
        .text
        .split_inclusive(' ')
        .collect::<Vec<_>>()
        .chunks(4)
        .map(|piece| {
            delta(
                json!({"role": "assistant", "content": piece.concat()}),
                None,
            )
        })
        .collect();
    let finish = if let Some(mark) = &said.call {
        let arguments = json!({ "mark": mark }).to_string();
        let call = json!({
            "index": 0, "id": format!("call_{mark}"), "type": "function",
            "function": {"name": "look", "arguments": arguments},
        });
        events.push(delta(json!({ "tool_calls": [call] }), None));
        "tool_calls"
    } else {
        "stop"
    };
    events.push(delta(json!({}), Some(finish)));
    let last = json!({"id": "c", "object": "chat.completion.chunk", "model": "fake", "choices": [], "usage": usage});
    events.push(format!("data: {last}\n\ndata: [DONE]\n\n"));
    let open = Open {
        book,
        bill: Some(bill),
    };
    let events = stream::unfold((events.into_iter(), open), |(mut events, mut open)| async {
        let event = events.next()?;
        pause(PAUSE).await;
        if events.len() == 0
            && let Some(bill) = open.bill.take()
        {
            open.book.bills().push(bill);
        }
        Some((Ok::<_, io::Error>(event), (events, open)))
    });
    (
        [(CONTENT_TYPE, "text/event-stream")],
        Body::from_stream(events),
    )
        .into_response()
}

async fn embed(State(book): State<Arc<Book>>, Json(body): Json<Value>) -> Response {
    if book.is_silent.load(Ordering::Relaxed) {
        // Longer than any caller waits.
        pause(Duration::from_hours(1)).await;
    }
    let texts = body["input"].as_array().cloned().unwrap_or_default();
    let texts: Vec<&str> = texts.iter().filter_map(Value::as_str).collect();
    let read = texts.iter().copied().map(words).sum();
    let vector = |(n, text): (usize, &&str)| {
        let sum: u32 = text.bytes().map(u32::from).sum();
        json!({"object": "embedding", "index": n, "embedding": [1.0, f64::from(sum % 97), text.len()]})
    };
    let data: Vec<Value> = texts.iter().enumerate().map(vector).collect();
    book.bills().push(Bill {
        purpose: "embed",
        read,
        written: 0,
    });
    let usage = json!({"prompt_tokens": read, "total_tokens": read});
    let answer = json!({"object": "list", "model": "vectors", "data": data, "usage": usage});
    Json(answer).into_response()
}

/// A tool: the result of each second step is long.
async fn act(Path(tool): Path<String>, Json(body): Json<Value>) -> String {
    let mark = body["arguments"]["mark"].as_str().unwrap_or_default();
    pause(Duration::from_millis(60)).await;
    let more = if mark.ends_with("-2") { LONG } else { 200 };
    format!(
        "{tool} did {mark}. {}",
        "and what belongs to it ".repeat(more / 23)
    )
}
