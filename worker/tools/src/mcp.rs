//! Tools of MCP servers.
//!
//! A worker has one connection to each server, over stdio or streamable HTTP, opened when an agent
//! first needs the server's tools. A server that dies is restarted, with a growing backoff while
//! that keeps failing. Meanwhile its tools stay on offer, so that prompts stay the same, and calls
//! to them fail. Whatever a server does, a call ends within its time limit.

mod client;
mod connection;
mod credentials;
mod envelope;
mod fault;
mod http;
mod inquiring;
mod keeping;
mod lines;
mod listing;
mod names;
mod oauth;
mod output;
mod post;
mod process;
mod reading;
mod server;
mod settings;
mod tasks;
mod tool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::secrets::Secrets;
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::{DeclaredTool, McpTools};

use self::server::Server;
use self::tool::McpTool;
use mainspring_worker::tool::{Away, Tool, ToolSource};

pub use self::credentials::HeaderSources;
pub(crate) use self::credentials::KnownSecrets;
pub use self::oauth::OAuthSettings;
pub(crate) use self::oauth::{NoToken, OAuth};
pub use self::settings::{ServerSettings, SetupError, Transport};

/// Why a server's tools are not on offer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No server of that name is configured.
    #[error("no MCP server is named {server:?}")]
    Unknown {
        /// The name.
        server: String,
    },
    /// The server did not start, could not be reached, or does not speak the protocol.
    #[error("the MCP server {server} cannot be used: {detail}")]
    Start {
        /// Its name.
        server: String,
        /// What happened, without secrets.
        detail: String,
    },
    /// The server was not ready in time.
    #[error("the MCP server {server} was not ready within {limit:?}{detail}")]
    Slow {
        /// Its name.
        server: String,
        /// The time limit.
        limit: Duration,
        /// What the server said meanwhile.
        detail: String,
    },
    /// The server failed before and is not retried for a while.
    #[error("the MCP server {server} is unavailable for {wait:?}, after {failures} failures")]
    Away {
        /// Its name.
        server: String,
        /// Consecutive failures.
        failures: u32,
        /// Time left until the next try.
        wait: Duration,
    },
}

impl Error {
    /// The error with secrets hidden in what the server said.
    fn without(mut self, secrets: &Secrets) -> Self {
        if let Self::Start { detail, .. } | Self::Slow { detail, .. } = &mut self {
            *detail = secrets.hidden(detail);
        }
        self
    }
}

/// The MCP servers of a worker. Those over stdio are its children: dropping the pool and the tools
/// that it handed out kills them, with everything that they started in their process group.
#[derive(Debug, Default)]
pub struct Pool {
    servers: BTreeMap<String, Arc<Server>>,
}

/// Where the last lists of servers are kept.
pub type Kept = Arc<dyn Store>;

impl Pool {
    /// A pool of these servers by name. Does not start any.
    pub fn new(
        servers: BTreeMap<String, ServerSettings>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, SetupError> {
        Self::keeping(servers, clock, None)
    }

    /// The same, with a place where the servers' lists are kept: a worker that has just started
    /// offers the last list of a server that it cannot reach.
    pub fn keeping(
        servers: BTreeMap<String, ServerSettings>,
        clock: &Arc<dyn Clock>,
        kept: Option<&Kept>,
    ) -> Result<Self, SetupError> {
        let server = |(name, settings): (String, ServerSettings)| {
            settings.check(&name)?;
            let server = Server::new(name.clone(), settings, clock.clone(), kept.cloned());
            Ok((name, Arc::new(server)))
        };
        let servers = servers.into_iter().map(server).collect::<Result<_, _>>()?;
        Ok(Self { servers })
    }

    /// The names of the servers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(String::as_str)
    }

    /// The tools that an agent wants of a server: in the order of its list, or by name without a
    /// list. Tools that the list names but the server lacks are left out. Starts the server if it
    /// is not running.
    pub async fn tools(&self, wanted: &McpTools) -> Result<Vec<Arc<dyn Tool>>, Error> {
        let unknown = || Error::Unknown {
            server: wanted.server.clone(),
        };
        let server = self.servers.get(&wanted.server).ok_or_else(unknown)?;
        let listing = server.listing().await?;
        let names = names::portable(&wanted.prefix, listing.iter().map(|tool| &*tool.name));
        let all = names.into_iter().filter_map(|(remote, name)| {
            let described = listing.iter().find(|tool| tool.name == remote)?;
            let tool: Arc<dyn Tool> = Arc::new(McpTool::new(server.clone(), name, described));
            Some((remote, tool))
        });
        let mut all: BTreeMap<&str, Arc<dyn Tool>> = all.collect();
        let readers = reading::tools(server, wanted);
        let Some(list) = &wanted.tools else {
            return Ok(all.into_values().chain(readers).collect());
        };
        let mut tools = Vec::new();
        for name in list {
            if let Some(tool) = all.remove(name.as_str()) {
                tools.push(tool);
            } else {
                tracing::warn!(
                    mcp.server = wanted.server,
                    tool.name = name,
                    "an agent names a tool that this MCP server lacks"
                );
            }
        }
        tools.extend(readers);
        Ok(tools)
    }
}

#[async_trait]
impl ToolSource for Pool {
    async fn tools(&self, declared: &DeclaredTool) -> Option<Result<Vec<Arc<dyn Tool>>, Away>> {
        let DeclaredTool::Mcp(wanted) = declared else {
            return None;
        };
        Some(self.tools(wanted).await.map_err(|error| Away {
            which: format!("those of the MCP server {}", wanted.server),
            why: error.to_string(),
        }))
    }

    fn servers(&self) -> Vec<&str> {
        self.names().collect()
    }
}
