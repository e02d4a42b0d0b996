//! One connection for commands, which a task reopens whenever it is lost, for as long as that
//! takes.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainspring_shared::entropy::Entropy;
use mainspring_shared::time::Clock;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::address::{Address, AddressError};
use crate::prefix::Prefix;
use crate::refusal::Refusal;
use crate::scripts;

/// Time limit for opening a connection.
pub(crate) const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Time limit of a command. It is long, so that a Redis that stalls for a second or two loses no
/// worker.
const RESPONSE_LIMIT: Duration = Duration::from_secs(10);
/// How often a connection is probed.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// A slower probe opens the circuit.
const SLOW: Duration = Duration::from_millis(250);
/// A slower probe ends the connection.
pub(crate) const PROBE_LIMIT: Duration = Duration::from_secs(4);

/// The sources of time and randomness.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
}

/// A connection and its generation.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    /// Shared by all callers that send commands.
    pub(crate) connection: MultiplexedConnection,
    generation: u64,
}

/// Whether a link logs when Redis becomes unavailable and returns. One link of a process is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    /// Logs a warning.
    Warns,
    /// Leaves that to another link.
    Quiet,
}

/// What a link has to be able to do. A server that answers `PING` may still refuse that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Jobs are written by scripts.
    Jobs,
    /// Notices are published by a server that is no replica, as a replica's reach only some.
    Notices,
}

impl Purpose {
    /// Does a harmless bit of the work.
    async fn probe(
        self,
        connection: &mut MultiplexedConnection,
        prefix: &Prefix,
    ) -> RedisResult<()> {
        match self {
            Self::Jobs => scripts::probe(connection, prefix).await,
            Self::Notices => {
                let written = scripts::mark(connection, prefix).await;
                if let Err(error) = written
                    && matches!(Refusal::of(&error), None | Some(Refusal::ReadOnly))
                {
                    return Err(error);
                }
                scripts::call_nobody(connection, prefix).await
            }
        }
    }
}

/// The connection to Redis. While it is down or refuses to work, callers know at once.
pub(crate) struct Link {
    shared: Arc<Shared>,
    _keeper: AbortOnDropHandle<()>,
}

struct Shared {
    client: Client,
    prefix: Prefix,
    purpose: Purpose,
    sources: Sources,
    live: watch::Sender<Option<Live>>,
    /// False from the first sign of trouble until a probe is answered.
    responsive: AtomicBool,
    trouble: Notify,
    /// The newest generation that is known to be broken.
    broken: AtomicU64,
    /// Why there is no connection that works.
    trouble_is: Mutex<Option<&'static str>>,
}

impl Link {
    /// Starts the keeper; does not wait for a connection.
    pub(crate) fn open(
        address: &Address,
        sources: Sources,
        (purpose, voice): (Purpose, Voice),
    ) -> Result<Self, AddressError> {
        let shared = Arc::new(Shared {
            client: address.client()?,
            prefix: address.prefix(),
            purpose,
            sources,
            live: watch::Sender::new(None),
            responsive: AtomicBool::new(false),
            trouble: Notify::new(),
            broken: AtomicU64::new(0),
            trouble_is: Mutex::new(Some("it is not connected yet")),
        });
        let herald = Herald {
            address: address.to_string(),
            voice,
            away: false,
        };
        let keeper = tokio::spawn(keep(Arc::clone(&shared), herald));
        Ok(Self {
            shared,
            _keeper: AbortOnDropHandle::new(keeper),
        })
    }

    /// The connection, unless there is none or it does not respond.
    pub(crate) fn live(&self) -> Option<Live> {
        if !self.is_available() {
            return None;
        }
        self.shared.live.borrow().clone()
    }

    /// Why the link cannot be used. `None` while it can.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        if self.is_available() {
            return None;
        }
        let known = *self.shared.trouble_is();
        Some(known.unwrap_or("it answers too slowly"))
    }

    /// Whether commands can be expected to be answered and obeyed.
    pub(crate) fn is_available(&self) -> bool {
        self.shared.responsive.load(Ordering::Acquire)
    }

    /// Waits, without a limit, for a connection that responds.
    pub(crate) async fn available(&self) -> Live {
        let mut live = self.shared.live.subscribe();
        loop {
            if let Some(live) = self.live() {
                return live;
            }
            // The keeper marks the value as changed whenever a probe is answered. The sender cannot
            // be gone: it belongs to what this borrows from.
            let _ = live.changed().await;
        }
    }

    /// Resolves once this connection was replaced or found broken.
    pub(crate) async fn ended(&self, live: &Live) {
        let mut current = self.shared.live.subscribe();
        let same = |current: &Option<Live>| {
            current
                .as_ref()
                .is_some_and(|current| current.generation == live.generation)
        };
        let _ = current.wait_for(|current| !same(current)).await;
    }

    /// Reports a failed command. Opens the circuit if the error may affect more than this command.
    pub(crate) fn report(&self, live: &Live, error: &RedisError) {
        match Refusal::of(error) {
            // A primary that was demoted refuses writes for good, and the name may mean another by now.
            Some(Refusal::ReadOnly) => self.is_broken(live),
            // The next probe tells whether it refuses everything.
            Some(
                Refusal::Full
                | Refusal::Forbidden
                | Refusal::Unauthenticated
                | Refusal::CannotSave
                | Refusal::Loading
                | Refusal::Busy
                | Refusal::Cluster,
            ) => self.suspect(),
            None if error.is_timeout() => self.suspect(),
            None if error.is_unrecoverable_error() => self.is_broken(live),
            Some(Refusal::ForeignType | Refusal::Other) | None => {}
        }
    }

    fn is_broken(&self, live: &Live) {
        let broken = &self.shared.broken;
        broken.fetch_max(live.generation, Ordering::AcqRel);
        self.suspect();
    }

    /// Reports that an answer did not come in time. Nobody else waits for Redis until a probe is
    /// answered.
    pub(crate) fn suspect(&self) {
        self.shared.responsive.store(false, Ordering::Release);
        self.shared.trouble.notify_one();
    }
}

