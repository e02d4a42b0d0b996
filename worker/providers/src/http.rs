//! One attempt over HTTP, independent of the protocol above it.
//!
//! Thousands of attempts wait at once, so each keeps little memory. HTTP/1.1 only: with HTTP/2 the
//! pool would put all streams on one connection and block when the provider's limit on streams,
//! often 100, is reached. The request's body is freed once it is written, and the bytes of an
//! answer are dropped as they are read.

mod client;
mod upload;

use std::error::Error as _;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt as _, TryFutureExt as _};
use http_body_util::Full;
use mainspring_shared::time::Clock;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, Url};
use serde_json::Value;
use tokio::time::timeout;

use crate::amend::{Amends, Protocol};
use crate::answer::{ANSWER_BYTES_MAX, ChunkSink, Source, too_large};
use crate::exact;
use crate::extra::RequestExtra;
use crate::gate::Gate;
use crate::open::SetupError;
use crate::rules::{RuleBook, Rules};
use crate::settings::{Kind, ProviderSettings};
use crate::sse;
use crate::status::{ProviderSecrets, Refusal, classify, header_wait};
use mainspring_worker::llm::{Error, Wait};
use mainspring_worker::llm::{Request, json};

pub(crate) use client::client;

/// How much of a refusal is read: enough for its error object.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// How long to wait for a refusal's body, and for the end of a stream after its last event.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);
const STREAM_END_TIMEOUT: Duration = Duration::from_millis(25);

