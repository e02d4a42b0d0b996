//! The port of the store's core on one file: one connection that writes, several that read.

use std::sync::Arc;

use futures::TryStreamExt;
use futures::future::{BoxFuture, FutureExt};
use mainspring_shared::store::Connections;
use mainspring_shared::time::Timestamp;
use mainspring_store_core::db::{
    Commit, Conn, Connection, Database, Done, Server, Statement, Transaction, Visit, Waiters,
};
use mainspring_store_core::fault::Result;
use mainspring_store_core::{Columns, Row, Value, connection};
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{
    Column, Either, Executor as _, Row as _, Sqlite, SqliteConnection, SqlitePool, TypeInfo,
    ValueRef,
};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::fault::fault;
use crate::lock::DirLock;
use crate::migrate::{self, MigratePolicy};
use crate::schema::faults;

/// How often a transaction is begun while another program holds the file. Each attempt waits for
/// the connection's busy timeout.
const BEGIN_ATTEMPTS: u32 = 3;

/// One SQLite file.
#[derive(Debug)]
pub(crate) struct SqliteDb {
    /// Callers take turns in the order they came.
    writer: Arc<Mutex<Writer>>,
    readers: SqlitePool,
    writing: Waiters,
    reading: Waiters,
    /// Whether the schema may be changed.
    migrate: MigratePolicy,
}

#[derive(Debug)]
struct Writer {
    conn: SqliteConnection,
    /// A transaction was begun and not seen to end: its work panicked.
    open: bool,
    /// The data directory is held as long as anything can still write; none on a file that is only
    /// read.
    _lock: Option<DirLock>,
}

impl SqliteDb {
    pub(crate) fn new(
        conn: SqliteConnection,
        lock: Option<DirLock>,
        readers: SqlitePool,
        migrate: MigratePolicy,
    ) -> Self {
        let writer = Writer {
            conn,
            open: false,
            _lock: lock,
        };
        Self {
            writer: Arc::new(Mutex::new(writer)),
            readers,
            writing: Waiters::default(),
            reading: Waiters::default(),
            migrate,
        }
    }
}

impl Database for SqliteDb {
    fn begin(
        &self,
        commit: Commit,
        at: Option<Timestamp>,
    ) -> BoxFuture<'_, Result<(Box<dyn Transaction>, Timestamp)>> {
        async move {
            let writer = self.writing.counted(self.writer.clone().lock_owned()).await;
            let (tx, now) = Write::begin(writer, commit, at).await?;
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
            let tx = self.reading.counted(self.readers.begin()).await;
            let tx = tx.map_err(fault)?;
            let tx: Box<dyn Transaction> = Box::new(Snapshot(tx));
            Ok(tx)
        }
        .boxed()
    }

    fn index_steps(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut writer = self.writer.lock().await;
            if writer.open {
                end(&mut writer, "ROLLBACK").await.ok();
            }
            migrate::index_steps(&mut writer.conn, self.migrate).await
        }
        .boxed()
    }

    fn connections(&self) -> Vec<Connections> {
        let writer = Connections {
            pool: "writers",
            open: 1,
            idle: u32::from(self.writer.try_lock().is_ok()),
            waiting: self.writing.now(),
        };
        let readers = Connections {
            pool: "readers",
            open: self.readers.size(),
            idle: u32::try_from(self.readers.num_idle()).unwrap_or(u32::MAX),
            waiting: self.reading.now(),
        };
        vec![writer, readers]
    }

    /// There is one writer: no transaction meets another.
    fn attempts(&self) -> u32 {
        1
    }
}

/// The writer with its transaction open.
#[derive(Debug)]
struct Write(OwnedMutexGuard<Writer>);

