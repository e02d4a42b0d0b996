//! The port that a database implements: statements by name, rows of plain values, transactions.

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

/// One statement of a file.
#[derive(Debug)]
pub struct Part {
    /// The file below `sql/`, without its extension: `sends/accept`. A database whose dialect
    /// differs has a text of its own under the same name.
    pub name: &'static str,
    /// The text, in SQLite's dialect. Parameters are `$1`, `$2`, …; a file may hold several
    /// statements that share them. `{send}` and the like stand for lists of columns, see
    /// [`expand`]; `{lock}` and the like for what databases spell differently, see [`SQLITE`].
    pub text: &'static str,
}

/// What runs as one request: one file, or several that share their parameters.
#[derive(Debug)]
pub struct Statement {
    /// The files, in the order in which they run.
    pub parts: &'static [Part],
    /// Whether the parts are pieces of a single statement. A semicolon at the end of a piece counts for nothing.
    pub is_one: bool,
    /// All of them as one text, as SQLite takes it.
    pub text: LazyLock<String>,
}

/// The files as one text, as SQLite takes it.
pub(crate) fn joined(parts: &[Part], is_one: bool) -> String {
    let text = |part: &Part| spelled(if is_one { piece(part.text) } else { part.text }, SQLITE);
    parts.iter().map(text).collect()
}

/// The words of the texts that each database spells in its own way, as SQLite does. With one writer, every row that a
/// transaction reads is locked.
pub const SQLITE: &[(&str, &str)] = &[
    // The rows, until the transaction ends; or those of them that nobody else has locked.
    ("{lock}", ""),
    ("{lock_free}", ""),
    // The session $2 of the tenant $1, as a statement of its own: the next one sees what others committed while this one
    // waited.
    ("{lock_session}", ""),
    // Nobody else changes or deletes the rows until the transaction ends.
    ("{share}", ""),
    ("{greatest}", "max"),
    ("{least}", "min"),
    // What partial indexes are for: sends_not_completed, sends_reporting and runs_reporting.
    ("{not_end}", "stop_reason <> 'end'"),
    (
        "{reporting}",
        "reports_to IS NOT NULL AND finished_at IS NULL",
    ),
];

/// A text with the lists of columns that it names, and with a database's spelling of words.
#[must_use]
pub fn spelled(text: &str, words: &[(&str, &str)]) -> String {
    let text = expand(text).into_owned();
    words
        .iter()
        .fold(text, |text, (word, spelling)| text.replace(word, spelling))
}

/// A text as a piece of a larger statement.
pub fn piece(text: &str) -> &str {
    text.trim_end().trim_end_matches(';')
}

/// Names the files of a statement: `sql!("sends/finish", "steps/write")`.
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

/// What a database says of itself.
#[derive(Debug, Clone)]
pub struct Server {
    /// Name and version.
    pub name: String,
    /// The version of the schema.
    pub schema: i64,
}

/// What a statement did.
#[derive(Debug, Default)]
pub struct Done {
    /// The rows that it returned; of several parts, those of all.
    pub rows: Vec<Row>,
    /// Rows that its parts changed, together. A row that an update found as it would leave it
    /// counts.
    pub affected: u64,
}

impl Done {
    /// Rows that were changed.
    #[must_use]
    pub fn rows_affected(&self) -> u64 {
        self.affected
    }
}

/// What a connection does, until it is done.
pub type Doing<'c, T> = BoxFuture<'c, Result<T>>;

/// Counts who waits for a connection, which the driver's pools do not.
#[derive(Debug, Default)]
pub struct Waiters(AtomicU32);

impl Waiters {
    /// Counts whoever waits here, until the wait is over or given up.
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

    /// How many wait now.
    pub fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Decides about the next row: false ends a scan.
pub type Visit<'v> = &'v mut (dyn FnMut(&Row) -> bool + Send);

/// A connection that runs statements, one at a time.
pub trait Connection: Debug + Send {
    /// Runs a statement and reads all its rows.
    fn run<'c>(
        &'c mut self,
        statement: &'static Statement,
        arguments: Vec<Value>,
    ) -> BoxFuture<'c, Result<Done>>;

