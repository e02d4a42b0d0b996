//! Tools of real MCP servers, over stdio and streamable HTTP: healthy ones, and ones that die,
//! hang, change or talk nonsense.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that fails fails the test that called it"
)]

mod common;
mod credentials;
mod everything;
mod http;
mod inquiring;
mod keeping;
mod lists;
mod misbehaving;
mod progress;
mod script;
mod server;
mod sessions;
mod stdio;
mod tasks;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::error::Code;
use mainspring_shared::id::{BootId, SendId, SessionId, SessionKey, TenantId};
use mainspring_shared::memory::Account;
use mainspring_shared::message::plain_text;
use mainspring_shared::time::{Clock, Timestamp};
use mainspring_shared::tool::McpTools;
use mainspring_tools::mcp::{Error, Pool, ServerSettings, Transport};
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Generous upper bound; nothing that works takes this long.
const LONG: Duration = Duration::from_mins(1);

/// The time in which a call ends whatever progress it reports.
const TOTAL_MAX: Duration = Duration::from_secs(5);

/// A clock on which every sleep returns at once, and time advances only by sleeps.
#[derive(Debug, Default)]
struct Leaping {
    passed: Mutex<Duration>,
}

#[async_trait]
impl Clock for Leaping {
    fn now(&self) -> Timestamp {
        Timestamp(0).after(self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        *self.passed.lock().unwrap()
    }

    async fn sleep(&self, duration: Duration) {
        *self.passed.lock().unwrap() += duration;
    }
}

/// A pool with one server, named `it`.
fn pool(transport: Transport, timeout: Duration, start_timeout: Duration) -> Pool {
    pool_at(
        &Arc::new(Leaping::default()),
        transport,
        timeout,
        start_timeout,
    )
}

fn pool_at(
    clock: &Arc<Leaping>,
    transport: Transport,
    timeout: Duration,
    start_timeout: Duration,
) -> Pool {
    // Fails if a test before this one did it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = ServerSettings {
        timeout,
        timeout_max: timeout.max(TOTAL_MAX),
        start_timeout,
        ..ServerSettings::new(transport)
    };
    let servers = BTreeMap::from([("it".to_owned(), settings)]);
    let clock: Arc<dyn Clock> = clock.clone();
    Pool::new(servers, &clock).expect("the settings are fine")
}

fn wanted(prefix: &str, tools: Option<&[&str]>) -> McpTools {
    McpTools {
        server: "it".to_owned(),
        tools: tools.map(|names| names.iter().map(|&name| name.to_owned()).collect()),
        prefix: prefix.to_owned(),
        approval: false,
        resources: false,
        prompts: false,
        pool: None,
        extra: mainspring_shared::stored::Extra::default(),
    }
}

async fn tools(pool: &Pool) -> Result<BTreeMap<String, Arc<dyn Tool>>, Error> {
    let tools = pool.tools(&wanted("", None)).await?;
    Ok(tools
        .into_iter()
        .map(|tool| (tool.spec().name, tool))
        .collect())
}

async fn tool(pool: &Pool, name: &str) -> Arc<dyn Tool> {
    tools(pool)
        .await
        .expect("a server")
        .remove(name)
        .expect("a tool")
}

async fn call(pool: &Pool, name: &str, arguments: Value) -> Result<Output, ToolError> {
    tool(pool, name).await.call(invocation(arguments)).await
}

fn invocation(arguments: Value) -> Invocation {
    let arguments: Map<String, Value> = serde_json::from_value(arguments).expect("an object");
    Invocation {
        call_id: "call_1_0_0".to_owned(),
        arguments,
        said: None,
        session: SessionKey {
            tenant: TenantId::DEFAULT,
            session: SessionId(Uuid::nil()),
        },
        send_id: SendId(Uuid::nil()),
        boot: BootId(Uuid::nil()),
        attempt: 1,
        stop: CancellationToken::new(),
        skills: mainspring_worker::tool::Skills::default(),
        account: Account::default(),
        progress: mainspring_worker::tool::Progress::default(),
        kept: mainspring_worker::tool::Kept::default(),
        inquiring: mainspring_worker::tool::Inquiring::default(),
    }
}

fn text(result: Result<Output, ToolError>) -> String {
    plain_text(&result.expect("a success").content)
}

fn refusal(result: Result<Output, ToolError>) -> (Code, String) {
    match result {
        Err(ToolError::Reply { code, message }) => (code, message),
        other => panic!("{other:?}"),
    }
}
