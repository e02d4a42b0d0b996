//! The pools of connections, and a connection in use.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use mainspring_shared::store::Connections;
use mainspring_store_core::db::Waiters;
use mainspring_store_core::fault::{Class, Fault, Result};
use sqlx::mysql::{MySql, MySqlConnection, MySqlPool};
use sqlx::pool::PoolConnection;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::fault::{fault, is_read_only};
use crate::settings::Settings;
use mainspring_store_core::SilentConnections;

/// How long a server may take to answer a ping.
pub(crate) const PING_MAX: Duration = Duration::from_secs(2);

/// A pool, and how long its connections may be silent.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    name: &'static str,
    connections: MySqlPool,
    waiters: Arc<Waiters>,
    silence: Arc<SilentConnections>,
    patience: Duration,
    /// After how long a silent connection is doubted, if its statements only take a moment.
    doubted_after: Option<Duration>,
}

impl Pool {
    pub(crate) fn new(
        settings: &Settings,
        (name, connections): (&'static str, u32),
        silence: &Arc<SilentConnections>,
        patience: Duration,
    ) -> Result<Self> {
        Ok(Self {
            name,
            connections: settings.pool(connections, silence)?,
            waiters: Arc::default(),
            silence: silence.clone(),
            patience,
            doubted_after: None,
        })
    }

    /// The same pool, whose connections are doubted after a shorter silence if the server answers on
    /// a new one.
    pub(crate) fn doubted_after(self, silence: Duration) -> Self {
        Self {
            doubted_after: Some(silence),
            ..self
        }
    }

    /// The same connections, for work that takes longer.
    pub(crate) fn patient(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    pub(crate) fn silence(&self) -> &SilentConnections {
        &self.silence
    }

    /// Takes a connection.
    pub(crate) async fn take(&self) -> Result<Held> {
        let taken = self.waiters.counted(self.connections.acquire()).await;
        Ok(Held {
            connection: Some(taken.map_err(fault)?),
            pool: self.clone(),
            is_unfit: false,
            in_transaction: false,
        })
    }

    /// How many connections are open and idle, and how many callers wait for one.
    pub(crate) fn used(&self) -> Connections {
        Connections {
            pool: self.name,
            open: self.connections.size(),
            idle: u32::try_from(self.connections.num_idle()).unwrap_or(u32::MAX),
            waiting: self.waiters.now(),
        }
    }

    async fn answer<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let answer = self.silence.answer(self.patience, work);
        let Some(after) = self.doubted_after else {
            return answer.await;
        };
        tokio::pin!(answer);
        if let Ok(answer) = tokio::time::timeout(after, &mut answer).await {
            return answer;
        }
        let answers = async {
            let fresh = self.connections.connect_options().connect().await?;
            fresh.close().await
        };
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            answers = tokio::time::timeout(PING_MAX, answers) => {
                if matches!(answers, Ok(Ok(()))) {
                    tracing::warn!("a connection to the database is silent, and a new one is not");
                    self.silence.found_silent();
                    return None;
                }
            }
        }
        answer.await
    }
}

/// A connection in use. It is closed instead of being given back if it may not be used again: if
/// its user was dropped midway or gave up waiting, an answer may still be on its way.
#[derive(Debug)]
pub(crate) struct Held {
    connection: Option<PoolConnection<MySql>>,
    pool: Pool,
    is_unfit: bool,
    in_transaction: bool,
}

impl Held {
    /// The connection, for work that is then passed to [`Self::done`].
    pub(crate) fn parts(&mut self) -> (&mut MySqlConnection, Pool) {
        self.is_unfit = true;
        let connection = self
            .connection
            .as_mut()
            .expect("it is taken only when dropped");
        (connection, self.pool.clone())
    }

    /// Notes the outcome of work; no answer in time is a lost connection.
    pub(crate) fn done<T>(&mut self, answer: Option<Result<T>>) -> Result<T> {
        let done = answer
            .unwrap_or_else(|| Err(fault(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))));
        if let Err(fault) = &done
            && is_read_only(fault)
        {
            self.pool.silence.found_read_only();
        }
        self.is_unfit = matches!(
            done,
            Err(Fault::Database {
                class: Class::Unavailable | Class::Broken | Class::ReadOnly,
                ..
            })
        );
        if matches!(&done, Err(fault) if fault.is_of_connection()) {
            self.pool.silence.lost();
        }
        done
    }

    /// A transaction may begin: the connection is closed unless it is told that it has ended.
    pub(crate) fn enter(&mut self) {
        self.in_transaction = true;
    }

    /// The transaction has ended.
    pub(crate) fn leave(&mut self) {
        self.in_transaction = false;
    }

    /// Whether the connection can be used.
    pub(crate) fn is_fit(&self) -> bool {
        !self.is_unfit
    }

    /// The server of the connection takes no writes.
    pub(crate) fn found_read_only(&mut self) {
        self.pool.silence.found_read_only();
        self.is_unfit = true;
    }
}

/// Runs work on a held connection, and waits no longer for an answer than its pool allows.
macro_rules! ask {
    ($held:expr, |$connection:ident| $work:expr) => {{
        let held: &mut crate::pool::Held = $held;
        let ($connection, pool) = held.parts();
        let answer = pool.within($work).await;
        held.done(answer)
    }};
}
pub(crate) use ask;

impl Pool {
    /// Runs `work` for as long as an answer may take.
    pub(crate) fn within<'w, T: Send + 'w>(
        &'w self,
        work: impl Future<Output = T> + Send + 'w,
    ) -> BoxFuture<'w, Option<T>> {
        Box::pin(self.answer(work))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && (self.is_unfit || self.in_transaction)
        {
            drop(connection.detach());
        }
    }
}
