//! An HTTP server for tools, in this process: a ledger of side effects, independent of what the
//! system reports.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::{between, pause};
use crate::fake_model::listen;

/// Any free port on the loopback interface.
const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// One execution of a tool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SideEffect {
    /// The tool.
    pub tool: String,
    /// The `Idempotency-Key` of the request.
    pub key: String,
    /// The `mark` or `title` argument, by which the caller identifies the call.
    pub mark: String,
}

type Ledger = Arc<Mutex<Vec<SideEffect>>>;

/// The server. It takes `POST /TOOL`, works for up to 150 ms and answers `TOOL did MARK`.
#[derive(Debug)]
pub struct SideEffects {
    address: SocketAddr,
    ledger: Ledger,
    task: JoinHandle<io::Result<()>>,
}

impl SideEffects {
    /// Starts it on a free port, on the current runtime.
    pub fn start() -> io::Result<Self> {
        let listener = listen(ANY_PORT)?;
        let address = listener.local_addr()?;
        let ledger = Ledger::default();
        let router = Router::new()
            .route("/{tool}", post(act))
            .with_state(ledger.clone());
        let serve = async move { axum::serve(listener, router).await };
        Ok(Self {
            address,
            ledger,
            task: tokio::spawn(serve),
        })
    }

    /// The URL of a tool.
    pub fn url(&self, tool: &str) -> String {
        format!("http://{}/{tool}", self.address)
    }

    /// How often each side effect happened.
    pub fn times(&self) -> BTreeMap<SideEffect, usize> {
        let mut times = BTreeMap::new();
        for side_effect in locked(&self.ledger).iter() {
            *times.entry(side_effect.clone()).or_default() += 1;
        }
        times
    }
}

impl Drop for SideEffects {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn locked(ledger: &Ledger) -> MutexGuard<'_, Vec<SideEffect>> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn act(
    State(ledger): State<Ledger>,
    Path(tool): Path<String>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let key = headers.get("idempotency-key").and_then(|v| v.to_str().ok());
    let arguments = &body["arguments"];
    let mark = arguments["mark"].as_str().or(arguments["title"].as_str());
    let (Some(key), Some(mark)) = (key, mark) else {
        return (StatusCode::BAD_REQUEST, "a key and a mark are missing").into_response();
    };
    // Recorded at the start, because an execution that is cut off may still have had its effect.
    locked(&ledger).push(SideEffect {
        tool: tool.clone(),
        key: key.to_owned(),
        mark: mark.to_owned(),
    });
    let did = format!("{tool} did {mark}");
    pause(between(Duration::ZERO, Duration::from_millis(150))).await;
    did.into_response()
}
