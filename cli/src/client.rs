//! Client of a scheduler: requests with bounded retries, problems as failures, event streams.

mod events;
mod proxy;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::Config;
use mainspring_runtime::{Environment, OsEntropy, Secret, SystemClock};
use mainspring_shared::entropy::Entropy;
use mainspring_shared::error::Code;
use mainspring_shared::retry::Policy;
use mainspring_shared::time::Clock;
use reqwest::header::HeaderValue;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;

use crate::failure::{Exit, Failure, causes, exit_of, next_of, usage_text};

pub(crate) use events::{Event, Events};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a response may take beyond the wait that the request asks for.
const ANSWER: Duration = Duration::from_secs(30);

/// How long the transfer of a whole session may take.
const TRANSFER: Duration = Duration::from_mins(10);

/// A user waits at a terminal, so retries are few and short.
const RETRY: Policy = Policy {
    attempts_max: 4,
    base: Duration::from_millis(250),
    cap: Duration::from_secs(2),
    retry_after_max: Duration::from_secs(10),
};

/// A client of one scheduler.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    server: String,
    /// The server's URL without secrets, for display.
    shown: String,
    api_key: Option<Secret>,
    /// The proxy that requests go through, and the variable that names it.
    proxy: Option<(String, String)>,
    /// The tenant that an operator acts for.
    tenant: Option<String>,
    pub(crate) clock: SystemClock,
    entropy: OsEntropy,
}

/// A request to build up.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    body: Option<Value>,
    /// Lines of JSON as the body.
    lines: Option<Vec<u8>>,
    /// A ZIP archive as the body.
    archive: Option<Vec<u8>>,
    /// A file with lines of JSON as the body.
    file: Option<PathBuf>,
    /// The idempotency key, which makes it safe to repeat a creation.
    key: Option<String>,
    wait: Duration,
}

/// Maximum number of rows that a server returns per page.
pub(crate) const PAGE_MAX: u32 = 200;

/// Encodes any text as one path segment.
pub(crate) fn segment(text: &str) -> String {
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            segment.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(segment, "%{byte:02X}");
        }
    }
    segment
}

impl Request {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: Vec::new(),
            body: None,
            lines: None,
            archive: None,
            file: None,
            key: None,
            wait: Duration::ZERO,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    #[must_use]
    pub(crate) fn query(mut self, name: &str, value: Option<impl ToString>) -> Self {
        self.query
            .extend(value.map(|value| (name.to_owned(), value.to_string())));
        self
    }

    /// Asks a list for what has these metadata.
    #[must_use]
    pub(crate) fn metadata(mut self, metadata: &[(String, String)]) -> Self {
        let named = metadata.iter();
        let named = named.map(|(name, text)| (format!("metadata.{name}"), text.clone()));
        self.query.extend(named);
        self
    }

    #[must_use]
    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    #[must_use]
    pub(crate) fn lines(mut self, lines: Vec<u8>) -> Self {
        self.lines = Some(lines);
        self.wait = TRANSFER;
        self
    }

    #[must_use]
    pub(crate) fn archive(mut self, archive: Vec<u8>) -> Self {
        self.archive = Some(archive);
        self.wait = TRANSFER;
        self
    }

    /// The lines of a file as the body, streamed because it may be too large for memory.
    #[must_use]
    pub(crate) fn file(mut self, file: PathBuf) -> Self {
        self.file = Some(file);
        self.wait = TRANSFER;
        self
    }

    #[must_use]
    pub(crate) fn key(mut self, key: String) -> Self {
        self.key = Some(key);
        self
    }

    /// Asks the server to wait up to this long for the end.
    #[must_use]
    pub(crate) fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self.query("wait", Some(format!("{}ms", wait.as_millis())))
    }

    /// Whether sending it twice has the same effect as sending it once.
    fn is_repeatable(&self) -> bool {
        self.key.is_some() || self.method != Method::POST
    }
}

/// The outcome of one attempt.
enum Attempt {
    Answer(Response),
    /// A retry may succeed.
    Again {
        failure: Failure,
        retry_after: Option<Duration>,
    },
    Failed(Failure),
}

