//! What the driver's errors mean, and which of them are worth another attempt.

use mainspring_shared::store::{Error, Result};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, PgPool, Postgres};

/// A statement with its arguments.
pub(crate) type PgQuery = Query<'static, Postgres, PgArguments>;

/// A statement from `sql/`.
macro_rules! sql {
    ($name:literal) => {
        sqlx::query(include_str!(concat!("../sql/", $name, ".sql")))
    };
}
pub(crate) use sql;

/// Attempts at a group that the database gave up in favour of another one.
const CONFLICTS_MAX: u32 = 5;
/// Attempts after a connection broke: the one that broke may have been the last of a restarted
/// server's, the next is known to be new.
const LOSSES_MAX: u32 = 2;

/// What went wrong inside a step.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The driver or the server failed.
    Driver(sqlx::Error),
    /// A row could not be read.
    Row(Error),
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Row(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Row(error) => error,
            Fault::Driver(error) => match kind(&error) {
                Kind::Conflict | Kind::Lost | Kind::Away => unavailable(error),
                Kind::BadData | Kind::Refused => refused(error),
            },
        }
    }
}

/// What to do after a fault.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Nothing happened: run it again.
    Again,
    /// It is unknown whether it happened: look first.
    Lost,
    /// Nothing happened, because of an item's data.
    BadData(Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Conflict,
    Lost,
    Away,
    BadData,
    Refused,
}

fn kind(error: &sqlx::Error) -> Kind {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    let Some(code) = code else {
        return kind_without_code(error);
    };
    match code.as_ref() {
        // Serialization failure, deadlock, lock timeout.
        "40001" | "40P01" | "55P03" => Kind::Conflict,
        // The server ended the connection: shutdown, crash, idle for too long.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => Kind::Lost,
        // A statement's time is up; a standby that cannot write.
        "57014" | "25006" => Kind::Away,
        code if code.starts_with("08") => Kind::Lost,
        // No memory, no disk, no connections.
        code if code.starts_with("53") => Kind::Away,
        // Data exceptions and violated constraints.
        code if code.starts_with("22") || code.starts_with("23") => Kind::BadData,
        _ => Kind::Refused,
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the driver's list is open, and what is not named here is a defect of ours"
)]
fn kind_without_code(error: &sqlx::Error) -> Kind {
    match error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => Kind::Away,
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed => Kind::Lost,
        _ => Kind::Refused,
    }
}

/// Whether the error says that a table does not exist.
pub(crate) fn is_undefined_table(error: &sqlx::Error) -> bool {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    code.as_deref() == Some("42P01")
}

pub(crate) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Unavailable {
        source: Box::new(error),
    }
}

pub(crate) fn refused(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Refused {
        source: Box::new(error),
    }
}

/// Counts what went wrong so far; each kind of failure is bounded by itself.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    conflicts: u32,
    losses: u32,
}

impl Attempts {
    /// Whether an earlier attempt may have been committed.
    pub(crate) fn any_lost(&self) -> bool {
        self.losses > 0
    }

    /// Decides what follows a fault. A conflict needs no pause: whoever won it holds the locks that
    /// the next attempt waits for.
    pub(crate) fn weigh(&mut self, fault: Fault) -> Result<Verdict> {
        let error = match fault {
            Fault::Driver(error) => error,
            Fault::Row(error) => return Err(error),
        };
        match kind(&error) {
            Kind::Conflict if self.conflicts < CONFLICTS_MAX => {
                self.conflicts += 1;
                tracing::debug!(attempt = self.conflicts, "a group met a conflict");
                Ok(Verdict::Again)
            }
            Kind::Lost if self.losses < LOSSES_MAX => {
                self.losses += 1;
                tracing::debug!(attempt = self.losses, "a connection broke");
                Ok(Verdict::Lost)
            }
            Kind::BadData => Ok(Verdict::BadData(refused(error))),
            Kind::Conflict | Kind::Lost | Kind::Away | Kind::Refused => {
                Err(Fault::Driver(error).into())
            }
        }
    }

    /// A connection. After a loss the others of the pool may be broken, too: then only one that
    /// answers is handed out.
    pub(crate) async fn connection(
        &self,
        pool: &PgPool,
    ) -> std::result::Result<PoolConnection<Postgres>, Fault> {
        let mut broken = 0;
        loop {
            let mut connection = pool.acquire().await?;
            if self.losses == 0 {
                return Ok(connection);
            }
            match connection.ping().await {
                Ok(()) => return Ok(connection),
                Err(error) if broken > pool.options().get_max_connections() => {
                    return Err(error.into());
                }
                Err(_) => {
                    broken += 1;
                    // It must not go back to the pool.
                    drop(connection.detach());
                }
            }
        }
    }
}

/// Runs a statement that may run twice, and returns its rows.
pub(crate) async fn fetch(pool: &PgPool, make: impl Fn() -> PgQuery) -> Result<Vec<PgRow>> {
    let mut attempts = Attempts::default();
    loop {
        match fetch_once(pool, &attempts, make()).await {
            Ok(rows) => return Ok(rows),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

/// Runs a statement that may run twice, and returns how many rows it changed.
pub(crate) async fn execute(pool: &PgPool, make: impl Fn() -> PgQuery) -> Result<u64> {
    let mut attempts = Attempts::default();
    loop {
        let done = match attempts.connection(pool).await {
            Ok(mut connection) => make().execute(&mut *connection).await.map_err(Fault::from),
            Err(fault) => Err(fault),
        };
        match done {
            Ok(done) => return Ok(done.rows_affected()),
            Err(fault) => match attempts.weigh(fault)? {
                Verdict::Again | Verdict::Lost => {}
                Verdict::BadData(error) => return Err(error),
            },
        }
    }
}

async fn fetch_once(
    pool: &PgPool,
    attempts: &Attempts,
    query: PgQuery,
) -> std::result::Result<Vec<PgRow>, Fault> {
    let mut connection = attempts.connection(pool).await?;
    Ok(query.fetch_all(&mut *connection).await?)
}
