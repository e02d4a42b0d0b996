//! One connection to an MCP server, from its start to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use mainspring_runtime::telemetry::{self, TRACEPARENT, spans};
use mainspring_shared::error::Code;
use mainspring_worker::tool::Invocation;
use rmcp::model::{JsonObject, ProtocolVersion};
use rmcp::transport::IntoTransport;
use rmcp::{ClientCacheConfig, RoleClient, serve_client};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::Instrument as _;

use super::client::{self, Ask, Asking, Client, Limits, Service};
use super::envelope::TASKS;
use super::fault::{Fault, describe};
use super::inquiring::Questions;
use super::listing::{self, Described};
use super::process::Process;
use super::server::Server;
use super::settings::Transport;
use super::{Error, http};

/// Limit on the tools of one server; more than any model can tell apart.
const TOOLS_MAX: usize = 1_000;

/// Elements of a list that are looked at, so that a few odd ones do not cost tools.
const ELEMENTS_MAX: usize = 2 * TOOLS_MAX;

/// How long an agent waits for a changed tool list before it gets the known one.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(5);

/// Consecutive unanswered calls after which a connection is given up.
const SILENCES_MAX: u32 = 3;

/// Characters of a version that are shown.
const VERSION_CHARS_MAX: usize = 40;

/// The `_meta` key of the call's id, for a server that wants to recognize repeated calls.
const CALL_ID: &str = "mainspring/call-id";

/// The tools of a server, by name.
pub(super) type Listing = Arc<[Described]>;

/// How a call is made, besides its arguments.
#[derive(Debug)]
pub(super) struct CallAsks<'q> {
    /// For how long the server must keep the task that it may answer with, if it may.
    pub(super) as_task: Option<Duration>,
    /// Members of a call that is made again with answers.
    pub(super) again: JsonObject,
    /// What it may ask.
    pub(super) questions: &'q mut Questions,
}

/// An open connection. Dropping it closes it and kills the server if that is a child.
#[derive(Debug)]
pub(super) struct Connection {
    name: String,
    service: Service,
    /// The tools, and the number of change notifications seen before they were listed.
    listing: Mutex<(Listing, u64)>,
    silences: AtomicU32,
    /// Held by a call that must be the only one.
    turn: Mutex<()>,
    /// Whether it ever served a call.
    proven: AtomicBool,
    born: Duration,
    _process: Option<Process>,
}

impl Connection {
    /// Starts or reaches a server and lists its tools. `now` is the monotonic clock's reading.
    pub(super) async fn open(of: &Server, now: Duration) -> Result<Self, Error> {
        let (server, settings) = (of.name(), &of.settings);
        let limit = settings.start_timeout;
        let (service, listing, process) = match &settings.transport {
            Transport::Stdio { command, args, env } => {
                let secrets = of.secrets().now();
                let started = Process::start(server, command, args, env, secrets);
                let (process, pipes) = started.map_err(|error| Error::Start {
                    server: server.to_owned(),
                    detail: format!("{command:?} does not start: {error}"),
                })?;
                match timeout(limit, begin(of, pipes)).await {
                    Ok(Ok((service, listing))) => (service, listing, Some(process)),
                    Ok(Err(detail)) => {
                        let detail = detail + &process.last_words().await;
                        return Err(failed(server, detail));
                    }
                    Err(_) => {
                        let detail = process.last_words().await;
                        return Err(slow(server, limit, detail));
                    }
                }
            }
            Transport::Http { url, .. } => {
                let credentials = of.credentials().cloned();
                let transport = credentials.ok_or_else(|| "its URL is none".to_owned());
                let transport =
                    transport.and_then(|own| http::transport(url, own, of.secrets().clone()));
                let transport = transport.map_err(|detail| failed(server, detail))?;
                match timeout(limit, begin(of, transport)).await {
                    Ok(Ok((service, listing))) => (service, listing, None),
                    Ok(Err(detail)) => return Err(failed(server, detail)),
                    Err(_) => return Err(slow(server, limit, String::new())),
                }
            }
        };
        Ok(Self {
            name: server.to_owned(),
            service,
            listing: Mutex::new((listing, 0)),
            silences: AtomicU32::new(0),
            turn: Mutex::default(),
            proven: AtomicBool::new(false),
            born: now,
            _process: process,
        })
    }

