//! Steps on the pools' connections, and their retries.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mainspring_shared::store::{Connections, Contended, Denial, Error, Result, scope};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, PgConnection, PgPool, Postgres};
use tokio::time::{Instant, timeout};

use crate::fault::{Fault, Kind, kind, refused};
use crate::recent::RecentConnections;
use crate::row_security;
use mainspring_store_core::SilentConnections;

/// A statement with its arguments.
pub(crate) type PgQuery = Query<'static, Postgres, PgArguments>;

/// The text of a statement from `sql/`, with its column lists expanded.
macro_rules! text {
    ($name:literal) => {{
        static TEXT: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
            let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $name, ".sql"));
            mainspring_shared::store::columns::expand(text).into_owned()
        });
        // Borrowed from the static, so that the text is `'static`.
        TEXT.as_str()
    }};
}
pub(crate) use text;

/// A statement from `sql/`.
macro_rules! sql {
    ($name:literal) => {
        sqlx::query(crate::retry::text!($name))
    };
}
pub(crate) use sql;

/// Runs a step until its outcome is known. The step must be safe to run twice: a repeat recognizes
/// what an attempt whose response was lost has done, and `$lost` says whether there may have been
/// one. A macro, because the compiler cannot prove that such a closure's future is `Send`.
macro_rules! repeatable {
    ($pool:expr, |$connection:ident| $step:expr) => {
        crate::retry::repeatable!($pool, |$connection, _| $step)
    };
    ($pool:expr, |$connection:ident, $lost:pat_param| $step:expr) => {{
        let mut attempts = crate::retry::Attempts::default();
        loop {
            let $lost = attempts.any_lost();
            let done = attempts.on($pool, async |$connection| $step.await).await;
            match done {
                Ok(outcome) => break Ok(outcome),
                Err(fault) => match attempts.weigh(fault)? {
                    crate::retry::Verdict::Again | crate::retry::Verdict::Lost => {}
                    crate::retry::Verdict::BadData(error) => break Err(error),
                },
            }
        }
    }};
}
pub(crate) use repeatable;

/// Retries of a step after conflicts (deadlocks, lock timeouts): with the default lock timeout of
/// 250 ms, as many as fit into the default statement timeout of 10 s.
const CONFLICTS_MAX: u32 = 40;
/// Retries after a connection broke. The broken one may date from before a restart of the server;
/// after a loss, only connections that answer a ping are used.
const LOSSES_MAX: u32 = 2;

/// A connection pool, and how long to wait for a response on its connections.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    /// The connections.
    pub(crate) connections: PgPool,
    /// The most recently used connections, kept outside the pool.
    pub(crate) recent: Arc<RecentConnections>,
    /// How long to wait for a response; longer than the statement timeout.
    pub(crate) patience: Duration,
    /// Silent connections, tracked across all pools of the store.
    pub(crate) silence: Arc<SilentConnections>,
    /// Sessions that were recently found locked.
    pub(crate) contended: Arc<Contended>,
    /// Whether the server restricts steps on behalf of one tenant to its rows.
    pub(crate) row_security: bool,
    /// What its steps do.
    pub(crate) steps: Steps,
}

/// What the steps of a pool do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steps {
    /// They write.
    Write,
    /// They renew a lease, which takes a moment: if it does not, the connection is doubted.
    Renew,
    /// They only read.
    Read,
}

impl Pool {
    /// How many connections are open and idle, and how many callers wait for one.
    pub(crate) fn used(&self, pool: &'static str) -> Connections {
        let (kept, waiting) = self.recent.used();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Connections {
            pool,
            open: self.connections.size(),
            idle: count(self.connections.num_idle() + kept),
            waiting: count(waiting),
        }
    }
}

/// How long a server may take to answer a ping.
pub(crate) const PING_MAX: Duration = Duration::from_secs(2);

/// What to do after a fault.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It had no effect: run it again.
    Again,
    /// It is unknown whether it took effect: read back first.
    Lost,
    /// It had no effect, because of an item's data.
    BadData(Error),
}

/// Counts the failures so far; each kind has its own bound.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    conflicts: u32,
    losses: u32,
    /// Whether the step has items of several tenants, so that the task's tenant scope does not
    /// apply.
    shared: bool,
}

