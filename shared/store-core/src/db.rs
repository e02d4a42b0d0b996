//! The port that a database implements: statements by name, rows of plain values, and transactions.

use std::fmt::Debug;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::BoxFuture;
use mainspring_shared::store::Connections;
pub use mainspring_shared::store::SchemaFault;
use mainspring_shared::store::columns::expand;
pub use mainspring_shared::time::Timestamp;

use crate::fault::Result;
use crate::row::Row;
use crate::value::Value;

/// One file of a statement.
#[derive(Debug)]
pub struct Part {
    /// The file below `sql/`, without its extension: `sends/accept`. A database whose dialect
    /// differs has its own text under the same name.
    pub name: &'static str,
    /// The text, in SQLite's dialect. Parameters are `$1`, `$2`, …; a file may hold several
    /// statements that share them. Words such as `{send}` stand for lists of columns, see
    /// [`expand`]; words such as `{lock}` for what databases spell differently, see [`SQLITE`].
    pub text: &'static str,
}

/// What runs as one request: one file, or several that share their parameters.
#[derive(Debug)]
pub struct Statement {
    /// The files, in the order in which they run.
    pub parts: &'static [Part],
    /// Whether the parts are pieces of a single statement. A semicolon at the end of a piece is
    /// then ignored.
    pub is_one: bool,
    /// All parts as one text in SQLite's dialect.
    pub text: LazyLock<String>,
}

/// The files as one text in SQLite's dialect.
pub(crate) fn joined(parts: &[Part], is_one: bool) -> String {
    let text = |part: &Part| spelled(if is_one { piece(part.text) } else { part.text }, SQLITE);
    parts.iter().map(text).collect()
}

/// The words in the texts that each database spells differently, with SQLite's spelling. A database
/// with one writer needs no row locks.
pub const SQLITE: &[(&str, &str)] = &[
    // Locks the rows until the transaction ends: all of them, or only those that are not locked
    // yet.
    ("{lock}", ""),
    ("{lock_free}", ""),
    // Locks the session $2 of the tenant $1, as a separate statement: the next one then sees what
    // others committed while this one waited.
    ("{lock_session}", ""),
    // Prevents changes and deletions of the rows by others until the transaction ends.
    ("{share}", ""),
    ("{greatest}", "max"),
    ("{least}", "min"),
    // The conditions of the partial indexes sends_not_completed, sends_reporting and
    // runs_reporting.
    ("{not_end}", "stop_reason <> 'end'"),
    (
        "{reporting}",
        "reports_to IS NOT NULL AND finished_at IS NULL",
    ),
];

/// A text with its lists of columns expanded and its words in a database's spelling.
#[must_use]
pub fn spelled(text: &str, words: &[(&str, &str)]) -> String {
    let text = expand(text).into_owned();
    words
        .iter()
        .fold(text, |text, (word, spelling)| text.replace(word, spelling))
}

/// A text as a piece of a larger statement: without its semicolon.
pub fn piece(text: &str) -> &str {
    text.trim_end().trim_end_matches(';')
}

/// A statement of the named files: `sql!("sends/finish", "steps/write")`.
macro_rules! sql {
    ($($name:literal),+ $(,)?) => {
        $crate::db::parts!($((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $name, ".sql"))
        )),+)
    };
}
pub(crate) use sql;

/// A statement of parts with these names and texts.
macro_rules! parts {
    ($($part:tt),+) => {
        $crate::db::parts!(false: $($part),+)
    };
    ($is_one:literal: $(($name:expr, $text:expr)),+) => {{
        static PARTS: &[$crate::db::Part] =
            &[$($crate::db::Part { name: $name, text: $text }),+];
        static STATEMENT: $crate::db::Statement = $crate::db::Statement {
            parts: PARTS,
            is_one: $is_one,
            text: ::std::sync::LazyLock::new(|| $crate::db::joined(PARTS, $is_one)),
        };
        &STATEMENT
    }};
}
pub(crate) use parts;

/// What a database reports about itself.
#[derive(Debug, Clone)]
pub struct Server {
    /// Name and version.
    pub name: String,
    /// The version of the schema.
    pub schema: i64,
    /// Whether it accepts no writes.
    pub is_read_only: bool,
}

/// The result of a statement.
#[derive(Debug, Default)]
pub struct StatementResult {
    /// The rows that it returned; the rows of all parts together.
    pub rows: Vec<Row>,
    /// Number of rows that all its parts changed together. A row that an update matched without
    /// changing a value counts as well.
    pub affected: u64,
}

impl StatementResult {
    /// Number of rows that were changed.
    #[must_use]
    pub fn rows_affected(&self) -> u64 {
        self.affected
    }
}

/// An operation on a connection.
pub type DbFuture<'c, T> = BoxFuture<'c, Result<T>>;

/// Counts callers that wait for a connection, which the driver's pools do not.
#[derive(Debug, Default)]
pub struct Waiters(AtomicU32);

impl Waiters {
    /// Counts a waiting caller until the wait ends or is cancelled.
    pub async fn counted<T>(&self, wait: impl Future<Output = T>) -> T {
        struct Waiting<'a>(&'a AtomicU32);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.0);
        wait.await
    }

    /// Number of callers that wait now.
    pub fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Handles one row of a scan; returning false ends the scan.
