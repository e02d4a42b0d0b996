//! Every setting of a process: the settings of all components.

mod blobs;
mod databases;
mod memory;
mod model;
mod oidc;
mod provider;
mod rules;
mod tools;
mod validate;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mainspring_runtime::{
    Choice as _, DEFAULTS, Key, Keys, Layers, Named, Problems, Secret, Settings as _, Sources,
    TelemetrySettings, choice, settings, telemetry,
};
use mainspring_scheduler::SchedulerConfig;
use mainspring_shared::model::FactsOverride;
use mainspring_worker::{RetrySettings, WorkerConfig};

pub(crate) use blobs::{BlobStore, BlobsConfig};
pub(crate) use memory::{EmbeddingsConfig, MemoryServer};
pub(crate) use oidc::OidcIssuer;
pub(crate) use provider::{Provider, ProviderKind, extra, rule_settings};
pub(crate) use tools::{
    HooksConfig, McpServer, OwnSecret, SearchEngine, ShellKind, SkillsConfig, ToolsConfig,
};
pub(crate) use validate::{Backend, Purpose};

const HTTP: &[&str] = &["http", "https"];
const DATABASE: &[&str] = &["postgres", "postgresql", "sqlite", "mysql"];
const POSTGRES: &[&str] = &["postgres", "postgresql"];
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

settings! {
    /// Everything that a user can decide about a process, checked.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct Config {
        /// Where client commands find a scheduler.
        server: String = "http://127.0.0.1:7464".to_owned() => Key::url("server", HTTP);
        /// The API key that client commands send to the server.
        api_key: Option<Secret> => Key::secret("api_key");
        /// The tenant that an operator's client commands act for; that of the key when none.
        tenant: Option<String> => Key::text("tenant");
        /// The key of the system's operator.
        root_key: Option<Secret> => Key::secret("root_key");
        /// A file with that key, in its place.
        root_key_file: Option<PathBuf> => Key::text("root_key_file");
        /// The keys that secrets in the database are sealed under, with spaces between them; the first one
        /// seals.
        secrets_key: Option<Secret> => Key::secret("secrets_key");
        /// A file with them, in their place.
        secrets_key_file: Option<PathBuf> => Key::text("secrets_key_file");
        /// A command that prints them, in their place.
        secrets_key_command: Vec<String> => Key::list("secrets_key_command");
        /// Serves everyone who reaches the address, without API keys.
        insecure: bool = false => Key::switch("insecure");
        /// The database; its scheme picks the backend. None with the embedded one.
        database_url: Option<Secret> => Key::url("database_url", DATABASE).or(&["DATABASE_URL"]);
        /// Connections to Postgres for what commits synchronously.
        database_writers: u32 = 8 => Key::integer("database_writers", 1, 1_000);
        /// Connections to Postgres for claims, sweeps and reads by key.
        database_claimers: u32 = 4 => Key::integer("database_claimers", 1, 1_000);
        /// Connections to Postgres for streams of events.
        database_streamers: u32 = 2 => Key::integer("database_streamers", 1, 1_000);
        /// Connections for lists, counts and the audit.
        database_readers: u32 = 2 => Key::integer("database_readers", 1, 1_000);
        /// Further Postgres databases that have tenants of their own, each with its name behind a `#`.
        databases: Vec<Secret> = Vec::new() => Key::urls("databases", POSTGRES);
        /// The schema of Postgres in which the tables are; that of the connection when none.
        database_schema: Option<String> => Key::text("database_schema");
        /// Whether Postgres itself keeps tenants apart in what requests ask.
        row_security: bool = false => Key::switch("row_security");
        /// The queue and the bus of live events. None with the in-process ones.
        redis_url: Option<Secret> => Key::url("redis_url", &["redis", "rediss"]).or(&["REDIS_URL"]);
        /// A PEM file with the certificate authorities that sign the certificate of a `rediss://`
        /// server; the public ones when none.
        redis_ca_file: Option<PathBuf> => Key::text("redis_ca_file");
        /// What the keys and channels in Redis begin with: each installation on one server needs another one.
        redis_prefix: String = "mainspring".to_owned() => Key::text("redis_prefix");
        /// Where the embedded database lives.
        data_dir: PathBuf = "./mainspring-data".into() => Key::text("data_dir");
        /// Where the scheduler serves the API, as `HOST:PORT`.
        listen: String = "127.0.0.1:7464".to_owned() => Key::address("listen");
        /// Where a worker serves `/livez`, `/readyz` and `/metrics`, as `HOST:PORT`; nowhere when
        /// none.
        ops_listen: Option<String> => Key::address("ops_listen");
        /// The process's label for people; made of host and process id when none.
        name: Option<String> => Key::text("name");
        /// What a scheduler does about the schema when it starts.
        migrate: Migrate = Migrate::Create => Key::choice("migrate", Migrate::WORDS);
        /// How long a process keeps its sessions without a renewal.
        lease_ttl: Duration = Duration::from_secs(4) => Key::span("lease_ttl", SECOND, HOUR);
        /// What people can see of a process.
        telemetry: TelemetrySettings = TelemetrySettings::default();
        /// Content by its hash.
        blobs: BlobsConfig = BlobsConfig::default();
        /// Bounds of the scheduler.
        scheduler: SchedulerConfig = SchedulerConfig::default();
        /// Bounds of the worker.
        worker: WorkerConfig = WorkerConfig::default();
        /// How a failed model call is tried again.
        retry: RetrySettings = RetrySettings::default();
        /// The default provider, for models without a provider's name.
        llm: Provider = Provider::default();
        /// Further providers by name, for models named `NAME/model`.
        providers: BTreeMap<String, Provider> = BTreeMap::new();
        /// What models cost, for budgets in dollars: `MODEL=INPUT/OUTPUT[/CACHED]`, US dollars for
        /// a million tokens.
        prices: Vec<String> = Vec::new() => Key::list("prices");
        /// What is known of models beyond what is built in, by `MODEL` or `PROVIDER/MODEL`.
        models: Named<FactsOverride> = Named::default() => Key::table("models.*", model::MEMBERS);
        /// What tools may use.
        tools: ToolsConfig = ToolsConfig::default();
        /// Skills that are mounted.
        skills: SkillsConfig = SkillsConfig::default();
        /// Policies that are asked before something happens.
        hooks: HooksConfig = HooksConfig::default();
        /// MCP servers by name.
        mcp: BTreeMap<String, McpServer> = BTreeMap::new();
        /// Secrets of the operator's own HTTP tools, by name.
        tool_secrets: BTreeMap<String, OwnSecret> = BTreeMap::new();
        /// What makes vectors for the memory.
        embeddings: EmbeddingsConfig = EmbeddingsConfig::default();
        /// Providers of memory behind URLs, by name.
        memory: BTreeMap<String, MemoryServer> = BTreeMap::new();
        /// Who signs tokens that are accepted in place of API keys, by name.
        oidc: BTreeMap<String, OidcIssuer> = BTreeMap::new();
        /// What [`print`](Self::print) shows.
        printed: String = String::new();
        /// Whether the default provider was left unconfigured.
        provider_by_default: bool = true;
    }
}

