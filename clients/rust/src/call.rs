//! One operation with its arguments, and how it is made.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::attempts::{Attempts, Failed, retry_after};
use crate::clock;
use crate::error::{ApiError, Error, Kind};
use crate::transport::{Arrival, Request, Response, Transport, TransportError};
use crate::types::Problem;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const EVENTS: &str = "text/event-stream";
const PROBLEM: &str = "application/problem+json";

/// One operation with its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    body: Option<(&'static str, Bytes)>,
    /// Made once, so that it is the same in each attempt.
    key: Option<String>,
    /// Whether it may be made again when nobody knows whether it was made.
    repeatable: bool,
    /// How long the server is asked to take, beside what an answer takes anyway.
    wait: Duration,
    fault: Option<String>,
}

/// A path's segment, with everything escaped that is not plain.
pub(crate) fn segment(text: &str) -> String {
    let mut segment = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            segment.push(char::from(byte));
        } else {
            let _ = write!(segment, "%{byte:02X}");
        }
    }
    segment
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            body: None,
            key: None,
            repeatable: true,
            wait: Duration::ZERO,
            fault: None,
        }
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Self {
        match serde_json::to_vec(body) {
            Ok(body) => self.body = Some(("application/json", body.into())),
            Err(error) => self.fault = Some(error.to_string()),
        }
        self
    }

    pub(crate) fn bytes(mut self, kind: &'static str, body: Bytes) -> Self {
        self.body = Some((kind, body));
        self
    }

    /// Adds the members of an object that are there.
    pub(crate) fn query(mut self, query: &impl Serialize) -> Self {
        match serde_json::to_value(query) {
            Ok(query) => write(&mut self.query, "", &query),
            Err(error) => self.fault = Some(error.to_string()),
        }
        self
    }

    pub(crate) fn at(mut self, cursor: Option<&str>) -> Self {
        self.query
            .retain(|(name, _)| cursor.is_none() || name != "cursor");
        self.query
            .extend(cursor.map(|it| ("cursor".to_owned(), it.to_owned())));
        self
    }

    pub(crate) fn key(mut self, key: Option<&str>) -> Self {
        self.key = Some(key.map_or_else(clock::key, str::to_owned));
        self
    }

    pub(crate) fn once(mut self) -> Self {
        self.repeatable = false;
        self
    }

    pub(crate) fn waiting(mut self, wait: Duration) -> Self {
        self.query
            .push(("wait".to_owned(), format!("{}ms", wait.as_millis())));
        self.wait = wait;
        self
    }

    fn address(&self) -> String {
        let mut address = self.path.clone();
        for (at, (name, value)) in self.query.iter().enumerate() {
            address.push(if at == 0 { '?' } else { '&' });
            let _ = write!(address, "{}={}", segment(name), segment(value));
        }
        address
    }
}