pub type Visit<'v> = &'v mut (dyn FnMut(&Row) -> bool + Send);

/// A connection that runs statements, one at a time.
pub trait Connection: Debug + Send {
    /// Runs a statement and reads all its rows.
    fn run<'c>(
        &'c mut self,
        statement: &'static Statement,
        arguments: Vec<Value>,
    ) -> BoxFuture<'c, Result<StatementResult>>;

    /// Runs a statement and passes its rows to `visit` one by one, without collecting them.
    fn scan<'c>(
        &'c mut self,
        statement: &'static Statement,
        arguments: Vec<Value>,
        visit: Visit<'c>,
    ) -> BoxFuture<'c, Result<()>>;

    /// The server's name and version. Fails if this program cannot work with the schema.
    fn server(&mut self) -> BoxFuture<'_, Result<Server>>;

    /// What the database lacks of this program's schema.
    fn schema_faults(&mut self) -> BoxFuture<'_, Result<Vec<SchemaFault>>>;

    /// The database's clock.
    fn clock(&mut self) -> BoxFuture<'_, Result<Timestamp>>;
}

/// Implements [`Connection`] for a type, given the functions `run`, `scan`, `server`, `faults` and
/// `clock` of the calling module, which take the driver's own connection.
#[macro_export]
macro_rules! connection {
    ($type:ty, $self:ident => $conn:expr) => {
        impl $crate::db::Connection for $type {
            fn run<'c>(
                &'c mut $self,
                statement: &'static $crate::db::Statement,
                arguments: Vec<$crate::Value>,
            ) -> $crate::db::DbFuture<'c, $crate::db::StatementResult> {
                Box::pin(run($conn, statement, arguments))
            }

            fn scan<'c>(
                &'c mut $self,
                statement: &'static $crate::db::Statement,
                arguments: Vec<$crate::Value>,
                visit: $crate::db::Visit<'c>,
            ) -> $crate::db::DbFuture<'c, ()> {
                Box::pin(scan($conn, statement, arguments, visit))
            }

            fn server(&mut $self) -> $crate::db::DbFuture<'_, $crate::db::Server> {
                Box::pin(server($conn))
            }

            fn schema_faults(&mut $self) -> $crate::db::DbFuture<'_, Vec<$crate::db::SchemaFault>> {
                Box::pin(faults($conn))
            }

            fn clock(&mut $self) -> $crate::db::DbFuture<'_, $crate::db::Timestamp> {
                Box::pin(clock($conn))
            }
        }
    };
}

/// A connection with an open transaction. It is rolled back if it is dropped without a commit.
pub trait Transaction: Connection {
    /// Commits. Others may see the result before it is durable; the returned future waits for that.
    /// After an error nothing was written, unless the connection was lost: then the outcome is
    /// unknown.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<Durable>>;

    /// Undoes what was written.
    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// Sets a savepoint. There is only one at a time.
    fn savepoint(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Removes the savepoint; with `undo`, undoes what was written since.
    fn release_savepoint(&mut self, undo: bool) -> BoxFuture<'_, Result<()>>;

    /// The connection, for running statements.
    fn connection(&mut self) -> &mut Conn;
}

/// Any connection.
pub type Conn = dyn Connection;

/// Resolves once a commit is as durable as requested. After an error it is unknown whether it is.
pub type Durable = BoxFuture<'static, Result<()>>;

/// The durability of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// It survives a power failure.
    Durable,
    /// It survives a crash of this process; a power failure may undo it.
    Relaxed,
    /// The same, and nothing else is let go before it: without it, a process loses its leases.
    Renewal,
}

/// A database, the source of connections.
///
/// Each statement of a write transaction sees what others committed before it, and the transaction
/// holds the rows that it locked or changed until it ends. A database with one writer fulfils this
/// by making writers wait for their turn.
pub trait Database: Debug + Send + Sync + 'static {
    /// Begins a write transaction and returns the database's time, or `at` if given.
    fn begin(
        &self,
        commit: Commit,
        at: Option<Timestamp>,
    ) -> BoxFuture<'_, Result<(Box<dyn Transaction>, Timestamp)>>;

    /// Runs a write transaction from start to end. The future does not panic.
    fn spawn_transaction(&self, _commit: Commit, transaction: BoxFuture<'static, ()>) {
        tokio::spawn(transaction);
    }

    /// A connection for reading, returned to the pool when it is dropped.
    fn reader(&self) -> BoxFuture<'_, Result<Box<dyn Connection>>>;

    /// A read transaction on one snapshot of the database.
    fn snapshot(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>>>;

    /// Waits until everything that anyone may have read by now survives a power cut.
    fn wait_for_reads_durable(&self) -> Durable {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Makes sure that the index of steps by commit time exists.
    fn index_steps(&self) -> BoxFuture<'_, Result<()>>;

    /// The state of this process's connections.
    fn connections(&self) -> Vec<Connections>;

    /// How often a connection was lost; the next one may lead to another server.
    fn losses(&self) -> u64 {
        0
    }

    /// How often a transaction is tried that conflicts with another one (deadlock, lock timeout,
    /// duplicate key).
    fn attempts(&self) -> u32;
}
