//! Settings of tools, skills, hooks and MCP servers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mainspring_runtime::{Choice as _, Key, Secret, choice, settings};

use super::{DAY, HTTP, MS, SECOND};

settings! {
    /// What the built-in tools and those behind URLs may use.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct ToolsConfig {
        /// Where files are; nowhere, and then no tool touches any, when none.
        workspace: Option<PathBuf> => Key::text("tools.workspace");
        /// Whether all sessions share that directory instead of having one each below it.
        workspace_shared: bool = false => Key::switch("tools.workspace_shared");
        /// How commands run.
        shell: ShellKind = ShellKind::Off => Key::choice("tools.shell", ShellKind::WORDS);
        /// The command line of the sandbox that runs a command.
        shell_template: Vec<String> => Key::words("tools.shell_template");
        /// What is run after a command that was stopped.
        shell_cleanup: Vec<String> => Key::words("tools.shell_cleanup");
        /// The command line that starts a process of their own for the tools of the workspace.
        launcher: Vec<String> => Key::list("tools.launcher");
        /// The command line that starts the process of an isolated agent's send; that of `launcher` when empty.
        isolation_launcher: Vec<String> => Key::list("tools.isolation_launcher");
        /// The variables of the worker's environment that commands see.
        shell_environment: Vec<String> = ["LANG", "LC_ALL", "LC_CTYPE", "PATH", "TZ"]
            .map(str::to_owned)
            .to_vec()
            => Key::list("tools.shell_environment");
        /// Private addresses that tools may call all the same.
        allow_private: Vec<String> => Key::list("tools.allow_private");
        /// What the keys that sign requests are derived from; several with spaces between them
        /// while one replaces another.
        signing_secret: Option<Secret> => Key::secret("tools.signing_secret");
        /// Hosts of tools whose requests are signed for all tenants alike.
        signing_hosts: Vec<String> => Key::list("tools.signing_hosts");
        /// The engine that `web_search` asks; there is no such tool when absent.
        search: Option<SearchEngine> => Key::choice("tools.search", SearchEngine::WORDS);
        /// The address of the engine; its vendor's own when absent.
        search_url: Option<String> => Key::url("tools.search_url", HTTP);
        /// The key that the engine asks for.
        search_key: Option<Secret> => Key::secret("tools.search_key");
        /// Whether `web_fetch` follows the rules that sites have for robots.
        fetch_robots: bool = true => Key::switch("tools.fetch_robots");
        /// How long `web_fetch` may take for a page.
        fetch_timeout: Duration = Duration::from_secs(30)
            => Key::span("tools.fetch_timeout", MS, DAY);
        /// How long one attempt of a tool behind a URL may take unless it says otherwise.
        timeout: Duration = Duration::from_mins(1) => Key::span("tools.timeout", MS, DAY);
    }
}

choice! {
    /// How commands run.
    pub(crate) enum ShellKind {
        /// Not at all.
        Off = "off",
        /// As processes of the worker's own user.
        Local = "local",
        /// As the argument of a sandbox.
        Template = "template",
    }
}

choice! {
    /// A search engine.
    pub(crate) enum SearchEngine {
        /// A server of `SearXNG`.
        Searxng = "searxng",
        /// The Brave Search API.
        Brave = "brave",
        /// Tavily.
        Tavily = "tavily",
    }
}

settings! {
    /// A secret of the operator's own HTTP tools.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct OwnSecret {
        /// Its value.
        value: Option<Secret> => Key::secret("tool_secrets.*.value");
        /// The hosts that it may be sent to.
        hosts: Vec<String> => Key::list("tool_secrets.*.hosts");
    }
}

settings! {
    /// Skills in folders.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct SkillsConfig {
        /// Folders with a folder for each skill.
        dirs: Vec<String> = Vec::new() => Key::list("skills.dirs");
        /// How often they are looked at again.
        reload_interval: Duration = Duration::from_secs(30)
            => Key::span("skills.reload_interval", SECOND, DAY);
    }
}