fn write(query: &mut Vec<(String, String)>, name: &str, value: &Value) {
    let text = match value {
        Value::Null => return,
        Value::Object(members) => {
            for (member, value) in members {
                let inner = if name.is_empty() {
                    member.clone()
                } else {
                    format!("{name}[{member}]")
                };
                write(query, &inner, value);
            }
            return;
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    query.push((name.to_owned(), text));
}

/// Gives the headers of a trace.
pub(crate) type Context = Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>;

/// Where the server is, who asks, and how patient.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) server: String,
    pub(crate) key: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    pub(crate) headers: Vec<(String, String)>,
    /// Headers that are asked for with each request, for the context of a trace.
    pub(crate) context: Option<Context>,
    pub(crate) timeout: Duration,
    pub(crate) retries: u32,
    pub(crate) first_pause: Duration,
    pub(crate) insecure: bool,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Why no request can be made with them.
    fn fault(&self) -> Option<String> {
        let is_plain = self.server.starts_with("http://");
        let rest = self.server.split_once("://").map(|(_, rest)| rest);
        let Some(rest) = rest.filter(|_| is_plain || self.server.starts_with("https://")) else {
            return Some(format!("{:?} is not the URL of a server", self.server));
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let host = match authority.strip_prefix('[') {
            Some(v6) => v6.split(']').next(),
            None => authority
                .rsplit_once(':')
                .map_or(Some(authority), |(host, _)| Some(host)),
        };
        let host = host.unwrap_or_default();
        let is_local = host == "localhost" || host == "::1" || host.starts_with("127.");
        let is_open = self.key.is_some() && is_plain && !is_local && !self.insecure;
        is_open.then(|| {
            "a key is only sent over https or to this machine, unless .insecure() allows it"
                .to_owned()
        })
    }

    /// The headers of one attempt.
    fn per_request(&self) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        let agent = concat!("mainspring-rust/", env!("CARGO_PKG_VERSION"));
        headers.insert(reqwest::header::USER_AGENT, HeaderValue::from_static(agent));
        let context = self
            .context
            .as_ref()
            .map(|context| context())
            .unwrap_or_default();
        for (name, value) in context.iter().chain(&self.headers) {
            let named = HeaderName::from_bytes(name.as_bytes());
            let named =
                named.map_err(|_| Error::Setup(format!("{name:?} is not the name of a header")))?;
            let valued = HeaderValue::from_str(value);
            headers.insert(
                named,
                valued
                    .map_err(|_| Error::Setup(format!("the header {name} has no valid value")))?,
            );
        }
        if let Some(key) = &self.key {
            let value = HeaderValue::from_str(&format!("Bearer {}", key()));
            let mut value = value
                .map_err(|_| Error::Setup("the key has characters that none has".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(reqwest::header::AUTHORIZATION, value);
        }
        Ok(headers)
    }
}

/// An answer that has arrived whole, with a status that says success.
pub(crate) struct Whole {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    path: String,
}

impl Whole {
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let value: Result<Value, _> = serde_json::from_slice(&self.body);
        let value = value.ok().filter(Value::is_object);
        let value = value.ok_or_else(|| self.unexpected("its body is not a JSON object"))?;
        serde_json::from_value(value)
            .map_err(|error| self.unexpected(&format!("its body is not what is expected: {error}")))
    }

    fn unexpected(&self, why: &str) -> Error {
        let detail = format!(
            "{} was answered, and {why}: is a Mainspring server there?",
            self.path
        );
        let mut error = ApiError::made(
            Kind::Unexpected,
            "client.unexpected",
            self.status.as_u16(),
            detail,
        );
        error.request_id = request_id(&self.headers);
        error.into()
    }

    /// The error that it stands for, if it is not 2xx.
    fn error(&self) -> ApiError {
        let status = self.status.as_u16();
        let request_id = request_id(&self.headers);
        let mut value: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        if value["code"].is_string() {
            value["status"] = status.into();
            for (member, otherwise) in [
                ("retryable", false.into()),
                ("detail", "".into()),
                ("title", "".into()),
                ("type", "".into()),
            ] {
                if value[member].is_null() {
                    value[member] = otherwise;
                }
            }
            if let Ok(problem) = serde_json::from_value::<Problem>(value) {
                return ApiError::of(problem, request_id);
            }
        }
        let text = String::from_utf8_lossy(&self.body);
        let text: String = text
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .chars()
            .take(200)
            .collect();
        let detail = if text.is_empty() {
            self.status.to_string()
        } else {
            text
        };
        let mut error = ApiError::made(Kind::of(status), &format!("http.{status}"), status, detail);
        error.retryable = matches!(status, 408 | 429 | 502..=504);
        error.request_id = request_id;
        error
    }

    fn said(&self, kind: &str) -> bool {
        says(&self.headers, kind)
    }
}

fn says(headers: &HeaderMap, kind: &str) -> bool {
    let said = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    said.is_some_and(|said| said.starts_with(kind))
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get("x-request-id")?.to_str().ok()?;
    Some(id.to_owned())
}

/// Makes calls, and repeats them as far as that is harmless.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) settings: Settings,
    pub(crate) transport: Arc<dyn Transport>,
}

impl Caller {
    pub(crate) async fn read<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        self.call(call, None).await?.read()
    }

    pub(crate) async fn text(&self, call: &Call) -> Result<String, Error> {
        let answer = self.call(call, None).await?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    pub(crate) async fn body(&self, call: &Call) -> Result<Bytes, Error> {
        Ok(self.call(call, None).await?.body)
    }

    pub(crate) async fn nothing(&self, call: &Call) -> Result<(), Error> {
        self.call(call, None).await.map(|_| ())
    }

    /// Makes a call, repeated as often as the settings say, or for so long.
    pub(crate) async fn call(&self, call: &Call, within: Option<Duration>) -> Result<Whole, Error> {
        if let Some(fault) = self.settings.fault().or_else(|| call.fault.clone()) {
            return Err(Error::Setup(fault));
        }
        let settings = &self.settings;
        let limit = within.is_none().then_some(settings.retries);
        let mut attempts = Attempts::new(limit, within, settings.timeout, settings.first_pause);
        let patience = within.unwrap_or(settings.timeout) + call.wait;
        loop {
            let request = self.request(call)?;
            let path = call.path.clone();
            let whole = async {
                let answer = self.transport.send(request).await?;
                Ok(Whole {
                    status: answer.status,
                    headers: answer.headers,
                    body: answer.body.whole().await?,
                    path,
                })
            };
            let answer = timeout(patience, whole).await;
            let pause = match answer.unwrap_or_else(|_| Err(TransportError::late())) {
                Ok(answer) if answer.status.is_success() => return Ok(answer),
                Ok(answer) => refused(&mut attempts, &answer, call.repeatable)?,
                Err(error) => failed(&mut attempts, &error, call.repeatable)?,
            };
            clock::sleep(pause).await;
        }
    }

    fn request(&self, call: &Call) -> Result<Request, Error> {
        let mut headers = self.settings.per_request()?;
        if let Some(key) = &call.key {
            let value = HeaderValue::from_str(key);
            headers.insert(
                KEY,
                value.map_err(|_| {
                    Error::Setup("the idempotency key is not visible ASCII".to_owned())
                })?,
            );
        }
        let mut body = Bytes::new();
        if let Some((kind, content)) = &call.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            body = content.clone();
        }
        Ok(Request {
            method: call.method.clone(),
            server: self.settings.server.clone(),
            path: call.address(),
            headers,
            body,
            connect_timeout: self.settings.timeout,
        })
    }

    /// Opens an event stream once; one that has ended is answered 204. An answer that is none has a pause before the next
    /// attempt.
    pub(crate) async fn open(
        &self,
        path: &str,
        cursor: Option<&str>,
        attempts: &mut Attempts,
    ) -> Result<Result<Response, Duration>, Error> {
        if let Some(fault) = self.settings.fault() {
            return Err(Error::Setup(fault));
        }
        let mut request = self.request(&Call::new(Method::GET, path))?;
        request
            .headers
            .insert(ACCEPT, HeaderValue::from_static(EVENTS));
        if let Some(cursor) = cursor {
            let value = HeaderValue::from_str(cursor);
            let value =
                value.map_err(|_| Error::Setup("the cursor is none of a stream".to_owned()))?;
            request.headers.insert("last-event-id", value);
        }
        let sent = timeout(self.settings.timeout, self.transport.send(request)).await;
        let answer = match sent.unwrap_or_else(|_| Err(TransportError::late())) {
            Ok(answer) => answer,
            Err(error) => return failed(attempts, &error, true).map(Err),
        };
        if answer.status == StatusCode::NO_CONTENT || says(&answer.headers, EVENTS) {
            return Ok(Ok(answer));
        }
        let read = timeout(self.settings.timeout, answer.body.whole())
            .map(|read| read.unwrap_or_else(|_| Err(TransportError::late())));
        match read.await {
            Ok(body) => {
                let whole = Whole {
                    status: answer.status,
                    headers: answer.headers,
                    body,
                    path: path.to_owned(),
                };
                refused(attempts, &whole, true).map(Err)
            }
            Err(error) => failed(attempts, &error, true).map(Err),
        }
    }
}

