//! The settings of the store, and its connection pools.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::store::Result;
use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};

use crate::retry::{PING_MAX, Pool, Steps};
use crate::server::Server;
use mainspring_store_core::SilentConnections;

/// What to do about the schema when the store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaPolicy {
    /// Bring it up to date. Any number of processes may do so at the same time.
    #[default]
    Create,
    /// Change nothing; a schema that is not up to date is an error.
    Verify,
}

/// How the store connects to its database. `Debug` omits the URL, which may contain a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    pub url: String,
    /// The schema that contains the tables: lower-case letters, digits and `_`. If `None`, the
    /// first one in the connection's `search_path`, usually `public`.
    pub namespace: Option<String>,
    /// What to do about the schema when the store is opened.
    pub schema: SchemaPolicy,
    /// Whether to use the extension pgvector if it is installed. With `SchemaPolicy::Create` it is
    /// also added, if the server and the user's rights allow it.
    pub pgvector: bool,
    /// Whether the server itself isolates tenants in statements on behalf of one
    /// ([`scoped`](mainspring_shared::store::scoped)): by row-level security policies on every
    /// table, under a separate role.
    pub row_security: bool,
    /// Whether the database is one of several, and refuses writes for tenants of another one.
    pub fenced: bool,
    /// Connections for transactions that commit synchronously.
    pub writers: u32,
    /// Connections for claims, sweeps and reads by key.
    pub claimers: u32,
    /// Connections for the reads of event streams.
    pub streamers: u32,
    /// Connections for lists and counts. The audit has its own connection.
    pub readers: u32,
    /// How long a step waits for a connection. A server restart that is shorter goes unnoticed.
    pub acquire_timeout: Duration,
    /// Statement timeout of steps.
    pub statement_timeout: Duration,
    /// How long a step waits for a lock. Locks are held for milliseconds, unless their holder is
    /// stuck. Many items share a statement, so all of them wait for the lock that one of them
    /// needs.
    pub lock_timeout: Duration,
    /// Statement timeout of lists and counts: bounds how long an expensive one waits, and how long
    /// it occupies a connection that others need.
    pub read_timeout: Duration,
    /// Statement timeout of the audit's queries.
    pub audit_timeout: Duration,
}

impl Settings {
    /// Settings for the database at `url`, with defaults for the rest.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            namespace: None,
            schema: SchemaPolicy::default(),
            pgvector: true,
            row_security: false,
            fenced: false,
            writers: 8,
            claimers: 4,
            streamers: 2,
            readers: 2,
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_millis(250),
            read_timeout: Duration::from_secs(5),
            audit_timeout: Duration::from_mins(2),
        }
    }

    /// Whether the server is remote and its identity is not verified: the URL does not request TLS,
    /// or requests it without verifying the server's certificate and host name. False if the URL
    /// cannot be parsed.
    pub fn trusts_any_server(&self) -> bool {
        let Ok(options) = PgConnectOptions::from_str(&self.url) else {
            return false;
        };
        let host = options.get_host().trim_matches(['[', ']']);
        let here = options.get_socket().is_some()
            || host == "localhost"
            || host.starts_with('/')
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        !here && !matches!(options.get_ssl_mode(), PgSslMode::VerifyFull)
    }

    /// What all connections share.
    pub(crate) fn server(&self) -> Result<Server> {
        let server = Server::at(&self.url)?;
        Ok(match &self.namespace {
            // No further schema in the path: a table missing from this one must not resolve to that
            // of another installation.
            Some(namespace) => server.with([("search_path", namespace)]),
            None => server,
        })
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("namespace", &self.namespace)
            .field("schema", &self.schema)
            .field("pgvector", &self.pgvector)
            .field("row_security", &self.row_security)
            .field("fenced", &self.fenced)
            .field("writers", &self.writers)
            .field("claimers", &self.claimers)
            .field("streamers", &self.streamers)
            .field("readers", &self.readers)
            .finish_non_exhaustive()
    }
}

/// The connection pools, by purpose.
#[derive(Debug, Clone)]
pub(crate) struct Pools {
    /// Commits synchronously: a commit is on disk when it returns.
    pub(crate) writers: Pool,
    /// Commits asynchronously: a commit is on disk soon after it returns.
    pub(crate) claimers: Pool,
    /// The same, for lease renewals only: a process keeps its lease even if everything else is slow
    /// or waits for a connection.
    pub(crate) renewers: Pool,
    /// The same, for event streams, of which there may be many.
    pub(crate) streamers: Pool,
    /// Read-only, with custom plans for each query.
    pub(crate) readers: Pool,
    /// The same, for the audit's queries over whole tables.
    pub(crate) auditors: Pool,
}

impl Pools {
    /// How many connections the pools may open together.
    pub(crate) fn connections_max(&self) -> u32 {
        let most = |pool: &Pool| pool.connections.options().get_max_connections();
        self.named().iter().map(|(_, pool)| most(pool)).sum()
    }

