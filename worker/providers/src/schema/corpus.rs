//! Schemas in the manner of those that servers in use give, with arguments that fit them.

use serde::Deserialize;
use serde_json::Value;

/// A schema, and arguments that fit it.
#[derive(Debug, Deserialize)]
pub(in super::super) struct Sample {
    pub(in super::super) name: String,
    pub(in super::super) schema: Value,
    pub(in super::super) accepts: Vec<Value>,
}

/// The tools of one server.
#[derive(Debug, Deserialize)]
struct Server {
    server: String,
    tools: Vec<Sample>,
}

pub(in super::super) fn corpus() -> Vec<Sample> {
    let single = serde_json::from_str::<Vec<Sample>>(include_str!("corpus.json"));
    let servers = serde_json::from_str::<Vec<Server>>(include_str!("servers.json"));
    let of_servers = servers.expect("the servers are JSON").into_iter();
    let of_servers = of_servers.flat_map(|Server { server, tools }| {
        tools.into_iter().map(move |tool| Sample {
            name: format!("{server}: {}", tool.name),
            ..tool
        })
    });
    let single = single.expect("the corpus is JSON").into_iter();
    single.chain(of_servers).collect()
}