/// The pause after no answer, or none that is whole.
pub(crate) fn failed(
    attempts: &mut Attempts,
    error: &TransportError,
    repeatable: bool,
) -> Result<Duration, Error> {
    let failed = Failed {
        now: clock::now(),
        chance: clock::fraction(),
        may_repeat: match error.arrival {
            Arrival::Never => true,
            Arrival::Unknown => repeatable,
            Arrival::Closed => false,
        },
        asked: Duration::ZERO,
    };
    attempts.pause(failed, Error::Unreachable(error.message.clone()))
}

/// The pause after an answer that is not what was asked for.
fn refused(attempts: &mut Attempts, answer: &Whole, repeatable: bool) -> Result<Duration, Error> {
    let status = answer.status.as_u16();
    if status < 400 {
        let why = if status >= 300 {
            "it redirects"
        } else {
            "it is no event stream"
        };
        return Err(answer.unexpected(why));
    }
    let error = answer.error();
    if !error.retryable || matches!(status, 409 | 422) {
        return Err(error.into());
    }
    // Who says so by a problem document, or refuses by a limit, has done nothing.
    let known = status == 429 || answer.said(PROBLEM);
    let failed = Failed {
        now: clock::now(),
        chance: clock::fraction(),
        may_repeat: repeatable || known,
        asked: retry_after(&answer.headers, clock::wall()),
    };
    attempts.pause(failed, error.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(server: &str) -> Settings {
        Settings {
            server: server.to_owned(),
            key: Some(Arc::new(|| "msk_secret".to_owned())),
            headers: Vec::new(),
            context: None,
            timeout: Duration::from_secs(1),
            retries: 0,
            first_pause: Duration::ZERO,
            insecure: false,
        }
    }

    #[test]
    fn a_key_goes_over_https_or_nowhere_far() {
        for good in [
            "https://a.example",
            "http://127.0.0.1:7464",
            "http://localhost",
            "http://[::1]:80/x",
        ] {
            assert_eq!(settings(good).fault(), None, "{good}");
        }
        for bad in [
            "http://a.example",
            "http://10.0.0.1:80",
            "ftp://a.example",
            "a.example",
        ] {
            assert!(settings(bad).fault().is_some(), "{bad}");
        }
        let open = Settings {
            insecure: true,
            ..settings("http://a.example")
        };
        assert_eq!(open.fault(), None);
    }

    #[test]
    fn a_key_is_in_no_debug_text() {
        let settings = settings("https://a.example");
        let headers = settings.per_request().expect("headers");
        assert_eq!(headers["authorization"], "Bearer msk_secret");
        assert!(!format!("{settings:?} {headers:?}").contains("secret"));
    }

    #[test]
    fn queries_are_flat_and_escaped() {
        let query = json!({"limit": 2, "status": null, "metadata": {"a b": "c&d"}, "all": true});
        let call = Call::new(Method::GET, format!("/v1/x/{}", segment("a/b?"))).query(&query);
        assert_eq!(
            call.address(),
            "/v1/x/a%2Fb%3F?limit=2&metadata%5Ba%20b%5D=c%26d&all=true"
        );
        assert!(call.at(Some("n")).address().ends_with("&cursor=n"));
    }
}
