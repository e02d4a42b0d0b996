//! The database port of the store core on one file: one connection writes, several read.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt, ready};
use mainspring_shared::store::Connections;
use mainspring_shared::time::Timestamp;
use mainspring_store_core::Value;
use mainspring_store_core::db::{
    Commit, Conn, Connection, Database, DbFuture, Durable, SchemaFault, Server, Statement,
    StatementResult, Transaction, Visit,
};
use mainspring_store_core::fault::{Class, Fault, Result};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use crate::driver::Driver;
use crate::fault::fault;
use crate::lock::DirLock;
use crate::log_sync::LogSync;
use crate::migrate::{self, MigratePolicy};
use crate::options::SqliteOptions;
use crate::readers::{Reader, Readers};
use crate::schema::faults;
use crate::writer_thread::WriterThread;

/// Attempts to begin a transaction while another program has locked the file. Each one waits for
/// the connection's busy timeout.
const BEGIN_ATTEMPTS: u32 = 3;

/// One SQLite file.
#[derive(Debug)]
pub(crate) struct SqliteDb {
    /// Closed before the writer, which checkpoints the log because it is the last connection.
    readers: Readers,
    writer: Arc<Mutex<Writer>>,
    /// Tracks which commits are durable.
    log_sync: Arc<LogSync>,
    /// The thread that runs write transactions.
    writer_thread: WriterThread,
    /// Whether the schema may be changed.
    migrate: MigratePolicy,
}

#[derive(Debug)]
struct Writer {
    driver: Driver,
    /// Whether a transaction began and was not ended: still set if its work panicked.
    open: bool,
    /// Keeps the data directory locked for as long as anything can write; `None` for a file that is
    /// only read.
    _lock: Option<DirLock>,
}

impl SqliteDb {
    /// Opens the database with this connection as the writer.
    pub(crate) fn new(
        mut driver: Driver,
        lock: Option<DirLock>,
        options: SqliteOptions,
    ) -> Result<Self> {
        let log_sync = if driver.is_read_only().map_err(fault)? {
            LogSync::unused()?
        } else {
            LogSync::start(&mut driver)?
        };
        let writer = Writer {
            driver,
            open: false,
            _lock: lock,
        };
        let unavailable = |error| Fault::database(error, Class::Unavailable);
        Ok(Self {
            writer: Arc::new(Mutex::new(writer)),
            log_sync: Arc::new(log_sync),
            writer_thread: WriterThread::start().map_err(unavailable)?,
            migrate: options.migrate,
            readers: Readers::new(options),
        })
    }
}

impl Database for SqliteDb {
    fn begin(
        &self,
        commit: Commit,
        at: Option<Timestamp>,
    ) -> BoxFuture<'_, Result<(Box<dyn Transaction>, Timestamp)>> {
        async move {
            self.log_sync.check()?;
            let writer = self.writer.clone().lock_owned().await;
            let (writer, now) = begin(writer, at)?;
            let tx = Write {
                writer,
                commit,
                log_sync: self.log_sync.clone(),
            };
            let tx: Box<dyn Transaction> = Box::new(tx);
            Ok((tx, now))
        }
        .boxed()
    }

    fn spawn_transaction(&self, commit: Commit, transaction: BoxFuture<'static, ()>) {
        self.writer_thread.submit(commit, transaction);
    }

    fn reader(&self) -> BoxFuture<'_, Result<Box<dyn Connection>>> {
        async move {
            let conn: Box<dyn Connection> = Box::new(Read(self.readers.next().await?));
            Ok(conn)
        }
        .boxed()
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Box<dyn Transaction>>> {
        async move {
            let mut reader = self.readers.next().await?;
            reader.driver().execute("BEGIN").map_err(fault)?;
            let tx: Box<dyn Transaction> = Box::new(Snapshot(reader));
            Ok(tx)
        }
        .boxed()
    }

    fn wait_for_reads_durable(&self) -> Durable {
        self.log_sync.durable(self.log_sync.last_started())
    }

    fn index_steps(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let mut writer = self.writer.lock().await;
            if writer.open {
                end(&mut writer, "ROLLBACK").ok();
            }
            let migrate = || migrate::index_steps(&mut writer.driver, self.migrate);
            let (number, done) = self.log_sync.commit(migrate);
            done?;
            self.log_sync.durable(number).await
        }
        .boxed()
    }

    fn connections(&self) -> Vec<Connections> {
        let writer = Connections {
            pool: "writers",
            open: 1,
            idle: u32::from(self.writer.try_lock().is_ok()),
            waiting: self.writer_thread.waiting(),
        };
        vec![writer, self.readers.connections()]
    }

    /// One is enough: there is a single writer, so transactions do not conflict.
    fn attempts(&self) -> u32 {
        1
    }
}

