//! One MCP server of the pool: its connection and its past failures.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mainspring_shared::time::Clock;
use tokio::sync::Mutex;

use super::connection::{Connection, Listing};
use super::credentials::{Credentials, KnownSecrets};
use super::keeping::Keeping;
use super::settings::{ServerSettings, Transport, address};
use super::{Error, Kept};

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
    secrets: KnownSecrets,
    /// The headers of requests to it, if it is behind a URL.
    credentials: Option<Arc<Credentials>>,
    clock: Arc<dyn Clock>,
    /// Held while a connection is being opened: other callers wait for the same one.
    link: Mutex<Link>,
    /// Its tools when they were last known.
    known: std::sync::Mutex<Option<Listing>>,
    /// Where its list is kept for workers that do not know it.
    keeping: Option<Keeping>,
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
    pub(super) fn new(
        name: String,
        settings: ServerSettings,
        clock: Arc<dyn Clock>,
        kept: Option<Kept>,
    ) -> Self {
        let secrets = KnownSecrets::new(settings.transport.secrets());
        let credentials = match &settings.transport {
            Transport::Stdio { .. } => None,
            Transport::Http {
                url,
                headers,
                sources,
            } => address(url).map(|target| {
                let clock = clock.clone();
                let known = secrets.clone();
                Arc::new(Credentials::new(&target, headers, sources, known, clock))
            }),
        };
        Self {
            keeping: kept.map(|kept| Keeping::new(kept, &name, &settings.transport)),
            name,
            secrets,
            credentials,
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

    pub(super) fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// The secrets that it knows.
    pub(super) fn secrets(&self) -> &KnownSecrets {
        &self.secrets
    }

    /// The headers of requests to it, if it is behind a URL.
    pub(super) fn credentials(&self) -> Option<&Arc<Credentials>> {
        self.credentials.as_ref()
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
                let Some(known) = self.last_known().await else {
                    return Err(error);
                };
                tracing::warn!(
                    mcp.server = self.name,
                    %error,
                    "an MCP server is unavailable; offering its last known tools"
                );
                return Ok(known);
            }
        };
        if let Some(keeping) = &self.keeping {
            keeping
                .save(&self.name, &listing, self.clock.as_ref())
                .await;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(listing.clone());
        Ok(listing)
    }

    /// The last list that this worker has seen, or else any worker.
    async fn last_known(&self) -> Option<Listing> {
        let known = self
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if known.is_some() {
            return known;
        }
        let read = self.keeping.as_ref()?.read(self.clock.as_ref()).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(read.clone());
        Some(read)
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
        match Connection::open(self, now).await {
            Ok(connection) => {
                tracing::info!(mcp.server = self.name, "connected to an MCP server");
                let connection = Arc::new(connection);
                link.open = Some(connection.clone());
                Ok(connection)
            }
            Err(error) => {
                self.failed(&mut link);
                Err(error.without(&self.secrets.now()))
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
