//! The most recently used connections, kept for the next caller.
//!
//! The driver's pool hands out its connections in turn, and pings each one when it is returned: for
//! every statement that costs a round trip, a task, and a server process with cold caches. A
//! process that needs one connection at a time is better off with the same one. So the two most
//! recently used are kept beside the pool, which counts them as in use, and the most recent one is
//! handed out first.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};
use tokio::time::Instant;

use mainspring_store_core::SilentConnections;

/// As many as there are lanes that use one pool all the time.
const KEPT_MAX: usize = 2;
/// Connections unused for so long go back to the pool, which closes idle ones: a middlebox may have
/// dropped the connection.
const UNUSED_MAX: Duration = Duration::from_secs(30);
/// How long a connection stays out of the pool before it goes back once, so that the pool can close
/// it if it is too old.
const KEPT_FOR: Duration = Duration::from_mins(1);

/// The connections that are kept beside one pool.
#[derive(Debug, Default)]
pub(crate) struct RecentConnections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    idle: Vec<IdleConnection>,
    /// Callers that wait for the pool: connections given back go to them.
    waiting: usize,
    closed: bool,
}

#[derive(Debug)]
struct IdleConnection {
    connection: PoolConnection<Postgres>,
    taken: Instant,
    used: Instant,
}

impl RecentConnections {
    /// Takes a connection; also returns since when it is out of the pool.
    pub(crate) async fn take(
        &self,
        pool: &PgPool,
        silence: &SilentConnections,
    ) -> sqlx::Result<(PoolConnection<Postgres>, Instant)> {
        let unfit = |idle: &IdleConnection| {
            idle.used.elapsed() > UNUSED_MAX || silence.suspects(idle.taken.elapsed())
        };
        {
            let mut state = self.state();
            match state.idle.pop() {
                Some(idle) if !unfit(&idle) => return Ok((idle.connection, idle.taken)),
                // The ones below it were used even longer ago.
                Some(_) => state.idle.clear(),
                None => {}
            }
            state.waiting += 1;
        }
        let _waiting = Waiting(self);
        Ok((pool.acquire().await?, Instant::now()))
    }

    /// Keeps a healthy connection with nothing in flight, or returns it to its pool.
    pub(crate) fn give_back(&self, connection: PoolConnection<Postgres>, taken: Instant) {
        let mut state = self.state();
        let keep = !state.closed
            && state.waiting == 0
            && state.idle.len() < KEPT_MAX
            && taken.elapsed() < KEPT_FOR;
        if keep {
            let used = Instant::now();
            state.idle.push(IdleConnection {
                connection,
                taken,
                used,
            });
        }
    }

    /// How many are kept, and how many callers wait for the pool.
    pub(crate) fn used(&self) -> (usize, usize) {
        let state = self.state();
        (state.idle.len(), state.waiting)
    }

    /// Returns all connections to the pool, and keeps none from now on.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.idle.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RecentConnections {
    fn drop(&mut self) {
        // Not through the pool, which would need a runtime.
        let state = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for idle in state.idle.drain(..) {
            drop(idle.connection.detach());
        }
    }
}

/// Counts a caller that waits for the pool, until it is dropped.
struct Waiting<'a>(&'a RecentConnections);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}
