//! How connections to the server begin.

use std::str::FromStr;

use mainspring_shared::store::Result;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

use crate::fault::{Fault, refused};

/// A server, and the settings of each session there.
///
/// A session is given its settings after it has begun: a pooler refuses a start with settings that it
/// does not know, or is told to ignore them (<https://www.pgbouncer.org/config.html>,
/// `ignore_startup_parameters`).
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) address: PgConnectOptions,
    session: Vec<(&'static str, String)>,
}

impl Server {
    /// The server at a URL, with settings that all sessions share.
    pub(crate) fn at(url: &str) -> Result<Self> {
        let address = PgConnectOptions::from_str(url).map_err(refused)?;
        // A number is read in its binary form, which has all digits.
        let address = address
            .application_name("mainspring")
            .extra_float_digits(None);
        let server = Self {
            address,
            session: Vec::new(),
        };
        Ok(server.with([
            ("jit", "off"),
            ("idle_in_transaction_session_timeout", "60s"),
            // A query of a dead client must not hold back vacuum.
            ("client_connection_check_interval", "5s"),
        ]))
    }

    /// With further settings, which replace earlier ones of the same names.
    pub(crate) fn with<const N: usize>(mut self, settings: [(&'static str, &str); N]) -> Self {
        let settings = settings.map(|(name, value)| (name, value.to_owned()));
        self.session
            .retain(|(name, _)| settings.iter().all(|(other, _)| other != name));
        self.session.extend(settings);
        self
    }

    /// A connection outside the pools.
    pub(crate) async fn connect(&self) -> Result<PgConnection> {
        let mut connection = PgConnection::connect_with(&self.address)
            .await
            .map_err(Fault::from)?;
        self.begin(&mut connection).await.map_err(Fault::from)?;
        Ok(connection)
    }

    /// Gives a new session its settings. Returns whether the server is a standby, which answers
    /// reads, so that only a write would tell.
    pub(crate) async fn begin(&self, connection: &mut PgConnection) -> sqlx::Result<bool> {
        let (names, values): (Vec<&str>, Vec<&str>) = self
            .session
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .unzip();
        let set = "SELECT pg_is_in_recovery() FROM (
             SELECT count(set_config(s.name, s.value, false)) AS set
             FROM unnest($1::text[], $2::text[]) AS s (name, value)
         ) s
         WHERE s.set IS NOT NULL";
        sqlx::query_scalar(set)
            .bind(names)
            .bind(values)
            .persistent(false)
            .fetch_one(connection)
            .await
    }
}
