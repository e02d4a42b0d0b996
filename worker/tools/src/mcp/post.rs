//! One request to a server over HTTP, and what its answer means.

use std::io;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use reqwest::header::{
    ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, RequestId};
use rmcp::model::{ErrorCode, ServerJsonRpcMessage};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, StreamableHttpError, StreamableHttpPostResponse,
};
use serde_json::{Map, Value, json};
use sse_stream::SseStream;

use super::credentials::Headers;
use super::envelope;
use super::http::{Error, Outcome, Requests, of_credentials};

/// Bytes of a JSON answer, and of one that refuses.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Characters of a refusal's text that are kept.
const SAID_CHARS_MAX: usize = 300;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Words by which servers say that they do not know the session, or have not been initialized since
/// they were started. Only those that refuse the whole request are read, so a repeated request does
/// nothing twice.
const SESSION_GONE: [&str; 10] = [
    "not initialized",
    "not initialised",
    "session not found",
    "session expired",
    "session has expired",
    "unknown session",
    "invalid session",
    "no valid session",
    "session id not found",
    "session terminated",
];

/// The member of an error's data by which one is known that refuses a request because of its session.
pub(super) const SESSION_UNKNOWN: &str = "mainspring/session-unknown";

/// A message to post.
pub(super) struct Post<'a> {
    pub(super) uri: &'a str,
    pub(super) message: &'a ClientJsonRpcMessage,
    pub(super) session: Option<&'a str>,
    pub(super) headers: Headers,
    pub(super) event_bytes_max: usize,
}

impl Requests {
    /// Posts a message. If the server asks for other credentials and there are new ones, it is
    /// posted once more with those.
    pub(super) async fn post(&self, post: Post<'_>) -> Outcome<StreamableHttpPostResponse> {
        let mut is_first = true;
        loop {
            let (own, reading) = self.credentials.headers().await.map_err(of_credentials)?;
            let mut headers: HeaderMap = own.into_iter().collect();
            headers.extend(post.headers.clone());
            headers.insert(
                ACCEPT,
                HeaderValue::from_static("text/event-stream, application/json"),
            );
            if let Some(session) = post.session {
                let session = HeaderValue::from_str(session);
                let session = session.map_err(|_| unexpected("its session has an odd id"))?;
                headers.insert("mcp-session-id", session);
            }
            let request = self
                .client
                .post(post.uri)
                .headers(headers)
                .json(post.message);
            let response = request.send().await.map_err(StreamableHttpError::Client)?;
            if response.status() == StatusCode::UNAUTHORIZED {
                let challenge = challenge(&response);
                if is_first {
                    is_first = false;
                    let renewed = self.credentials.renew(reading, challenge.as_deref());
                    if renewed.await.map_err(of_credentials)? {
                        continue;
                    }
                }
                if post.session.is_some() {
                    // Some refuse a session that they have forgotten in this way. If it is the credentials,
                    // the new session is refused as well, and says so.
                    return Err(StreamableHttpError::SessionExpired);
                }
                let challenge = challenge.unwrap_or_default();
                return Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(
                    challenge,
                )));
            }
            return answered(response, &post).await;
        }
    }
}

fn challenge(response: &Response) -> Option<String> {
    let said = response.headers().get(WWW_AUTHENTICATE)?;
    Some(String::from_utf8_lossy(said.as_bytes()).into_owned())
}

fn unexpected(said: impl Into<String>) -> Error {
    StreamableHttpError::UnexpectedServerResponse(said.into().into())
}

/// The id of a request; other messages have no answer.
fn request_id(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Request(request) => Some(&request.id),
        _ => None,
    }
}

fn is_initialize(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, JsonRpcMessage::Request(request)
        if matches!(request.request, ClientRequest::InitializeRequest(_)))
}

async fn answered(response: Response, post: &Post<'_>) -> Outcome<StreamableHttpPostResponse> {
    let status = response.status();
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    if !status.is_success() {
        return refused(response, post).await;
    }
    let session = response.headers().get("mcp-session-id");
    let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
    let kind = content_type(&response);
    let asked = request_id(post.message).cloned();
    if kind.starts_with(EVENTS) {
        let asked = asked.map(|id| Asked {
            id,
            is_in_session: post.session.is_some(),
        });
        let stream = events(response.bytes_stream(), post.event_bytes_max, asked);
        return Ok(StreamableHttpPostResponse::Sse(stream, session));
    }
    let Some(asked) = asked else {
        // Nobody waits for the answer to a notification, whatever it says.
        return Ok(StreamableHttpPostResponse::Accepted);
    };
    if !kind.starts_with(JSON) {
        return Err(StreamableHttpError::UnexpectedContentType(Some(kind)));
    }
    let body = body(response, ANSWER_BYTES_MAX).await?;
    if post.session.is_some()
        && let Ok(Value::Object(said)) = serde_json::from_str(&body)
        && knows_no_session(&said, &asked)
    {
        return Err(StreamableHttpError::SessionExpired);
    }
    match message(&body, &asked) {
        Some(message) => Ok(StreamableHttpPostResponse::Json(message, session)),
        None => Err(unexpected("its answer is not one to the request")),
    }
}