    /// Whether it still looks usable.
    pub(super) fn is_open(&self) -> bool {
        !self.service.peer().is_transport_closed() && !self.service.is_closed()
    }

    /// Whether it ever served a call, or lived long enough.
    pub(super) fn proved_itself(&self, now: Duration, stable: Duration) -> bool {
        self.proven.load(Ordering::SeqCst) || now.saturating_sub(self.born) >= stable
    }

    /// The server's tools, listed again after the server reported a change. If that fails, they
    /// stay as they were.
    pub(super) async fn listing(&self) -> Listing {
        let mut listing = self.listing.lock().await;
        // Read before listing, so that a change in between triggers another listing.
        let changes = self.service.service().changes();
        if listing.1 != changes {
            match timeout(REFRESH_TIMEOUT, list(&self.name, &self.service)).await {
                Ok(Ok(new)) => *listing = (new, changes),
                failed => {
                    // The error's text may contain anything, so it is not logged.
                    let is_late = failed.is_err();
                    tracing::warn!(
                        is_late,
                        "could not list an MCP server's changed tools; keeping the old list"
                    );
                }
            }
        }
        listing.0.clone()
    }

    /// Makes a call, and returns its result as the server wrote it. Dropping the future cancels the
    /// request at the server.
    pub(super) async fn call(
        &self,
        tool: &str,
        invocation: &Invocation,
        limits: Limits,
        asks: CallAsks<'_>,
    ) -> Result<Value, Fault> {
        // Questions that do not say for which call they are can only be those of the only one.
        let _alone = if self.service.service().must_be_alone() {
            let turn = timeout(limits.total, self.turn.lock()).await;
            let busy = |_| Fault::Away("its server is busy with other calls".to_owned());
            Some(turn.map_err(busy)?)
        } else {
            None
        };
        let CallAsks {
            as_task,
            again,
            questions,
        } = asks;
        let span = spans::call_mcp(tool, &invocation.call_id);
        let mut params = again;
        params.insert("name".to_owned(), Value::from(tool));
        let arguments = Value::Object(invocation.arguments.clone());
        params.insert("arguments".to_owned(), arguments);
        if let Some(keep) = as_task {
            let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
            params.insert("task".to_owned(), json!({ "ttl": keep }));
        }
        let asking = Asking::Call(questions);
        let called = self.asking("tools/call", params, invocation, limits, asking);
        let answer = called.instrument(span.clone()).await;
        if answer.is_err() {
            spans::failed(&span, Code::ToolFailed);
        }
        answer
    }

    /// Makes a request about a task.
    pub(super) async fn of_task(
        &self,
        method: &'static str,
        id: &str,
        invocation: &Invocation,
        limits: Limits,
    ) -> Result<Value, Fault> {
        let params = JsonObject::from_iter([("taskId".to_owned(), Value::from(id))]);
        let asking = Asking::Task(id);
        self.asking(method, params, invocation, limits, asking)
            .await
    }

    /// Gives the answers to what a task has asked.
    pub(super) async fn answer_task(
        &self,
        id: &str,
        answers: JsonObject,
        invocation: &Invocation,
        limits: Limits,
    ) -> Result<Value, Fault> {
        let params = JsonObject::from_iter([
            ("taskId".to_owned(), Value::from(id)),
            ("inputResponses".to_owned(), Value::Object(answers)),
        ]);
        self.request("tasks/update", params, invocation, limits)
            .await
    }

    /// Answers what a task asks, for as long as the answers are known; returns how the call ends
    /// then, which asks.
    pub(super) async fn questions_of(&self, task: &str, questions: &mut Questions) -> Fault {
        self.service.service().questions_of(task, questions).await
    }

    /// Answers what a task has asked so far; returns how much, or how the call ends if an answer is missing.
    pub(super) fn open_question_of(
        &self,
        task: &str,
        questions: &mut Questions,
    ) -> Result<usize, Fault> {
        self.service.service().open_question_of(task, questions)
    }

    /// Forgets what a task that is over has asked.
    pub(super) fn task_is_over(&self, task: &str) {
        self.service.service().task_is_over(task);
    }

    /// The elements of a list, whatever they are.
    pub(super) async fn list(
        &self,
        method: &'static str,
        member: &'static str,
        elements_max: usize,
    ) -> Result<Vec<Value>, Fault> {
        client::list(&self.service, method, member, elements_max).await
    }

