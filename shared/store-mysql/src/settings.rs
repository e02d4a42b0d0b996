//! The settings of the store, and of its connections.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use mainspring_store_core::fault::Result;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions, MySqlSslMode};
use sqlx::{ConnectOptions, Connection as _, Executor};

use crate::fault::fault;
use crate::pool::PING_MAX;
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
    /// `mysql://USER:PASSWORD@HOST:PORT/DATABASE`.
    pub url: String,
    /// What to do about the schema when the store is opened.
    pub schema: SchemaPolicy,
    /// Connections for transactions.
    pub writers: u32,
    /// Connections for reads.
    pub readers: u32,
    /// How long a step waits for a connection. A server restart that is shorter goes unnoticed.
    pub acquire_timeout: Duration,
}

/// Prepared statements that a connection keeps: enough for all that there are.
const STATEMENTS: usize = 400;

/// Initializes each connection. The lock timeout of one second is the shortest that the server
/// supports; a transaction that exceeds it fails and is run again.
const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
     SET SESSION innodb_lock_wait_timeout = 1, \
     sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,\
     NO_BACKSLASH_ESCAPES,ERROR_FOR_DIVISION_BY_ZERO', \
     @mainspring_mark = UUID()";

impl Settings {
    /// Settings for the database at `url`, with defaults for the rest.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            schema: SchemaPolicy::default(),
            writers: 12,
            readers: 6,
            acquire_timeout: Duration::from_secs(5),
        }
    }

    /// Whether the server is remote and its identity is not verified: the URL does not request TLS,
    /// or requests it without verifying the server's certificate and host name. False if the URL
    /// cannot be parsed.
    pub fn trusts_any_server(&self) -> bool {
        let Ok(options) = MySqlConnectOptions::from_str(&self.url) else {
            return false;
        };
        let host = options.get_host().trim_matches(['[', ']']);
        let here = options.get_socket().is_some()
            || host == "localhost"
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        !here && !matches!(options.get_ssl_mode(), MySqlSslMode::VerifyIdentity)
    }

    /// The options that all connections share.
    pub(crate) fn server(&self) -> Result<MySqlConnectOptions> {
        let options = MySqlConnectOptions::from_str(&self.url).map_err(fault)?;
        Ok(options
            .charset("utf8mb4")
            .collation("utf8mb4_bin")
            .timezone(String::from("+00:00"))
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .statement_cache_capacity(STATEMENTS)
            .disable_statement_logging())
    }

    /// A pool of connections, which are opened on demand.
    pub(crate) fn pool(
        &self,
        connections: u32,
        silence: &Arc<SilentConnections>,
    ) -> Result<MySqlPool> {
        let silence = silence.clone();
        let options = MySqlPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(self.acquire_timeout)
            // The pool's own test would wait for ever.
            .test_before_acquire(false)
            .before_acquire(move |conn, met| {
                let silence = silence.clone();
                Box::pin(async move {
                    if silence.suspects(met.age) {
                        return Ok(false);
                    }
                    if let Ok(answer) = tokio::time::timeout(PING_MAX, conn.ping()).await {
                        Ok(answer.is_ok())
                    } else {
                        silence.found_silent();
                        Ok(false)
                    }
                })
            })
            .after_release(|conn, _| {
                // Before the pool's own test, which would wait for ever.
                Box::pin(async move {
                    let answer = tokio::time::timeout(PING_MAX, conn.ping()).await;
                    answer.unwrap_or_else(|late| Err(std::io::Error::from(late).into()))?;
                    Ok(true)
                })
            })
            .after_connect(|conn, _| {
                Box::pin(async move {
                    conn.execute(sqlx::raw_sql(SESSION)).await?;
                    Ok(())
                })
            });
        Ok(options.connect_lazy_with(self.server()?))
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("schema", &self.schema)
            .field("writers", &self.writers)
            .field("readers", &self.readers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_across_the_network_has_to_prove_who_it_is() {
        for (url, trusts) in [
            ("mysql://u@db.example/m", true),
            ("mysql://u@db.example/m?ssl-mode=REQUIRED", true),
            ("mysql://u@db.example/m?ssl-mode=VERIFY_IDENTITY", false),
            ("mysql://u@127.0.0.1/m", false),
            ("mysql://u@localhost/m", false),
        ] {
            assert_eq!(Settings::new(url).trusts_any_server(), trusts, "{url}");
        }
    }

    /// In a zone with daylight saving, an hour is repeated in autumn: `NOW()` does not tell the two
    /// apart, and the clock would go back by an hour.
    #[test]
    fn the_clock_is_in_no_zone_whatever_the_address_says() {
        for url in ["mysql://u@h/m", "mysql://u@h/m?timezone=Europe/Berlin"] {
            let options = Settings::new(url).server().expect("an address");
            let set = format!("{options:?}");
            assert!(set.contains("timezone: Some(\"+00:00\")"), "{set}");
        }
    }

    #[test]
    fn nothing_of_the_address_is_shown() {
        let shown = format!("{:?}", Settings::new("mysql://u:secret@h/m"));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