/// The writer with an open transaction.
#[derive(Debug)]
struct Write {
    writer: OwnedMutexGuard<Writer>,
    commit: Commit,
    log_sync: Arc<LogSync>,
}

fn begin(
    mut writer: OwnedMutexGuard<Writer>,
    at: Option<Timestamp>,
) -> Result<(OwnedMutexGuard<Writer>, Timestamp)> {
    if writer.open {
        end(&mut writer, "ROLLBACK").ok();
    }
    let sql = include_str!("../sql/transaction/begin.sql");
    let mut attempt = 1;
    loop {
        writer.open = true;
        let at = at.map_or(Value::Null, |at| Value::Integer(at.0));
        match writer.driver.number(sql, &[at]) {
            Ok(now) => return Ok((writer, Timestamp(now))),
            Err(error) => {
                end(&mut writer, "ROLLBACK").ok();
                let fault = fault(error);
                if !fault.is_busy() || attempt == BEGIN_ATTEMPTS {
                    return Err(fault);
                }
                attempt += 1;
            }
        }
    }
}

impl Write {
    fn driver(&mut self) -> &mut Driver {
        &mut self.writer.driver
    }

    fn undo(&mut self) {
        if let Err(error) = end(&mut self.writer, "ROLLBACK") {
            tracing::debug!(
                %error,
                "rollback failed; the transaction had most likely ended already"
            );
        }
    }
}

fn end(writer: &mut Writer, sql: &'static str) -> Result<()> {
    writer.driver.execute(sql).map_err(fault)?;
    writer.open = false;
    Ok(())
}

impl Transaction for Write {
    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<Durable>> {
        async move {
            let Self {
                writer,
                commit,
                log_sync,
            } = &mut *self;
            let (number, committed) = log_sync.commit(|| end(writer, "COMMIT"));
            if let Err(fault) = committed {
                // A failed commit may have left its transaction open: make sure that it is rolled
                // back.
                self.undo();
                return Err(fault);
            }
            Ok(log_sync.durable(match commit {
                Commit::Durable => number,
                // The earlier commits, which this transaction may have seen.
                Commit::Relaxed | Commit::Renewal => number - 1,
            }))
        }
        .boxed()
    }

    fn rollback(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move { self.undo() }.boxed()
    }

    fn savepoint(&mut self) -> BoxFuture<'_, Result<()>> {
        ready(execute(self.driver(), "SAVEPOINT item")).boxed()
    }

    fn release_savepoint(&mut self, undo: bool) -> BoxFuture<'_, Result<()>> {
        let undone = if undo {
            execute(self.driver(), "ROLLBACK TO item")
        } else {
            Ok(())
        };
        let done = undone.and_then(|()| execute(self.driver(), "RELEASE item"));
        ready(done).boxed()
    }

    fn connection(&mut self) -> &mut Conn {
        self
    }
}

fn execute(driver: &mut Driver, sql: &'static str) -> Result<()> {
    driver.execute(sql).map_err(fault)
}

/// A reader.
#[derive(Debug)]
struct Read(Reader);

impl Read {
    fn driver(&mut self) -> &mut Driver {
        self.0.driver()
    }
}

/// A reader with a snapshot of the file, for reads that may be large.
#[derive(Debug)]
struct Snapshot(Reader);

impl Snapshot {
    fn driver(&mut self) -> &mut Driver {
        self.0.driver()
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // While it is lent there is nothing to undo: its thread closes the connection when the
        // statement ends.
        if self.0.is_lent() {
            return;
        }
        if !self.driver().raw().is_autocommit() {
            self.driver().execute("ROLLBACK").ok();
        }
    }
}

impl Transaction for Snapshot {
    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<Durable>> {
        let committed = execute(self.driver(), "COMMIT");
        ready(committed.map(|()| ready(Ok(())).boxed())).boxed()
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            // Dropping it rolls it back.
            drop(self);
        }
        .boxed()
    }

    fn savepoint(&mut self) -> BoxFuture<'_, Result<()>> {
        ready(execute(self.driver(), "SAVEPOINT item")).boxed()
    }

    fn release_savepoint(&mut self, _undo: bool) -> BoxFuture<'_, Result<()>> {
        ready(execute(self.driver(), "RELEASE item")).boxed()
    }

    fn connection(&mut self) -> &mut Conn {
        self
    }
}

