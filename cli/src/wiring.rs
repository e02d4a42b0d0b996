//! The parts list, and the only place that names backends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainspring_queue_local::{LocalBus, LocalQueue};
use mainspring_queue_redis::{Address, RedisBus, RedisQueue};
use mainspring_runtime::{
    Backend, Config, Environment, Lifecycle, Migrate, OsEntropy, Provider, ProviderKind, ShellKind,
    SystemClock,
};
use mainspring_scheduler::SchedulerConfig;
use mainspring_shared::bus::Bus;

use mainspring_shared::budget::Price;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::error::{Code, Coded};
use mainspring_shared::queue::Queue;
use mainspring_shared::store::{self, Denial, Store};
use mainspring_shared::time::Clock;
use mainspring_store_postgres::{PostgresStore, SchemaPolicy, Settings, TooManyConnections};
use mainspring_store_sqlite::{MigratePolicy, SqliteOptions, SqliteStore};
use mainspring_worker::WorkerConfig;
use mainspring_worker::hook::{Hooks, HttpPolicy};
use mainspring_worker::llm::{Kind, ProviderSettings, Providers, Secret};
use mainspring_worker::tool::Tools;
use mainspring_worker::tools::http::{Caller, CallerSettings};
use mainspring_worker::tools::mcp::{Pool, ServerSettings, Transport};
use mainspring_worker::tools::{builtin, state, workflow};

use crate::failure::{Exit, Failure, causes, exit_of, next_of, usage, usage_text};

// Clock and entropy ------------------------------------------------------------------------------

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

pub(crate) fn entropy() -> Arc<dyn Entropy> {
    Arc::new(OsEntropy)
}

// Store ------------------------------------------------------------------------------------------

/// Opens the configured store for a process that serves.
pub(crate) async fn store(config: &Config, migrate: Migrate) -> Result<Arc<dyn Store>, Failure> {
    let opened: store::Result<Arc<dyn Store>> = match config.backend() {
        Backend::Postgres => {
            let settings = postgres(config, migrate);
            if settings.trusts_any_server() {
                tracing::warn!(
                    database = %database(config),
                    "the database's certificate and name are not verified: add \
                     ?sslmode=verify-full to its URL"
                );
            }
            let opened = PostgresStore::open(&settings).await;
            opened.map(|store| Arc::new(store) as _)
        }
        Backend::Sqlite => {
            let policy = match migrate {
                Migrate::Create => MigratePolicy::Create,
                Migrate::Verify => MigratePolicy::Verify,
            };
            let options = SqliteOptions {
                migrate: policy,
                ..sqlite(config)?
            };
            SqliteStore::open(options)
                .await
                .map(|store| Arc::new(store) as _)
        }
        Backend::Mysql => return Err(no_mysql()),
    };
    opened.map_err(|error| store_failure(config, &error))
}

/// Opens the configured store beside whoever serves, only to read.
pub(crate) async fn store_to_read(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    match config.backend() {
        Backend::Sqlite => {
            let opened = SqliteStore::open_read_only(sqlite(config)?).await;
            let store = opened.map_err(|error| store_failure(config, &error))?;
            Ok(Arc::new(store))
        }
        Backend::Postgres | Backend::Mysql => store(config, Migrate::Verify).await,
    }
}

/// The statements that make the schema.
pub(crate) fn ddl(config: &Config) -> Result<String, Failure> {
    match config.backend() {
        Backend::Postgres => Ok(mainspring_store_postgres::ddl()),
        Backend::Sqlite => Ok(mainspring_store_sqlite::ddl()),
        Backend::Mysql => Err(no_mysql()),
    }
}

fn postgres(config: &Config, migrate: Migrate) -> Settings {
    let url = config.database_url.as_ref().map_or("", |url| url.reveal());
    Settings {
        schema: match migrate {
            Migrate::Create => SchemaPolicy::Create,
            Migrate::Verify => SchemaPolicy::Verify,
        },
        writers: config.database_writers,
        claimers: config.database_claimers,
        streamers: config.database_streamers,
        readers: config.database_readers,
        ..Settings::new(url)
    }
}