    /// All pools with their names.
    pub(crate) fn named(&self) -> [(&'static str, &Pool); 6] {
        [
            ("writers", &self.writers),
            ("claimers", &self.claimers),
            ("renewers", &self.renewers),
            ("streamers", &self.streamers),
            ("readers", &self.readers),
            ("auditors", &self.auditors),
        ]
    }
}

/// Planner settings for steps, which access tables by key only. Generic plans avoid replanning, and
/// these costs keep the planner from choosing a scan because a table is still small.
const KEYED: [(&str, &str); 7] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_mergejoin", "off"),
    ("random_page_cost", "0.02"),
    ("seq_page_cost", "0.02"),
    // The statements of a step follow each other immediately. A process suspended between two of
    // them would otherwise keep its sessions locked.
    ("idle_in_transaction_session_timeout", "3s"),
];

/// Time allowed for a response beyond the statement timeout.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// Creates the pools; connections are opened on demand.
pub(crate) fn pools(settings: &Settings) -> Result<Pools> {
    let keyed = settings.server()?.with(KEYED).with([
        ("statement_timeout", &millis(settings.statement_timeout)),
        ("lock_timeout", &millis(settings.lock_timeout)),
    ]);
    let planned = settings.server()?.with([
        ("plan_cache_mode", "force_custom_plan"),
        ("default_transaction_read_only", "on"),
    ]);
    let within = |timeout| {
        let timeout = [("statement_timeout", &*millis(timeout))];
        planned.clone().with(timeout)
    };
    // No parallel workers for reads: starting them costs more than they save, and takes CPU from
    // the steps.
    let readers = within(settings.read_timeout).with([("max_parallel_workers_per_gather", "0")]);
    // The audit joins CTEs that shadow tables and for which the planner has no statistics: it
    // assumes few rows and chooses nested loops over all of them. With those, a session of 1 200
    // sends took 4.1 s, and 0.16 s without.
    let auditors = within(settings.audit_timeout).with([("enable_nestloop", "off")]);
    let silence = Arc::new(SilentConnections::default());
    let pool = |steps: Steps, connections: u32, timeout: Duration, server: Server| {
        let heard = silence.clone();
        let met = silence.clone();
        let address = server.address.clone();
        let server = Arc::new(server);
        let pool = PgPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(settings.acquire_timeout)
            .test_before_acquire(false)
            .before_acquire(move |_, connection| {
                let suspect = heard.suspects(connection.age);
                Box::pin(async move { Ok(!suspect) })
            })
            .after_connect(move |connection, _| {
                let (server, met) = (server.clone(), met.clone());
                Box::pin(async move {
                    if server.begin(connection).await? {
                        met.found_read_only();
                    }
                    Ok(())
                })
            })
            .after_release(|connection, _| {
                // Before the pool's own test, which would wait for ever.
                Box::pin(async move {
                    let answer = tokio::time::timeout(PING_MAX, connection.ping()).await;
                    answer.unwrap_or_else(|late| Err(std::io::Error::from(late).into()))?;
                    Ok(true)
                })
            })
            .max_lifetime(Duration::from_mins(30))
            .connect_lazy_with(address);
        Pool {
            connections: pool,
            recent: Arc::default(),
            patience: timeout + ON_ITS_WAY,
            silence: silence.clone(),
            contended: Arc::default(),
            row_security: settings.row_security,
            steps,
        }
    };
    let timeout = settings.statement_timeout;
    let relaxed = keyed.clone().with([("synchronous_commit", "off")]);
    Ok(Pools {
        writers: pool(Steps::Write, settings.writers, timeout, keyed),
        claimers: pool(Steps::Write, settings.claimers, timeout, relaxed.clone()),
        renewers: pool(Steps::Renew, 1, timeout, relaxed.clone()),
        streamers: pool(Steps::Write, settings.streamers, timeout, relaxed),
        readers: pool(
            Steps::Read,
            settings.readers,
            settings.read_timeout,
            readers,
        ),
        auditors: pool(Steps::Read, 1, settings.audit_timeout, auditors),
    })
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_remote_server_whose_name_is_not_verified_is_trusted_blindly() {
        for (url, expected) in [
            ("postgres://u@db.internal/m", true),
            ("postgres://u@10.0.0.7/m?sslmode=require", true),
            ("postgres://u@db.internal/m?sslmode=verify-ca", true),
            ("postgres://u@db.internal/m?sslmode=verify-full", false),
            ("postgres://u@localhost/m", false),
            ("postgres://u@127.0.0.1:5433/m", false),
            ("postgres://u@[::1]/m", false),
            ("postgres:///m?host=/var/run/postgresql", false),
        ] {
            assert_eq!(Settings::new(url).trusts_any_server(), expected, "{url}");
        }
    }
}