impl Write {
    fn step(&mut self, text: &'static str, arguments: Vec<Value>) -> DbFuture<'_, StatementResult> {
        async move { self.driver().run(text, &arguments).map_err(fault) }.boxed()
    }
}

impl Read {
    fn step(&mut self, text: &'static str, arguments: Vec<Value>) -> DbFuture<'_, StatementResult> {
        async move { self.driver().run(text, &arguments).map_err(fault) }.boxed()
    }
}

impl Snapshot {
    /// Runs a statement on a separate thread: it may take long, and its caller may give up waiting.
    fn step(&mut self, text: &'static str, arguments: Vec<Value>) -> DbFuture<'_, StatementResult> {
        async move {
            let Some(mut driver) = self.0.lend() else {
                return Err(Fault::database(
                    "the connection is gone",
                    Class::Unavailable,
                ));
            };
            let (ended, end) = oneshot::channel();
            let thread = std::thread::Builder::new().name("sqlite-snapshot".to_owned());
            let started = thread.spawn(move || {
                let done = driver.run(text, &arguments);
                // The caller may have given up: then the connection is closed.
                let _ = ended.send((driver, done));
            });
            started.map_err(|error| Fault::database(error, Class::Unavailable))?;
            let (driver, done) = end
                .await
                .map_err(|ended| Fault::database(ended, Class::Unavailable))?;
            self.0.give_back(driver);
            done.map_err(fault)
        }
        .boxed()
    }
}

/// Implements [`Connection`] for types that have a driver and run statements with `step`.
macro_rules! connection {
    ($type:ty) => {
        impl Connection for $type {
            fn run<'c>(
                &'c mut self,
                statement: &'static Statement,
                arguments: Vec<Value>,
            ) -> DbFuture<'c, StatementResult> {
                self.step(statement.text.as_str(), arguments)
            }

            fn scan<'c>(
                &'c mut self,
                statement: &'static Statement,
                arguments: Vec<Value>,
                visit: Visit<'c>,
            ) -> DbFuture<'c, ()> {
                let text = statement.text.as_str();
                ready(self.driver().scan(text, &arguments, visit).map_err(fault)).boxed()
            }

            fn server(&mut self) -> DbFuture<'_, Server> {
                ready(server(self.driver())).boxed()
            }

            fn schema_faults(&mut self) -> DbFuture<'_, Vec<SchemaFault>> {
                ready(faults(self.driver())).boxed()
            }

            fn clock(&mut self) -> DbFuture<'_, Timestamp> {
                ready(clock(self.driver())).boxed()
            }
        }
    };
}

connection!(Write);
connection!(Read);
connection!(Snapshot);

fn server(driver: &mut Driver) -> Result<Server> {
    let schema = migrate::verify(driver)?;
    let sql = include_str!("../sql/transaction/server.sql");
    let version: String = driver
        .raw()
        .query_row(sql, (), |row| row.get(0))
        .map_err(fault)?;
    Ok(Server {
        name: format!("SQLite {version}"),
        is_read_only: false,
        schema,
    })
}