settings! {
    /// Policies behind URLs.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct HooksConfig {
        /// Asked when a round begins, in this order.
        round_started: Vec<String> = Vec::new() => Key::urls("hooks.round_started", HTTP);
        /// Asked before each model call, in this order.
        before_model: Vec<String> = Vec::new() => Key::urls("hooks.before_model", HTTP);
        /// Asked after each answer of a model, in this order.
        after_model: Vec<String> = Vec::new() => Key::urls("hooks.after_model", HTTP);
        /// Asked before each call of a tool, in this order.
        before_tool: Vec<String> = Vec::new() => Key::urls("hooks.before_tool", HTTP);
        /// Asked after each call that failed, in this order.
        tool_failed: Vec<String> = Vec::new() => Key::urls("hooks.tool_failed", HTTP);
        /// Asked after each call of a tool, in this order.
        after_tool: Vec<String> = Vec::new() => Key::urls("hooks.after_tool", HTTP);
        /// Asked before the calls of an answer, all together, in this order.
        before_calls: Vec<String> = Vec::new() => Key::urls("hooks.before_calls", HTTP);
        /// Asked before a send ends, in this order.
        before_end: Vec<String> = Vec::new() => Key::urls("hooks.before_end", HTTP);
        /// Asked before entries of the memory are shown, in this order.
        memory_recalled: Vec<String> = Vec::new() => Key::urls("hooks.memory_recalled", HTTP);
        /// Asked before a send begins that a timer fired, in this order.
        timer_fired: Vec<String> = Vec::new() => Key::urls("hooks.timer_fired", HTTP);
        /// Asked before a part of a transcript is folded, in this order.
        before_fold: Vec<String> = Vec::new() => Key::urls("hooks.before_fold", HTTP);
        /// Told of sends that a worker took, in this order.
        send_started: Vec<String> = Vec::new() => Key::urls("hooks.send_started", HTTP);
        /// Told of sends that ended, in this order.
        send_ended: Vec<String> = Vec::new() => Key::urls("hooks.send_ended", HTTP);
        /// Told of messages that are durable, in this order.
        messages_stored: Vec<String> = Vec::new() => Key::urls("hooks.messages_stored", HTTP);
        /// Told of folds that are durable, in this order.
        fold_stored: Vec<String> = Vec::new() => Key::urls("hooks.fold_stored", HTTP);
        /// How long one attempt to ask may take.
        timeout: Duration = Duration::from_secs(5) => Key::span("hooks.timeout", MS, DAY);
    }
}

settings! {
    /// An MCP server that agents may name.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct McpServer {
        /// The program of a server over standard input and output.
        command: Option<String> => Key::text("mcp.*.command");
        /// Its arguments.
        args: Vec<String> => Key::words("mcp.*.args");
        /// Its environment: any name, and values that may be secrets.
        env: BTreeMap<String, Secret> => Key::secret("mcp.*.env.*");
        /// The address of a server over HTTP.
        url: Option<String> => Key::url("mcp.*.url", HTTP);
        /// Headers of every request to it.
        headers: BTreeMap<String, Secret> => Key::secret("mcp.*.headers.*");
        /// Files with the values of further headers.
        header_files: BTreeMap<String, String> => Key::text("mcp.*.header_files.*");
        /// A program that prints further headers.
        headers_command: Vec<String> => Key::list("mcp.*.headers_command");
        /// The client's id at an authorization server.
        oauth_client_id: Option<String> => Key::text("mcp.*.oauth_client_id");
        /// Its secret there.
        oauth_client_secret: Option<Secret> => Key::secret("mcp.*.oauth_client_secret");
        /// A refresh token, in place of the client's own credentials.
        oauth_refresh_token: Option<Secret> => Key::secret("mcp.*.oauth_refresh_token");
        /// The scopes of tokens.
        oauth_scopes: Vec<String> => Key::list("mcp.*.oauth_scopes");
        /// Where tokens are given.
        oauth_token_url: Option<String> => Key::url("mcp.*.oauth_token_url", HTTP);
        /// The only authorization server that may be asked.
        oauth_issuer: Option<String> => Key::url("mcp.*.oauth_issuer", HTTP);
        /// How long one call may take, from its last report of progress.
        timeout: Option<Duration> => Key::span("mcp.*.timeout", MS, DAY);
        /// How long one call may take in total.
        timeout_max: Option<Duration> => Key::span("mcp.*.timeout_max", MS, DAY);
        /// From its start to the list of its tools.
        start_timeout: Option<Duration> => Key::span("mcp.*.start_timeout", MS, DAY);
    }
}