impl Client {
    pub(crate) fn new(config: &Config) -> Result<Self, Failure> {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .user_agent(concat!("mainspring/", env!("CARGO_PKG_VERSION")));
        let server = config.server.trim_end_matches('/').to_owned();
        let proxy = if is_here(&server) {
            None
        } else {
            proxy::in_effect(&Environment::read(), &server)
        };
        // A proxy cannot reach this machine's own addresses, and must not be shown the key.
        let http = if is_here(&server) {
            http.no_proxy()
        } else {
            http
        };
        let http = http
            .build()
            .map_err(|error| Failure::new(Exit::Failure, causes(&error)))?;
        if let Some(key) = &config.api_key
            && HeaderValue::try_from(key.reveal()).is_err()
        {
            let message = "MAINSPRING_API_KEY is not a key: it has a line break or another character that no key has";
            let next = "`mainspring keys create NAME --scope SCOPE --print-key` prints nothing but the key";
            return Err(usage_text(message, next));
        }
        Ok(Self {
            proxy,
            http,
            shown: Secret::new(server.clone()).redacted_url(),
            server,
            api_key: config.api_key.clone(),
            tenant: config.tenant.clone(),
            clock: SystemClock::new(),
            entropy: OsEntropy,
        })
    }

    /// The server's URL, without secrets.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// The tenant that an operator acts for.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// A key that no other request uses.
    pub(crate) fn fresh_key(&self) -> String {
        self.entropy.random_id().to_string()
    }

    /// Sends a request, with retries where that is safe and promising; returns the response's JSON,
    /// null if it has none.
    pub(crate) async fn ask(&self, request: Request) -> Result<Value, Failure> {
        let response = self.response(request).await?;
        if response.status() == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        response
            .json()
            .await
            .map_err(|error| self.strange(&causes(&error)))
    }

    /// The same, with the response's status.
    pub(crate) async fn ask_status(
        &self,
        request: Request,
    ) -> Result<(StatusCode, Value), Failure> {
        let response = self.response(request).await?;
        let status = response.status();
        let json = response.json().await;
        let json = json.map_err(|error| self.strange(&causes(&error)))?;
        Ok((status, json))
    }

    /// Sends a request to create something; returns whether it was created just now, and the
    /// object.
    pub(crate) async fn make(&self, request: Request) -> Result<(bool, Value), Failure> {
        let response = self.response(request).await?;
        let is_new = response.status() == StatusCode::CREATED
            && !response.headers().contains_key("Idempotency-Replayed");
        let json = response.json().await;
        let json = json.map_err(|error| self.strange(&causes(&error)))?;
        Ok((is_new, json))
    }