choice! {
    /// What a scheduler does about the schema when it starts.
    pub(crate) enum Migrate {
        /// Creates or upgrades it.
        Create = "create",
        /// Refuses to start unless it is up to date.
        Verify = "verify",
    }
}

/// All known keys.
fn keys() -> Keys {
    let components: [&[Key]; 15] = [
        Config::KEYS,
        TelemetrySettings::KEYS,
        BlobsConfig::KEYS,
        SchedulerConfig::KEYS,
        WorkerConfig::KEYS,
        RetrySettings::KEYS,
        Provider::KEYS,
        ToolsConfig::KEYS,
        SkillsConfig::KEYS,
        HooksConfig::KEYS,
        McpServer::KEYS,
        OwnSecret::KEYS,
        EmbeddingsConfig::KEYS,
        MemoryServer::KEYS,
        OidcIssuer::KEYS,
    ];
    let mut keys = components.concat();
    keys.push(provider::KEY_VARIABLE);
    Keys::new(keys, &[("providers", "llm")])
}

/// Reports a `log` setting that is not a valid filter, with its origin.
fn check_log(layers: &mut Layers) {
    let Some((value, origin)) = layers.get("log").cloned() else {
        return;
    };
    let checked = telemetry::check_filter(value.as_str().unwrap_or_default());
    if let Err(error) = checked {
        layers.problem("config.invalid_value", &origin, error.to_string());
    }
}

impl Config {
    /// Reads all layers. If anything is malformed, every problem is returned at once. Whether the
    /// values make sense together depends on the command: see [`Config::validate`].
    pub(crate) fn load(sources: &Sources<'_>) -> Result<Self, Problems> {
        let mut layers = Layers::read(keys(), sources);
        provider::resolve(&mut layers, sources.environment);
        check_log(&mut layers);
        let provider = layers.get("llm.provider");
        let provider_by_default = provider.is_none_or(|(_, origin)| origin == DEFAULTS);
        let config = Self {
            telemetry: layers.settings(),
            blobs: layers.settings(),
            scheduler: layers.settings(),
            worker: layers.settings(),
            retry: layers.settings(),
            llm: layers.settings(),
            providers: layers.named("providers", "llm"),
            tools: layers.settings(),
            skills: layers.settings(),
            hooks: layers.settings(),
            mcp: layers.named("mcp", "mcp.*"),
            tool_secrets: layers.named("tool_secrets", "tool_secrets.*"),
            embeddings: layers.settings(),
            memory: layers.named("memory", "memory.*"),
            oidc: layers.named("oidc", "oidc.*"),
            printed: layers.print(),
            provider_by_default,
            ..layers.settings()
        };
        layers.finish(config)
    }

    /// The configuration in the form of a file, with the origin of each value and without secrets.
    pub(crate) fn print(&self) -> &str {
        &self.printed
    }

    /// Whether no model provider is configured at all, so that the built-in one would answer.
    pub(crate) fn has_no_provider(&self) -> bool {
        self.provider_by_default && self.providers.is_empty()
    }
}

#[cfg(test)]
mod schema;
#[cfg(test)]
mod tests;
