//! The transport to a server over streamable HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mainspring_runtime::telemetry::TRACEPARENT;
use mainspring_shared::secrets::Secrets;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, JsonRpcRequest};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::{BoxedSseResponse, ExponentialBackoff};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, StreamableHttpClient,
    StreamableHttpClientTransportConfig, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::Value;

use super::settings::{address, header, is_loopback};
use mainspring_worker::llm::Secret;

/// Covers everything from the first packet to the end of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum concurrent requests to one server.
const REQUESTS_MAX: usize = 256;

/// Retries of a broken event stream: a few seconds' worth, since a call may be waiting for it.
const STREAM_ATTEMPTS_MAX: usize = 5;
const STREAM_WAIT_BASE: Duration = Duration::from_millis(200);
const STREAM_WAIT_MAX: Duration = Duration::from_secs(2);

/// A transport to the server at `url`, which may quote `secrets`; an error says what is wrong.
pub(super) fn transport(
    url: &str,
    headers: &[(String, Secret)],
    secrets: Secrets,
) -> Result<StreamableHttpClientTransport<Requests>, String> {
    let target = address(url).ok_or("its URL is not one of http or https")?;
    let custom: HashMap<HeaderName, HeaderValue> = headers
        .iter()
        .filter_map(|(name, value)| header(name, value))
        .collect();
    let mut streams = ExponentialBackoff::default();
    streams.max_times = Some(STREAM_ATTEMPTS_MAX);
    streams.base_duration = STREAM_WAIT_BASE;
    streams.max_delay = Some(STREAM_WAIT_MAX);
    let mut config = StreamableHttpClientTransportConfig::with_uri(target.as_str())
        .max_concurrent_requests(REQUESTS_MAX)
        .custom_headers(custom);
    config.retry_config = Arc::new(streams);
    let client = client(&target).map_err(|error| {
        tracing::error!(%error, "could not create the HTTP client for an MCP server");
        "this worker has no HTTP client"
    })?;
    let requests = Requests { client, secrets };
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

/// Requests as the protocol defines them, with two differences: their errors can be shown, and the
/// event stream of a session that the server has forgotten is not requested again. A call that
/// waits for such a stream fails at once, not after all attempts.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    client: Client,
    /// Secrets that the server knows, may quote, and nobody else may see.
    secrets: Secrets,
}

type Outcome<T> = Result<T, Error>;
type Headers = HashMap<HeaderName, HeaderValue>;

type Error = StreamableHttpError<reqwest::Error>;

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
        JsonRpcMessage::Request(JsonRpcRequest {
            request: ClientRequest::CallToolRequest(call),
            ..
        }) => call
            .params
            .meta
            .as_ref()
            .and_then(|meta| meta.0.0.get(TRACEPARENT)),
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
        let headers = joined(headers, &message);
        let answer = self
            .client
            .post_message(uri, message, session, token, headers);
        answer
            .await
            .map_err(|error| presentable(error, &self.secrets))
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        event_bytes_max: usize,
    ) -> Outcome<StreamableHttpPostResponse> {
        let headers = joined(headers, &message);
        let answer = self.client.post_message_with_max_sse_event_size(
            uri,
            message,
            session,
            token,
            headers,
            event_bytes_max,
        );
        answer
            .await
            .map_err(|error| presentable(error, &self.secrets))
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> Outcome<()> {
        let answer = self.client.delete_session(uri, session, token, headers);
        answer
            .await
            .map_err(|error| presentable(error, &self.secrets))
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event_id: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> Outcome<BoxedSseResponse> {
        let stream = self
            .client
            .get_stream(uri, session, last_event_id, token, headers);
        stream
            .await
            .map_err(|error| of_stream(error, &self.secrets))
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
        let stream = self.client.get_stream_with_max_sse_event_size(
            uri,
            session,
            last_event_id,
            token,
            headers,
            event_bytes_max,
        );
        stream
            .await
            .map_err(|error| of_stream(error, &self.secrets))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{
        CallToolRequestParams, JsonObject, MetaObject, NumberOrString, PingRequest, Request,
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
        let call = |meta| {
            let mut params = CallToolRequestParams::new("tell");
            params.meta = meta;
            header(ClientRequest::CallToolRequest(Request::new(params)))
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