    /// Whether calls can be tasks.
    pub(super) fn has_tasks(&self) -> bool {
        let info = self.service.peer().peer_info();
        let kept = info
            .as_ref()
            .and_then(|info| info.capabilities.experimental.as_ref());
        let tasks = kept.and_then(|kept| kept.get(TASKS));
        let requests = tasks.and_then(|tasks| tasks.get("requests"));
        let calls = requests.and_then(|of| of.get("tools")?.get("call"));
        calls.is_some_and(Value::is_object)
    }

    /// Makes a request for a call, and returns its result as the server wrote it.
    pub(super) async fn request(
        &self,
        method: &'static str,
        params: JsonObject,
        invocation: &Invocation,
        limits: Limits,
    ) -> Result<Value, Fault> {
        self.asking(method, params, invocation, limits, Asking::Nobody)
            .await
    }

    async fn asking(
        &self,
        method: &'static str,
        params: JsonObject,
        invocation: &Invocation,
        limits: Limits,
        asking: Asking<'_>,
    ) -> Result<Value, Fault> {
        let mut meta = JsonObject::new();
        let call_id = Value::from(&*invocation.call_id);
        meta.insert(CALL_ID.to_owned(), call_id);
        // Also for servers not reached over HTTP; over HTTP it is a header, too.
        if let Some(traceparent) = telemetry::traceparent() {
            meta.insert(TRACEPARENT.to_owned(), Value::from(traceparent));
        }
        let ask = Ask {
            method,
            params,
            meta,
            limits: Some(limits),
            progress: &invocation.progress,
            asking,
        };
        let answer = client::ask(&self.service, ask).await;
        if matches!(
            answer,
            Ok(_) | Err(Fault::Refused(..) | Fault::Opens(..) | Fault::Asks(_))
        ) {
            self.silences.store(0, Ordering::SeqCst);
            self.proven.store(true, Ordering::SeqCst);
        }
        answer
    }

    /// Records that a call timed out; returns whether that was once too often.
    pub(super) fn was_silent(&self) -> bool {
        self.silences.fetch_add(1, Ordering::SeqCst) + 1 >= SILENCES_MAX
    }
}

fn failed(server: &str, detail: String) -> Error {
    Error::Start {
        server: server.to_owned(),
        detail,
    }
}

fn slow(server: &str, limit: Duration, detail: String) -> Error {
    Error::Slow {
        server: server.to_owned(),
        limit,
        detail,
    }
}

async fn begin<T, E, A>(of: &Server, transport: T) -> Result<(Service, Listing), String>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let service = serve_client(Client::new(of.secrets().clone()), transport).await;
    let service = service.map_err(|error| describe(&error))?;
    let peer = service.peer();
    if let Some(version) = peer.peer_info().map(|info| info.protocol_version.clone())
        && version.as_str() > ProtocolVersion::LATEST.as_str()
    {
        let version: String = version.as_str().chars().take(VERSION_CHARS_MAX).collect();
        return Err(format!(
            "it speaks version {version:?} of the protocol, which is newer than any known here"
        ));
    }
    // We keep our own cache until the server reports a change.
    peer.set_response_cache_config(ClientCacheConfig::disabled())
        .await;
    let listing = list(of.name(), &service)
        .await
        .map_err(|fault| match fault {
            Fault::Unreached(said)
            | Fault::Broken(said)
            | Fault::Failed(said)
            | Fault::Away(said) => said,
            Fault::Refused(_, said) | Fault::Opens(_, said) => {
                format!("it does not tell its tools: {said}")
            }
            Fault::Asks(_) => "it asks a person before it tells its tools".to_owned(),
            Fault::Silent(limit) => format!("it does not tell its tools within {limit:?}"),
        })?;
    Ok((service, listing))
}

async fn list(server: &str, service: &Service) -> Result<Listing, Fault> {
    let offered = service.peer().peer_info();
    if offered.is_some_and(|info| info.capabilities.tools.is_none()) {
        return Ok(Listing::default());
    }
    let elements = client::list(service, "tools/list", "tools", ELEMENTS_MAX).await?;
    Ok(listing::tools(server, elements, TOOLS_MAX).into())
}
