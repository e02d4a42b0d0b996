//! The port: each method is one function of a noun, as one transaction.

use futures::future::BoxFuture;
use mainspring_shared::store::Result;
use mainspring_shared::time::Timestamp;
use sqlx::{SqliteConnection, SqlitePool};

use crate::fault::{self, Fault};
use crate::writer::{Commit, Tx, Writer};

/// The store port on one SQLite file. The data directory is held until the store is dropped and
/// the work in flight has ended.
#[derive(Debug)]
pub struct SqliteStore {
    pub(crate) writer: Writer,
    pub(crate) readers: SqlitePool,
}

impl SqliteStore {
    /// Runs `work` as one durable transaction.
    pub(crate) async fn write<T, W>(&self, at: Option<Timestamp>, work: W) -> Result<T>
    where
        T: Send + 'static,
        W: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, fault::Result<T>> + Send + 'static,
    {
        self.writer.run(Commit::Durable, at, work).await
    }

    /// Runs `work` on a reader.
    pub(crate) async fn read<T, W>(&self, work: W) -> Result<T>
    where
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, fault::Result<T>> + Send,
    {
        let mut conn = self.readers.acquire().await.map_err(Fault::from)?;
        Ok(work(&mut conn).await?)
    }

    /// Runs `work` on a reader that sees one state of the file throughout.
    pub(crate) async fn snapshot<T, W>(&self, work: W) -> Result<T>
    where
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, fault::Result<T>> + Send,
    {
        let mut tx = self.readers.begin().await.map_err(Fault::from)?;
        let answer = work(&mut tx).await?;
        tx.commit().await.map_err(Fault::from)?;
        Ok(answer)
    }
}
