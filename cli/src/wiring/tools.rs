//! The tools that agents may call, and the hooks that are asked before they do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Backend, Config, McpServer, SearchEngine, ShellKind};
use mainspring_runtime::{Environment, Lifecycle};
use mainspring_shared::entropy::Entropy;
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;
use mainspring_shared::tool::secret;
use mainspring_tools::http::{Caller, CallerSettings, Vault};
use mainspring_tools::mcp::{HeaderSources, OAuthSettings, Pool, ServerSettings, Transport};
use mainspring_tools::web::{Engine, SearchSettings, WebSettings};
use mainspring_tools::{Families, HttpPolicy, builtin, register_all, web};
use mainspring_worker::hook::Hooks;
use mainspring_worker::llm::Secret;
use mainspring_worker::memory::Memories;
use mainspring_worker::tool::Tools;

use super::depot;
use super::memories::ANYWHERE;
use super::webhooks::sealer;
use crate::failure::{Exit, Failure, usage, usage_text};

/// How HTTP tools and hooks are called.
fn caller_settings(
    config: &Config,
    (timeout, signing_hosts): (Duration, &[String]),
) -> CallerSettings {
    let settings = &config.tools;
    let signing = settings.signing_secret.iter();
    let signing = signing.flat_map(|secrets| secrets.reveal().split_whitespace());
    CallerSettings {
        signing_secrets: signing.map(Secret::new).collect(),
        signing_hosts: signing_hosts.to_vec(),
        allow_private: settings.allow_private.clone(),
        timeout,
        ..CallerSettings::default()
    }
}

/// The secrets that HTTP tools may name.
fn vault(
    config: &Config,
    store: &Arc<dyn Store>,
    clock: &Arc<dyn Clock>,
) -> Result<Vault, Failure> {
    const HOW: &str = "give its value and its hosts, like [\"api.example\"]";
    let mut own = BTreeMap::new();
    for (name, settings) in &config.tool_secrets {
        let wrong = |what: &str| usage_text(format!("[tool_secrets.{name}] {what}"), HOW);
        if !secret::is_name(name) {
            return Err(wrong(
                "has a name of other than letters, digits, `_`, `-` or `.`",
            ));
        }
        let value = settings
            .value
            .as_ref()
            .ok_or_else(|| wrong("has no value"))?;
        let value = value.reveal().trim();
        secret::check_value(value).map_err(|why| wrong(&format!("has a value that {why}")))?;
        if settings.hosts.is_empty() {
            return Err(wrong("has no hosts"));
        }
        let hosts = settings.hosts.iter().map(|host| secret::origin(host));
        let held = secret::Held {
            value: value.to_owned(),
            hosts: hosts.collect::<Result<_, _>>().map_err(|why| wrong(&why))?,
        };
        own.insert(name.clone(), held);
    }
    let sealer = sealer(config)?.map(Arc::new);
    Ok(Vault::stored(store.clone(), sealer, own, clock.clone()))
}

/// The search of the web, if an engine is named.
fn search(config: &Config) -> Option<SearchSettings> {
    let settings = &config.tools;
    Some(SearchSettings {
        engine: match settings.search? {
            SearchEngine::Searxng => Engine::Searxng,
            SearchEngine::Brave => Engine::Brave,
            SearchEngine::Tavily => Engine::Tavily,
        },
        url: settings.search_url.clone(),
        key: settings
            .search_key
            .as_ref()
            .map(|key| Secret::new(key.reveal())),
    })
}

