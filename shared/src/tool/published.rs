//! The tools that workers publish for agents to name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::declared::{DeclaredTool, ToolEntry, ToolFault};
use super::preset;
use crate::model::PublishedModels;
use crate::stored::Extra;
use crate::words::nearest;

/// Maximum characters of a published description: one line for people.
const SAYS_CHARS_MAX: usize = 200;

/// Maximum number of tools listed in a refusal.
const NAMED_MAX: usize = 40;

/// The tools that one worker publishes when it starts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Published {
    /// Its tools by name, each with a line of description.
    #[serde(default)]
    pub tools: BTreeMap<String, String>,
    /// The MCP servers that it is configured with.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Its models; absent from workers of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<PublishedModels>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Published {
    /// Adds a tool with the first line of its description.
    pub fn add(&mut self, name: String, says: &str) {
        let line = says.lines().next().unwrap_or_default();
        let line = line.chars().take(SAYS_CHARS_MAX).collect();
        self.tools.insert(name, line);
    }

    /// Whether it is empty: its worker is of a release that does not publish its tools.
    pub fn is_silent(&self) -> bool {
        self.tools.is_empty() && self.servers.is_empty()
    }

    /// Adds the tools of another worker. Models are no set: each worker's stand for themselves.
    pub fn join(&mut self, other: &Self) {
        for (name, says) in &other.tools {
            if !self.tools.contains_key(name) {
                self.tools.insert(name.clone(), says.clone());
            }
        }
        for server in &other.servers {
            if !self.servers.contains(server) {
                self.servers.push(server.clone());
            }
        }
    }

    /// The tools that an agent names and workers with these tools do not have.
    pub fn lacks(&self, tools: &[ToolEntry], pool: &str) -> Vec<ToolFault> {
        let mut faults = Vec::new();
        for (place, entry) in tools.iter().enumerate() {
            let (member, name) = match entry {
                ToolEntry::Named(name) => ("", name),
                ToolEntry::Declared(DeclaredTool::Worker(tool)) => ("/name", &tool.name),
                ToolEntry::Declared(DeclaredTool::Mcp(tools)) => {
                    if !self.servers.contains(&tools.server) {
                        faults.push(ToolFault {
                            pointer: format!("/{place}/server"),
                            detail: no_server(&tools.server, pool, &self.servers),
                        });
                    }
                    continue;
                }
                ToolEntry::Declared(DeclaredTool::Http(_) | DeclaredTool::External(_)) => continue,
            };
            if preset(name).is_none() && !self.tools.contains_key(name) {
                faults.push(ToolFault {
                    pointer: format!("/{place}{member}"),
                    detail: self.no_tool(name, pool),
                });
            }
        }
        faults
    }

    fn no_tool(&self, name: &str, pool: &str) -> String {
        let head = format!("no worker of the pool {pool:?} has a tool named {name:?}");
        let names = || self.tools.keys().map(String::as_str);
        if let Some(near) = nearest(name, names()) {
            return format!("{head}; did you mean {near:?}?");
        }
        let some: Vec<_> = names().take(NAMED_MAX).collect();
        format!("{head}; there are: {}", some.join(", "))
    }
}

fn no_server(server: &str, pool: &str, servers: &[String]) -> String {
    let head = format!("no worker of the pool {pool:?} has an MCP server named {server:?}");
    match nearest(server, servers.iter().map(String::as_str)) {
        Some(near) => format!("{head}; did you mean {near:?}?"),
        None => head,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn published(names: &[&str], servers: &[&str]) -> Published {
        let mut published = Published::default();
        for name in names {
            published.add((*name).to_owned(), "does it\nat length");
        }
        published.servers = servers.iter().map(|name| (*name).to_owned()).collect();
        published
    }

    #[test]
    fn what_no_worker_has_is_named_with_what_was_probably_meant() {
        let mut there = published(&["read_file", "shell"], &[]);
        there.join(&published(&["shell", "grep"], &["files"]));
        assert_eq!(there.tools["grep"], "does it");
        let tools = json!([
            "core", "shel", "grep", "nothing_like_it",
            {"type": "worker", "name": "red_file"},
            {"type": "mcp", "server": "file"}, {"type": "mcp", "server": "files"},
            {"type": "http", "name": "pay", "url": "https://bank.example"},
            {"type": "external", "name": "sign"},
        ]);
        let tools: Vec<ToolEntry> = serde_json::from_value(tools).expect("tools");
        let faults = there.lacks(&tools, "default");
        let faults: Vec<_> = faults
            .iter()
            .map(|fault| (fault.pointer.as_str(), fault.detail.as_str()))
            .collect();
        let head = "no worker of the pool \"default\" has";
        let expected = [
            (
                "/1",
                format!("{head} a tool named \"shel\"; did you mean \"shell\"?"),
            ),
            (
                "/3",
                format!(
                    "{head} a tool named \"nothing_like_it\"; there are: grep, read_file, shell"
                ),
            ),
            (
                "/4/name",
                format!("{head} a tool named \"red_file\"; did you mean \"read_file\"?"),
            ),
            (
                "/5/server",
                format!("{head} an MCP server named \"file\"; did you mean \"files\"?"),
            ),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(at, why)| (*at, why.as_str()))
            .collect();
        assert_eq!(faults, expected);
    }
}
