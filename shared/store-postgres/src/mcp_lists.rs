//! The tools that MCP servers last told of.

use async_trait::async_trait;
use mainspring_shared::store::{McpList, McpLists, Result};

use crate::columns::text;
use crate::retry::{execute, fetch, sql};
use crate::rows::Fields;
use crate::store::PostgresStore;

#[async_trait]
impl McpLists for PostgresStore {
    async fn save_mcp_list(&self, list: McpList) -> Result<()> {
        let (server, tools) = (
            text(&list.server).into_owned(),
            text(&list.tools).into_owned(),
        );
        execute(&self.pools.writers, || {
            sql!("mcp_lists/save")
                .bind(self.at.map(|at| at.0))
                .bind(&server)
                .bind(&tools)
        })
        .await
        .map(|_| ())
    }

    async fn read_mcp_list(&self, server: String) -> Result<Option<String>> {
        let server = text(&server).into_owned();
        let rows = fetch(&self.pools.claimers, || {
            sql!("mcp_lists/read").bind(&server)
        });
        let rows = rows.await?;
        let tools = |row| Fields::new(row, "mcp_lists").take("tools");
        rows.first().map(tools).transpose()
    }
}
