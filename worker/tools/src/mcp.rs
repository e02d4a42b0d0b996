//! Tools of MCP servers.
//!
//! A worker has one connection to each server, begun when an agent first wants its tools, over
//! stdio or streamable HTTP. A server that dies is started again, after ever longer waits while
//! that does not help; meanwhile its tools stay on offer, so that prompts stay the same, and calls
//! of them fail. Whatever a server does, a call ends within its time.

mod connection;
mod fault;
mod http;
mod names;
mod output;
mod process;
mod server;
mod settings;
mod tool;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::secrets::Secrets;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::{DeclaredTool, McpTools};

use self::server::Server;
use self::tool::McpTool;
use mainspring_worker::tool::{Away, Tool, ToolSource};

pub use self::settings::{ServerSettings, SetupError, Transport};

/// Why a server's tools are not on offer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The configuration names no such server.
    #[error("no MCP server is named {server:?}")]
    Unknown {
        /// The name.
        server: String,
    },
    /// It did not start, could not be reached, or does not speak the protocol.
    #[error("the MCP server {server} cannot be used: {detail}")]
    Start {
        /// Its name.
        server: String,
        /// What happened, without secrets.
        detail: String,
    },
    /// It was not ready in time.
    #[error("the MCP server {server} was not ready within {limit:?}{detail}")]
    Slow {
        /// Its name.
        server: String,
        /// How long it had.
        limit: Duration,
        /// What it said meanwhile.
        detail: String,
    },
    /// It failed before and is left alone for a while.
    #[error("the MCP server {server} is unavailable for {wait:?}, after {failures} failures")]
    Away {
        /// Its name.
        server: String,
        /// Failures in a row.
        failures: u32,
        /// How long still.
        wait: Duration,
    },
}

impl Error {
    /// The same, without what a server may have quoted.
    fn without(mut self, secrets: &Secrets) -> Self {
        if let Self::Start { detail, .. } | Self::Slow { detail, .. } = &mut self {
            *detail = secrets.hidden(detail);
        }
        self
    }
}

/// The MCP servers of a worker. Those over stdio are its children: dropping the pool and what it
/// gave out kills them, with everything that they started in their process group.
#[derive(Debug, Default)]
pub struct Pool {
    servers: BTreeMap<String, Arc<Server>>,
}

impl Pool {
    /// A pool of these servers by name; starts none.
    pub fn new(
        servers: BTreeMap<String, ServerSettings>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, SetupError> {
        let server = |(name, settings): (String, ServerSettings)| {
            settings.check(&name)?;
            let server = Server::new(name.clone(), settings, clock.clone());
            Ok((name, Arc::new(server)))
        };
        let servers = servers.into_iter().map(server).collect::<Result<_, _>>()?;
        Ok(Self { servers })
    }

    /// The servers' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(String::as_str)
    }

    /// The tools of a server that an agent wants: in the order of its list, else by name. What the
    /// list names and the server lacks is left out. Starts the server if it does not run.
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
        let Some(list) = &wanted.tools else {
            return Ok(all.into_values().collect());
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
