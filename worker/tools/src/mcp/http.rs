//! The transport to a server over streamable HTTP.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mainspring_runtime::telemetry::TRACEPARENT;
use mainspring_shared::secrets::Secrets;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use rmcp::model::{ClientJsonRpcMessage, GetMeta as _, JsonRpcMessage};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::{BoxedSseResponse, ExponentialBackoff};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, StreamableHttpClient,
    StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::Value;

use super::credentials::{Credentials, Headers, KnownSecrets};
use super::post::{self, Post};
use super::settings::{address, is_loopback};

/// Covers everything from the first packet to the end of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum concurrent requests to one server.
const REQUESTS_MAX: usize = 256;

/// Retries of a broken event stream: a few seconds' worth, since a call may be waiting for it.
const STREAM_ATTEMPTS_MAX: usize = 5;
const STREAM_WAIT_BASE: Duration = Duration::from_millis(200);
const STREAM_WAIT_MAX: Duration = Duration::from_secs(2);

/// Bytes of one event.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// A transport to the server at `url`, which may quote the secrets; an error says what is wrong.
pub(super) fn transport(
    url: &str,
    credentials: Arc<Credentials>,
    secrets: KnownSecrets,
) -> Result<StreamableHttpClientTransport<Requests>, String> {
    let target = address(url).ok_or("its URL is not one of http or https")?;
    let mut streams = ExponentialBackoff::default();
    streams.max_times = Some(STREAM_ATTEMPTS_MAX);
    streams.base_duration = STREAM_WAIT_BASE;
    streams.max_delay = Some(STREAM_WAIT_MAX);
    let mut config = StreamableHttpClientTransportConfig::with_uri(target.as_str())
        .max_concurrent_requests(REQUESTS_MAX);
    config.retry_config = Arc::new(streams);
    // A server that has forgotten a session gets a new connection: calls over the old one may still be answered, and
    // the tools are listed again.
    config.reinit_on_expired_session = false;
    let client = client(&target).map_err(|error| {
        tracing::error!(%error, "could not create the HTTP client for an MCP server");
        "this worker has no HTTP client"
    })?;
    let requests = Requests {
        client,
        credentials,
        secrets,
    };
    Ok(StreamableHttpClientTransport::with_client(requests, config))
}

/// A client for one server. It follows no redirects, which would carry the headers elsewhere.
fn client(target: &Url) -> Result<Client, reqwest::Error> {
    let mut builder = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .user_agent(concat!("mainspring/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT);
    if is_loopback(target) {
        builder = builder.no_proxy();
    }
    builder.build()
}

/// Requests as the protocol defines them. Their errors can be shown; results are sealed; headers are
/// read again when the server refuses them; and the event stream of a session that the server has
/// forgotten is not requested again, so that a call that waits for it fails at once, not after all
/// attempts.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    pub(super) client: Client,
    pub(super) credentials: Arc<Credentials>,
    /// Secrets that the server knows, may quote, and nobody else may see.
    secrets: KnownSecrets,
}

pub(super) type Outcome<T> = Result<T, Error>;

pub(super) type Error = StreamableHttpError<reqwest::Error>;

/// Why there are no headers for a request, which is not made then.
#[derive(Debug)]
pub(super) struct NoCredentials(pub(super) String);

impl fmt::Display for NoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoCredentials {}

pub(super) fn of_credentials(why: String) -> Error {
    StreamableHttpError::Io(std::io::Error::other(NoCredentials(why)))
}

/// The error without the URL, which may contain a key, and with secrets hidden in what the server
/// quotes: errors of this kind end up in logs.
fn presentable(error: Error, secrets: &Secrets) -> Error {
    match error {
        StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
        StreamableHttpError::UnexpectedServerResponse(said) => {
            StreamableHttpError::UnexpectedServerResponse(secrets.hidden(&said).into())
        }
        StreamableHttpError::UnexpectedContentType(said) => {
            let said = said.map(|said| secrets.hidden(&said));
            StreamableHttpError::UnexpectedContentType(said)
        }
        StreamableHttpError::AuthRequired(error) => {
            let said = secrets.hidden(&error.www_authenticate_header);
            StreamableHttpError::AuthRequired(AuthRequiredError::new(said))
        }
        StreamableHttpError::InsufficientScope(error) => {
            let said = secrets.hidden(&error.www_authenticate_header);
            let scope = error.required_scope.map(|scope| secrets.hidden(&scope));
            StreamableHttpError::InsufficientScope(InsufficientScopeError::new(said, scope))
        }
        other => other,
    }
}

/// The error of a request for an event stream: if the stream is gone, one that ends all retries.
fn of_stream(error: Error, secrets: &Secrets) -> Error {
    let gone = |status| matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE);
    match error {
        StreamableHttpError::Client(error) if error.status().is_some_and(gone) => {
            StreamableHttpError::ServerDoesNotSupportSse
        }
        other => presentable(other, secrets),
    }
}

