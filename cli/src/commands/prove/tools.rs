//! Tools on this machine that count their calls.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::post;
use axum::{Json, Router};
use mainspring_runtime::SystemClock;
use mainspring_shared::time::Clock;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// One call that arrived.
#[derive(Debug, Clone)]
pub(super) struct Called {
    pub(super) name: String,
    /// Its Idempotency-Key.
    pub(super) key: String,
    pub(super) arguments: Value,
}

#[derive(Debug)]
struct Shared {
    called: Mutex<Vec<Called>>,
    /// How long a call takes.
    takes: Duration,
    clock: SystemClock,
}

impl Shared {
    fn called(&self) -> MutexGuard<'_, Vec<Called>> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server of the tools; it ends when dropped.
#[derive(Debug)]
pub(super) struct Tools {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<io::Result<()>>,
}

impl Tools {
    /// Starts it on a free port.
    pub(super) async fn start(takes: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            called: Mutex::default(),
            takes,
            clock: SystemClock::new(),
        });
        let router = Router::new()
            .route("/{name}", post(call))
            .with_state(shared.clone());
        let serve = async move { axum::serve(listener, router).await };
        Ok(Self {
            address,
            shared,
            task: tokio::spawn(serve),
        })
    }

    /// A tool of an agent, as it is declared.
    pub(super) fn declared(&self, name: &str, repeat: &str) -> Value {
        json!({
            "type": "http", "name": name, "url": format!("http://{}/{name}", self.address),
            "repeat": repeat, "description": format!("Does it: {name}."),
            "parameters": { "type": "object", "properties": { "what": { "type": "string" } } },
        })
    }

    /// The calls of one tool, in order.
    pub(super) fn of(&self, name: &str) -> Vec<Called> {
        let called = self.shared.called();
        called
            .iter()
            .filter(|called| called.name == name)
            .cloned()
            .collect()
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn call(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Json<Value> {
    let key = headers.get("idempotency-key");
    let key = key.and_then(|key| key.to_str().ok()).unwrap_or_default();
    // It has happened from here on, whoever is left to hear of it.
    shared.called().push(Called {
        name: name.clone(),
        key: key.to_owned(),
        arguments: body["arguments"].clone(),
    });
    shared.clock.sleep(shared.takes).await;
    Json(json!({ "done": name }))
}
