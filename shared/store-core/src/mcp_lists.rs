//! The tools that MCP servers last told of.

use async_trait::async_trait;
use mainspring_shared::store;
use mainspring_shared::store::{McpList, McpLists};

use crate::db::{Conn, sql};
use crate::fault::Result;
use crate::query::statement;
use crate::rows::Cells;
use crate::store::{SqlStore, Tx};

#[async_trait]
impl McpLists for SqlStore {
    async fn save_mcp_list(&self, list: McpList) -> store::Result<()> {
        self.write(list, |tx, list| Box::pin(save(tx, list))).await
    }

    async fn read_mcp_list(&self, server: String) -> store::Result<Option<String>> {
        self.read(move |conn| Box::pin(read(conn, server))).await
    }
}

async fn save(tx: &mut Tx, list: McpList) -> Result<()> {
    let now = tx.now;
    statement(sql!("mcp_lists/save"))
        .bind(list.server)
        .bind(list.tools)
        .bind(now.0)
        .execute(tx.conn())
        .await?;
    Ok(())
}

async fn read(conn: &mut Conn, server: String) -> Result<Option<String>> {
    let rows = statement(sql!("mcp_lists/read"))
        .bind(server)
        .fetch_all(conn)
        .await?;
    let tools = |row| Cells::new(row, "mcp_lists").get("tools");
    rows.first().map(tools).transpose()
}