fn sqlite(config: &Config) -> Result<SqliteOptions, Failure> {
    let options = match &config.database_url {
        None => SqliteOptions::dir(&config.data_dir),
        Some(url) => SqliteOptions::from_url(url.reveal()).ok_or_else(|| {
            usage_text(
                "the database URL names no file",
                "write sqlite://PATH, without parameters",
            )
        })?,
    };
    Ok(SqliteOptions {
        name: label(config),
        ..options
    })
}

/// Where the database is, as it may be shown.
pub(crate) fn database(config: &Config) -> String {
    match &config.database_url {
        Some(url) => url.redacted_url(),
        None => config.data_dir.display().to_string(),
    }
}

/// A failure of the store, with what someone at a terminal can do about it.
pub(crate) fn store_failure(config: &Config, error: &store::Error) -> Failure {
    let code = error.code();
    let said = causes(error);
    let exit = match (error, code) {
        (store::Error::Denied { why, .. }, _) => match why {
            Denial::Login | Denial::Rights => Exit::Unauthorised,
            Denial::Database => Exit::NotFound,
        },
        (_, Code::Internal) => Exit::Failure,
        (_, code) => exit_of(code),
    };
    let message = match error {
        // It names the place itself.
        store::Error::Locked { .. } => format!("{said} ({code})"),
        store::Error::Unavailable { source } if config.backend() == Backend::Sqlite => {
            let folder = database(config);
            let cause = causes(source.as_ref());
            return Failure::new(exit, format!("{folder} cannot be used: {cause} ({code})"))
                .code(code)
                .next("a folder is needed that can be made and written to: --data-dir names it");
        }
        _ => format!("{}: {said} ({code})", database(config)),
    };
    let next = match error {
        store::Error::Locked { .. } => {
            "stop that process, or use another folder with --data-dir".to_owned()
        }
        store::Error::SchemaMissing { found: 0, .. } if config.database_url.is_none() => {
            "`mainspring dev` makes one there; --data-dir or --database-url name another".to_owned()
        }
        store::Error::Unavailable { source } if source.is::<TooManyConnections>() => {
            "raise the server's max_connections, or lower database_writers, database_claimers, \
             database_streamers and database_readers"
                .to_owned()
        }
        store::Error::Unavailable { .. } => {
            "is the database running, and is the address right?".to_owned()
        }
        store::Error::Refused { .. } => {
            "these are the database's own words; Postgres 14 or newer is needed".to_owned()
        }
        _ => next_of(code),
    };
    Failure::new(exit, message).code(code).next(next)
}

fn no_mysql() -> Failure {
    usage_text("mysql:// is not supported", "use postgres:// or sqlite://")
}

// Queue and bus ----------------------------------------------------------------------------------

/// The way between the roles.
pub(crate) struct Wires {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) bus: Arc<dyn Bus>,
    /// The queue again, where someone has to tidy it.
    pub(crate) janitor: Option<Arc<RedisQueue>>,
}