impl Attempts {
    /// Attempts at a step with items of several tenants.
    pub(crate) fn shared() -> Self {
        Self {
            shared: true,
            ..Self::default()
        }
    }

    /// The number of conflicts so far.
    pub(crate) fn conflicts(&self) -> u32 {
        self.conflicts
    }

    /// Whether an earlier attempt may have been committed.
    pub(crate) fn any_lost(&self) -> bool {
        self.losses > 0
    }

    /// Decides what to do after a fault. A conflict needs no backoff: the next attempt waits for
    /// the locks of the transaction that won.
    pub(crate) fn weigh(&mut self, fault: Fault) -> Result<Verdict> {
        let error = match fault {
            Fault::Driver(error) => error,
            Fault::Row(error) => return Err(error),
        };
        match kind(&error) {
            Kind::Conflict if self.conflicts < CONFLICTS_MAX => {
                self.conflicts += 1;
                tracing::debug!(attempt = self.conflicts, "a batch hit a conflict; retrying");
                Ok(Verdict::Again)
            }
            Kind::Lost if self.losses < LOSSES_MAX => {
                self.losses += 1;
                tracing::debug!(attempt = self.losses, "a connection broke");
                Ok(Verdict::Lost)
            }
            // It had no effect; the next connection is a new one.
            Kind::ReadOnly if self.losses < LOSSES_MAX => {
                self.losses += 1;
                Ok(Verdict::Again)
            }
            Kind::BadData => Ok(Verdict::BadData(refused(error))),
            Kind::Conflict
            | Kind::Lost
            | Kind::Away
            | Kind::ReadOnly
            | Kind::Full
            | Kind::Elsewhere
            | Kind::Denied(_)
            | Kind::Refused => Err(Fault::Driver(error).into()),
        }
    }

    /// Runs `work` on a connection. If there is no response, the connection is discarded, and it is
    /// unknown whether the work took effect.
    pub(crate) async fn on<T>(
        &self,
        pool: &Pool,
        work: impl AsyncFnOnce(&mut PgConnection) -> std::result::Result<T, Fault>,
    ) -> std::result::Result<T, Fault> {
        let mut held = self.connection(pool).await?;
        let tenant = scope().filter(|_| pool.row_security && !self.shared);
        if let Some(tenant) = tenant {
            let entered = row_security::enter(held.connection(), tenant);
            let entered = pool.silence.answer(pool.patience, entered).await;
            entered.ok_or_else(no_answer)??;
        }
        let answer = {
            // Pinned here, so that what waits for it is not larger for it.
            let work = pin!(work(held.connection()));
            let answer = pin!(pool.silence.answer(pool.patience, work));
            match pool.steps {
                Steps::Renew => doubted(pool, answer).await,
                Steps::Write | Steps::Read => answer.await,
            }
        };
        let done = answer.ok_or_else(|| {
            pool.silence.lost();
            no_answer()
        })?;
        if let Err(Fault::Driver(error)) = &done {
            match kind(error) {
                Kind::Lost => pool.silence.lost(),
                Kind::ReadOnly => {
                    pool.silence.lost();
                    pool.silence.found_read_only();
                    return done;
                }
                // Whatever the session had is gone.
                Kind::Denied(Denial::Session) => return done,
                Kind::Conflict
                | Kind::Away
                | Kind::Full
                | Kind::Elsewhere
                | Kind::BadData
                | Kind::Denied(_)
                | Kind::Refused => {}
            }
        }
        if pool.silence.is_read_only() && pool.steps != Steps::Read && done.is_ok() {
            let writes = timeout(PING_MAX, takes_writes(held.connection())).await;
            match writes {
                Ok(Ok(true)) => pool.silence.found_writable(),
                Ok(Ok(false)) => pool.silence.found_read_only(),
                Ok(Err(_)) | Err(_) => return done,
            }
        }
        if done.is_err() || held.connection().should_flush() {
            // A transaction left open, by a fault or by a step that found nothing to do, is rolled
            // back only on the connection's next use. Ping now: until then it would hold its locks,
            // and the next attempt, on another connection, would skip the locked rows.
            let answer = timeout(PING_MAX, held.connection().ping()).await;
            if !matches!(answer, Ok(Ok(()))) {
                return done;
            }
        }
        if tenant.is_some() {
            let left = timeout(PING_MAX, row_security::leave(held.connection())).await;
            if !matches!(left, Ok(Ok(()))) {
                return done;
            }
        }
        held.give_back(&pool.recent);
        done
    }

