//! Wires the components together; the only place that names concrete backends.

mod bounds;
mod databases;
mod memories;
mod models;
mod oidc;
mod tools;
mod webhooks;

use std::sync::Arc;

use crate::config::{Backend, BlobStore, Config, Migrate};
use mainspring_blob_stores::{FileBlobs, S3Blobs};
use mainspring_queue_local::{LocalBus, LocalQueue};
use mainspring_queue_redis::{Address, Prefix, RedisBus, RedisQueue};
use mainspring_runtime::{FairQueue, OsEntropy, Secret, SystemClock};
use mainspring_shared::blob::{Blobs, Depot, Timed};
use mainspring_shared::bus::Bus;
use mainspring_shared::entropy::Entropy;
use mainspring_shared::error::{Code, Coded};
use mainspring_shared::queue::Queue;
use mainspring_shared::secrets;
use mainspring_shared::store::{self, Denial, ReadOnly, Store};
use mainspring_shared::time::Clock;
use mainspring_store_postgres::{PostgresStore, SchemaPolicy, Settings, TooManyConnections};
use mainspring_store_sqlite::{MigratePolicy, SqliteOptions};

pub(crate) use self::bounds::{scheduler_config, worker_config};
pub(crate) use self::databases::{mover, others as other_databases};
pub(crate) use self::memories::memories;
pub(crate) use self::models::{provider_settings, providers};
pub(crate) use self::oidc::verifier as issuers;
pub(crate) use self::tools::{hooks, mcp_servers, tools};
pub(crate) use self::webhooks::{webhooks, with_own_key, with_printed_key};
use crate::failure::{Exit, Failure, causes, exit_of, next_of, usage, usage_text};

// Clock and entropy ------------------------------------------------------------------------------

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

pub(crate) fn entropy() -> Arc<dyn Entropy> {
    Arc::new(OsEntropy)
}

// Store ------------------------------------------------------------------------------------------

/// Opens the configured store for a serving process.
pub(crate) async fn store(config: &Config, migrate: Migrate) -> Result<Arc<dyn Store>, Failure> {
    let opened: store::Result<Arc<dyn Store>> = match config.backend() {
        Backend::Postgres if !config.databases.is_empty() => {
            return databases::store(config, migrate).await;
        }
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
            mainspring_store_sqlite::open(options)
                .await
                .map(|store| Arc::new(store) as _)
        }
        Backend::Mysql => {
            let settings = mysql(config, migrate);
            if settings.trusts_any_server() {
                tracing::warn!(
                    database = %database(config),
                    "the database's certificate and name are not verified: add \
                     ?ssl-mode=VERIFY_IDENTITY to its URL"
                );
            }
            let opened = mainspring_store_mysql::open(&settings).await;
            opened.map(|store| Arc::new(store) as _)
        }
    };
    opened.map_err(|error| store_failure(config, &error))
}

/// Opens the configured store read-only, next to a process that serves it.
pub(crate) async fn store_to_read(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    match config.backend() {
        Backend::Sqlite => {
            let opened = mainspring_store_sqlite::open_read_only(sqlite(config)?).await;
            let store = opened.map_err(|error| store_failure(config, &error))?;
            Ok(Arc::new(store))
        }
        Backend::Postgres | Backend::Mysql => store(config, Migrate::Verify).await,
    }
}

/// Has the configured database return space to the disk; returns its size in bytes before and
/// after.
pub(crate) async fn vacuum(config: &Config) -> Result<(u64, u64), Failure> {
    let next = match config.backend() {
        Backend::Sqlite => {
            let done = mainspring_store_sqlite::vacuum(sqlite(config)?).await;
            let done = done.map_err(|error| store_failure(config, &error))?;
            return Ok((done.before, done.after));
        }
        Backend::Postgres => {
            "Postgres reuses the space by itself (autovacuum); `VACUUM (FULL) TABLE` in psql returns it to the \
             disk, but locks the table meanwhile; the extension pg_repack does not"
        }
        Backend::Mysql => {
            "InnoDB reuses the space by itself; `OPTIMIZE TABLE` in the server's client returns it to the disk: \
             run it when there is little traffic"
        }
    };
    let database = database(config);
    let message = format!("{database} is not a SQLite file: its server maintains it");
    Err(usage_text(message, next))
}