/// The policies that the configuration names.
pub(crate) fn hooks(
    config: &Config,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Hooks, Failure> {
    type Policy = fn(String, &str, &Caller) -> HttpPolicy;
    // The operator wrote these URLs, so they need not be in the list for those of tenants.
    let settings = CallerSettings {
        allow_private: ANYWHERE.map(str::to_owned).to_vec(),
        ..caller_settings(config, (config.hooks.timeout, &[]))
    };
    let caller = Caller::new(&settings, clock.clone(), entropy.clone()).map_err(usage)?;
    let mut hooks = Hooks::default();
    let points: [(&str, &[String], Policy); 15] = [
        (
            "round_started",
            &config.hooks.round_started,
            HttpPolicy::round_started,
        ),
        (
            "after_model",
            &config.hooks.after_model,
            HttpPolicy::after_model,
        ),
        (
            "tool_failed",
            &config.hooks.tool_failed,
            HttpPolicy::tool_failed,
        ),
        (
            "after_tool",
            &config.hooks.after_tool,
            HttpPolicy::after_tool,
        ),
        (
            "before_model",
            &config.hooks.before_model,
            HttpPolicy::before_model,
        ),
        (
            "before_calls",
            &config.hooks.before_calls,
            HttpPolicy::before_calls,
        ),
        (
            "before_tool",
            &config.hooks.before_tool,
            HttpPolicy::before_tool,
        ),
        (
            "before_end",
            &config.hooks.before_end,
            HttpPolicy::before_end,
        ),
        (
            "timer_fired",
            &config.hooks.timer_fired,
            HttpPolicy::timer_fired,
        ),
        (
            "memory_recalled",
            &config.hooks.memory_recalled,
            HttpPolicy::memory_recalled,
        ),
        (
            "before_fold",
            &config.hooks.before_fold,
            HttpPolicy::before_fold,
        ),
        (
            "send_started",
            &config.hooks.send_started,
            HttpPolicy::send_started,
        ),
        (
            "send_ended",
            &config.hooks.send_ended,
            HttpPolicy::send_ended,
        ),
        (
            "messages_stored",
            &config.hooks.messages_stored,
            HttpPolicy::messages_stored,
        ),
        (
            "fold_stored",
            &config.hooks.fold_stored,
            HttpPolicy::fold_stored,
        ),
    ];
    for (point, urls, policy) in points {
        for (place, url) in urls.iter().enumerate() {
            let policy = policy(format!("{point}[{place}]"), url, &caller);
            hooks.register(Arc::new(policy)).map_err(usage)?;
        }
    }
    Ok(hooks)
}

/// The MCP servers that the configuration names; starts none of them.
pub(crate) fn mcp_servers(config: &Config, clock: &Arc<dyn Clock>) -> Result<Pool, Failure> {
    Pool::new(server_settings(config)?, clock).map_err(usage)
}

fn server_settings(config: &Config) -> Result<BTreeMap<String, ServerSettings>, Failure> {
    let secret = |secret: &mainspring_runtime::Secret| Secret::new(secret.reveal());
    let mut servers = BTreeMap::new();
    for (name, server) in &config.mcp {
        let transport = match (&server.command, &server.url) {
            (Some(command), None) => Transport::Stdio {
                command: command.clone(),
                args: server.args.clone(),
                env: server
                    .env
                    .iter()
                    .map(|(name, value)| (name.clone(), secret(value)))
                    .collect(),
            },
            (None, Some(url)) => Transport::Http {
                url: url.clone(),
                headers: server
                    .headers
                    .iter()
                    .map(|(name, value)| (name.clone(), secret(value)))
                    .collect(),
                sources: Box::new(header_sources(name, server, &config.tools.allow_private)?),
            },
            _ => {
                let message = format!("[mcp.{name}] needs a command or a url");
                return Err(usage_text(message, "give either command or url"));
            }
        };
        let base = ServerSettings::new(transport);
        let server = ServerSettings {
            timeout: server.timeout.unwrap_or(base.timeout),
            timeout_max: server.timeout_max.unwrap_or(base.timeout_max),
            start_timeout: server.start_timeout.unwrap_or(base.start_timeout),
            ..base
        };
        servers.insert(name.clone(), server);
    }
    Ok(servers)
}

/// Where the headers of a server come from besides those in the settings.
fn header_sources(
    name: &str,
    server: &McpServer,
    allow_private: &[String],
) -> Result<HeaderSources, Failure> {
    let secret = |secret: &mainspring_runtime::Secret| Secret::new(secret.reveal());
    let files = server.header_files.iter();
    let asks = server.oauth_client_secret.is_some()
        || server.oauth_refresh_token.is_some()
        || server.oauth_token_url.is_some()
        || server.oauth_issuer.is_some();
    let oauth = match &server.oauth_client_id {
        Some(client_id) => Some(OAuthSettings {
            client_id: client_id.clone(),
            client_secret: server.oauth_client_secret.as_ref().map(secret),
            refresh_token: server.oauth_refresh_token.as_ref().map(secret),
            scopes: server.oauth_scopes.clone(),
            token_url: server.oauth_token_url.clone(),
            issuer: server.oauth_issuer.clone(),
            allow_private: allow_private.to_vec(),
        }),
        None if asks => {
            let message = format!("[mcp.{name}] has settings of OAuth and no oauth_client_id");
            return Err(usage_text(message, "give oauth_client_id"));
        }
        None => None,
    };
    Ok(HeaderSources {
        files: files
            .map(|(name, path)| (name.clone(), path.into()))
            .collect(),
        command: server.headers_command.clone(),
        oauth,
    })
}

/// Every tool that agents may name, and how the tools that they declare are called.
pub(crate) fn tools(
    config: &Config,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
    background: &builtin::Background,
    memories: &Arc<Memories>,
) -> Result<Tools, Failure> {
    let vault = vault(config, &background.store, clock)?;
    let settings = CallerSettings {
        vault: vault.clone(),
        ..caller_settings(config, (config.tools.timeout, &config.tools.signing_hosts))
    };
    let caller = Caller::new(&settings, clock.clone(), entropy.clone()).map_err(usage)?;
    let pool = Pool::keeping(server_settings(config)?, clock, Some(&background.store));
    let pool = pool.map_err(usage)?;
    let built_in = builtin::Settings {
        launcher: launcher(&config.tools.launcher, entropy, &background.lifecycle)?,
        isolation: isolation(config, settings, entropy, &background.lifecycle)?,
        ..builtin_settings(config, &Environment::read())
    };
    let mut tools = register_all(Families {
        sources: vec![Arc::new(caller), Arc::new(pool)],
        settings: built_in,
        background: background.clone(),
        blobs: depot(config, &background.store, entropy)?,
        memories: memories.clone(),
        clock: clock.clone(),
        entropy: entropy.clone(),
    })
    .map_err(usage)?;
    if let Some(search) = search(config) {
        let around = (clock.clone(), entropy.clone());
        web::register_search(&search, around, &mut tools).map_err(usage)?;
    }
    Ok(tools)
}

/// How agents that ask for it are isolated, if the settings say how to start a process.
fn isolation(
    config: &Config,
    caller: CallerSettings,
    entropy: &Arc<dyn Entropy>,
    lifecycle: &Lifecycle,
) -> Result<Option<builtin::IsolationSettings>, Failure> {
    let own = &config.tools.isolation_launcher;
    let argv = if own.is_empty() {
        &config.tools.launcher
    } else {
        own
    };
    let Some(launcher) = launcher(argv, entropy, lifecycle)? else {
        return Ok(None);
    };
    // Processes started for these agents may run as the same user without a sandbox that hides
    // processes.
    builtin::conceal().map_err(|error| {
        let message = format!(
            "this process cannot be protected from other processes of its user: \
                               {error}"
        );
        Failure::new(Exit::Failure, message)
    })?;
    Ok(Some(builtin::IsolationSettings {
        launcher,
        memory: config.worker.isolation_memory,
        processes_max: config.worker.isolated_max,
        outside: builtin::Outside {
            caller,
            servers: server_settings(config)?,
        },
    }))
}

fn launcher(
    argv: &[String],
    entropy: &Arc<dyn Entropy>,
    lifecycle: &Lifecycle,
) -> Result<Option<builtin::Launcher>, Failure> {
    if argv.is_empty() {
        return Ok(None);
    }
    let program = std::env::current_exe().map_err(|error| {
        let message = format!("the path of this program is unknown: {error}");
        Failure::new(Exit::Failure, message)
    })?;
    Ok(Some(builtin::Launcher {
        argv: argv.to_vec(),
        program,
        entropy: entropy.clone(),
        lifecycle: lifecycle.clone(),
    }))
}

fn builtin_settings(config: &Config, environment: &Environment) -> builtin::Settings {
    let settings = &config.tools;
    // On a single machine files have a default place.
    let embedded = config.redis_url.is_none();
    let root = settings.workspace.clone();
    let root = root.or_else(|| embedded.then(|| config.data_dir.join("workspaces")));
    // A folder of data is that of the database in it, wherever it is moved.
    let own = root
        .as_ref()
        .is_some_and(|root| root.starts_with(&config.data_dir));
    let database = if own && config.backend() == Backend::Sqlite {
        "the one beside it".to_owned()
    } else {
        super::database(config)
    };
    let workspace = root.map(|root| {
        if settings.workspace_shared {
            tracing::warn!(
                "tools.workspace_shared: the sessions of all tenants work in one folder, and see \
                 each other's files"
            );
            builtin::WorkspaceSettings::shared(root)
        } else {
            builtin::WorkspaceSettings::per_session(root)
        }
    });
    let names = settings.shell_environment.iter().map(String::as_str);
    builtin::Settings {
        workspace,
        shell: match settings.shell {
            ShellKind::Off => builtin::Shell::Off,
            ShellKind::Local => builtin::Shell::Local,
            ShellKind::Template => builtin::Shell::Template(builtin::Template {
                argv: settings.shell_template.clone(),
                cleanup: settings.shell_cleanup.clone(),
            }),
        },
        environment: builtin::allowed(environment, names),
        database: Some(database),
        web: Some(WebSettings {
            allow_private: settings.allow_private.clone(),
            robots: settings.fetch_robots,
            timeout: settings.fetch_timeout,
            ..WebSettings::default()
        }),
        ..builtin::Settings::default()
    }
}
