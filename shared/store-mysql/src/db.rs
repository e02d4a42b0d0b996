//! The database port of the store core on a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::{BoxFuture, FutureExt, ready};
use mainspring_shared::store::Connections;
use mainspring_shared::time::Timestamp;
use mainspring_store_core::db::{
    Commit, Conn, Connection, Database, Durable, SchemaFault, Server, Statement, StatementResult,
    Transaction, Visit,
};
use mainspring_store_core::fault::Result;
use mainspring_store_core::{Columns, Row, Value, connection};
use sqlx::mysql::{MySql, MySqlArguments, MySqlConnection, MySqlRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column, Either, Executor as _, Row as _, Type, TypeInfo, ValueRef};

use crate::dialect::{Command, commands};
use crate::fault::fault;
use crate::marks::{self, Ended, Mark};
use crate::migrate;
use crate::pool::{Held, Pool, ask};
use crate::schema;
use crate::settings::Settings;

/// Attempts at a transaction that conflicts with others. A wait for a lock times out after a
/// second.
const ATTEMPTS: u32 = 6;
/// How long a statement of a transaction may be without an answer. The server ends a wait for a
/// lock much sooner.
const WRITE_MAX: Duration = Duration::from_secs(15);
/// How long a read may be without an answer; an audit reads whole tables.
const READ_MAX: Duration = Duration::from_secs(30);
const SNAPSHOT_MAX: Duration = Duration::from_mins(5);
/// A renewal takes a moment. If it takes this long, its connection is doubted.
const RENEWAL_MAX: Duration = Duration::from_secs(3);

/// The server's clock in milliseconds.
const NOW: &str = "SELECT CAST(FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000) AS SIGNED)";

/// One database on a server.
#[derive(Debug)]
pub(crate) struct MysqlDb {
    writers: Pool,
    /// For lease renewals only: a process keeps its lease even if everything else is slow or waits
    /// for a connection.
    renewers: Pool,
    readers: Pool,
    /// The same connections, for reads that take long.
    surveyors: Pool,
    /// The number of transactions so far.
    transactions: AtomicU64,
    settings: Settings,
}

impl MysqlDb {
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        let silence = Arc::default();
        let pool = |named, patience| Pool::new(settings, named, &silence, patience);
        let readers = pool(("readers", settings.readers), READ_MAX)?;
        Ok(Self {
            writers: pool(("writers", settings.writers), WRITE_MAX)?,
            renewers: pool(("renewers", 1), WRITE_MAX)?.doubted_after(RENEWAL_MAX),
            surveyors: readers.clone().patient(SNAPSHOT_MAX),
            readers,
            transactions: AtomicU64::new(1),
            settings: settings.clone(),
        })
    }
}

impl Database for MysqlDb {
    /// The server's settings decide about durability, and cannot be set per transaction.
    fn begin(
        &self,
        commit: Commit,
        at: Option<Timestamp>,
    ) -> BoxFuture<'_, Result<(Box<dyn Transaction>, Timestamp)>> {
        async move {
            let pool = match commit {
                Commit::Durable | Commit::Relaxed => &self.writers,
                Commit::Renewal => &self.renewers,
            };
            let mut held = pool.take().await?;
            let n = self.transactions.fetch_add(1, Ordering::Relaxed);
            held.enter();
            let (mark, now) = ask!(&mut held, |conn| marks::begin(conn, n))?;
            pool.silence().found_writable();
            let tx: Box<dyn Transaction> = Box::new(Open {
                held,
                mark: Some(mark),
                others: self.writers.clone(),
            });
            Ok((tx, at.unwrap_or(now)))
        }
        .boxed()
    }

    fn reader(&self) -> BoxFuture<'_, Result<Box<dyn Connection>>> {
        async move {
            let conn: Box<dyn Connection> = Box::new(Read(self.readers.take().await?));
            Ok(conn)
        }
        .boxed()
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>>> {
        async move {
            let mut held = self.surveyors.take().await?;
            held.enter();
            // The level applies to the next transaction only.
            let begin = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
                         START TRANSACTION WITH CONSISTENT SNAPSHOT";
            ask!(&mut held, |conn| direct(conn, begin))?;
            let tx: Box<dyn Transaction> = Box::new(Open {
                held,
                mark: None,
                others: self.writers.clone(),
            });
            Ok(tx)
        }
        .boxed()
    }

    fn index_steps(&self) -> BoxFuture<'_, Result<()>> {
        migrate::index_steps(&self.settings).boxed()
    }

    fn connections(&self) -> Vec<Connections> {
        vec![
            self.writers.used(),
            self.renewers.used(),
            self.readers.used(),
        ]
    }

    fn losses(&self) -> u64 {
        self.writers.silence().losses()
    }

    fn attempts(&self) -> u32 {
        ATTEMPTS
    }
}

/// A connection with an open transaction.
#[derive(Debug)]
struct Open {
    held: Held,
    /// What the transaction leaves behind; nothing if it only reads.
    mark: Option<Mark>,
    /// Connections for asking how it ended.
    others: Pool,
}

/// A connection for single statements.
#[derive(Debug)]
struct Read(Held);