/// The statements that create the schema.
pub(crate) fn ddl(config: &Config) -> String {
    match config.backend() {
        Backend::Postgres => {
            let mut text = mainspring_store_postgres::ddl();
            if config.row_security {
                text.push('\n');
                text.push_str(&mainspring_store_postgres::row_security_ddl());
            }
            if !config.databases.is_empty() {
                text.push('\n');
                text.push_str(&mainspring_store_postgres::fence_ddl());
            }
            text
        }
        Backend::Sqlite => mainspring_store_sqlite::ddl(),
        Backend::Mysql => mainspring_store_mysql::ddl(),
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
        row_security: config.row_security,
        fenced: !config.databases.is_empty(),
        namespace: config.database_schema.clone(),
        ..Settings::new(url)
    }
}

/// The same settings with the connections added up, since all MySQL connections are alike.
fn mysql(config: &Config, migrate: Migrate) -> mainspring_store_mysql::Settings {
    let url = config.database_url.as_ref().map_or("", |url| url.reveal());
    mainspring_store_mysql::Settings {
        schema: match migrate {
            Migrate::Create => mainspring_store_mysql::SchemaPolicy::Create,
            Migrate::Verify => mainspring_store_mysql::SchemaPolicy::Verify,
        },
        writers: config.database_writers + config.database_claimers,
        readers: config.database_streamers + config.database_readers,
        ..mainspring_store_mysql::Settings::new(url)
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

/// The location of the database, as it may be shown.
pub(crate) fn database(config: &Config) -> String {
    match &config.database_url {
        Some(url) => url.redacted_url(),
        None => config.data_dir.display().to_string(),
    }
}

/// A failure of the store, with what a user at a terminal can do about it.
pub(crate) fn store_failure(config: &Config, error: &store::Error) -> Failure {
    let code = error.code();
    let said = causes(error);
    let exit = match (error, code) {
        (store::Error::Denied { why, .. }, _) => match why {
            Denial::Login | Denial::Rights => Exit::Unauthorised,
            Denial::Database => Exit::NotFound,
            Denial::Session | Denial::Encoding => Exit::Failure,
        },
        (_, Code::Internal) => Exit::Failure,
        (_, code) => exit_of(code),
    };
    let message = match error {
        // The message names the location itself.
        store::Error::Locked { .. } => format!("{said} ({code})"),
        store::Error::Unavailable { source } if config.backend() == Backend::Sqlite => {
            let folder = database(config);
            let cause = causes(source.as_ref());
            return Failure::new(exit, format!("{folder} cannot be used: {cause} ({code})"))
                .code(code)
                .next("a writable folder is needed: --data-dir names it");
        }
        _ => format!("{}: {said} ({code})", database(config)),
    };
    let next = match error {
        store::Error::Locked { .. } => {
            "stop that process, or use another folder with --data-dir".to_owned()
        }
        store::Error::SchemaMissing { found: 0, .. } if config.database_url.is_none() => {
            "`mainspring dev` creates one there; --data-dir or --database-url name \
             another"
                .to_owned()
        }
        store::Error::Unavailable { source } if source.is::<TooManyConnections>() => {
            "raise the server's max_connections, or lower database_writers, database_claimers, \
             database_streamers and database_readers"
                .to_owned()
        }
        store::Error::Unavailable { source } if source.is::<ReadOnly>() => {
            "let the address name the primary; a primary refuses writes by \
             default_transaction_read_only or read_only, often because its disk is nearly full"
                .to_owned()
        }
        store::Error::Denied { why, .. } if *why == Denial::Session => {
            "set the pooler to session mode, or name Postgres itself".to_owned()
        }
        store::Error::Denied { why, .. } if *why == Denial::Encoding => {
            "create another one: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0".to_owned()
        }
        store::Error::Unavailable { .. } => {
            "is the database running, and is the address right?".to_owned()
        }
        store::Error::Refused { .. } => refused(config, &said),
        _ => next_of(code),
    };
    Failure::new(exit, message).code(code).next(next)
}

/// What to do about a statement or an address that the database or its driver refused, as far as the message tells.
fn refused(config: &Config, said: &str) -> String {
    let url = config.database_url.as_ref().map(Secret::reveal);
    let stray = url.and_then(secrets::unescaped);
    if let Some(stray) = stray {
        let mut bytes = [0; 4];
        let bytes = stray.encode_utf8(&mut bytes).bytes();
        let code = bytes.fold(String::new(), |code, byte| format!("{code}%{byte:02X}"));
        return format!(
            "the password in the database URL contains an unescaped `{stray}`: write {code}"
        );
    }
    let says = |parts: &[&str]| parts.iter().any(|part| said.contains(part));
    if says(&["error with configuration", "invalid port", "relative URL"]) {
        "the database URL is postgres://USER:PASSWORD@HOST:PORT/NAME, with special characters of the password escaped"
            .to_owned()
    } else if says(&["file is not a database"]) {
        "this file is no database of Mainspring's: --data-dir or --database-url name another"
            .to_owned()
    } else if says(&["no schema has been selected"]) {
        "the search_path of the role, the database or the URL names no schema that exists"
            .to_owned()
    } else if says(&["syntax error", "You have an error in your SQL syntax"]) {
        "Postgres 15, MySQL 8.0.21 or MariaDB 10.6, or newer, is required; `mainspring doctor` names the server's \
         version"
            .to_owned()
    } else {
        "this is the database's own message".to_owned()
    }
}

// Blobs ------------------------------------------------------------------------------------------

/// Where the bytes of blobs are stored, if not in the database.
pub(crate) fn blob_store(config: &Config) -> Result<Option<Arc<dyn Blobs>>, Failure> {
    let store: Arc<dyn Blobs> = match config.blobs.store {
        BlobStore::Database => return Ok(None),
        BlobStore::File => {
            let folder = config.blobs.dir.clone();
            let folder = folder.unwrap_or_else(|| config.data_dir.join("blobs"));
            Arc::new(FileBlobs::new(folder))
        }
        BlobStore::S3 => {
            let settings = config.blobs.s3();
            let settings = settings.ok_or_else(|| {
                let next = "set blobs.bucket, or another blobs.store";
                usage_text("the store s3 needs a bucket", next)
            })?;
            Arc::new(S3Blobs::new(&settings).map_err(usage)?)
        }
    };
    let timed = Timed::new(store, clock(), config.blobs.timeout);
    Ok(Some(Arc::new(timed)))
}

/// The blobs of a process that uses this store.
pub(crate) fn depot(
    config: &Config,
    store: &Arc<dyn Store>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Arc<Depot>, Failure> {
    let (rows, entropy) = (store.clone(), entropy.clone());
    let settings = &config.blobs;
    let depot = match blob_store(config)? {
        None => Depot::in_database(rows, entropy),
        Some(bytes) => Depot::new(rows, bytes, entropy),
    };
    Ok(Arc::new(
        depot.bounded(settings.bytes_max, settings.spill_bytes),
    ))
}

// Queue and bus ----------------------------------------------------------------------------------

/// The queue and the bus between the roles.
pub(crate) struct Wires {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) bus: Arc<dyn Bus>,
    /// The queue again, if it needs housekeeping.
    pub(crate) janitor: Option<Arc<RedisQueue>>,
}

/// Queue and bus between processes.
pub(crate) fn redis(
    config: &Config,
    clock: &Arc<dyn Clock>,
    entropy: &Arc<dyn Entropy>,
) -> Result<Wires, Failure> {
    let address = redis_address(config)?;
    let queue = RedisQueue::open(&address, clock.clone(), entropy.clone()).map_err(usage)?;
    let bus = RedisBus::open(&address, clock.clone(), entropy.clone()).map_err(usage)?;
    let queue = Arc::new(queue);
    Ok(Wires {
        queue: Arc::new(FairQueue::new(queue.clone(), clock.clone())),
        bus: Arc::new(bus),
        janitor: Some(queue),
    })
}

/// The configured Redis.
pub(crate) fn redis_address(config: &Config) -> Result<Address, Failure> {
    let url = config.redis_url.as_ref().map_or("", |url| url.reveal());
    let prefix: Prefix = config.redis_prefix.parse().map_err(usage)?;
    let address: Address = url.parse().map_err(usage)?;
    let mut address = address.under(prefix);
    if let Some(file) = &config.redis_ca_file {
        let pem = std::fs::read(file).map_err(|error| {
            usage_text(
                format!("redis_ca_file {} cannot be read: {error}", file.display()),
                "set it to a PEM file with the certificate authorities of the Redis server",
            )
        })?;
        address = address.trusting(pem);
    }
    Ok(address)
}

/// Queue and bus within one process.
pub(crate) fn local(clock: &Arc<dyn Clock>) -> Wires {
    let (queue, bus) = (Arc::new(LocalQueue::new()), Arc::new(LocalBus::new()));
    Wires {
        queue: Arc::new(FairQueue::new(queue, clock.clone())),
        bus,
        janitor: None,
    }
}

// Names ------------------------------------------------------------------------------------------

/// The process's label for people: the configured name, or else host and process id.
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
    use mainspring_runtime::Secret;

    use crate::config::{SearchEngine, ShellKind};
    use mainspring_providers::{Kind, ProviderSettings};
    use mainspring_runtime::{Environment, Lifecycle, Sources};
    use mainspring_scheduler::SchedulerConfig;
    use mainspring_tools::{built_in, builtin};
    use mainspring_worker::WorkerConfig;

    use super::models::settings_of;
    use super::*;

    #[test]
    fn a_message_of_the_database_is_followed_by_advice_that_fits_it() {
        let next = |url: &str, said: &str| {
            let config = Config {
                database_url: Some(Secret::new(url)),
                ..Config::default()
            };
            let source = said.to_owned().into();
            let failure = store_failure(&config, &store::Error::Refused { source });
            assert!(!failure.message.contains("VZd8"), "{}", failure.message);
            failure.next.unwrap_or_default()
        };
        for (url, said, part) in [
            (
                "postgres://u:~VZd8?q@h/d",
                "error with configuration: invalid port number",
                "write %3F",
            ),
            (
                "postgres://a,b/d",
                "error with configuration: invalid port number",
                "USER:PASSWORD@HOST",
            ),
            ("sqlite://x", "file is not a database", "--data-dir"),
            (
                "postgres://h/d",
                "no schema has been selected to create in",
                "search_path",
            ),
            (
                "postgres://h/d",
                "syntax error at or near \"MERGE\"",
                "or newer, is required",
            ),
            (
                "postgres://h/d",
                "prepared statement \"s\" already exists",
                "own message",
            ),
        ] {
            let advice = next(url, said);
            assert!(advice.contains(part), "{said}: {advice}");
            assert_eq!(
                advice.contains("newer, is required"),
                part.contains("newer"),
                "{said}"
            );
        }
    }

    #[tokio::test]
    async fn servers_are_not_vacuumed_and_say_what_to_do() {
        for (url, word) in [
            ("postgres://u:hunter2@db.example/m", "autovacuum"),
            ("mysql://u:hunter2@db.example/m", "OPTIMIZE TABLE"),
        ] {
            let config = Config {
                database_url: Some(Secret::new(url)),
                ..Config::default()
            };
            let failure = vacuum(&config).await.expect_err("a server");
            assert_eq!(failure.exit, Exit::Usage);
            let next = failure.next.unwrap_or_default();
            assert!(next.contains(word), "{next}");
            assert!(!failure.message.contains("hunter2"), "{}", failure.message);
        }
    }

    #[tokio::test]
    async fn a_file_is_vacuumed_unless_it_is_used_or_not_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config {
            data_dir: folder.path().to_owned(),
            ..Config::default()
        };
        let missing = vacuum(&config).await.expect_err("no file");
        assert!(missing.next.unwrap_or_default().contains("mainspring dev"));
        let open = store(&config, Migrate::Create).await.expect("a store");
        let used = vacuum(&config).await.expect_err("used");
        assert!(used.next.unwrap_or_default().contains("stop that process"));
        drop(open);
        let (before, after) = vacuum(&config).await.expect("vacuumed");
        // A new file has nothing to give back, and what is written anew may take a page more or less.
        assert!(
            after > 0 && after.abs_diff(before) <= before / 10,
            "{before} {after}"
        );
    }

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

    /// The tools of a worker with every setting configured.
    async fn every_tool() -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = defaults();
        config.data_dir = folder.path().to_owned();
        config.tools.shell = ShellKind::Local;
        config.tools.search = Some(SearchEngine::Brave);
        config.tools.search_key = Some(Secret::new("key"));
        let wires = local(&clock());
        let background = builtin::Background {
            store: store(&config, Migrate::Create).await.expect("a store"),
            queue: wires.queue,
            bus: wires.bus,
            lifecycle: Lifecycle::new(),
        };
        let memories = memories(&config, &background.store, &clock(), &entropy());
        let memories = memories.expect("a memory");
        let memories = Arc::new(memories);
        let tools = tools(&config, &clock(), &entropy(), &background, &memories);
        let tools = tools.expect("all tools");
        tools.names().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn the_list_of_tools_that_people_read_is_the_one_that_agents_have() {
        let mut there = every_tool().await;
        there.sort();
        let mut listed: Vec<_> = built_in().iter().map(|tool| tool.name).collect();
        listed.sort_unstable();
        assert_eq!(listed, there);
    }
}
