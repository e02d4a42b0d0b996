//! A model on this machine that says what a script tells it to, and remembers what it was asked.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt as _;
use futures::stream;
use mainspring_runtime::SystemClock;
use mainspring_shared::time::Clock;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The largest request that it reads.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// What a request asks, as far as scripts need it.
#[derive(Debug)]
pub(super) struct Prompt {
    /// The last text of a user.
    pub(super) input: String,
    /// The results of tools after it.
    pub(super) results: Vec<String>,
    /// How often this input was asked with as many results before.
    pub(super) before: usize,
}

/// What it answers.
#[derive(Debug, Clone, Default)]
pub(super) struct Reply {
    pub(super) text: String,
    /// Calls of tools, by name and arguments.
    pub(super) calls: Vec<(&'static str, Value)>,
    /// How long it thinks.
    pub(super) delay: Duration,
    /// The pause after each piece of the text.
    pub(super) pause: Duration,
    /// Tokens read and written; by default it counts four letters as one.
    pub(super) usage: Option<(u64, u64)>,
}

impl Reply {
    /// A text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

/// One request that it got.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// The body, byte by byte.
    pub(super) body: String,
    pub(super) input: String,
    /// How many results of tools came after the input.
    pub(super) results: usize,
    /// Tokens of the answer, read and written.
    pub(super) billed: u64,
    /// Whether the whole answer was handed over.
    pub(super) is_over: bool,
}

type Script = Box<dyn Fn(&Prompt) -> Reply + Send + Sync>;

struct Shared {
    script: Script,
    asked: Mutex<Vec<Asked>>,
    clock: SystemClock,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn asked(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The model; it ends when dropped.
#[derive(Debug)]
pub(super) struct Model {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<io::Result<()>>,
}

impl Model {
    /// Starts it on a free port.
    pub(super) async fn start(
        script: impl Fn(&Prompt) -> Reply + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        // A piece is there as soon as it is said.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let shared = Arc::new(Shared {
            script: Box::new(script),
            asked: Mutex::default(),
            clock: SystemClock::new(),
        });
        let router = Router::new()
            .route("/v1/chat/completions", post(answer))
            .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
            .with_state(shared.clone());
        let serve = async move { axum::serve(listener, router).await };
        Ok(Self {
            address,
            shared,
            task: tokio::spawn(serve),
        })
    }

    /// Where workers find it.
    pub(super) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Everything that it was asked, in order.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.shared.asked().clone()
    }

    /// How many requests it got.
    pub(super) fn count(&self) -> usize {
        self.shared.asked().len()
    }

    /// Whether it is in the middle of an answer.
    pub(super) fn is_answering(&self) -> bool {
        self.shared
            .asked()
            .last()
            .is_some_and(|asked| !asked.is_over)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let body = String::from_utf8_lossy(&body).into_owned();
    let Ok(request) = serde_json::from_str::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let (input, results) = read(&request);
    let (reply, place) = {
        let mut asked = shared.asked();
        let alike = |asked: &&Asked| asked.input == input && asked.results == results.len();
        let prompt = Prompt {
            before: asked.iter().filter(alike).count(),
            input,
            results,
        };
        let reply = (shared.script)(&prompt);
        let (read, written) = usage(&body, &reply);
        asked.push(Asked {
            body,
            input: prompt.input,
            results: prompt.results.len(),
            billed: read + written,
            is_over: false,
        });
        (reply, asked.len() - 1)
    };
    shared.clock.sleep(reply.delay).await;
    let streams = request["stream"] == true;
    let (read, written) = {
        let asked = shared.asked();
        usage(&asked[place].body, &reply)
    };
    let counts = json!({
        "prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written,
    });
    let pieces = if streams {
        events(&reply, place, &counts)
    } else {
        VecDeque::from([whole(&reply, place, &counts)])
    };
    let kind = if streams {
        "text/event-stream"
    } else {
        "application/json"
    };
    let state = (pieces, shared, reply.pause, place);
    let body = stream::unfold(state, async |(mut pieces, shared, pause, place)| {
        let piece = pieces.pop_front()?;
        if !pause.is_zero() {
            shared.clock.sleep(pause).await;
        }
        if pieces.is_empty()
            && let Some(asked) = shared.asked().get_mut(place)
        {
            asked.is_over = true;
        }
        Some((
            Ok::<_, io::Error>(Bytes::from(piece)),
            (pieces, shared, pause, place),
        ))
    });
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(body)).into_response()
}

/// The last input, and the results after it.
fn read(request: &Value) -> (String, Vec<String>) {
    let (mut input, mut results) = (String::new(), Vec::new());
    for message in request["messages"].as_array().into_iter().flatten() {
        match message["role"].as_str() {
            Some("user") => {
                input = text(&message["content"]);
                results.clear();
            }
            Some("tool") => results.push(text(&message["content"])),
            _ => {}
        }
    }
    (input, results)
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}

fn usage(body: &str, reply: &Reply) -> (u64, u64) {
    let tokens = |text: &str| (text.len() as u64).div_ceil(4);
    reply
        .usage
        .unwrap_or_else(|| (tokens(body), tokens(&reply.text).max(1)))
}

fn call(reply: &Reply, at: usize, place: usize) -> Value {
    let (name, arguments) = &reply.calls[at];
    json!({
        "index": at, "id": format!("call_{place}_{at}"), "type": "function",
        "function": { "name": name, "arguments": arguments.to_string() },
    })
}

fn reason(reply: &Reply) -> &'static str {
    if reply.calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    }
}

fn whole(reply: &Reply, place: usize, usage: &Value) -> String {
    let mut message = json!({ "role": "assistant", "content": reply.text });
    if !reply.calls.is_empty() {
        message["tool_calls"] = (0..reply.calls.len())
            .map(|at| call(reply, at, place))
            .collect();
    }
    let choice = json!({ "index": 0, "message": message, "finish_reason": reason(reply) });
    json!({
        "id": format!("answer-{place}"), "object": "chat.completion", "model": "proof",
        "choices": [choice], "usage": usage,
    })
    .to_string()
}

fn events(reply: &Reply, place: usize, usage: &Value) -> VecDeque<String> {
    let event = |value: &Value| format!("data: {value}\n\n");
    let delta = |delta: &Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": null });
        event(&json!({ "model": "proof", "choices": [choice] }))
    };
    let mut events = VecDeque::new();
    // A piece is a word with its blank.
    for piece in reply.text.split_inclusive(' ') {
        events.push_back(delta(&json!({ "content": piece })));
    }
    for at in 0..reply.calls.len() {
        events.push_back(delta(&json!({ "tool_calls": [call(reply, at, place)] })));
    }
    let last = json!({ "index": 0, "delta": {}, "finish_reason": reason(reply) });
    events.push_back(event(&json!({ "model": "proof", "choices": [last] })));
    events.push_back(event(
        &json!({ "model": "proof", "choices": [], "usage": usage }),
    ));
    events.push_back("data: [DONE]\n\n".to_owned());
    events
}