fn clock(driver: &mut Driver) -> Result<Timestamp> {
    let sql = include_str!("../sql/transaction/clock.sql");
    driver.number(sql, &[]).map(Timestamp).map_err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &tempfile::TempDir) -> SqliteDb {
        let options = SqliteOptions::dir(dir.path());
        let driver = Driver::writer(&options).expect("opens");
        SqliteDb::new(driver, None, options).expect("a thread")
    }

    async fn begin(db: &SqliteDb, commit: Commit) -> Write {
        let writer = db.writer.clone().lock_owned().await;
        let (writer, _) = super::begin(writer, None).expect("begins");
        Write {
            writer,
            commit,
            log_sync: db.log_sync.clone(),
        }
    }

    async fn commit(tx: Write) {
        let durable = Box::new(tx).commit().await.expect("commits");
        durable.await.expect("the disk works");
    }

    fn scalar(tx: &mut Write, sql: &'static str) -> i64 {
        tx.driver().number(sql, &[]).expect("answers")
    }

    #[tokio::test]
    async fn each_transaction_has_the_durability_that_it_asks_for() {
        use Commit::{Durable, Relaxed};

        let dir = tempfile::tempdir().expect("a directory");
        let db = open(&dir);
        for commit in [
            Durable, Relaxed, Durable, Relaxed, Relaxed, Durable, Durable, Relaxed,
        ] {
            let before = db.log_sync.last_started();
            let tx = begin(&db, commit).await;
            self::commit(tx).await;
            let number = db.log_sync.last_started();
            assert_eq!(number, before + 1, "{commit:?}");
            // A round for it starts, whether or not anything waits for it.
            db.log_sync.durable(number).await.expect("the disk works");
        }
        // The log is synced before a checkpoint writes it into the file.
        let mut tx = begin(&db, Durable).await;
        assert_eq!(scalar(&mut tx, "PRAGMA synchronous"), 1, "NORMAL");
    }

    #[tokio::test]
    async fn nothing_is_told_before_the_disk_has_what_it_is_about() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut db = open(&dir);
        let (log_sync, (end, begins)) = LogSync::held();
        db.log_sync = Arc::new(log_sync);
        #[expect(
            clippy::async_yields_async,
            reason = "what is told only once the disk has it is waited for later"
        )]
        let told = async |commit| {
            let tx = begin(&db, commit).await;
            Box::new(tx).commit().await.expect("commits")
        };
        // A durable commit waits for its own round, and whoever may have seen it does, too: readers,
        // and transactions that do not wait for their own.
        let mut durable = told(Commit::Durable).await;
        begins.recv().expect("a round begins");
        let mut reader = db.wait_for_reads_durable();
        let mut relaxed = told(Commit::Relaxed).await;
        for waits in [&mut durable, &mut reader, &mut relaxed] {
            assert!(waits.now_or_never().is_none());
        }
        end.send(Ok(())).expect("the round waits");
        for waits in [durable, reader, relaxed] {
            waits.await.expect("the disk works");
        }
        // What is relaxed does not wait for its own round, but who reads it does.
        begins.recv().expect("a round begins");
        let mut reader = db.wait_for_reads_durable();
        assert!((&mut reader).now_or_never().is_none());
        end.send(Ok(())).expect("the round waits");
        reader.await.expect("the disk works");
        let renewal = told(Commit::Renewal).await;
        begins.recv().expect("a round begins");
        assert!(renewal.now_or_never().is_some());
        // A round that fails is never told as a success.
        let mut durable = told(Commit::Durable).await;
        assert!((&mut durable).now_or_never().is_none());
        end.send(Err(std::io::Error::other("broken")))
            .expect("the round waits");
        durable.await.expect_err("the disk is broken");
        assert!(db.begin(Commit::Relaxed, None).await.is_err());
    }

    #[tokio::test]
    async fn a_transaction_that_was_dropped_is_undone_before_the_next() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = open(&dir);
        let mut tx = begin(&db, Commit::Durable).await;
        execute(tx.driver(), "CREATE TABLE t (n INTEGER)").expect("creates");
        commit(tx).await;
        let mut dropped = begin(&db, Commit::Durable).await;
        execute(dropped.driver(), "INSERT INTO t VALUES (1)").expect("inserts");
        drop(dropped);
        let mut next = begin(&db, Commit::Durable).await;
        assert_eq!(scalar(&mut next, "SELECT count(*) FROM t"), 0);
    }

    #[tokio::test]
    async fn a_snapshot_stands_still_and_leaves_its_reader_as_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let db = open(&dir);
        let mut tx = begin(&db, Commit::Durable).await;
        execute(tx.driver(), "CREATE TABLE t (n INTEGER)").expect("creates");
        commit(tx).await;
        let count = "SELECT count(*) FROM t";
        let mut snapshot = Snapshot(db.readers.next().await.expect("a reader"));
        execute(snapshot.driver(), "BEGIN").expect("begins");
        assert_eq!(snapshot.driver().number(count, &[]), Ok(0));
        let mut tx = begin(&db, Commit::Durable).await;
        execute(tx.driver(), "INSERT INTO t VALUES (1)").expect("inserts");
        commit(tx).await;
        assert_eq!(snapshot.driver().number(count, &[]), Ok(0));
        drop(snapshot);
        let mut reader = db.readers.next().await.expect("the same one");
        assert_eq!(reader.driver().number(count, &[]), Ok(1));
        assert_eq!(db.readers.connections().open, 1);
    }
}