fn content_type(response: &Response) -> String {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .map(HeaderValue::as_bytes);
    String::from_utf8_lossy(kind.unwrap_or_default()).to_ascii_lowercase()
}

async fn body(mut response: Response, bytes_max: usize) -> Outcome<String> {
    let mut body = Vec::new();
    while let Some(piece) = response
        .chunk()
        .await
        .map_err(StreamableHttpError::Client)?
    {
        if piece.len() > bytes_max - body.len() {
            return Err(StreamableHttpError::ResponseBodyTooLarge {
                max_size: bytes_max,
            });
        }
        body.extend_from_slice(&piece);
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// The message in a body that answers a request. An error without an id, or with another one, is of
/// this request too: it was the only one in the post. A result must be its own.
fn message(body: &str, asked: &RequestId) -> Option<ServerJsonRpcMessage> {
    let read = serde_json::from_str(&envelope::sealed(body, None)).ok()?;
    match read {
        ServerJsonRpcMessage::Error(mut error) => {
            error.id = Some(asked.clone());
            Some(ServerJsonRpcMessage::Error(error))
        }
        ServerJsonRpcMessage::Response(mut response) => {
            let is_its = response.id.to_string() == asked.to_string();
            response.id = asked.clone();
            is_its.then_some(ServerJsonRpcMessage::Response(response))
        }
        ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
    }
}

/// What a refusal of the whole request means.
async fn refused(response: Response, post: &Post<'_>) -> Outcome<StreamableHttpPostResponse> {
    let status = response.status();
    if status == StatusCode::NOT_FOUND && post.session.is_some() {
        return Err(StreamableHttpError::SessionExpired);
    }
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    let is_json = content_type(&response).starts_with(JSON);
    let said = body(response, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    if status.is_client_error() && !is_initialize(post.message) && session_is_gone(&said) {
        return Err(StreamableHttpError::SessionExpired);
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        return Err(HttpStatusError::new(status.as_u16(), retry_after).into());
    }
    let is_forbidden = status == StatusCode::FORBIDDEN;
    if let Some(asked) = request_id(post.message).filter(|_| is_json && !is_forbidden)
        && let Some(error @ ServerJsonRpcMessage::Error(_)) = message(&said, asked)
    {
        return Ok(StreamableHttpPostResponse::Json(error, None));
    }
    if status.is_server_error() || is_forbidden {
        return Err(HttpStatusError::new(status.as_u16(), retry_after).into());
    }
    let Some(asked) = request_id(post.message).filter(|_| status.is_client_error()) else {
        return Err(unexpected(format!("HTTP {status}")));
    };
    // The server has not taken the request: that is an answer to it.
    let said: String = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let said: String = said.chars().take(SAID_CHARS_MAX).collect();
    let text = format!("HTTP {status}: {said}");
    let error = ErrorData::new(ErrorCode::INVALID_REQUEST, text, None);
    let error = ServerJsonRpcMessage::error(error, Some(asked.clone()));
    Ok(StreamableHttpPostResponse::Json(error, None))
}

fn session_is_gone(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    SESSION_GONE.iter().any(|words| said.contains(words))
}

/// Whether an answer with a status of success refuses a request because of its session: an error that names no request,
/// so that the server has looked at none, and either says so or is one for what is no request at all.
fn knows_no_session(said: &Map<String, Value>, asked: &RequestId) -> bool {
    let Some(error) = said.get("error") else {
        return false;
    };
    let is_its = said.get("id").is_some_and(|id| is_id(id, asked));
    let text = error.as_str().or_else(|| error.get("message")?.as_str());
    let is_none = error.get("code") == Some(&Value::from(ErrorCode::INVALID_REQUEST.0));
    !is_its && (is_none || text.is_some_and(session_is_gone))
}

fn is_id(id: &Value, asked: &RequestId) -> bool {
    match id {
        Value::String(id) => *id == asked.to_string(),
        Value::Number(id) => id.to_string() == asked.to_string(),
        _ => false,
    }
}

/// The request that events answer.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    id: RequestId,
    is_in_session: bool,
}

/// The events of a body, with their results sealed. An error is one of the request that the events
/// answer, whatever its id.
fn events(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    event_bytes_max: usize,
    asked: Option<Asked>,
) -> BoxedSseResponse {
    let mut size = EventSize {
        bytes_max: event_bytes_max,
        ..EventSize::default()
    };
    let bounded = bytes.map(move |piece| match piece {
        Ok(piece) if size.fits(&piece) => Ok(piece),
        Ok(_) => {
            let said = format!("an event has more than {event_bytes_max} bytes");
            Err(io::Error::other(said))
        }
        Err(error) => Err(io::Error::other(error.without_url())),
    });
    sealed(SseStream::from_bytes_stream(bounded).boxed(), asked)
}

/// The events with their results sealed.
pub(super) fn sealed(events: BoxedSseResponse, asked: Option<Asked>) -> BoxedSseResponse {
    let seal = move |text: String| match &asked {
        Some(asked) => with_id(&envelope::sealed(&text, Some(&asked.id)), asked),
        None => envelope::sealed(&text, None).into_owned(),
    };
    events
        .map(move |event| {
            event.map(|mut event| {
                event.data = event.data.map(&seal);
                event
            })
        })
        .boxed()
}

/// The message with the id of the request that it answers, if it is an error with another one.
fn with_id(text: &str, asked: &Asked) -> String {
    let id = serde_json::to_value(&asked.id).unwrap_or_default();
    match serde_json::from_str(text) {
        Ok(Value::Object(said)) if asked.is_in_session && knows_no_session(&said, &asked.id) => {
            let error = json!({
                "code": ErrorCode::INVALID_REQUEST.0, "message": "the session is not known",
                "data": { SESSION_UNKNOWN: true },
            });
            json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string()
        }
        Ok(Value::Object(mut message))
            if message.contains_key("error") && message.get("id") != Some(&id) =>
        {
            message.insert("id".to_owned(), id);
            Value::Object(message).to_string()
        }
        _ => text.to_owned(),
    }
}

/// The bytes since the last empty line, which ends an event. Comments between events are not
/// counted: they keep a connection open for as long as it takes.
#[derive(Debug, Default)]
struct EventSize {
    bytes_max: usize,
    event: usize,
    line: usize,
    is_comment: bool,
}

impl EventSize {
    fn fits(&mut self, piece: &[u8]) -> bool {
        for byte in piece {
            match byte {
                b'\n' => {
                    if self.line == 0 {
                        self.event = 0;
                    } else if self.is_comment {
                        self.event = self.event.saturating_sub(self.line);
                    }
                    (self.line, self.is_comment) = (0, false);
                }
                b'\r' => {}
                _ => {
                    self.is_comment |= self.line == 0 && *byte == b':';
                    self.line += 1;
                    self.event += 1;
                    if self.event > self.bytes_max {
                        return false;
                    }
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Option<ServerJsonRpcMessage> {
        message(body, &RequestId::Number(7))
    }

    #[test]
    fn an_error_is_of_the_request_whatever_its_id_and_a_result_must_be_its_own() {
        for id in ["null", "7", "\"server-error\""] {
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32600,"message":"no"}}}}"#
            );
            let Some(ServerJsonRpcMessage::Error(error)) = read(&body) else {
                panic!("{body}");
            };
            assert_eq!(error.id, Some(RequestId::Number(7)));
        }
        assert!(read(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#).is_some());
        assert!(read(r#"{"jsonrpc":"2.0","id":8,"result":{}}"#).is_none());
        assert!(read("{}").is_none());
    }

    #[test]
    fn only_an_error_that_names_no_request_can_be_about_the_session() {
        let asked = RequestId::Number(7);
        let about = |said: Value| {
            let said = said.as_object().expect("an object");
            knows_no_session(said, &asked)
        };
        let invalid = json!({"code": -32600, "message": "Invalid Request"});
        let own = json!({"code": -32000, "message": "Session not found"});
        for said in [
            json!({"error": "Session not found"}),
            json!({"id": null, "error": own}),
            json!({"id": null, "error": invalid}),
            json!({"id": "server-error", "error": invalid}),
        ] {
            assert!(about(said.clone()), "{said}");
        }
        for said in [
            json!({"id": 7, "error": own}),
            json!({"id": "7", "error": invalid}),
            json!({"id": null, "error": {"code": -32603, "message": "it broke"}}),
            json!({"error": "no such account"}),
            json!({"result": {"error": "Session not found"}}),
        ] {
            assert!(!about(said.clone()), "{said}");
        }
    }

    #[test]
    fn an_event_is_bounded_and_what_keeps_a_connection_open_is_not() {
        let mut size = EventSize {
            bytes_max: 10,
            ..EventSize::default()
        };
        for _ in 0..9 {
            assert!(size.fits(b": alive\r\n") && size.fits(b"data: 1\n\n"));
        }
        assert!(!size.fits(b"data: 12345"));
    }
}