impl Write {
    async fn begin(
        mut writer: OwnedMutexGuard<Writer>,
        commit: Commit,
        at: Option<Timestamp>,
    ) -> Result<(Self, Timestamp)> {
        if writer.open {
            end(&mut writer, "ROLLBACK").await.ok();
        }
        let sql = match commit {
            Commit::Durable => include_str!("../sql/transaction/begin_durable.sql"),
            Commit::Relaxed => include_str!("../sql/transaction/begin_relaxed.sql"),
        };
        let mut attempt = 1;
        loop {
            writer.open = true;
            let begun = sqlx::query_scalar(sql)
                .bind(at.map(|at| at.0))
                .fetch_one(&mut writer.conn)
                .await;
            match begun {
                Ok(now) => return Ok((Self(writer), Timestamp(now))),
                Err(error) => {
                    end(&mut writer, "ROLLBACK").await.ok();
                    let fault = fault(error);
                    if !fault.is_busy() || attempt == BEGIN_ATTEMPTS {
                        return Err(fault);
                    }
                    attempt += 1;
                }
            }
        }
    }
}

async fn end(writer: &mut Writer, sql: &'static str) -> Result<()> {
    sqlx::query(sql)
        .execute(&mut writer.conn)
        .await
        .map_err(fault)?;
    writer.open = false;
    Ok(())
}

async fn rollback(mut tx: Write) {
    if let Err(error) = end(&mut tx.0, "ROLLBACK").await {
        tracing::debug!(%error, "nothing was left to roll back");
    }
}

impl Transaction for Write {
    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move {
            let committed = end(&mut self.0, "COMMIT").await;
            if committed.is_err() {
                // A commit that failed has either ended its transaction or left it open:
                // afterwards it is undone either way.
                rollback(*self).await;
            }
            committed
        }
        .boxed()
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()> {
        rollback(*self).boxed()
    }

    fn savepoint(&mut self) -> BoxFuture<'_, Result<()>> {
        direct(&mut self.0.conn, "SAVEPOINT item").boxed()
    }

    fn release_savepoint(&mut self, undo: bool) -> BoxFuture<'_, Result<()>> {
        async move {
            if undo {
                direct(&mut self.0.conn, "ROLLBACK TO item").await?;
            }
            direct(&mut self.0.conn, "RELEASE item").await
        }
        .boxed()
    }

    fn connection(&mut self) -> &mut Conn {
        self
    }
}

/// A reader.
#[derive(Debug)]
struct Read(PoolConnection<Sqlite>);

/// A reader that stands on one state of the file.
#[derive(Debug)]
struct Snapshot(sqlx::Transaction<'static, Sqlite>);

impl Transaction for Snapshot {
    fn commit(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move { self.0.commit().await.map_err(fault) }.boxed()
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            // Dropped, it is rolled back.
            drop(self);
        }
        .boxed()
    }

    fn savepoint(&mut self) -> BoxFuture<'_, Result<()>> {
        direct(&mut self.0, "SAVEPOINT item").boxed()
    }

    fn release_savepoint(&mut self, _undo: bool) -> BoxFuture<'_, Result<()>> {
        direct(&mut self.0, "RELEASE item").boxed()
    }

    fn connection(&mut self) -> &mut Conn {
        self
    }
}

async fn direct(conn: &mut SqliteConnection, sql: &'static str) -> Result<()> {
    sqlx::query(sql).execute(conn).await.map_err(fault)?;
    Ok(())
}

connection!(Write, self => &mut self.0.conn);
connection!(Read, self => &mut self.0);
connection!(Snapshot, self => &mut self.0);

fn bound(
    statement: &'static Statement,
    arguments: Vec<Value>,
) -> Query<'static, Sqlite, SqliteArguments> {
    arguments.into_iter().fold(
        sqlx::query(statement.text.as_str()),
        |query, value| match value {
            Value::Null => query.bind(None::<i64>),
            Value::Integer(number) => query.bind(number),
            Value::Real(number) => query.bind(number),
            Value::Text(text) => query.bind(text),
            Value::Bytes(bytes) => query.bind(bytes),
        },
    )
}

async fn run(
    conn: &mut SqliteConnection,
    statement: &'static Statement,
    arguments: Vec<Value>,
) -> Result<Done> {
    let mut done = Done::default();
    let mut columns = Columns::default();
    let mut results = conn.fetch_many(bound(statement, arguments));
    while let Some(result) = results.try_next().await.map_err(fault)? {
        match result {
            Either::Left(result) => done.affected += result.rows_affected(),
            Either::Right(row) => done.rows.push(read(&mut columns, &row)?),
        }
    }
    Ok(done)
}

