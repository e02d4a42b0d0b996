//! What tools may use.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mainspring_shared::time::Span;
use serde::Deserialize;

use super::Secret;

/// What the built-in tools and those behind URLs may use.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolsConfig {
    /// Where files are; nowhere, and then no tool touches any, when none.
    #[serde(default)]
    pub workspace: Option<PathBuf>,
    /// Whether all sessions share that directory instead of having one each below it.
    pub workspace_shared: bool,
    /// How commands run.
    pub shell: ShellKind,
    /// The command line of the sandbox that runs a command.
    #[serde(default)]
    pub shell_template: Vec<String>,
    /// What is run after a command that was stopped.
    #[serde(default)]
    pub shell_cleanup: Vec<String>,
    /// The command line that starts a process of their own for the tools of the workspace.
    #[serde(default)]
    pub launcher: Vec<String>,
    /// The variables of the worker's environment that commands see.
    pub shell_environment: Vec<String>,
    /// Private addresses that tools may call all the same.
    #[serde(default)]
    pub allow_private: Vec<String>,
    /// What requests of tools are signed with; several with spaces between them while one replaces
    /// another.
    #[serde(default)]
    pub signing_secret: Option<Secret>,
    /// Hosts of tools whose requests are signed; all when empty.
    #[serde(default)]
    pub signing_hosts: Vec<String>,
    /// How long a question or a permission waits for a person, unless the question says so.
    #[serde(default)]
    pub answer_within: Option<Span>,
    /// How long one attempt of a tool behind a URL may take unless it says otherwise.
    pub timeout: Span,
}

/// Policies behind URLs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HooksConfig {
    /// Asked before each model call, in this order.
    pub before_model: Vec<String>,
    /// Asked before each call of a tool, in this order.
    pub before_tool: Vec<String>,
    /// How long one attempt to ask may take.
    pub timeout: Span,
    /// How long one hook may take at one point, all of its attempts included.
    pub limit: Span,
}

/// How commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShellKind {
    /// Not at all.
    Off,
    /// As processes of the worker's own user.
    Local,
    /// As the argument of a sandbox.
    Template,
}

/// An MCP server that agents may name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// The program of a server over standard input and output.
    #[serde(default)]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Its environment.
    #[serde(default)]
    pub env: BTreeMap<String, Secret>,
    /// The address of a server over HTTP.
    #[serde(default)]
    pub url: Option<String>,
    /// Headers of every request to it.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// How long one call may take.
    #[serde(default)]
    pub timeout: Option<Span>,
    /// From its start to the list of its tools.
    #[serde(default)]
    pub start_timeout: Option<Span>,
}