impl Shared {
    fn trouble_is(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.trouble_is
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("available", &self.is_available())
            .finish_non_exhaustive()
    }
}

/// Logs once that Redis is unavailable, and once that it is back.
struct Herald {
    address: String,
    voice: Voice,
    away: bool,
}

impl Herald {
    fn away(&mut self, reason: &'static str) {
        let address = &self.address;
        if self.voice == Voice::Quiet || std::mem::replace(&mut self.away, true) {
            tracing::debug!(redis.address = address, reason, "redis is unavailable");
            return;
        }
        tracing::warn!(
            redis.address = address,
            reason,
            "redis is unavailable: polling the database for work, without live streams; still \
             retrying"
        );
    }

    fn back(&mut self) {
        if std::mem::take(&mut self.away) {
            tracing::info!(redis.address = self.address, "redis is back");
        }
    }
}

async fn keep(shared: Arc<Shared>, mut herald: Herald) {
    let mut backoff = Backoff::new(shared.sources.clone(), 50, 1_000);
    let mut generation = 0;
    loop {
        let connection = match shared.connect().await {
            Ok(connection) => connection,
            Err(reason) => {
                *shared.trouble_is() = Some(reason);
                herald.away(reason);
                backoff.wait().await;
                continue;
            }
        };
        *shared.trouble_is() = None;
        herald.back();
        generation += 1;
        let live = Live {
            connection,
            generation,
        };
        let reason = attend(&shared, live).await;
        shared.responsive.store(false, Ordering::Release);
        *shared.trouble_is() = Some(reason);
        shared.live.send_replace(None);
        herald.away(reason);
        backoff.reset();
        backoff.wait().await;
    }
}

/// Opens a connection and checks that it responds.
pub(crate) async fn connect(client: &Client) -> Result<MultiplexedConnection, &'static str> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_LIMIT))
        .set_response_timeout(Some(RESPONSE_LIMIT));
    let open = async {
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        // A server that is still loading its data refuses this, as it would any other command.
        redis::cmd("PING")
            .query_async::<()>(&mut connection)
            .await?;
        Ok::<_, RedisError>(connection)
    };
    match tokio::time::timeout(CONNECT_LIMIT, open).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(reason(&error)),
        Err(_) => Err("timed out"),
    }
}

/// The kind of an error for logs. Never its text, in which a server may repeat what it was sent.
pub(crate) fn reason(error: &RedisError) -> &'static str {
    if let Some(refusal) = Refusal::of(error) {
        return refusal.cause();
    }
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => "timed out",
        ErrorKind::Io => "input or output failed",
        _ => "unusable",
    }
}

impl Shared {
    /// Opens a connection and checks that the server does what it is needed for.
    async fn connect(&self) -> Result<MultiplexedConnection, &'static str> {
        let mut connection = connect(&self.client).await?;
        let probe = self.purpose.probe(&mut connection, &self.prefix);
        match tokio::time::timeout(PROBE_LIMIT, probe).await {
            Ok(Ok(())) => Ok(connection),
            Ok(Err(error)) => Err(reason(&error)),
            Err(_) => Err("no answer"),
        }
    }
}

/// Probes a connection until it is broken or the server refuses. Returns the reason.
async fn attend(shared: &Shared, live: Live) -> &'static str {
    let generation = live.generation;
    let mut connection = live.connection.clone();
    shared.live.send_replace(Some(live));
    loop {
        shared.responsive.store(true, Ordering::Release);
        // Wakes callers that wait for a response rather than for a connection.
        shared.live.send_modify(|_| ());
        let _ = tokio::time::timeout(PROBE_INTERVAL, shared.trouble.notified()).await;
        if shared.broken.load(Ordering::Acquire) >= generation {
            return "a command failed";
        }
        let probe = shared.purpose.probe(&mut connection, &shared.prefix);
        tokio::pin!(probe);
        let mut answer = tokio::time::timeout(SLOW, &mut probe).await;
        if answer.is_err() {
            shared.responsive.store(false, Ordering::Release);
            answer = tokio::time::timeout(PROBE_LIMIT, &mut probe).await;
        }
        match answer {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return reason(&error),
            Err(_) => return "no answer",
        }
    }
}

/// Waits that double from `first` to `last` milliseconds. Each is shortened by up to a half, so
/// that many processes do not retry at the same time.
pub(crate) struct Backoff {
    sources: Sources,
    first: u64,
    last: u64,
    next: u64,
}

impl Backoff {
    pub(crate) fn new(sources: Sources, first: u64, last: u64) -> Self {
        Self {
            sources,
            first,
            last,
            next: first,
        }
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    pub(crate) async fn wait(&mut self) {
        let most = self.next as f64;
        let millis = most * (1.0 - 0.5 * self.sources.entropy.fraction());
        self.next = (self.next * 2).min(self.last);
        self.sources
            .clock
            .sleep(Duration::from_millis(millis as u64))
            .await;
    }
}
