//! The client: where the server is, and the way to everything else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde::de::DeserializeOwned;

use crate::api::{Api, ListSendsQuery};
use crate::call::{Call, Caller, Settings};
use crate::clock;
use crate::error::{ApiError, Error};
use crate::flow::Workflow;
use crate::http::Http;
use crate::question::Question;
use crate::run::{NewRun, RunHandle};
use crate::send::{SendHandle, text_of};
use crate::serve::ToolLoop;
use crate::session::Session;
use crate::timer::{NewTimer, TimerHandle};
use crate::tool::Tool;
use crate::transport::Transport;
use crate::types::{BatchSend, SendStatus, WaitingOn};

/// How long one request waits for the end of something.
const POLL: Duration = Duration::from_secs(30);

/// What [`Client::send_all`] sends.
pub type NewSend = BatchSend;

/// Speaks to a server. Cloning it is cheap, and clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    caller: Arc<Caller>,
    api: Api,
}

impl Client {
    /// A client of the server at this URL, such as `http://127.0.0.1:7464`. Connects with the first request; a URL that is
    /// none is an error then.
    pub fn new(url: impl Into<String>) -> Self {
        Self::over(url, Arc::new(Http::default()))
    }

    /// A client of the server that `MAINSPRING_SERVER` names (`http://127.0.0.1:7464` by default), with the key
    /// `MAINSPRING_API_KEY` if there is one.
    #[expect(
        clippy::disallowed_methods,
        reason = "a client of any program has these variables only"
    )]
    pub fn from_env() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let client = Self::new(
            variable("MAINSPRING_SERVER").unwrap_or_else(|| "http://127.0.0.1:7464".to_owned()),
        );
        match variable("MAINSPRING_API_KEY") {
            Some(key) => client.key(key),
            None => client,
        }
    }

    /// A client whose requests this carries.
    pub fn over(url: impl Into<String>, transport: Arc<dyn Transport>) -> Self {
        let settings = Settings {
            server: url.into().trim_end_matches('/').to_owned(),
            key: None,
            headers: Vec::new(),
            context: None,
            timeout: Duration::from_mins(1),
            retries: 4,
            first_pause: Duration::from_millis(200),
            insecure: false,
        };
        Self::of(Caller {
            settings,
            transport,
        })
    }

    fn of(caller: Caller) -> Self {
        let caller = Arc::new(caller);
        Self {
            api: Api::new(caller.clone()),
            caller,
        }
    }

    fn with(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut caller = Caller::clone(&self.caller);
        change(&mut caller.settings);
        Self::of(caller)
    }

    /// The API key. It is sent over https or to this machine only, unless [`insecure`](Self::insecure), and is in no error,
    /// log or debug text.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        let key = key.into();
        self.key_by(move || key.clone())
    }

    /// The API key, asked for with each request.
    #[must_use]
    pub fn key_by(self, key: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.key = Some(Arc::new(key)))
    }

    /// The tenant that an operator's key acts for.
    #[must_use]
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        self.header("mainspring-tenant", tenant)
    }

    /// A header of every request, such as a `traceparent`.
    #[must_use]
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|settings| settings.headers.push((name.into(), value.into())))
    }

    /// Headers that are asked for with each request: what a propagator of OpenTelemetry injects, so that the current span is
    /// the parent of what the server does.
    #[must_use]
    pub fn trace_context(
        self,
        headers: impl Fn() -> Vec<(String, String)> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.context = Some(Arc::new(headers)))
    }

    /// How long one answer may take, one minute by default; and how long a stream, and whoever waits for a send, look for a
    /// server that is away.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|settings| settings.timeout = timeout)
    }

    /// How often a request is repeated, 4 times by default, and the upper bound of the first pause, 200 ms by default. It
    /// doubles with each, up to 8 s; what the server asks for with `Retry-After` is waited for.
    #[must_use]
    pub fn retries(self, retries: u32, first_pause: Duration) -> Self {
        self.with(|settings| (settings.retries, settings.first_pause) = (retries, first_pause))
    }

    /// Lets the key be sent without encryption, to any machine.
    #[must_use]
    pub fn insecure(self) -> Self {
        self.with(|settings| settings.insecure = true)
    }

    /// Every operation of the API.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// A new session, which is made with its first send.
    pub fn session(&self) -> Session {
        Session::new(self.clone(), None)
    }

    /// The session with this id.
    pub fn session_by_id(&self, id: impl Into<String>) -> Session {
        Session::new(self.clone(), Some(id.into()))
    }

    /// The send with this id, also one of another process.
    pub fn send_by_id(&self, id: impl Into<String>) -> SendHandle<String> {
        SendHandle::new(self.clone(), id.into(), text_of)
    }

    /// At most 1000 sends in one request: for each its handle, or why it was not accepted.
    pub async fn send_all(
        &self,
        sends: Vec<NewSend>,
        key: Option<&str>,
    ) -> Result<Vec<Result<SendHandle<String>, ApiError>>, Error> {
        let made = self
            .api
            .create_sends(&crate::types::BatchBody { sends }, key)
            .await?;
        let handles = made
            .results
            .into_iter()
            .map(|each| match (each.send, each.problem) {
                (Some(send), _) => Ok(self.send_by_id(send.send_view.id)),
                (None, Some(problem)) => Err(ApiError::of(problem, None)),
                (None, None) => {
                    let detail = "the item has no outcome".to_owned();
                    Err(ApiError::made(
                        crate::Kind::Unexpected,
                        "client.unexpected",
                        200,
                        detail,
                    ))
                }
            });
        Ok(handles.collect())
    }

    /// A run of a workflow: await it to start it.
    pub fn run(&self, workflow: &Workflow) -> NewRun {
        NewRun::new(self.clone(), workflow)
    }

    /// The run with this id.
    pub fn run_by_id(&self, id: impl Into<String>) -> RunHandle {
        RunHandle::new(self.clone(), id.into())
    }

    /// A schedule, for [`send`](NewTimer::send) or [`run`](NewTimer::run).
    pub fn timer(&self) -> NewTimer {
        NewTimer::new(self.clone())
    }

    /// The timer with this id.
    pub fn timer_by_id(&self, id: impl Into<String>) -> TimerHandle {
        TimerHandle::new(self.clone(), id.into())
    }

    /// What persons are asked in all sessions. One request for each session that waits.
    pub async fn questions(&self) -> Result<Vec<Question>, Error> {
        let mut questions = Vec::new();
        let mut sessions = BTreeSet::new();
        let waiting = ListSendsQuery {
            status: Some(SendStatus::Waiting),
            limit: Some(200),
            ..ListSendsQuery::default()
        };
        let mut sends = self.api.list_sends(&waiting);
        while let Some(send) = sends.next().await? {
            let asks = send.waiting_on == Some(WaitingOn::Human);
            if asks && sessions.insert(send.session_id.clone()) {
                let asked = self.questions_of(&send.session_id).await?;
                questions.extend(
                    asked
                        .into_iter()
                        .filter(|one| one.call.session_id == send.session_id),
                );
            }
        }
        Ok(questions)
    }

    /// A loop that makes the calls of these tools, wherever in the tenant they wait.
    pub fn serve(&self, tools: impl IntoIterator<Item = Tool>) -> ToolLoop {
        ToolLoop::new(self.clone(), tools.into_iter().collect())
    }

    // What handles share.

    pub(crate) fn caller(&self) -> Arc<Caller> {
        self.caller.clone()
    }

    pub(crate) async fn questions_of(&self, session: &str) -> Result<Vec<Question>, Error> {
        let calls = self.api.list_waiting_calls(session).all().await?;
        let of_persons = calls
            .into_iter()
            .filter(|call| call.waiting_on == WaitingOn::Human);
        Ok(of_persons
            .map(|call| Question::new(self.clone(), call))
            .collect())
    }

    /// What is there at its end, or before, over restarts of the server.
    pub(crate) async fn wait_for<T: DeserializeOwned>(
        &self,
        path: &str,
        until: Option<Instant>,
    ) -> Result<T, Error> {
        let left = left(until);
        let wait = left.unwrap_or(POLL).min(POLL);
        let patience = left.map_or(self.caller.settings.timeout, |left| {
            left.min(self.caller.settings.timeout)
        });
        let call = Call::new(Method::GET, path).waiting(wait);
        let answer = self
            .caller
            .call(&call, Some(Duration::from_secs(1) + patience))
            .await;
        match answer {
            Err(Error::Unreachable(_)) if until.is_some_and(|until| clock::now() >= until) => {
                Err(Error::Timeout(path.to_owned()))
            }
            answer => answer?.read(),
        }
    }
}

fn left(until: Option<Instant>) -> Option<Duration> {
    until.map(|until| until.saturating_duration_since(clock::now()))
}

/// A pause that ends with the caller's time.
pub(crate) async fn pause_until(pause: Duration, until: Option<Instant>) {
    clock::sleep(left(until).map_or(pause, |left| left.min(pause))).await;
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_readme_begins_with_the_program_that_is_run() {
        let program = include_str!("../examples/hello.rs");
        let (_, program) = program.split_once("\n\n").expect("a comment and a program");
        let readme = include_str!("../README.md");
        let first = readme.split("```rust,no_run\n").nth(1).expect("a program");
        assert!(first.starts_with(program), "{program}");
    }
}