    /// Sends a request, and passes the response on as it arrives.
    pub(crate) async fn download(
        &self,
        mut request: Request,
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        request.wait = TRANSFER;
        let mut response = self.response(request).await?;
        loop {
            match response.chunk().await {
                Ok(Some(piece)) => take(&piece)?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.broken_off(&error)),
            }
        }
    }

    fn broken_off(&self, error: &reqwest::Error) -> Failure {
        let cause = innermost(error);
        let message = format!("{} closed the connection early: {cause}", self.shown);
        Failure::new(Exit::Unavailable, message).next("try again")
    }

    async fn response(&self, request: Request) -> Result<Response, Failure> {
        let mut failed = 0;
        loop {
            let (failure, retry_after) = match self.attempt(&request).await {
                Attempt::Answer(response) => return Ok(response),
                Attempt::Failed(failure) => return Err(failure),
                Attempt::Again {
                    failure,
                    retry_after,
                } => (failure, retry_after),
            };
            failed += 1;
            match RETRY.wait(failed, retry_after, self.entropy.fraction()) {
                Some(wait) => self.clock.sleep(wait).await,
                None => return Err(failure),
            }
        }
    }

    /// A request with the caller's key and tenant.
    fn start(&self, method: Method, url: String) -> RequestBuilder {
        let mut builder = self.http.request(method, url);
        if let Some(key) = &self.api_key {
            builder = builder.bearer_auth(key.reveal());
        }
        if let Some(tenant) = &self.tenant {
            builder = builder.header("Mainspring-Tenant", tenant);
        }
        builder
    }

    async fn attempt(&self, request: &Request) -> Attempt {
        let url = format!("{}{}", self.server, request.path);
        let mut builder = self
            .start(request.method.clone(), url)
            .query(&request.query)
            .timeout(request.wait + ANSWER);
        if let Some(body) = &request.body {
            builder = builder.json(body);
        }
        if let Some(archive) = &request.archive {
            builder = builder
                .header("Content-Type", "application/zip")
                .body(archive.clone());
        }
        if let Some(lines) = &request.lines {
            builder = builder
                .header("Content-Type", "application/x-ndjson")
                .body(lines.clone());
        }
        if let Some(file) = &request.file {
            let body = match tokio::fs::File::open(file).await {
                Ok(body) => body,
                Err(error) => {
                    let message = format!("{}: {error}", file.display());
                    return Attempt::Failed(Failure::new(Exit::Failure, message));
                }
            };
            builder = builder
                .header("Content-Type", "application/x-ndjson")
                .body(body);
        }
        if let Some(key) = &request.key {
            builder = builder.header("Idempotency-Key", key);
        }
        match builder.send().await {
            Ok(response) if response.status().is_success() => Attempt::Answer(response),
            Ok(response) => {
                let status = response.status();
                let retry_after = retry_after(&response);
                let failure = self.refused(response).await;
                // These are sent before anything is done, so a retry cannot do it twice.
                let busy = [
                    StatusCode::TOO_MANY_REQUESTS,
                    StatusCode::SERVICE_UNAVAILABLE,
                ];
                if busy.contains(&status) {
                    Attempt::Again {
                        failure,
                        retry_after,
                    }
                } else {
                    Attempt::Failed(failure)
                }
            }
            Err(error) => {
                let failure = self.unreachable(&error);
                // Nothing listens there, which does not change within seconds.
                if error.is_connect() || error.is_builder() || !request.is_repeatable() {
                    Attempt::Failed(failure)
                } else {
                    Attempt::Again {
                        failure,
                        retry_after: None,
                    }
                }
            }
        }
    }

    /// The failure when the server could not be talked to at all.
    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        // The cause names the address; repeating the URL would only make the line longer.
        let cause = innermost(error);
        let server = &self.shown;
        if let Some(rest) = server
            .strip_prefix("https://")
            .filter(|_| speaks_no_tls(error))
        {
            let message = format!("{server} does not speak TLS");
            return Failure::new(Exit::Unavailable, message).next(format!(
                "try http://{rest} with --server or MAINSPRING_SERVER"
            ));
        }
        if error.is_timeout() && !error.is_connect() {
            return Failure::new(
                Exit::Unavailable,
                format!("{server} did not answer in time"),
            )
            .next("retry: accepted work is not lost");
        }
        if let Some((variable, proxy)) = &self.proxy {
            let message = format!("{server} cannot be reached through the proxy {proxy}: {cause}");
            return Failure::new(Exit::Unavailable, message).next(format!(
                "{variable} names that proxy; NO_PROXY lists hosts that are reached without it"
            ));
        }
        Failure::new(
            Exit::Unavailable,
            format!("{server} cannot be reached: {cause}"),
        )
        .next("start one with `mainspring dev`, or name another with --server or MAINSPRING_SERVER")
    }

    /// The failure for a problem document, or for any other error response.
    async fn refused(&self, response: Response) -> Failure {
        let status = response.status();
        let problem: Value = response.json().await.unwrap_or_default();
        let code = problem["code"].as_str().unwrap_or_default();
        let Some(known) = Code::parse(code) else {
            let detail = problem["detail"]
                .as_str()
                .unwrap_or("no problem document in the response");
            let by = match &self.proxy {
                Some((_, proxy)) => format!(" (or the proxy {proxy})"),
                None => String::new(),
            };
            let message = format!("{}{by} responded {status}: {detail}", self.shown);
            return Failure::new(exit_of_status(status), message).next(
                "check that this is the address of a Mainspring scheduler of the same version",
            );
        };
        let detail = problem["detail"].as_str().unwrap_or(code);
        let errors = problem["errors"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let member = |error: &Value| {
            let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("pointer"), text("detail"))
        };
        let message = match errors {
            // The detail says the same, except where.
            [only] => format!("{} ({code})", member(only)),
            several => several
                .iter()
                .fold(format!("{detail} ({code})"), |message, error| {
                    format!("{message}\n  {}", member(error))
                }),
        };
        let failure = Failure::new(exit_of(known), message).next(next_of(known));
        failure.problem(problem)
    }

    fn strange(&self, what: &str) -> Failure {
        let message = format!("{} sent an invalid response: {what}", self.shown);
        Failure::new(Exit::Failure, message)
            .next("check that this is the address of a Mainspring scheduler of the same version")
    }
}

/// Whether a server's URL names this machine.
fn is_here(server: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(server) else {
        return false;
    };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Whether the peer answered the TLS handshake with something else.
fn speaks_no_tls(error: &dyn std::error::Error) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .any(|cause| cause.to_string().contains("InvalidContentType"))
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response
        .headers()
        .get("Retry-After")?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

fn exit_of_status(status: StatusCode) -> Exit {
    match status.as_u16() {
        401 | 403 => Exit::Unauthorised,
        404 => Exit::NotFound,
        409 => Exit::Conflict,
        408 | 429 | 502..=504 => Exit::Unavailable,
        400..=499 => Exit::Usage,
        _ => Exit::Failure,
    }
}