/// Reads answers in one protocol.
pub(super) trait Reader: Send {
    /// Reads one event of a stream.
    fn event(&mut self, event: &str, data: &str, sink: &mut ChunkSink<'_>) -> Result<(), Error>;

    /// Reads a whole answer.
    fn whole(&mut self, body: &Value, sink: &mut ChunkSink<'_>) -> Result<(), Error>;

    /// Whether the end marker of the stream was read.
    fn ended(&self) -> bool;

    /// Whether nothing would be missing if the stream ended here.
    fn complete(&self) -> bool;
}

/// The address of a provider, and how to call it.
pub(super) struct Endpoint {
    client: Client,
    url: Url,
    place: String,
    headers: HeaderMap,
    told: ProviderSecrets,
    stream: bool,
    timeouts: Timeouts,
    uploads: upload::Uploads,
    extra: RequestExtra,
    amends: Amends,
    rules: RuleBook,
    gate: Arc<Gate>,
    clock: Arc<dyn Clock>,
}

/// The time limits of an answer and its parts.
struct Timeouts {
    first_byte: Duration,
    idle: Duration,
    attempt: Duration,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("host", &self.url.host_str())
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// An endpoint at `path` below `base`, which sends `headers` in addition to the provider's own.
    pub(super) fn new(
        settings: &ProviderSettings,
        base: &str,
        path: &str,
        headers: &[(&str, String)],
        (gate, clock): (&Arc<Gate>, &Arc<dyn Clock>),
    ) -> Result<Self, SetupError> {
        let url = Url::parse(&format!("{}{path}", base.trim_end_matches('/')))
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| SetupError::BaseUrl {
                provider: settings.name.clone(),
            })?;
        let place = place(&url, path);
        let accept = if settings.stream {
            "text/event-stream"
        } else {
            "application/json"
        };
        let mut map = HeaderMap::new();
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        map.insert(ACCEPT, HeaderValue::from_static(accept));
        let own = settings
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose()));
        for (name, value) in headers.iter().map(|(n, v)| (*n, v.as_str())).chain(own) {
            let refused = || SetupError::Header {
                provider: settings.name.clone(),
                header: name.to_owned(),
            };
            let name = HeaderName::try_from(name).map_err(|_| refused())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| refused())?;
            value.set_sensitive(true);
            map.insert(name, value);
        }
        let host = url.host_str().unwrap_or_default();
        let rules = RuleBook::new(settings.kind, host, url.port(), &settings.rules);
        Ok(Self {
            client: client(settings, &url)?,
            told: ProviderSecrets::of(settings, url.as_str()),
            place,
            url,
            headers: map,
            stream: settings.stream,
            timeouts: Timeouts {
                first_byte: settings.first_byte_timeout,
                idle: settings.idle_timeout,
                attempt: settings.attempt_timeout,
            },
            uploads: upload::Uploads::new(),
            extra: settings.extra.clone(),
            amends: Amends::new(&settings.name, protocol(path)),
            rules,
            gate: Arc::clone(gate),
            clock: Arc::clone(clock),
        })
    }

    /// Whether answers are requested as streams.
    pub(super) fn streams(&self) -> bool {
        self.stream
    }

    /// The clock.
    pub(super) fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// The host, with the port and the path where one host may have several endpoints: whose an answer's attachments
    /// are.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// The rules for a model.
    pub(super) fn rules(&self, model: &str) -> Arc<Rules> {
        self.rules.of(model)
    }

    /// Where its answers come from, by this protocol.
    pub(super) fn source(&self, kind: Kind) -> Source<'_> {
        Source {
            told: &self.told,
            protocol: kind.as_str(),
            host: &self.place,
        }
    }

    /// The error for an error object inside an answer.
    pub(super) fn refusal(told: &ProviderSecrets, error: &Value) -> Error {
        super::status::classify_inside(&Refusal::from_value(error, told))
    }

    /// Sends the `body` of `request` and feeds the answer to `reader`, all within the attempt's
    /// time limit. If it returns without an error, the reader has a complete answer.
    pub(super) async fn ask(
        &self,
        request: &Request,
        body: &(dyn Fn() -> Result<Vec<u8>, Error> + Sync),
        reader: &mut dyn Reader,
        sink: &mut ChunkSink<'_>,
    ) -> Result<(), Error> {
        let model = &request.model;
        let authors = request.model_options.as_deref();
        let plain = || self.extra.add(model, authors, body()?);
        self.attempt(async {
            let room = self.uploads.room(request).await;
            let sent = self.amends.amended(model, plain()?);
            let sent = self.send(model, upload::body(sent, room));
            // Boxed, so that the long wait for an answer's chunks holds no memory for the state of
            // the request.
            let answered = match Box::pin(sent).await {
                Ok(response) => self.read(response, reader, sink).await.map_err(inside),
                Err(unanswered) => Err(unanswered),
            };
            match answered {
                Ok(()) => {
                    self.amends.went_through(model, || plain().ok());
                    Ok(())
                }
                Err(Unanswered::Broken(error)) => Err(error),
                Err(Unanswered::Refused(refused)) => {
                    let said = (refused.status, &refused.refusal);
                    let judged = if refused.is_explained() {
                        None
                    } else {
                        self.amends.judge(request, &plain()?, said)
                    };
                    Err(judged.unwrap_or(refused.error))
                }
            }
        })
        .await
    }

    /// Does work within the time limit of an attempt.
    pub(super) fn attempt<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> impl Future<Output = Result<T, Error>> {
        within(self.timeouts.attempt, Wait::End, work).map(|ended| ended.and_then(|answer| answer))
    }

    /// Feeds an answer to `reader`.
    pub(super) async fn read(
        &self,
        mut response: Response,
        reader: &mut dyn Reader,
        sink: &mut ChunkSink<'_>,
    ) -> Result<(), Error> {
        if self.is_stream(&response)? {
            // Headers are slices of the buffer that they were read into: 8 KiB for as long as the
            // answer takes.
            drop(std::mem::take(response.headers_mut()));
            return self.read_stream(&mut response, reader, sink).await;
        }
        let body = read_whole(&mut response).await?;
        let text = String::from_utf8_lossy(&body);
        let value = exact::parse(&text).ok().or_else(|| json::parse(&text));
        let value = value.ok_or_else(|| Error::bad("the body is not JSON"))?;
        reader.whole(&value, sink)
    }

    /// A request to a URL below this endpoint, with its headers.
    pub(super) fn below(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
    ) -> RequestBuilder {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        let request = self.client.request(method, url);
        request.headers(self.headers.clone()).query(query)
    }

    /// Sends a request and returns the response, or the error that it stands for.
    pub(super) async fn response(
        &self,
        model: &str,
        request: RequestBuilder,
    ) -> Result<Response, Error> {
        let answered = self.answered(model, request).await;
        answered.map_err(|unanswered| match unanswered {
            Unanswered::Broken(error) => error,
            Unanswered::Refused(refused) => refused.error,
        })
    }

    async fn answered(&self, model: &str, request: RequestBuilder) -> Result<Response, Unanswered> {
        let sent = Box::pin(request.send());
        let response = if self.stream {
            within(self.timeouts.first_byte, Wait::FirstByte, sent).await?
        } else {
            sent.await
        };
        let response = response.map_err(|error| broken(&error))?;
        self.gate.learn(model, response.headers());
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let headers = response.headers();
        let now = self.clock.now();
        let wait = header_wait(status.as_u16(), headers, now);
        let body = timeout(REFUSAL_TIMEOUT, read_refusal(response))
            .await
            .unwrap_or_default();
        let status = status.as_u16();
        let refusal = Refusal::from_body(&body, &self.told, now);
        let error = classify(status, &refusal, wait);
        Err(Unanswered::refused(status, refusal, error))
    }

    /// A request's body with the additional members of the configuration and of the agent, and with
    /// everything that was learned from refusals.
    pub(super) fn whole_body(
        &self,
        request: &Request,
        body: Result<Vec<u8>, Error>,
    ) -> Result<Vec<u8>, Error> {
        let authors = request.model_options.as_deref();
        let body = self.extra.add(&request.model, authors, body?)?;
        Ok(self.amends.amended(&request.model, body))
    }

    async fn send(&self, model: &str, body: Bytes) -> Result<Response, Unanswered> {
        // Unlike plain bytes, a wrapped body cannot be cloned: nothing keeps it for a retry, and it
        // is freed while the answer is awaited.
        let body = reqwest::Body::wrap(Full::new(body));
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .body(body);
        self.answered(model, request).await
    }

    /// Decided by the response's content type, since some servers ignore what was requested.
    fn is_stream(&self, response: &Response) -> Result<bool, Error> {
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default();
        match content_type.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => Ok(true),
            "application/json" => Ok(false),
            "text/html" => Err(Error::bad("it is an HTML page")),
            _ => Ok(self.stream),
        }
    }

    async fn read_stream(
        &self,
        response: &mut Response,
        reader: &mut dyn Reader,
        sink: &mut ChunkSink<'_>,
    ) -> Result<(), Error> {
        let mut parser = sse::Parser::new(ANSWER_BYTES_MAX);
        let (mut bytes, mut events) = (0usize, 0usize);
        loop {
            let read = within(self.timeouts.idle, Wait::NextByte, response.chunk()).await;
            let piece = match read {
                // The connection may break between the last important event and the end marker.
                Err(_) | Ok(Err(_) | Ok(None)) if reader.complete() => return Ok(()),
                Err(silence) => return Err(silence),
                Ok(Err(error)) => return Err(broken(&error)),
                Ok(Ok(None)) if bytes > 0 && events == 0 => {
                    return Err(Error::bad("it is not an event stream"));
                }
                Ok(Ok(None)) => {
                    return Err(Error::unavailable("the stream ended before the answer"));
                }
                Ok(Ok(Some(piece))) => piece,
            };
            bytes = bytes.saturating_add(piece.len());
            parser.push(&piece, &mut |event: &str, data: &str| {
                events += 1;
                if reader.ended() {
                    Ok(())
                } else {
                    reader.event(event, data, sink)
                }
            })?;
            if reader.ended() {
                // After a stream is read to its very end, the connection can be reused.
                let _ = timeout(STREAM_END_TIMEOUT, response.chunk()).await;
                return Ok(());
            }
        }
    }
}

