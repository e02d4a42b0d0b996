//! The one connection that writes, and the one transaction that is open on it.

use std::sync::Arc;

use futures::future::BoxFuture;
use mainspring_shared::store;
use mainspring_shared::time::Timestamp;
use sqlx::SqliteConnection;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::fault::{Fault, Result, skipped};
use crate::lock::DirLock;

/// How often a transaction is begun while another program holds the file. Each attempt waits for
/// the connection's busy timeout.
const BEGIN_ATTEMPTS: u32 = 3;

/// What a commit promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    /// It survives a power cut.
    Durable,
    /// It survives this process; a power cut may undo it.
    Relaxed,
}

/// The writer. Callers take turns in the order they came.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    conn: SqliteConnection,
    /// A transaction was begun and not seen to end: its work panicked.
    open: bool,
    /// The data directory is held as long as anything can still write; none on a file that is only
    /// read.
    _lock: Option<DirLock>,
}

/// An open write transaction.
#[derive(Debug)]
pub(crate) struct Tx {
    state: OwnedMutexGuard<State>,
    /// The database's clock at its begin; one moment for the whole transaction.
    pub(crate) now: Timestamp,
}

impl Writer {
    pub(crate) fn new(conn: SqliteConnection, lock: Option<DirLock>) -> Self {
        let state = State {
            conn,
            open: false,
            _lock: lock,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Runs `work` as one transaction: all of it is committed, or on an error none. The work has a
    /// task of its own, so that a caller that goes away, or that is slow to be polled, neither
    /// leaves a transaction open nor keeps others waiting.
    pub(crate) async fn run<T, W>(
        &self,
        commit: Commit,
        at: Option<Timestamp>,
        work: W,
    ) -> store::Result<T>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T>> + Send + 'static,
    {
        let state = self.state.clone();
        let task = tokio::spawn(async move {
            let mut tx = Tx::begin(state.lock_owned().await, commit, at).await?;
            match work(&mut tx).await {
                Ok(value) => tx.commit().await.map(|()| value),
                Err(fault) => {
                    tx.rollback().await;
                    Err(fault)
                }
            }
        });
        match task.await {
            Ok(result) => Ok(result?),
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(ended) => Err(store::Error::Unavailable {
                source: Box::new(ended),
            }),
        }
    }
}

impl Tx {
    async fn begin(
        mut state: OwnedMutexGuard<State>,
        commit: Commit,
        at: Option<Timestamp>,
    ) -> Result<Self> {
        if state.open {
            end(&mut state, "ROLLBACK").await.ok();
        }
        let sql = match commit {
            Commit::Durable => include_str!("../sql/transaction/begin_durable.sql"),
            Commit::Relaxed => include_str!("../sql/transaction/begin_relaxed.sql"),
        };
        let mut attempt = 1;
        loop {
            state.open = true;
            let begun = sqlx::query(sql)
                .bind(at.map(|at| at.0))
                .fetch_all(&mut state.conn)
                .await;
            match begun {
                Ok(rows) => {
                    let now = rows.first().ok_or(sqlx::Error::RowNotFound)?;
                    let now = Timestamp(sqlx::Row::try_get(now, 0)?);
                    return Ok(Self { state, now });
                }
                Err(error) => {
                    end(&mut state, "ROLLBACK").await.ok();
                    let fault = Fault::from(error);
                    if !fault.is_busy() || attempt == BEGIN_ATTEMPTS {
                        return Err(fault);
                    }
                    attempt += 1;
                }
            }
        }
    }

    /// The connection, for this transaction's statements.
    pub(crate) fn conn(&mut self) -> &mut SqliteConnection {
        &mut self.state.conn
    }

    /// Begins one item's part of the transaction.
    pub(crate) async fn begin_item(&mut self) -> Result<()> {
        sqlx::query("SAVEPOINT item").execute(self.conn()).await?;
        Ok(())
    }

    /// Ends an item's part. When the item's data is at fault, nothing of it stays and there is no
    /// outcome; the parts of the others stay.
    pub(crate) async fn end_item<T>(&mut self, done: Result<T>) -> Result<Option<T>> {
        let done = match done {
            Ok(done) => Some(done),
            Err(fault) if fault.is_of_data() => {
                skipped(&fault);
                let undo = sqlx::query("ROLLBACK TO item");
                undo.execute(self.conn()).await?;
                None
            }
            Err(fault) => return Err(fault),
        };
        sqlx::query("RELEASE item").execute(self.conn()).await?;
        Ok(done)
    }

    async fn commit(mut self) -> Result<()> {
        let committed = end(&mut self.state, "COMMIT").await;
        if committed.is_err() {
            // A commit that failed has either ended its transaction or left it open: afterwards
            // it is undone either way.
            self.rollback().await;
        }
        committed
    }

    async fn rollback(mut self) {
        if let Err(error) = end(&mut self.state, "ROLLBACK").await {
            tracing::debug!(%error, "nothing was left to roll back");
        }
    }
}

async fn end(state: &mut State, sql: &'static str) -> Result<()> {
    sqlx::query(sql).execute(&mut state.conn).await?;
    state.open = false;
    Ok(())
}

/// The database's clock, or what replaces it.
pub(crate) async fn clock(conn: &mut SqliteConnection, at: Option<Timestamp>) -> Result<Timestamp> {
    if let Some(at) = at {
        return Ok(at);
    }
    let now = sqlx::query_scalar(include_str!("../sql/transaction/clock.sql"))
        .bind(None::<i64>)
        .fetch_one(conn)
        .await?;
    Ok(Timestamp(now))
}

#[cfg(test)]
mod tests {
    use sqlx::ConnectOptions;

    use super::*;
    use crate::options::SqliteOptions;

    async fn writer(dir: &tempfile::TempDir) -> Writer {
        let conn = SqliteOptions::dir(dir.path()).writer().connect().await;
        Writer::new(conn.expect("connects"), None)
    }

    async fn scalar(writer: &Writer, commit: Commit, sql: &'static str) -> i64 {
        let answer = writer.run(commit, None, move |tx| {
            Box::pin(async move { Ok(sqlx::query_scalar(sql).fetch_one(tx.conn()).await?) })
        });
        answer.await.expect("answers")
    }

    #[tokio::test]
    async fn each_transaction_has_the_durability_that_it_asks_for() {
        use Commit::{Durable, Relaxed};

        let dir = tempfile::tempdir().expect("a directory");
        let writer = writer(&dir).await;
        for commit in [
            Durable, Relaxed, Durable, Relaxed, Relaxed, Durable, Durable, Relaxed,
        ] {
            let level = scalar(&writer, commit, "PRAGMA synchronous").await;
            let (normal, full) = (1, 2);
            assert_eq!(level, if commit == Durable { full } else { normal });
        }
    }

    #[tokio::test]
    async fn a_panic_undoes_its_transaction_and_nobody_elses() {
        let dir = tempfile::tempdir().expect("a directory");
        let writer = writer(&dir).await;
        scalar(
            &writer,
            Commit::Durable,
            "CREATE TABLE t (n INTEGER); SELECT 0",
        )
        .await;
        let other = writer.clone();
        let panicking = tokio::spawn(async move {
            let work = other.run(Commit::Durable, None, |tx| {
                Box::pin(async move {
                    let insert = sqlx::query("INSERT INTO t VALUES (1)");
                    insert.execute(tx.conn()).await?;
                    panic!("a defect");
                })
            });
            let _: store::Result<()> = work.await;
        });
        assert!(panicking.await.expect_err("panics").is_panic());
        let rows = scalar(&writer, Commit::Durable, "SELECT count(*) FROM t").await;
        assert_eq!(rows, 0);
    }
}
