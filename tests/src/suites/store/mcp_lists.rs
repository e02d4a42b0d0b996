//! The tools that MCP servers last told of.

use mainspring_shared::store::{Inspect, McpList};

use super::prelude::*;

/// A list of the server `server`.
pub fn mcp_list(server: &str, tools: &str) -> McpList {
    McpList {
        server: server.to_owned(),
        tools: tools.to_owned(),
    }
}

async fn read(store: &dyn Inspect, server: &str) -> Option<String> {
    let read = store.read_mcp_list(server.to_owned()).await;
    read.expect("the store answers")
}

pub async fn the_last_list_of_each_server_is_kept(store: &dyn Inspect) {
    assert_eq!(read(store, "a").await, None);
    let large = format!("[{}]", "\"é\",".repeat(200_000));
    for (ms, list) in [
        (10, mcp_list("a", "[]")),
        (20, mcp_list("A", &large)),
        (30, mcp_list("a", "[1]")),
    ] {
        let saved = store.at(time(ms)).save_mcp_list(list).await;
        saved.expect("the store answers");
    }
    assert_eq!(read(store, "a").await.as_deref(), Some("[1]"));
    assert_eq!(read(store, "A").await, Some(large));
    assert_eq!(read(store, "b").await, None);
}