async fn scan(
    conn: &mut SqliteConnection,
    statement: &'static Statement,
    arguments: Vec<Value>,
    visit: Visit<'_>,
) -> Result<()> {
    let mut columns = Columns::default();
    let mut rows = bound(statement, arguments).fetch(conn);
    while let Some(row) = rows.try_next().await.map_err(fault)? {
        if !visit(&read(&mut columns, &row)?) {
            break;
        }
    }
    Ok(())
}

fn read(columns: &mut Columns, row: &SqliteRow) -> Result<Row> {
    let values = (0..row.len()).map(|index| value(row, index));
    let names = || row.columns().iter().map(Column::name);
    columns.row(names, values).map_err(fault)
}

fn value(row: &SqliteRow, index: usize) -> sqlx::Result<Value> {
    let raw = row.try_get_raw(index)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }
    let kind = raw.type_info().into_owned();
    Ok(match kind.name() {
        "INTEGER" | "BOOLEAN" => Value::Integer(row.try_get_unchecked(index)?),
        "REAL" => Value::Real(row.try_get_unchecked(index)?),
        "BLOB" => Value::Bytes(row.try_get_unchecked(index)?),
        _ => Value::Text(row.try_get_unchecked(index)?),
    })
}

async fn server(conn: &mut SqliteConnection) -> Result<Server> {
    let schema = migrate::verify(conn).await?;
    let sql = include_str!("../sql/transaction/server.sql");
    let version: String = sqlx::query_scalar(sql)
        .fetch_one(conn)
        .await
        .map_err(fault)?;
    Ok(Server {
        name: format!("SQLite {version}"),
        schema,
    })
}

async fn clock(conn: &mut SqliteConnection) -> Result<Timestamp> {
    let sql = include_str!("../sql/transaction/clock.sql");
    let now = sqlx::query_scalar(sql)
        .fetch_one(conn)
        .await
        .map_err(fault)?;
    Ok(Timestamp(now))
}

#[cfg(test)]
mod tests {
    use sqlx::ConnectOptions;

    use super::*;
    use crate::options::SqliteOptions;

    async fn open(dir: &tempfile::TempDir) -> SqliteDb {
        let options = SqliteOptions::dir(dir.path());
        let conn = options.writer().connect().await;
        SqliteDb::new(
            conn.expect("connects"),
            None,
            options.pool(),
            options.migrate,
        )
    }

    async fn begin(db: &SqliteDb, commit: Commit) -> Write {
        let writer = db.writer.clone().lock_owned().await;
        Write::begin(writer, commit, None).await.expect("begins").0
    }

    async fn scalar(tx: &mut Write, sql: &'static str) -> i64 {
        let answer = sqlx::query_scalar(sql).fetch_one(&mut tx.0.conn).await;
        answer.expect("answers")
    }

    #[tokio::test]
    async fn each_transaction_has_the_durability_that_it_asks_for() {
        use Commit::{Durable, Relaxed};

        let dir = tempfile::tempdir().expect("a directory");
        let db = open(&dir).await;
        for commit in [
            Durable, Relaxed, Durable, Relaxed, Relaxed, Durable, Durable, Relaxed,
        ] {
            let mut tx = begin(&db, commit).await;
            let level = scalar(&mut tx, "PRAGMA synchronous").await;
            let (normal, full) = (1, 2);
            assert_eq!(level, if commit == Durable { full } else { normal });
            Box::new(tx).commit().await.expect("commits");
        }
    }

    #[tokio::test]
    async fn a_transaction_that_was_dropped_is_undone_before_the_next() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = open(&dir).await;
        let mut tx = begin(&db, Commit::Durable).await;
        let create = "CREATE TABLE t (n INTEGER)";
        direct(&mut tx.0.conn, create).await.expect("creates");
        Box::new(tx).commit().await.expect("commits");
        let mut dropped = begin(&db, Commit::Durable).await;
        let insert = "INSERT INTO t VALUES (1)";
        direct(&mut dropped.0.conn, insert).await.expect("inserts");
        drop(dropped);
        let mut next = begin(&db, Commit::Durable).await;
        assert_eq!(scalar(&mut next, "SELECT count(*) FROM t").await, 0);
    }
}
