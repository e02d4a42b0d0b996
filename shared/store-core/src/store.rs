//! The store: each method of the port is one function, run as one transaction.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mainspring_shared::store;
use mainspring_shared::store::{Contended, Watched};
use mainspring_shared::time::Timestamp;

use tokio::sync::oneshot;

use crate::db::{Commit, Conn, Database, Durable, Transaction};
use crate::fault::{Result, skipped};
use crate::lease_marks::LeaseMarks;

/// The store port over an SQL database.
#[derive(Debug, Clone)]
pub struct SqlStore {
    pub(crate) db: Arc<dyn Database>,
    /// Replaces the database's clock.
    pub(crate) at: Option<Timestamp>,
    pub(crate) contended: Arc<Contended>,
    pub(crate) watched: Arc<Watched>,
    pub(crate) lease_marks: Arc<LeaseMarks>,
}

/// An open write transaction.
#[derive(Debug)]
pub(crate) struct Tx {
    inner: Box<dyn Transaction>,
    /// The database's time at the start of the transaction, used throughout.
    pub(crate) now: Timestamp,
    /// What is known about locked sessions; none if nobody else writes at the same time.
    pub(crate) contended: Option<Arc<Contended>>,
    /// Which tenants have webhooks.
    pub(crate) watched: Arc<Watched>,
}

/// The body of a transaction.
pub(crate) type Work<I, T> = for<'t> fn(&'t mut Tx, I) -> BoxFuture<'t, Result<T>>;

/// The pause before the first retry of a transaction that lost a conflict. It doubles with each
/// further retry.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// Further attempts at a transaction after a connection broke that wrote nothing.
const LOSSES_MAX: u32 = 2;

impl SqlStore {
    /// A store over this database.
    pub fn new(db: impl Database) -> Self {
        // A database on which transactions conflict is shared with other processes.
        let watched = if db.attempts() > 1 {
            Watched::among_others()
        } else {
            Watched::alone()
        };
        Self {
            db: Arc::new(db),
            at: None,
            contended: Arc::default(),
            watched: Arc::new(watched),
            lease_marks: Arc::default(),
        }
    }

    /// Runs `work` as one durable transaction.
    pub(crate) async fn write<I, T>(&self, input: I, work: Work<I, T>) -> store::Result<T>
    where
        I: Clone + Send + 'static,
        T: Send + 'static,
    {
        self.transact(Commit::Durable, input, work).await
    }

    /// Runs `work` as one transaction: all of it is committed, or nothing if there is an error. The
    /// database runs it independently of the caller, so that a caller that is dropped or polled
    /// slowly neither leaves a transaction open nor makes others wait.
    pub(crate) async fn transact<I, T>(
        &self,
        commit: Commit,
        input: I,
        work: Work<I, T>,
    ) -> store::Result<T>
    where
        I: Clone + Send + 'static,
        T: Send + 'static,
    {
        let (ended, end) = oneshot::channel();
        let transaction = self.clone().attempts(commit, input, work);
        let transaction = async move {
            let done = AssertUnwindSafe(transaction).catch_unwind().await;
            // The caller may have been dropped.
            let _ = ended.send(done);
        };
        self.db.spawn_transaction(commit, transaction.boxed());
        match end.await {
            Ok(Ok(result)) => {
                let (value, durable) = result?;
                durable.await?;
                Ok(value)
            }
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(ended) => Err(store::Error::Unavailable {
                source: Box::new(ended),
            }),
        }
    }

    /// Runs `work`, and again whenever it conflicts with another transaction.
    async fn attempts<I, T>(
        self,
        commit: Commit,
        input: I,
        work: Work<I, T>,
    ) -> Result<(T, Durable)>
    where
        I: Clone,
    {
        let mut wait = RETRY_AFTER;
        let mut losses = 0;
        for _ in 1..self.db.attempts() {
            match self.attempt(commit, input.clone(), work).await {
                Err(fault) if fault.is_busy() => pause(wait).await,
                // The connection may date from before a restart or a failover of the server.
                Err(fault) if fault.is_of_connection() && losses < LOSSES_MAX => losses += 1,
                done => return done,
            }
            wait *= 2;
        }
        self.attempt(commit, input, work).await
    }

    async fn attempt<I, T>(
        &self,
        commit: Commit,
        input: I,
        work: Work<I, T>,
    ) -> Result<(T, Durable)> {
        let (inner, now) = self.db.begin(commit, self.at).await?;
        let has_peers = self.db.attempts() > 1;
        let mut tx = Tx {
            inner,
            now,
            contended: has_peers.then(|| self.contended.clone()),
            watched: self.watched.clone(),
        };
        match work(&mut tx, input).await {
            Ok(value) => tx.inner.commit().await.map(|durable| (value, durable)),
            Err(fault) => {
                tx.inner.rollback().await;
                Err(fault)
            }
        }
    }

    /// Runs `work` on a reader.
    pub(crate) async fn read<T, W>(&self, work: W) -> store::Result<T>
    where
        W: for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T>> + Send,
    {
        let mut conn = self.db.reader().await?;
        let answer = work(&mut *conn).await?;
        drop(conn);
        self.db.wait_for_reads_durable().await?;
        Ok(answer)
    }

    /// Runs `work` on a reader with one snapshot of the database.
    pub(crate) async fn snapshot<T, W>(&self, work: W) -> store::Result<T>
    where
        W: for<'c> FnOnce(&'c mut Conn) -> BoxFuture<'c, Result<T>> + Send,
    {
        let mut tx = self.db.snapshot().await?;
        let answer = work(tx.connection()).await?;
        tx.commit().await?.await?;
        self.db.wait_for_reads_durable().await?;
        Ok(answer)
    }
}

/// Waits on the clock of the driver.
#[expect(
    clippy::disallowed_methods,
    reason = "the driver runs on this clock, too; nothing of the domain waits here"
)]
pub async fn pause(wait: Duration) {
    tokio::time::sleep(wait).await;
}

impl Tx {
    /// The connection, for this transaction's statements.
    pub(crate) fn conn(&mut self) -> &mut Conn {
        self.inner.connection()
    }

    /// Starts one item's part of the transaction.
    pub(crate) async fn begin_item(&mut self) -> Result<()> {
        self.inner.savepoint().await
    }

    /// Ends an item's part. If the item's data is at fault, its part is undone and there is no
    /// outcome; the parts of the others stay.
    pub(crate) async fn end_item<T>(&mut self, done: Result<T>) -> Result<Option<T>> {
        match done {
            Ok(done) => {
                self.inner.release_savepoint(false).await?;
                Ok(Some(done))
            }
            Err(fault) if fault.is_of_data() => {
                skipped(&fault);
                self.inner.release_savepoint(true).await?;
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }
}

/// The database's time, or `at` if given.
pub(crate) async fn clock(conn: &mut Conn, at: Option<Timestamp>) -> Result<Timestamp> {
    match at {
        Some(at) => Ok(at),
        None => conn.clock().await,
    }
}
