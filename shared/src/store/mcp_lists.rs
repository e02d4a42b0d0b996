//! The tools that MCP servers last told of: parameters and results.

use async_trait::async_trait;

use super::Result;

/// Bytes of a list that are stored.
pub const MCP_LIST_BYTES_MAX: usize = 4 << 20;

/// The last list of each MCP server, which any worker may offer while the server is away. It belongs
/// to no tenant: workers are configured with servers.
#[async_trait]
pub trait McpLists: Send + Sync {
    /// Stores the list of a server, in place of the last one. A repeat changes nothing.
    async fn save_mcp_list(&self, list: McpList) -> Result<()>;

    /// The last list of a server.
    async fn read_mcp_list(&self, server: String) -> Result<Option<String>>;
}

/// The methods of [`McpLists`], as passed on by [`store_methods`](crate::store_methods).
#[doc(hidden)]
#[macro_export]
macro_rules! mcp_lists_methods {
    ($apply:ident) => {
        $apply! { McpLists:
            read save_mcp_list(list: $crate::store::McpList) -> ();
            read read_mcp_list(server: String) -> Option<String>;
        }
    };
}

/// A list to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpList {
    /// The server's name and what tells it from others of that name, at most 100 bytes.
    pub server: String,
    /// Its tools as JSON, at most [`MCP_LIST_BYTES_MAX`].
    pub tools: String,
}