    /// Runs a statement and shows its rows to `visit` one after the other, without holding them.
    fn scan<'c>(
        &'c mut self,
        statement: &'static Statement,
        arguments: Vec<Value>,
        visit: Visit<'c>,
    ) -> BoxFuture<'c, Result<()>>;

    /// What answers. Fails unless the schema is one that this program works on.
    fn server(&mut self) -> BoxFuture<'_, Result<Server>>;

    /// What the database lacks of the schema that this program brings.
    fn schema_faults(&mut self) -> BoxFuture<'_, Result<Vec<SchemaFault>>>;

    /// The database's clock.
    fn clock(&mut self) -> BoxFuture<'_, Result<Timestamp>>;
}

/// Implements [`Connection`] for a type by functions of the module: `run`, `scan`, `server`, `faults` and `clock` on what
/// the driver takes for a connection.
#[macro_export]
macro_rules! connection {
    ($type:ty, $self:ident => $conn:expr) => {
        impl $crate::db::Connection for $type {
            fn run<'c>(
                &'c mut $self,
                statement: &'static $crate::db::Statement,
                arguments: Vec<$crate::Value>,
            ) -> $crate::db::Doing<'c, $crate::db::Done> {
                Box::pin(run($conn, statement, arguments))
            }

            fn scan<'c>(
                &'c mut $self,
                statement: &'static $crate::db::Statement,
                arguments: Vec<$crate::Value>,
                visit: $crate::db::Visit<'c>,
            ) -> $crate::db::Doing<'c, ()> {
                Box::pin(scan($conn, statement, arguments, visit))
            }

            fn server(&mut $self) -> $crate::db::Doing<'_, $crate::db::Server> {
                Box::pin(server($conn))
            }

            fn schema_faults(&mut $self) -> $crate::db::Doing<'_, Vec<$crate::db::SchemaFault>> {
                Box::pin(faults($conn))
            }

            fn clock(&mut $self) -> $crate::db::Doing<'_, $crate::db::Timestamp> {
                Box::pin(clock($conn))
            }
        }
    };
}

/// A connection with an open transaction. Dropped without an end, it is rolled back.
pub trait Transaction: Connection {
    /// Ends it with what was written, which others may see before it is durable: whoever did it waits for that. After an
    /// error the outcome is unknown when the connection was lost, else nothing was written.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<Durable>>;

    /// Undoes what was written.
    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// Sets a savepoint; one at a time.
    fn savepoint(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Removes the savepoint; with `undo`, undoes what was written since.
    fn release_savepoint(&mut self, undo: bool) -> BoxFuture<'_, Result<()>>;

    /// As a connection that runs statements.
    fn connection(&mut self) -> &mut Conn;
}

/// A connection whose type is not known.
pub type Conn = dyn Connection;

/// Ends once what was committed is as durable as was asked for. After an error nobody knows whether it is.
pub type Durable = BoxFuture<'static, Result<()>>;

/// What a commit promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// It survives a power cut.
    Durable,
    /// It survives this process; a power cut may undo it.
    Relaxed,
}

/// A database: where connections come from.
///
/// A transaction for writing sees what others committed before each of its statements, and holds
/// the rows that it locked or changed until it ends. A database with one writer fulfils this by
/// letting writers wait for their turn.
pub trait Database: Debug + Send + Sync + 'static {
    /// Begins a transaction for writing, with the database's time, or `at` in its place.
    fn begin(
        &self,
        commit: Commit,
        at: Option<Timestamp>,
    ) -> BoxFuture<'_, Result<(Box<dyn Transaction>, Timestamp)>>;

    /// Carries out a transaction for writing, from its begin to its end. It does not panic.
    fn carry_out(&self, transaction: BoxFuture<'static, ()>) {
        tokio::spawn(transaction);
    }

    /// A connection for reading, given back when it is dropped.
    fn reader(&self) -> BoxFuture<'_, Result<Box<dyn Connection>>>;

    /// A transaction for reading that sees one state of the database throughout.
    fn snapshot(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>>>;

    /// Waits until no power cut can undo what anybody may have read by now.
    fn seen(&self) -> Durable {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Makes sure of the index of steps by when they were committed.
    fn index_steps(&self) -> BoxFuture<'_, Result<()>>;

    /// The connections of this process.
    fn connections(&self) -> Vec<Connections>;

    /// How often a transaction is run that loses against another one (deadlock, lock timeout,
    /// duplicate key).
    fn attempts(&self) -> u32;
}
