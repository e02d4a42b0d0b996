//! What the store is opened with, and the pools that follow from it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::store::Result;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};

use crate::retry::{Pool, refused};
use crate::silence::Silence;

/// What happens to the schema when the store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaPolicy {
    /// It is brought up to date. Safe while any number of processes do the same.
    #[default]
    Create,
    /// Nothing is changed; a schema that is not up to date is an error.
    Verify,
}

/// How the store reaches its database. `Debug` does not show the address, which may hold a
/// password.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    pub url: String,
    /// The schema in which the tables are: lower-case letters, digits and `_`. The first one of the connection's
    /// `search_path`, as a rule `public`, when none.
    pub namespace: Option<String>,
    /// What happens to the tables.
    pub schema: SchemaPolicy,
    /// Whether the extension pgvector is used where it is there, and added where the schema is created
    /// and it can be.
    pub pgvector: bool,
    /// Whether the server itself keeps tenants apart in what is asked on behalf of one
    /// ([`scoped`](mainspring_shared::store::scoped)): by policies on every table, under a role of their own.
    pub row_security: bool,
    /// Whether the database is one of several, and refuses what is written for tenants of another one.
    pub fenced: bool,
    /// Connections for what commits synchronously.
    pub writers: u32,
    /// Connections for claims, sweeps and reads by key.
    pub claimers: u32,
    /// Connections for what streams of events read.
    pub streamers: u32,
    /// Connections for lists and counts. The audit has one of its own.
    pub readers: u32,
    /// How long a step waits for a connection. Within it, a restart of the server goes unnoticed.
    pub acquire_timeout: Duration,
    /// How long the server works on one statement of a step.
    pub statement_timeout: Duration,
    /// How long a step waits for a lock. Whoever holds one holds it for milliseconds, but for one that
    /// is stuck; many share a statement, and what one of them waits for they all do.
    pub lock_timeout: Duration,
    /// How long the server works on one list or count: who asks for too much waits no longer, and
    /// keeps others from theirs no longer.
    pub read_timeout: Duration,
    /// How long it works on one query of the audit.
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

    /// Whether the server is across a network and nothing makes sure that it is the right one: the
    /// address asks for no TLS, or for TLS without a look at the server's certificate and name.
    /// False where the address cannot be read.
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

    /// What every connection is opened with.
    pub(crate) fn server(&self) -> Result<PgConnectOptions> {
        let mut options = PgConnectOptions::from_str(&self.url).map_err(refused)?;
        if let Some(namespace) = &self.namespace {
            // No other schema behind it: a table that is missing there must not be found in another installation.
            options = options.options([("search_path", namespace)]);
        }
        Ok(options.application_name("mainspring").options([
            ("jit", "off"),
            ("idle_in_transaction_session_timeout", "60s"),
            // What a process that is gone had asked for must not hold back vacuum.
            ("client_connection_check_interval", "5s"),
        ]))
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

/// The connections, by what they are for.
#[derive(Debug, Clone)]
pub(crate) struct Pools {
    /// Commits are on disk when they are answered.
    pub(crate) writers: Pool,
    /// Commits are on disk soon after they are answered.
    pub(crate) claimers: Pool,
    /// The same, for renewals alone: whatever else is slow or waits for a connection, a process keeps
    /// its lease.
    pub(crate) renewers: Pool,
    /// The same, for streams of events, of which there may be many.
    pub(crate) streamers: Pool,
    /// Read-only, with plans made for the question at hand.
    pub(crate) readers: Pool,
    /// The same, for questions about everything there is.
    pub(crate) auditors: Pool,
}

impl Pools {
    /// All of them, with what they are called.
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

/// Every table lookup of the steps is by key. Generic plans save planning them again, and these
/// costs keep the planner from preferring a scan over a table that is small only now.
const KEYED: [(&str, &str); 7] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_mergejoin", "off"),
    ("random_page_cost", "0.02"),
    ("seq_page_cost", "0.02"),
    // The statements of a step follow each other at once. A process that is stopped between two of
    // them keeps others from its sessions.
    ("idle_in_transaction_session_timeout", "3s"),
];

/// How long an answer may be on its way.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// Opens the pools; connections are made when they are needed.
pub(crate) fn pools(settings: &Settings) -> Result<Pools> {
    let keyed = settings.server()?.options(KEYED).options([
        ("statement_timeout", millis(settings.statement_timeout)),
        ("lock_timeout", millis(settings.lock_timeout)),
    ]);
    let planned = settings.server()?.options([
        ("plan_cache_mode", "force_custom_plan"),
        ("default_transaction_read_only", "on"),
    ]);
    let within = |timeout| {
        let timeout = [("statement_timeout", millis(timeout))];
        planned.clone().options(timeout)
    };
    // Whoever looks at something starts no processes for it, which would take more than they save, and from those who work.
    let readers = within(settings.read_timeout).options([("max_parallel_workers_per_gather", "0")]);
    // An audit compares rows that were put aside under the names of tables, of which the planner knows nothing: it
    // takes them for few, and would look through all of one for each of the other. A session of 1 200 sends took
    // 4.1 s so, and 0.16 s without.
    let auditors = within(settings.audit_timeout).options([("enable_nestloop", "off")]);
    let silence = Arc::new(Silence::default());
    let pool = |connections: u32, timeout: Duration, options| {
        let heard = silence.clone();
        let pool = PgPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(settings.acquire_timeout)
            .test_before_acquire(false)
            .before_acquire(move |_, connection| {
                let suspect = heard.suspects(connection.age);
                Box::pin(async move { Ok(!suspect) })
            })
            .max_lifetime(Duration::from_mins(30))
            .connect_lazy_with(options);
        Pool {
            connections: pool,
            kept: Arc::default(),
            patience: timeout + ON_ITS_WAY,
            silence: silence.clone(),
            contended: Arc::default(),
            row_security: settings.row_security,
        }
    };
    let timeout = settings.statement_timeout;
    let relaxed = keyed.clone().options([("synchronous_commit", "off")]);
    Ok(Pools {
        writers: pool(settings.writers, timeout, keyed),
        claimers: pool(settings.claimers, timeout, relaxed.clone()),
        renewers: pool(1, timeout, relaxed.clone()),
        streamers: pool(settings.streamers, timeout, relaxed),
        readers: pool(settings.readers, settings.read_timeout, readers),
        auditors: pool(1, settings.audit_timeout, auditors),
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
