//! The connections that were used last, for whoever comes next.
//!
//! The driver's pool hands its connections out in turn, and asks each for an answer when it comes back:
//! a round trip, a task and a server process whose caches are cold, for every statement. A process
//! that works with one connection at a time is better off with one and the same. So the last two
//! are kept beside the pool, which takes them for connections in use, and the last one goes first.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};
use tokio::time::Instant;

use crate::silence::Silence;

/// As many as the lanes that use one pool all the time.
const KEPT_MAX: usize = 2;
/// What nobody has used for so long goes back to the pool, which closes what is idle: something on the way
/// may have forgotten the connection.
const UNUSED_MAX: Duration = Duration::from_secs(30);
/// After so long a connection goes through the pool once, which ends those that are too old.
const KEPT_FOR: Duration = Duration::from_mins(1);

/// The connections that are kept beside one pool.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    spare: Vec<Spare>,
    /// Who waits for the pool: what comes back goes to them.
    waiting: usize,
    closed: bool,
}

#[derive(Debug)]
struct Spare {
    connection: PoolConnection<Postgres>,
    taken: Instant,
    used: Instant,
}

impl Kept {
    /// A connection, and since when it is out of the pool.
    pub(crate) async fn take(
        &self,
        pool: &PgPool,
        silence: &Silence,
    ) -> sqlx::Result<(PoolConnection<Postgres>, Instant)> {
        let unfit = |spare: &Spare| {
            spare.used.elapsed() > UNUSED_MAX || silence.suspects(spare.taken.elapsed())
        };
        {
            let mut state = self.state();
            match state.spare.pop() {
                Some(spare) if !unfit(&spare) => return Ok((spare.connection, spare.taken)),
                // Those below were used even longer ago.
                Some(_) => state.spare.clear(),
                None => {}
            }
            state.waiting += 1;
        }
        let _waiting = Waiting(self);
        Ok((pool.acquire().await?, Instant::now()))
    }

    /// Keeps a connection that works and has nothing under way, or lets it go back to its pool.
    pub(crate) fn give_back(&self, connection: PoolConnection<Postgres>, taken: Instant) {
        let mut state = self.state();
        let keep = !state.closed
            && state.waiting == 0
            && state.spare.len() < KEPT_MAX
            && taken.elapsed() < KEPT_FOR;
        if keep {
            let used = Instant::now();
            state.spare.push(Spare {
                connection,
                taken,
                used,
            });
        }
    }

    /// How many are kept, and how many callers wait for the pool.
    pub(crate) fn used(&self) -> (usize, usize) {
        let state = self.state();
        (state.spare.len(), state.waiting)
    }

    /// Lets all go, and keeps none from now on.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.spare.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Not through the pool, which would want a runtime for it.
        let state = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for spare in state.spare.drain(..) {
            drop(spare.connection.detach());
        }
    }
}

/// Somebody waits for the pool, until it is dropped.
struct Waiting<'a>(&'a Kept);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}