/// The headers of a message, with the trace of its call: the task that posts it is not the one that
/// makes the call.
fn joined(mut headers: Headers, message: &ClientJsonRpcMessage) -> Headers {
    let traceparent = match message {
        JsonRpcMessage::Request(request) => request.request.get_meta().0.0.get(TRACEPARENT),
        _ => None,
    };
    let value = traceparent
        .and_then(Value::as_str)
        .map(HeaderValue::from_str);
    if let Some(Ok(value)) = value {
        headers.insert(HeaderName::from_static(TRACEPARENT), value);
    }
    headers
}

impl StreamableHttpClient for Requests {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> Outcome<StreamableHttpPostResponse> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session,
            token,
            headers,
            EVENT_BYTES_MAX,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: Headers,
        event_bytes_max: usize,
    ) -> Outcome<StreamableHttpPostResponse> {
        let post = Post {
            uri: &uri,
            headers: joined(headers, &message),
            message: &message,
            session: session.as_deref(),
            event_bytes_max,
        };
        let answer = self.post(post).await;
        answer.map_err(|error| presentable(error, &self.secrets.now()))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Outcome<()> {
        let headers = self.with_own(headers).await?;
        let answer = self.client.delete_session(uri, session, token, headers);
        let answer = answer.await;
        answer.map_err(|error| presentable(error, &self.secrets.now()))
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Outcome<BoxedSseResponse> {
        let bytes = EVENT_BYTES_MAX;
        self.get_stream_with_max_sse_event_size(uri, session, last_event_id, token, headers, bytes)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        token: Option<String>,
        headers: Headers,
        event_bytes_max: usize,
    ) -> Outcome<BoxedSseResponse> {
        let headers = self.with_own(headers).await?;
        let stream = self.client.get_stream_with_max_sse_event_size(
            uri,
            session,
            last_event_id,
            token,
            headers,
            event_bytes_max,
        );
        match stream.await {
            Ok(stream) => Ok(post::sealed(stream, None)),
            Err(error) => Err(of_stream(error, &self.secrets.now())),
        }
    }
}

impl Requests {
    /// The headers of the protocol, with those of this server.
    async fn with_own(&self, headers: Headers) -> Outcome<Headers> {
        let (mut own, _) = self.credentials.headers().await.map_err(of_credentials)?;
        own.extend(headers);
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{
        ClientRequest, CustomRequest, JsonObject, MetaObject, NumberOrString, PingRequest,
        RequestMetaObject,
    };

    use super::*;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn header(request: ClientRequest) -> Option<String> {
        let message = ClientJsonRpcMessage::request(request, NumberOrString::Number(1));
        let headers = joined(Headers::new(), &message);
        let header = headers.get(&HeaderName::from_static(TRACEPARENT))?;
        Some(header.to_str().expect("ASCII").to_owned())
    }

    #[test]
    fn a_call_has_its_trace_in_a_header_and_nothing_else_has() {
        let call = |meta: Option<RequestMetaObject>| {
            let mut request = CustomRequest::new("tools/call", None);
            request.extensions.insert(meta.unwrap_or_default());
            header(ClientRequest::CustomRequest(request))
        };
        let mut meta = JsonObject::new();
        meta.insert(TRACEPARENT.to_owned(), TRACE.into());
        let meta = RequestMetaObject(MetaObject(meta));
        assert_eq!(call(Some(meta)).as_deref(), Some(TRACE));
        assert_eq!(call(None), None);
        assert_eq!(
            header(ClientRequest::PingRequest(PingRequest::default())),
            None
        );
    }
}