impl Transaction for Open {
    /// The commit is durable when this returns.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<Durable>> {
        async move {
            let Self {
                mut held,
                mark,
                others,
            } = *self;
            let done = ask!(&mut held, |conn| direct(conn, "COMMIT"));
            match (done, mark) {
                (Ok(()), _) => held.leave(),
                (Err(fault), Some(mark)) if fault.is_of_connection() => {
                    drop(held);
                    match marks::ended(&others, &mark).await {
                        Ended::Committed => {}
                        Ended::RolledBack => return Err(fault),
                        Ended::Unknown => return Err(fault.of_unknown_outcome()),
                    }
                }
                (Err(fault), _) => return Err(fault),
            }
            Ok(ready(Ok(())).boxed())
        }
        .boxed()
    }

    fn rollback(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            // A connection that was lost is closed, which the server takes for a rollback.
            if self.held.is_fit() {
                let done = ask!(&mut self.held, |conn| direct(conn, "ROLLBACK"));
                match done {
                    Ok(()) => self.held.leave(),
                    Err(error) => {
                        tracing::debug!(%error, "rollback failed; the connection is closed");
                    }
                }
            }
        }
        .boxed()
    }

    fn savepoint(&mut self) -> BoxFuture<'_, Result<()>> {
        async move { ask!(&mut self.held, |conn| direct(conn, "SAVEPOINT item")) }.boxed()
    }

    fn release_savepoint(&mut self, undo: bool) -> BoxFuture<'_, Result<()>> {
        let sql = if undo {
            "ROLLBACK TO SAVEPOINT item; RELEASE SAVEPOINT item"
        } else {
            "RELEASE SAVEPOINT item"
        };
        async move { ask!(&mut self.held, |conn| direct(conn, sql)) }.boxed()
    }

    fn connection(&mut self) -> &mut Conn {
        self
    }
}

async fn direct(conn: &mut MySqlConnection, sql: &'static str) -> Result<()> {
    conn.execute(sqlx::raw_sql(sql)).await.map_err(fault)?;
    Ok(())
}

connection!(Open, self => &mut self.held);
connection!(Read, self => &mut self.0);

async fn clock(held: &mut Held) -> Result<Timestamp> {
    ask!(held, |conn| async {
        let now = sqlx::query_scalar(NOW).fetch_one(conn).await;
        Ok(Timestamp(now.map_err(fault)?))
    })
}

async fn run(
    held: &mut Held,
    statement: &'static Statement,
    arguments: Vec<Value>,
) -> Result<StatementResult> {
    ask!(held, |conn| run_on(conn, statement, arguments))
}

async fn scan(
    held: &mut Held,
    statement: &'static Statement,
    arguments: Vec<Value>,
    visit: Visit<'_>,
) -> Result<()> {
    ask!(held, |conn| scan_on(conn, statement, arguments, visit))
}

async fn server(held: &mut Held) -> Result<Server> {
    let server = ask!(held, |conn| migrate::server(conn))?;
    if server.is_read_only {
        // The connection may be an old one, to a server that was demoted.
        held.found_read_only();
    }
    Ok(server)
}

async fn faults(held: &mut Held) -> Result<Vec<SchemaFault>> {
    ask!(held, |conn| schema::faults(conn))
}

fn bound(command: &'static Command, arguments: &[Value]) -> Query<'static, MySql, MySqlArguments> {
    let query = sqlx::query(AssertSqlSafe(command.sql.as_str()));
    command.arguments.iter().fold(query, |query, index| {
        match arguments.get(*index).unwrap_or(&Value::Null) {
            Value::Null => query.bind(None::<i64>),
            Value::Integer(number) => query.bind(*number),
            Value::Real(number) => query.bind(*number),
            Value::Text(text) => query.bind(text.clone()),
            Value::Bytes(bytes) => query.bind(bytes.clone()),
        }
    })
}

/// Runs the statements in order. Of those that return rows, to lock or to read, only the rows of
/// the last one count.
async fn run_on(
    conn: &mut MySqlConnection,
    statement: &'static Statement,
    arguments: Vec<Value>,
) -> Result<StatementResult> {
    let mut done = StatementResult::default();
    for command in commands(statement) {
        let mut columns = Columns::default();
        let mut rows = Vec::new();
        let mut results = conn.fetch_many(bound(command, &arguments));
        while let Some(result) = results.try_next().await.map_err(fault)? {
            match result {
                Either::Left(result) => done.affected += result.rows_affected(),
                Either::Right(row) => rows.push(read(&mut columns, &row)?),
            }
        }
        if command.sql.starts_with("SELECT") || command.sql.starts_with("WITH") {
            done.rows = rows;
        }
    }
    Ok(done)
}

async fn scan_on(
    conn: &mut MySqlConnection,
    statement: &'static Statement,
    arguments: Vec<Value>,
    visit: Visit<'_>,
) -> Result<()> {
    for command in commands(statement) {
        let mut columns = Columns::default();
        let mut rows = conn.fetch(bound(command, &arguments));
        while let Some(row) = rows.try_next().await.map_err(fault)? {
            if !visit(&read(&mut columns, &row)?) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn read(columns: &mut Columns, row: &MySqlRow) -> Result<Row> {
    let values = (0..row.len()).map(|index| value(row, index));
    let names = || row.columns().iter().map(Column::name);
    columns.row(names, values).map_err(fault)
}

fn value(row: &MySqlRow, index: usize) -> sqlx::Result<Value> {
    let raw = row.try_get_raw(index)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    let kind = raw.type_info().into_owned();
    Ok(match kind.name() {
        name if name.contains("UNSIGNED") => {
            let number: u64 = row.try_get_unchecked(index)?;
            Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
        }
        "BOOLEAN" | "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" => {
            Value::Integer(row.try_get_unchecked(index)?)
        }
        "FLOAT" | "DOUBLE" => Value::Real(row.try_get_unchecked(index)?),
        // Columns with `utf8mb4_bin` are marked as binary, too: the character set tells them apart.
        _ if <str as Type<MySql>>::compatible(&kind) || kind.name() == "JSON" => {
            Value::Text(row.try_get_unchecked(index)?)
        }
        _ => Value::Bytes(row.try_get_unchecked(index)?),
    })
}