/// Between processes.
pub(crate) fn redis(
    config: &Config,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Wires, Failure> {
    let url = config.redis_url.as_ref().map_or("", |url| url.reveal());
    let mut address: Address = url.parse().map_err(usage)?;
    if let Some(file) = &config.redis_ca_file {
        let pem = std::fs::read(file).map_err(|error| {
            usage_text(
                format!("redis_ca_file {} cannot be read: {error}", file.display()),
                "name a PEM file with the certificate authorities of the Redis server",
            )
        })?;
        address = address.trusting(pem);
    }
    let queue = RedisQueue::open(&address, clock.clone(), entropy.clone()).map_err(usage)?;
    let bus = RedisBus::open(&address, clock.clone(), entropy.clone()).map_err(usage)?;
    let queue = Arc::new(queue);
    Ok(Wires {
        queue: queue.clone(),
        bus: Arc::new(bus),
        janitor: Some(queue),
    })
}

/// Inside one process.
pub(crate) fn local() -> Wires {
    let (queue, bus) = (Arc::new(LocalQueue::new()), Arc::new(LocalBus::new()));
    Wires {
        queue,
        bus,
        janitor: None,
    }
}

// Providers --------------------------------------------------------------------------------------

/// Every configured provider; the default one is called by its kind.
pub(crate) fn providers(config: &Config, clock: &Arc<dyn Clock>) -> Result<Providers, Failure> {
    let default = config.llm.provider.as_str();
    let mut settings: Vec<ProviderSettings> = config
        .providers
        .iter()
        .map(|(name, provider)| settings_of(name, provider))
        .collect();
    // A named provider may take the name of the default one's kind; then the default one has none
    // of its own left to clash with.
    let default = if config.providers.contains_key(default) {
        "default"
    } else {
        default
    };
    settings.push(settings_of(default, &config.llm));
    let prices = config
        .prices
        .iter()
        .filter_map(|entry| Price::parse_entry(entry));
    let providers = Providers::new(&settings, default, clock).map_err(usage)?;
    Ok(providers.with_prices(prices.collect()))
}

fn settings_of(name: &str, provider: &Provider) -> ProviderSettings {
    let kind = match provider.provider {
        ProviderKind::Openai => Kind::OpenAi,
        ProviderKind::Anthropic => Kind::Anthropic,
        ProviderKind::Demo => Kind::Demo,
    };
    let secret = |secret: &mainspring_runtime::Secret| Secret::new(secret.reveal());
    let base = ProviderSettings::new(name, kind);
    ProviderSettings {
        base_url: provider.base_url.clone().unwrap_or(base.base_url),
        api_key: provider.api_key.as_ref().map(secret).unwrap_or_default(),
        model: provider.model.clone().unwrap_or_default(),
        stream: provider.stream,
        native_schema: provider.native_schema.unwrap_or(base.native_schema),
        connect_timeout: provider.connect_timeout.0,
        first_byte_timeout: provider.first_byte_timeout.0,
        idle_timeout: provider.idle_timeout.0,
        attempt_timeout: provider.attempt_timeout.0,
        headers: provider
            .headers
            .iter()
            .map(|(name, it)| (name.clone(), secret(it)))
            .collect(),
        name: base.name,
        kind,
    }
}

// Tools ------------------------------------------------------------------------------------------

/// How services behind URLs are called.
fn caller(
    config: &Config,
    (timeout, signing_hosts): (Duration, &[String]),
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Caller, Failure> {
    let settings = &config.tools;
    let signing = settings.signing_secret.iter();
    let signing = signing.flat_map(|secrets| secrets.reveal().split_whitespace());
    let caller = CallerSettings {
        signing_secrets: signing.map(Secret::new).collect(),
        signing_hosts: signing_hosts.to_vec(),
        allow_private: settings.allow_private.clone(),
        timeout,
        ..CallerSettings::default()
    };
    Caller::new(&caller, clock.clone(), entropy.clone()).map_err(usage)
}

/// The policies that the configuration names.
pub(crate) fn hooks(
    config: &Config,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Hooks, Failure> {
    let caller = caller(config, (config.hooks.timeout.0, &[]), clock, entropy)?;
    let mut hooks = Hooks::default();
    for (place, url) in config.hooks.before_model.iter().enumerate() {
        let policy = HttpPolicy::before_model(format!("before_model[{place}]"), url, &caller);
        hooks.register(Arc::new(policy)).map_err(usage)?;
    }
    for (place, url) in config.hooks.before_tool.iter().enumerate() {
        let policy = HttpPolicy::before_tool(format!("before_tool[{place}]"), url, &caller);
        hooks.register(Arc::new(policy)).map_err(usage)?;
    }
    Ok(hooks)
}

/// The MCP servers that the configuration names; none of them is started.
pub(crate) fn mcp_servers(config: &Config, clock: &Arc<dyn Clock>) -> Result<Pool, Failure> {
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
            },
            _ => {
                let message = format!("[mcp.{name}] has to say how the server is reached");
                return Err(usage_text(message, "give either command or url"));
            }
        };
        let base = ServerSettings::new(transport);
        let server = ServerSettings {
            timeout: server.timeout.map_or(base.timeout, |span| span.0),
            start_timeout: server
                .start_timeout
                .map_or(base.start_timeout, |span| span.0),
            ..base
        };
        servers.insert(name.clone(), server);
    }
    Pool::new(servers, clock).map_err(usage)
}

