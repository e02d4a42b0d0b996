//! Tools behind a URL, in this process: a ledger of what was done outside, past the system's word.

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

/// Nobody but the loopback is called.
const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// What a tool did, once for each time that it was asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deed {
    /// The tool.
    pub tool: String,
    /// The `Idempotency-Key` of the request.
    pub key: String,
    /// The mark, or the title, in its arguments, by which the caller knows it.
    pub mark: String,
}

type Book = Arc<Mutex<Vec<Deed>>>;

/// The server. It takes `POST /TOOL`, works for up to 150 ms and answers `TOOL did MARK`.
#[derive(Debug)]
pub struct Deeds {
    address: SocketAddr,
    book: Book,
    task: JoinHandle<io::Result<()>>,
}

impl Deeds {
    /// Starts it on a free port of the present runtime.
    pub fn start() -> io::Result<Self> {
        let listener = listen(ANY_PORT)?;
        let address = listener.local_addr()?;
        let book = Book::default();
        let router = Router::new()
            .route("/{tool}", post(act))
            .with_state(book.clone());
        let serve = async move { axum::serve(listener, router).await };
        Ok(Self {
            address,
            book,
            task: tokio::spawn(serve),
        })
    }

    /// Where a tool is called.
    pub fn url(&self, tool: &str) -> String {
        format!("http://{}/{tool}", self.address)
    }

    /// How often each was done.
    pub fn times(&self) -> BTreeMap<Deed, usize> {
        let mut times = BTreeMap::new();
        for deed in locked(&self.book).iter() {
            *times.entry(deed.clone()).or_default() += 1;
        }
        times
    }
}

impl Drop for Deeds {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn locked(book: &Book) -> MutexGuard<'_, Vec<Deed>> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn act(
    State(book): State<Book>,
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
    // Noted when it begins: what was begun may have done its harm.
    locked(&book).push(Deed {
        tool: tool.clone(),
        key: key.to_owned(),
        mark: mark.to_owned(),
    });
    let did = format!("{tool} did {mark}");
    pause(between(Duration::ZERO, Duration::from_millis(150))).await;
    did.into_response()
}
