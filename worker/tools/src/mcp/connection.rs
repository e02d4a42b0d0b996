//! One connection to an MCP server, from its start to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use mainspring_runtime::telemetry::{self, TRACEPARENT, spans};
use mainspring_shared::error::Code;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation,
    JsonObject, MetaObject, PaginatedRequestParams, ProtocolVersion, RequestMetaObject, Tool,
};
use rmcp::service::{NotificationContext, RunningService};
use rmcp::transport::IntoTransport;
use rmcp::{ClientCacheConfig, ClientHandler, RoleClient, serve_client};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::Instrument as _;

use super::fault::{Fault, describe};
use super::process::Process;
use super::settings::{ServerSettings, Transport};
use super::{Error, http};

/// Limits on the tools of one server and on the pages of their listing; more than any model can
/// tell apart.
const TOOLS_MAX: usize = 1_000;
const PAGES_MAX: usize = 100;

/// How long an agent waits for a changed tool list before it gets the known one.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(5);

/// Consecutive unanswered calls after which a connection is given up.
const SILENCES_MAX: u32 = 3;

/// The `_meta` key of the call's id, for a server that wants to recognize repeated calls.
const CALL_ID: &str = "mainspring/call-id";

/// The tools of a server, by name.
pub(super) type Listing = Arc<[Tool]>;

/// An open connection. Dropping it closes it and kills the server if that is a child.
#[derive(Debug)]
pub(super) struct Connection {
    service: RunningService<RoleClient, Client>,
    /// The tools, and the number of change notifications seen before they were listed.
    listing: Mutex<(Listing, u64)>,
    silences: AtomicU32,
    /// Whether it ever served a call.
    proven: AtomicBool,
    born: Duration,
    _process: Option<Process>,
}

/// Our side of the protocol: offers servers nothing, and listens for changes of their tools.
#[derive(Debug, Clone, Default)]
struct Client {
    changes: Arc<AtomicU64>,
}

impl ClientHandler for Client {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("mainspring", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

type Service = RunningService<RoleClient, Client>;

impl Connection {
    /// Starts or reaches a server and lists its tools. `now` is the monotonic clock's reading.
    pub(super) async fn open(
        server: &str,
        settings: &ServerSettings,
        now: Duration,
    ) -> Result<Self, Error> {
        let limit = settings.start_timeout;
        let secrets = settings.transport.secrets();
        let (service, listing, process) = match &settings.transport {
            Transport::Stdio { command, args, env } => {
                let started = Process::start(server, command, args, env, secrets);
                let (process, pipes) = started.map_err(|error| Error::Start {
                    server: server.to_owned(),
                    detail: format!("{command:?} does not start: {error}"),
                })?;
                match timeout(limit, begin(pipes)).await {
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
            Transport::Http { url, headers } => {
                let transport = http::transport(url, headers, secrets);
                let transport = transport.map_err(|detail| failed(server, detail))?;
                match timeout(limit, begin(transport)).await {
                    Ok(Ok((service, listing))) => (service, listing, None),
                    Ok(Err(detail)) => return Err(failed(server, detail)),
                    Err(_) => return Err(slow(server, limit, String::new())),
                }
            }
        };
        Ok(Self {
            service,
            listing: Mutex::new((listing, 0)),
            silences: AtomicU32::new(0),
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
        let changes = self.service.service().changes.load(Ordering::SeqCst);
        if listing.1 != changes {
            match timeout(REFRESH_TIMEOUT, list(&self.service)).await {
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

    /// Makes a call. Dropping the future cancels the request at the server.
    pub(super) async fn call(
        &self,
        tool: String,
        call_id: &str,
        arguments: JsonObject,
    ) -> Result<CallToolResponse, Fault> {
        let span = spans::call_mcp(&tool, call_id);
        let called = self.call_traced(tool, call_id, arguments);
        let answer = called.instrument(span.clone()).await;
        if answer.is_err() {
            spans::failed(&span, Code::ToolFailed);
        }
        answer
    }

    async fn call_traced(
        &self,
        tool: String,
        call_id: &str,
        arguments: JsonObject,
    ) -> Result<CallToolResponse, Fault> {
        let mut params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let mut meta = JsonObject::new();
        meta.insert(CALL_ID.to_owned(), Value::from(call_id));
        // Also for servers not reached over HTTP; over HTTP it is a header, too.
        if let Some(traceparent) = telemetry::traceparent() {
            meta.insert(TRACEPARENT.to_owned(), Value::from(traceparent));
        }
        params.meta = Some(RequestMetaObject(MetaObject(meta)));
        let answer = self.service.peer().call_tool_once(params).await;
        let answer = answer.map_err(Fault::of);
        if matches!(answer, Ok(_) | Err(Fault::Refused(..))) {
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

async fn begin<T, E, A>(transport: T) -> Result<(Service, Listing), String>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let service = serve_client(Client::default(), transport).await;
    let service = service.map_err(|error| describe(&error))?;
    // We keep our own cache until the server reports a change.
    let peer = service.peer();
    peer.set_response_cache_config(ClientCacheConfig::disabled())
        .await;
    let listing = list(&service).await.map_err(|fault| match fault {
        Fault::Unreached(said) | Fault::Broken(said) | Fault::Failed(said) => said,
        Fault::Refused(_, said) => format!("it does not tell its tools: {said}"),
    })?;
    Ok((service, listing))
}

async fn list(service: &Service) -> Result<Listing, Fault> {
    let offered = service.peer().peer_info();
    if offered.is_some_and(|info| info.capabilities.tools.is_none()) {
        return Ok(Listing::default());
    }
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let page = PaginatedRequestParams::default().with_cursor(cursor.take());
        let page = service
            .peer()
            .list_tools(Some(page))
            .await
            .map_err(Fault::of)?;
        tools.extend(page.tools);
        cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
        if cursor.is_none() || tools.len() >= TOOLS_MAX {
            break;
        }
    }
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|a, b| a.name == b.name);
    tools.truncate(TOOLS_MAX);
    Ok(tools.into())
}
