//! One MCP server of the pool: its connection and its past failures.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mainspring_shared::secrets::Secrets;
use mainspring_shared::time::Clock;
use tokio::sync::Mutex;

use super::Error;
use super::connection::{Connection, Listing};
use super::settings::ServerSettings;

/// The backoff after the first failure; doubles with each consecutive failure.
const WAIT_BASE: Duration = Duration::from_millis(500);

/// The longest backoff.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// A remaining backoff of at most this is waited out: short enough for any caller.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection that lived this long counts as good, whatever ended it.
const STABLE: Duration = Duration::from_secs(30);

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    name: String,
    pub(super) settings: ServerSettings,
    /// Secrets that the server knows, may quote, and nobody else may see.
    secrets: Secrets,
    clock: Arc<dyn Clock>,
    /// Held while a connection is being opened: other callers wait for the same one.
    link: Mutex<Link>,
    /// Its tools when they were last known.
    known: std::sync::Mutex<Option<Listing>>,
}

#[derive(Debug, Default)]
struct Link {
    open: Option<Arc<Connection>>,
    /// Consecutive failures.
    failures: u32,
    /// No attempt before this reading of the monotonic clock.
    not_before: Duration,
}

impl Server {
    pub(super) fn new(name: String, settings: ServerSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            name,
            secrets: settings.transport.secrets(),
            settings,
            clock,
            link: Mutex::default(),
            known: std::sync::Mutex::default(),
        }
    }

    /// What the server said, with its secrets hidden.
    pub(super) fn hidden(&self, said: &str) -> String {
        self.secrets.hidden(said)
    }

    /// The server's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its tools, or the last known ones if it is unavailable.
    pub(super) async fn listing(&self) -> Result<Listing, Error> {
        let listing = match self.connection().await {
            Ok(connection) => connection.listing().await,
            Err(error) => {
                let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(known) = known.as_ref() else {
                    return Err(error);
                };
                tracing::warn!(
                    mcp.server = self.name,
                    %error,
                    "an MCP server is unavailable; offering its last known tools"
                );
                return Ok(known.clone());
            }
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(listing.clone());
        Ok(listing)
    }

    /// The connection; opened if there is none and the backoff is nearly over.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, Error> {
        let mut link = self.link.lock().await;
        if let Some(open) = &link.open {
            if open.is_open() {
                return Ok(open.clone());
            }
            self.close(&mut link);
        }
        let wait = link.not_before.saturating_sub(self.clock.monotonic());
        if wait > PATIENCE {
            return Err(Error::Away {
                server: self.name.clone(),
                failures: link.failures,
                wait,
            });
        }
        if !wait.is_zero() {
            self.clock.sleep(wait).await;
        }
        let now = self.clock.monotonic();
        match Connection::open(&self.name, &self.settings, now).await {
            Ok(connection) => {
                tracing::info!(mcp.server = self.name, "connected to an MCP server");
                let connection = Arc::new(connection);
                link.open = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                self.failed(&mut link);
                Err(error.without(&self.secrets))
            }
        }
    }

    /// Drops a connection that turned out to be useless. Calls still in flight over it keep it
    /// until they end.
    pub(super) async fn give_up(&self, connection: &Arc<Connection>) {
        let mut link = self.link.lock().await;
        let is_it = |open: &Arc<Connection>| Arc::ptr_eq(open, connection);
        if link.open.as_ref().is_some_and(is_it) {
            self.close(&mut link);
        }
    }

    fn close(&self, link: &mut Link) {
        let now = self.clock.monotonic();
        let closed = link.open.take();
        if closed.is_some_and(|connection| connection.proved_itself(now, STABLE)) {
            link.failures = 0;
            link.not_before = now;
            tracing::warn!(
                mcp.server = self.name,
                "dropped the connection to an MCP server"
            );
        } else {
            self.failed(link);
        }
    }

    fn failed(&self, link: &mut Link) {
        let doublings = link.failures.min(16);
        let wait = WAIT_BASE.saturating_mul(1 << doublings).min(WAIT_MAX);
        link.failures = link.failures.saturating_add(1);
        link.not_before = self.clock.monotonic().saturating_add(wait);
        let failures = link.failures;
        tracing::warn!(
            mcp.server = self.name,
            failures,
            ?wait,
            "an MCP server failed; backing off"
        );
    }
}