/// Everything that agents may name, and how the tools that they declare are called.
pub(crate) fn tools(
    config: &Config,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
    background: &builtin::Background,
) -> Result<Tools, Failure> {
    let caller = caller(
        config,
        (config.tools.timeout.0, &config.tools.signing_hosts),
        clock,
        entropy,
    )?;
    let pool = mcp_servers(config, clock)?;
    let mut tools = Tools::new(caller, pool);
    builtin::register(
        builtin::Settings {
            background: Some(background.clone()),
            launcher: launcher(config, entropy, &background.lifecycle)?,
            ..builtin_settings(config, &Environment::read())
        },
        clock.clone(),
        &mut tools,
    )
    .map_err(usage)?;
    state::register(background.store.clone(), clock.clone(), &mut tools).map_err(usage)?;
    builtin::register_wakeups(&background.store, entropy, &mut tools).map_err(usage)?;
    workflow::register(&background.store, &background.bus, &mut tools).map_err(usage)?;
    Ok(tools)
}

fn launcher(
    config: &Config,
    entropy: &Arc<dyn Entropy>,
    lifecycle: &Lifecycle,
) -> Result<Option<builtin::Launcher>, Failure> {
    let argv = config.tools.launcher.clone();
    if argv.is_empty() {
        return Ok(None);
    }
    let program = std::env::current_exe().map_err(|error| {
        let message = format!("this program does not know where it is: {error}");
        Failure::new(Exit::Failure, message)
    })?;
    Ok(Some(builtin::Launcher {
        argv,
        program,
        entropy: entropy.clone(),
        lifecycle: lifecycle.clone(),
    }))
}

