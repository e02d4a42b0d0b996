//! A fake provider for tests and benchmarks: all three protocols over a real socket, misbehaving on
//! demand.
//!
//! By default it answers `echo: <the last user text>`, or `results: <their texts>` to tool results.
//! Directives in the last user text change that; [`Script`] lists them. A script set for every
//! request provides defaults, which directives of the same name in a text replace. Each request is
//! recorded in the [`Ledger`], readable in the same process and, as JSON lines, from any other:
//!
//! | path | |
//! |---|---|
//! | `POST /v1/chat/completions`, `POST /v1/responses`, `POST /v1/messages` | the protocols, streaming or not |
//! | `GET /ledger` | every request so far; `?session=` and `?send=` filter; `DELETE` clears it |
//! | `GET /stats` | counts: requests, in flight now and at most |
//! | `PUT /script` | sets the script for every request from now on |

mod answer;
mod anthropic;
mod directive;
mod ledger;
mod openai;
mod prompt;
mod quota;
mod responses;
mod script;
mod steps;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use mainspring_runtime::SystemClock;
use mainspring_shared::time::Clock;
use serde::Deserialize;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;

pub use self::ledger::{End, Entry, Ledger, Stats};
pub use self::prompt::Protocol;
pub use self::quota::Counted;
pub use self::script::{Script, ScriptError};

/// The largest request body accepted.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Connections that may wait to be accepted; the kernel's own limit is usually lower.
const BACKLOG: u32 = 8_192;

/// How the server behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The default script of every request.
    pub script: Script,
    /// How many requests the ledger keeps; later ones are only counted. With 0 none are kept, and
    /// attempts are not counted either.
    pub ledger_entries_max: usize,
    /// Whether the ledger keeps whole bodies besides their hashes.
    pub keep_bodies: bool,
    /// If set, requests with any other key are refused with 401.
    pub api_key: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            script: Script::default(),
            ledger_entries_max: 1_000_000,
            keep_bodies: false,
            api_key: None,
        }
    }
}

#[derive(Debug)]
struct Shared {
    script: RwLock<Script>,
    ledger: Arc<Ledger>,
    api_key: Option<String>,
    quota: quota::Quota,
    clock: Arc<dyn Clock>,
}

impl Shared {
    fn new(options: Options) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let ledger = Ledger::new(
            options.ledger_entries_max,
            options.keep_bodies,
            Arc::clone(&clock),
        );
        Self {
            script: RwLock::new(options.script),
            ledger: Arc::new(ledger),
            api_key: options.api_key,
            quota: quota::Quota::default(),
            clock,
        }
    }

    fn script(&self) -> Script {
        self.script
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_script(&self, script: Script) {
        *self.script.write().unwrap_or_else(PoisonError::into_inner) = script;
    }

    fn knows(&self, headers: &HeaderMap) -> bool {
        let Some(key) = &self.api_key else {
            return true;
        };
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        text("x-api-key") == Some(key.as_str())
            || text("authorization").and_then(|v| v.strip_prefix("Bearer ")) == Some(key.as_str())
    }
}

/// A listener with a backlog for a burst of thousands of clients. With a shorter one the kernel
/// drops the excess connections, and each is retried only a second later.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves on `listener` until dropped, for programs that do nothing else; tests start a [`FakeModel`].
pub async fn serve(listener: TcpListener, options: Options) -> io::Result<()> {
    run(listener, Arc::new(Shared::new(options))).await
}

async fn run(listener: TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let router = Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/responses", post(responses_api))
        .route("/v1/messages", post(messages))
        .route_layer(from_fn_with_state(Arc::clone(&shared), quota::limit))
        .route("/ledger", get(read_ledger).delete(forget))
        .route("/stats", get(stats))
        .route("/script", put(set_script))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(shared);
    // Small writes are the point here: every chunk must be visible as soon as it is sent.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await
}

/// A server in this process, on a free port, that stops when dropped.
#[derive(Debug)]
pub struct FakeModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<io::Result<()>>,
}

impl FakeModel {
    /// Starts a server on the current Tokio runtime; it accepts connections once this returns.
    pub fn start(options: Options) -> io::Result<Self> {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(options));
        let task = tokio::spawn(run(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    /// The base URL for any kind of provider.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Every request so far.
    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// Sets the account's quota of requests per minute, starting nearly used up; `None` removes the
    /// limit.
    pub fn set_requests_per_minute(&self, limit: Option<u32>) {
        self.shared.quota.set(limit, self.shared.clock.monotonic());
    }

    /// What was answered and what refused since the limit was set.
    pub fn counted(&self) -> Counted {
        self.shared.quota.counted()
    }

    /// Changes the script for every request from now on, for example to start or end an outage.
    pub fn set_script(&self, script: Script) {
        self.shared.set_script(script);
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn chat_completions(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    answer::answer(&shared, Protocol::OpenAi, &headers, body).await
}

async fn responses_api(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    answer::answer(&shared, Protocol::Responses, &headers, body).await
}

async fn messages(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    answer::answer(&shared, Protocol::Anthropic, &headers, body).await
}

#[derive(Debug, Deserialize)]
struct Which {
    session: Option<String>,
    send: Option<String>,
}

async fn read_ledger(State(shared): State<Arc<Shared>>, Query(which): Query<Which>) -> Response {
    let wanted = |wish: &Option<String>, mark: &Option<String>| wish.is_none() || wish == mark;
    let mut lines = Vec::new();
    for entry in shared.ledger.entries() {
        if wanted(&which.session, &entry.session) && wanted(&which.send, &entry.send) {
            // Cannot fail: it serializes plain fields into memory.
            let _ = serde_json::to_writer(&mut lines, &entry);
            lines.push(b'\n');
        }
    }
    ([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response()
}

async fn forget(State(shared): State<Arc<Shared>>) -> StatusCode {
    shared.ledger.forget();
    StatusCode::NO_CONTENT
}

async fn stats(State(shared): State<Arc<Shared>>) -> Json<Stats> {
    Json(shared.ledger.stats())
}

async fn set_script(State(shared): State<Arc<Shared>>, text: String) -> Response {
    match text.parse() {
        Ok(script) => {
            shared.set_script(script);
            StatusCode::NO_CONTENT.into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}
