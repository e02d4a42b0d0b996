//! The database port of the store core on a server.

use futures::TryStreamExt;
use futures::future::{BoxFuture, FutureExt, ready};
use mainspring_shared::store::Connections;
use mainspring_shared::time::Timestamp;
use mainspring_store_core::db::{
    Commit, Conn, Connection, Database, Durable, Statement, StatementResult, Transaction, Visit,
    Waiters,
};
use mainspring_store_core::fault::Result;
use mainspring_store_core::{Columns, Row, Value, connection};
use sqlx::mysql::{MySql, MySqlArguments, MySqlConnection, MySqlPool, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Column, Either, Executor as _, Row as _, Type, TypeInfo, ValueRef};

use crate::dialect::{Command, commands};
use crate::fault::fault;
use crate::migrate::{self, server};
use crate::schema::faults;
use crate::settings::Settings;

/// Attempts at a transaction that conflicts with others. A wait for a lock times out after a
/// second.
const ATTEMPTS: u32 = 6;

/// The server's clock in milliseconds.
const NOW: &str = "SELECT CAST(FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000) AS SIGNED)";

/// One database on a server.
#[derive(Debug)]
pub(crate) struct MysqlDb {
    writers: MySqlPool,
    readers: MySqlPool,
    writing: Waiters,
    reading: Waiters,
    settings: Settings,
}

impl MysqlDb {
    pub(crate) fn new(settings: &Settings) -> Result<Self> {
        Ok(Self {
            writers: settings.pool(settings.writers)?,
            readers: settings.pool(settings.readers)?,
            writing: Waiters::default(),
            reading: Waiters::default(),
            settings: settings.clone(),
        })
    }
}

impl Database for MysqlDb {
    /// Ignores `Commit`: the server's settings decide about durability, and cannot be set per
    /// transaction.
    fn begin(
        &self,
        _commit: Commit,
        at: Option<Timestamp>,
    ) -> BoxFuture<'_, Result<(Box<dyn Transaction>, Timestamp)>> {
        async move {
            let conn = self.writing.counted(self.writers.acquire()).await;
            let tx = sqlx::Transaction::begin(conn.map_err(fault)?, None);
            let mut tx = Open(tx.await.map_err(fault)?);
            let now = match at {
                Some(at) => at,
                None => tx.clock().await?,
            };
            let tx: Box<dyn Transaction> = Box::new(tx);
            Ok((tx, now))
        }
        .boxed()
    }

    fn reader(&self) -> BoxFuture<'_, Result<Box<dyn Connection>>> {
        async move {
            let conn = self.reading.counted(self.readers.acquire()).await;
            let conn = conn.map_err(fault)?;
            let conn: Box<dyn Connection> = Box::new(Read(conn));
            Ok(conn)
        }
        .boxed()
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>>> {
        async move {
            let conn = self.reading.counted(self.readers.acquire()).await;
            let mut conn = conn.map_err(fault)?;
            // Applies to the next transaction only.
            let level = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ";
            direct(&mut conn, level).await?;
            let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
            let tx = sqlx::Transaction::begin(conn, Some(sqlx::SqlStr::from_static(begin)));
            let tx: Box<dyn Transaction> = Box::new(Open(tx.await.map_err(fault)?));
            Ok(tx)
        }
        .boxed()
    }

    fn index_steps(&self) -> BoxFuture<'_, Result<()>> {
        migrate::index_steps(&self.settings).boxed()
    }

    fn connections(&self) -> Vec<Connections> {
        let used = |name, pool: &MySqlPool, waiters: &Waiters| Connections {
            pool: name,
            open: pool.size(),
            idle: u32::try_from(pool.num_idle()).unwrap_or(u32::MAX),
            waiting: waiters.now(),
        };
        vec![
            used("writers", &self.writers, &self.writing),
            used("readers", &self.readers, &self.reading),
        ]
    }

    fn attempts(&self) -> u32 {
        ATTEMPTS
    }
}

/// A connection with an open transaction.
#[derive(Debug)]
struct Open(sqlx::Transaction<'static, MySql>);

/// A connection for single statements.
#[derive(Debug)]
struct Read(PoolConnection<MySql>);

impl Transaction for Open {
    /// The commit is durable when this returns.
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<Durable>> {
        async move {
            self.0.commit().await.map_err(fault)?;
            Ok(ready(Ok(())).boxed())
        }
        .boxed()
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            if let Err(error) = self.0.rollback().await {
                tracing::debug!(
                    %error,
                    "rollback failed; the transaction had most likely ended already"
                );
            }
        }
        .boxed()
    }

    fn savepoint(&mut self) -> BoxFuture<'_, Result<()>> {
        direct(&mut self.0, "SAVEPOINT item").boxed()
    }

    fn release_savepoint(&mut self, undo: bool) -> BoxFuture<'_, Result<()>> {
        async move {
            if undo {
                direct(&mut self.0, "ROLLBACK TO SAVEPOINT item").await?;
            }
            direct(&mut self.0, "RELEASE SAVEPOINT item").await
        }
        .boxed()
    }

    fn connection(&mut self) -> &mut Conn {
        self
    }
}

async fn direct(conn: &mut MySqlConnection, sql: &'static str) -> Result<()> {
    conn.execute(sqlx::raw_sql(sql)).await.map_err(fault)?;
    Ok(())
}

connection!(Open, self => &mut self.0);
connection!(Read, self => &mut self.0);

async fn clock(conn: &mut MySqlConnection) -> Result<Timestamp> {
    let now = sqlx::query_scalar(NOW).fetch_one(conn).await;
    Ok(Timestamp(now.map_err(fault)?))
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
async fn run(
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

async fn scan(
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