fn builtin_settings(config: &Config, environment: &Environment) -> builtin::Settings {
    let settings = &config.tools;
    // On one machine files have a place without being asked for.
    let embedded = config.redis_url.is_none();
    let root = settings.workspace.clone();
    let root = root.or_else(|| embedded.then(|| config.data_dir.join("workspaces")));
    let workspace = root.map(|root| {
        if settings.workspace_shared {
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
        ..builtin::Settings::default()
    }
}

// Bounds -----------------------------------------------------------------------------------------

pub(crate) fn scheduler_config(config: &Config) -> SchedulerConfig {
    let bounds = &config.scheduler;
    SchedulerConfig {
        name: label(config),
        lease_ttl: config.lease_ttl.0,
        sweep_interval: config.sweep_interval.0,
        sweep_age: bounds.sweep_age.0,
        sweep_depth_low: bounds.sweep_depth_low,
        sweep_depth_high: bounds.sweep_depth_high,
        alarm_interval: bounds.alarm_interval.0,
        timer_interval: bounds.timer_interval.0,
        timer_keep: bounds.timer_keep.0,
        retention_interval: bounds.retention_interval.0,
        idempotency_keep: bounds.idempotency_keep.0,
        send_keep: bounds.send_keep.map(|keep| keep.0),
        run_keep: bounds.run_keep.map(|keep| keep.0),
        allowed_hosts: bounds.allowed_hosts.clone(),
        allowed_origins: bounds.allowed_origins.clone(),
        connections_max: bounds.connections_max,
        head_timeout: bounds.head_timeout.0,
        head_bytes_max: bounds.head_bytes_max,
        write_timeout: bounds.write_timeout.0,
        bodies_bytes_max: bounds.bodies_bytes_max,
        body_bytes_max: bounds.body_bytes_max,
        batch_bytes_max: bounds.batch_bytes_max,
        body_timeout: bounds.body_timeout.0,
        batch_sends_max: bounds.batch_sends_max,
        batch_group_max: bounds.batch_group_max,
        group_bytes_max: bounds.group_bytes_max,
        wait_max: bounds.wait_max.0,
        requests_max: bounds.requests_max,
        waiters_max: bounds.waiters_max,
        accepting_max: bounds.accepting_max,
        queued_max: bounds.queued_max,
        leaves_max: Some(bounds.leaves_max).filter(|max| *max > 0),
        heartbeat: bounds.heartbeat.0,
    }
}

pub(crate) fn worker_config(config: &Config) -> WorkerConfig {
    let bounds = &config.worker;
    WorkerConfig {
        name: label(config),
        pool: bounds.pool.clone(),
        concurrency: bounds.concurrency,
        lease_ttl: config.lease_ttl.0,
        drain_timeout: bounds.drain_timeout.0,
        poll_interval: bounds.poll_interval.0,
        retry: config.retry.policy(),
        hold_max: bounds.hold_max.0,
        crashes_max: bounds.crashes_max,
        attempts_max: bounds.attempts_max,
        sends_in_a_row_max: bounds.sends_in_a_row_max,
        group_bytes_max: bounds.group_bytes_max,
        answer_within: config.tools.answer_within.map(|span| span.0),
        hook_timeout: config.hooks.limit.0,
        cache_bytes_max: bounds.cache_bytes_max,
    }
}

/// What people call this process: as configured, else by host and process.
pub(crate) fn label(config: &Config) -> String {
    config.name.clone().unwrap_or_else(|| {
        let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
        let host = host.trim();
        let host = if host.is_empty() { "host" } else { host };
        format!("{host}-{}", std::process::id())
    })
}

#[cfg(test)]
mod tests {
    use mainspring_runtime::Sources;
    use mainspring_worker::tools::BUILT_IN;

    use super::*;

    fn defaults() -> Config {
        Config::load(&Sources {
            defaults: include_str!("../config.default.toml"),
            file: None,
            environment: &Environment::default(),
            flags: &[("name", "me".to_owned())],
        })
        .expect("the manual is valid")
    }

    #[test]
    fn the_manuals_defaults_are_those_that_the_libraries_are_tested_with() {
        let config = defaults();
        let name = "me".to_owned();
        let scheduler = SchedulerConfig {
            name: name.clone(),
            ..SchedulerConfig::default()
        };
        assert_eq!(scheduler_config(&config), scheduler);
        assert_eq!(
            worker_config(&config),
            WorkerConfig {
                name,
                ..WorkerConfig::default()
            }
        );
        assert_eq!(postgres(&config, Migrate::Create), Settings::new(""));
        let ours = settings_of("demo", &config.llm);
        assert_eq!(
            format!("{ours:?}"),
            format!("{:?}", ProviderSettings::new("demo", Kind::Demo))
        );
    }

    #[test]
    fn a_provider_may_be_named_like_the_default_ones_kind() {
        let mut config = defaults();
        config
            .providers
            .insert("demo".to_owned(), config.llm.clone());
        let providers = providers(&config, &clock()).expect("two providers");
        assert_eq!(providers.names().collect::<Vec<_>>(), ["default", "demo"]);
    }

    /// The tools of a worker that is given everything.
    async fn every_tool() -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = defaults();
        config.data_dir = folder.path().to_owned();
        config.tools.shell = ShellKind::Local;
        let wires = local();
        let background = builtin::Background {
            store: store(&config, Migrate::Create).await.expect("a store"),
            queue: wires.queue,
            bus: wires.bus,
            lifecycle: Lifecycle::new(),
        };
        let tools = tools(&config, &clock(), &entropy(), &background).expect("all tools");
        tools.names().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn the_list_of_tools_that_people_read_is_the_one_that_agents_have() {
        let outside = ["ask_person", "create_workflow", "spawn_agent"];
        let mut there = every_tool().await;
        there.extend(outside.map(str::to_owned));
        there.sort();
        let mut listed: Vec<_> = BUILT_IN.iter().map(|tool| tool.name).collect();
        listed.sort_unstable();
        assert_eq!(listed, there);
    }

    #[test]
    fn the_page_about_tools_lists_all_of_them() {
        let page = include_str!("../../docs/TOOLS.md");
        for tool in BUILT_IN {
            let presets: Vec<String> = tool.presets().map(|name| format!("`{name}`")).collect();
            let presets = presets.join(" ");
            let line = format!("| `{}` | {presets} | {} |", tool.name, tool.does);
            assert!(page.contains(&line), "docs/TOOLS.md lacks: {line}");
        }
    }
}
