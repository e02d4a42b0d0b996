//! How requests reach a server.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};

/// Carries single requests to a server: over HTTP, or to one within this process. Repeats, deadlines and idempotency are
/// those of whoever calls it.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Makes one request, once. The answer's body may go on for as long as the caller reads it.
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, TransportError>>;
}

/// One request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The address of the server as the client was given it, without a `/` at its end.
    pub server: String,
    /// Path and query, which begin with `/`.
    pub path: String,
    /// The headers; `authorization` among them is a secret.
    pub headers: HeaderMap,
    /// The body, if not empty.
    pub body: Bytes,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
}

/// The answer to one request.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, which is yet to be read.
    pub body: Body,
}

/// A body that is still arriving.
pub struct Body(BoxStream<'static, Result<Bytes, TransportError>>);

impl Body {
    /// A body of these chunks. It has arrived whole if the stream ends without an error.
    pub fn new(
        chunks: impl futures::Stream<Item = Result<Bytes, TransportError>> + Send + 'static,
    ) -> Self {
        Self(chunks.boxed())
    }

    pub(crate) async fn chunk(&mut self) -> Option<Result<Bytes, TransportError>> {
        self.0.next().await
    }

    pub(crate) async fn whole(mut self) -> Result<Bytes, TransportError> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.chunk().await {
            whole.extend_from_slice(&chunk?);
        }
        Ok(whole.into())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}

/// Why there is no answer, or none that is whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    /// What happened, without secrets.
    pub message: String,
    /// Whether the server may have got the request.
    pub arrival: Arrival,
}

/// Whether a server may have got a request of which there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It has not: any request may be repeated.
    Never,
    /// Nobody knows: only what has an idempotency key, or does no harm if done twice, is repeated.
    Unknown,
    /// It has not, and no repeat will reach it.
    Closed,
}

impl TransportError {
    pub(crate) fn late() -> Self {
        Self {
            message: "nothing came in time".to_owned(),
            arrival: Arrival::Unknown,
        }
    }
}