    /// A connection from the pool. After a loss the others may be broken, too, so one is handed out
    /// only if it answers a ping.
    async fn connection(&self, pool: &Pool) -> std::result::Result<Held, Fault> {
        let mut broken = 0;
        loop {
            let taken = pool.recent.take(&pool.connections, &pool.silence).await?;
            let mut held = Held(Some(taken));
            if self.losses == 0 {
                return Ok(held);
            }
            let answer = timeout(PING_MAX, held.connection().ping()).await;
            match answer.unwrap_or_else(|_| Err(no_answer())) {
                Ok(()) => return Ok(held),
                Err(error) if broken > pool.connections.options().get_max_connections() => {
                    return Err(error.into());
                }
                Err(_) => broken += 1,
            }
        }
    }
}

/// Whether the server of a connection takes writes.
pub(crate) async fn takes_writes(connection: &mut PgConnection) -> sqlx::Result<bool> {
    let setting =
        sqlx::query_scalar::<_, String>("SELECT current_setting('transaction_read_only')");
    Ok(setting.fetch_one(connection).await? == "off")
}

/// How long a renewal may take until its connection is doubted. Each of its waits is shorter.
const DOUBTED_AFTER: Duration = Duration::from_secs(3);

/// Waits for an answer; but if it takes long, and the server answers on a new connection at once,
/// the old ones are silent.
async fn doubted<T>(pool: &Pool, answer: impl Future<Output = Option<T>>) -> Option<T> {
    tokio::pin!(answer);
    if let Ok(answer) = timeout(DOUBTED_AFTER, &mut answer).await {
        return answer;
    }
    let answers = async {
        let options = pool.connections.connect_options();
        let mut fresh = PgConnection::connect_with(&options).await?;
        fresh.ping().await?;
        fresh.close().await
    };
    tokio::select! {
        biased;
        answer = &mut answer => return answer,
        answers = timeout(PING_MAX, answers) => {
            if matches!(answers, Ok(Ok(()))) {
                tracing::warn!("a connection to the database is silent, and a new one is not");
                pool.silence.found_silent();
                return None;
            }
        }
    }
    answer.await
}

/// A connection in use, and since when it is out of its pool. Closed unless it is given back: if
/// its user was dropped midway, a response may still be in flight, and the pool would wait for it
/// forever.
#[derive(Debug)]
struct Held(Option<(PoolConnection<Postgres>, Instant)>);

impl Held {
    fn connection(&mut self) -> &mut PgConnection {
        let (connection, _) = self.0.as_mut().expect("it is given back by value only");
        connection
    }

    fn give_back(mut self, recent: &RecentConnections) {
        if let Some((connection, taken)) = self.0.take() {
            recent.give_back(connection, taken);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.0.take().map(|(connection, _)| connection.detach()));
    }
}

fn no_answer() -> sqlx::Error {
    sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())
}

/// Runs a statement that is safe to repeat, and returns its rows.
pub(crate) async fn fetch(pool: &Pool, make: impl Fn() -> PgQuery) -> Result<Vec<PgRow>> {
    let mut attempts = Attempts::default();
    loop {
        let query = make();
        let fetched = attempts.on(pool, async |connection| {
            Ok(query.fetch_all(connection).await?)
        });
        match fetched.await {
            Ok(rows) => return Ok(rows),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

/// Runs a statement that is safe to repeat, and returns how many rows it changed.
pub(crate) async fn execute(pool: &Pool, make: impl Fn() -> PgQuery) -> Result<u64> {
    let mut attempts = Attempts::default();
    loop {
        let query = make();
        let done = attempts.on(pool, async |connection| {
            Ok(query.execute(connection).await?)
        });
        match done.await {
            Ok(done) => return Ok(done.rows_affected()),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}
