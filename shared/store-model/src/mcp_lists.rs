//! The tools that MCP servers last told of.

use async_trait::async_trait;
use mainspring_shared::store::{McpList, McpLists, Result};

use crate::memory::ModelStore;

#[async_trait]
impl McpLists for ModelStore {
    async fn save_mcp_list(&self, list: McpList) -> Result<()> {
        let (mut state, _) = self.begin();
        state.processes.mcp_lists.insert(list.server, list.tools);
        Ok(())
    }

    async fn read_mcp_list(&self, server: String) -> Result<Option<String>> {
        let (state, _) = self.begin();
        Ok(state.processes.mcp_lists.get(&server).cloned())
    }
}