/// Why there is no answer.
enum Unanswered {
    Broken(Error),
    /// Boxed, so that the way of an answer holds no memory for it.
    Refused(Box<Refused>),
}

struct Refused {
    status: u16,
    refusal: Refusal,
    error: Error,
}

impl Refused {
    /// Whether the provider's words say what is wrong, and that it is no part of the request.
    fn is_explained(&self) -> bool {
        let known = matches!(
            self.error,
            Error::ContextOverflow { .. }
                | Error::Auth { .. }
                | Error::Refused { .. }
                | Error::RateLimited { .. }
                | Error::ModelGone { .. }
                | Error::BadResponse { .. }
        );
        // A lower token limit may fit into the minute, and fewer pictures into what a body may have.
        known && self.status != 413 && !self.refusal.has(&["request too large for"])
    }
}

impl Unanswered {
    fn refused(status: u16, refusal: Refusal, error: Error) -> Self {
        Self::Refused(Box::new(Refused {
            status,
            refusal,
            error,
        }))
    }
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

/// A refusal inside an answer is one of the request.
fn inside(error: Error) -> Unanswered {
    match &error {
        Error::InvalidRequest { message } => {
            Unanswered::refused(400, Refusal::said(message), error)
        }
        _ => Unanswered::Broken(error),
    }
}

/// The host of a URL, with its port and with the path before the protocol's own, where that is more than a version.
fn place(url: &Url, path: &str) -> String {
    let mut place = url.host_str().unwrap_or_default().to_owned();
    if let Some(port) = url.port() {
        place.push(':');
        place.push_str(&port.to_string());
    }
    let base = url.path().strip_suffix(path).unwrap_or_default();
    if !matches!(base, "" | "/" | "/v1") {
        place.push_str(base);
    }
    place
}

/// The form of the requests at a path.
fn protocol(path: &str) -> Protocol {
    match path {
        "/responses" => Protocol::Responses,
        "/v1/messages" => Protocol::Messages,
        _ => Protocol::Chat,
    }
}

/// Not an `async fn`, which would hold memory for the work twice.
fn within<T>(
    limit: Duration,
    wait: Wait,
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Error>> {
    timeout(limit, work).map_err(move |_| Error::Timeout { wait, limit })
}

async fn read_whole(response: &mut Response) -> Result<Vec<u8>, Error> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| broken(&error))? {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err(too_large());
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

async fn read_refusal(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        let room = REFUSAL_BYTES_MAX - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if body.len() == REFUSAL_BYTES_MAX {
            break;
        }
    }
    body
}

/// Describes a connection failure without addresses, which may contain a proxy's credentials.
fn broken(error: &reqwest::Error) -> Error {
    let mut source = error.source();
    let mut kind = None;
    while let Some(inner) = source {
        kind = inner
            .downcast_ref::<io::Error>()
            .map(io::Error::kind)
            .or(kind);
        source = inner.source();
    }
    let what = if error.is_connect() && error.is_timeout() {
        "connecting took too long"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the connection broke"
    };
    let message = match kind {
        _ if error.is_connect() && error.is_timeout() => what.to_owned(),
        Some(kind) if kind != io::ErrorKind::Other => format!("{what}: {kind}"),
        _ => what.to_owned(),
    };
    if error.is_connect() {
        Error::Unreached {
            message,
            retry_after: None,
        }
    } else {
        Error::unavailable(message)
    }
}
