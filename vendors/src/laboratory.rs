//! Emulators behind one address.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde::Serialize;
use serde_json::{Value, json};

use crate::catalogue;
use crate::emulator::{Emulator, Reply, ReplyBody};

/// The most bytes of a request.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Emulators by the name that their paths begin with.
#[derive(Debug, Clone, Default)]
pub struct Laboratory {
    emulators: BTreeMap<String, Arc<Emulator>>,
    /// The one that answers paths without a name.
    alone: Option<String>,
}

impl Laboratory {
    /// These vendors, each below `/NAME`; a single one answers without its name, too.
    ///
    /// # Errors
    ///
    /// Nobody knows one of the names.
    pub fn of(names: &[&str], window: Option<u64>) -> anyhow::Result<Self> {
        let mut laboratory = Self::default();
        for name in names {
            laboratory.add(name, window)?;
        }
        if let [name] = names {
            laboratory.alone = Some((*name).to_owned());
        }
        Ok(laboratory)
    }

    /// All vendors.
    ///
    /// # Errors
    ///
    /// A file is not as it should be.
    pub fn all(window: Option<u64>) -> anyhow::Result<Self> {
        Self::of(&catalogue::names(), window)
    }

    fn add(&mut self, name: &str, window: Option<u64>) -> anyhow::Result<()> {
        if self.emulators.contains_key(name) {
            return Ok(());
        }
        let rules = catalogue::load(name)?;
        let beside = rules.beside.clone();
        let emulator = Emulator::new(rules).with_window(window);
        self.emulators.insert(name.to_owned(), Arc::new(emulator));
        beside.iter().try_for_each(|other| self.add(other, window))
    }

    /// The emulator of a vendor.
    pub fn emulator(&self, name: &str) -> Option<&Arc<Emulator>> {
        self.emulators.get(name)
    }

    /// All of them.
    pub fn emulators(&self) -> impl Iterator<Item = &Arc<Emulator>> {
        self.emulators.values()
    }

    /// Serves until the future that runs it is dropped.
    ///
    /// # Errors
    ///
    /// The listener fails.
    pub async fn serve(self, listener: tokio::net::TcpListener) -> std::io::Result<()> {
        axum::serve(listener, self.router()).await
    }

    /// The same as a router.
    pub fn router(self) -> Router {
        Router::new()
            .fallback(handle)
            .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(self)
    }

    /// The emulators that a path is about, and the rest of the path.
    fn about<'a>(&self, path: &'a str) -> (Vec<&Arc<Emulator>>, &'a str) {
        let trimmed = path.trim_start_matches('/');
        let (first, rest) = trimmed.split_once('/').unwrap_or((trimmed, ""));
        if let Some(emulator) = self.emulators.get(first) {
            return (self.family(emulator), rest);
        }
        match self
            .alone
            .as_ref()
            .and_then(|name| self.emulators.get(name))
        {
            Some(emulator) => (self.family(emulator), trimmed),
            None => (self.emulators.values().collect(), trimmed),
        }
    }

    fn family<'a>(&'a self, emulator: &'a Arc<Emulator>) -> Vec<&'a Arc<Emulator>> {
        let beside = emulator.rules().beside.iter();
        let mut family = vec![emulator];
        family.extend(beside.filter_map(|name| self.emulators.get(name)));
        family
    }
}

async fn handle(
    State(laboratory): State<Laboratory>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (emulators, rest) = laboratory.about(uri.path());
    if method == Method::POST {
        let asked = emulators
            .iter()
            .find(|emulator| format!("/{rest}").ends_with(&emulator.rules().path));
        return match asked {
            Some(emulator) => respond(emulator.ask(&plain(&headers), &body)),
            None => (StatusCode::NOT_FOUND, "no such path\n").into_response(),
        };
    }
    match (method, rest) {
        (Method::GET, "ledger") => rows(&emulators, Emulator::ledger),
        (Method::GET, "judgements") => rows(&emulators, Emulator::judgements),
        (Method::DELETE, "judgements") => {
            for emulator in emulators {
                emulator.clear_judgements();
            }
            StatusCode::NO_CONTENT.into_response()
        }
        (Method::GET, path) if path.ends_with("models") => models(&emulators),
        _ => (StatusCode::NOT_FOUND, "no such path\n").into_response(),
    }
}

fn rows<T: Serialize>(emulators: &[&Arc<Emulator>], of: impl Fn(&Emulator) -> Vec<T>) -> Response {
    let rows: Vec<T> = emulators.iter().flat_map(|emulator| of(emulator)).collect();
    axum::Json(rows).into_response()
}

fn models(emulators: &[&Arc<Emulator>]) -> Response {
    let list: Vec<Value> = emulators
        .iter()
        .flat_map(|emulator| &emulator.rules().model)
        .map(|model| json!({"id": model.name, "object": "model", "owned_by": "emulator"}))
        .collect();
    axum::Json(json!({"object": "list", "data": list})).into_response()
}

fn plain(headers: &HeaderMap) -> BTreeMap<String, String> {
    headers
        .iter()
        .filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        })
        .collect()
}

fn respond(reply: Reply) -> Response {
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(name, value);
    }
    let response = match reply.body {
        ReplyBody::Whole(body) => response
            .header("content-type", "application/json")
            .body(Body::from(body)),
        ReplyBody::Stream { frames, broken } => {
            let end = broken.then(|| Err(std::io::Error::other("cut on demand")));
            let frames = frames.into_iter().map(|frame| Ok(Bytes::from(frame)));
            response
                .header("content-type", "text/event-stream")
                .body(Body::from_stream(stream::iter(frames.chain(end))))
        }
    };
    response.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
