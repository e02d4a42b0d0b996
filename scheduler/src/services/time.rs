//! The database's time, as known to a scheduler.
//!
//! The database's clock decides everything that schedulers must agree on: whether an API key is
//! valid, and which minute, day or month a spending limit applies to. The clock of a process may be
//! wrong, even by hours. Between reads, the database's time is extrapolated with the monotonic
//! clock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::time::Timestamp;

use crate::app::App;

/// How long the time is extrapolated before it is read again.
const CACHE_TTL: Duration = Duration::from_secs(5);

/// The database's time when it was last read.
#[derive(Debug, Default)]
pub(crate) struct KnownTime {
    read: Mutex<Option<Read>>,
    /// Held while reading, with the monotonic time of the last failed read. Others keep using the
    /// time that was read before.
    turn: tokio::sync::Mutex<Option<Duration>>,
}

#[derive(Debug, Clone, Copy)]
struct Read {
    /// When it was read, on the monotonic clock.
    at: Duration,
    time: Timestamp,
}

impl Read {
    fn now(self, at: Duration) -> Timestamp {
        self.time.after(at.saturating_sub(self.at))
    }

    fn is_fresh(self, at: Duration) -> bool {
        at.saturating_sub(self.at) < CACHE_TTL
    }
}

impl KnownTime {
    fn get(&self) -> Option<Read> {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, read: Read) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
    }
}

impl App {
    /// The database's time. While the database does not answer, the time is extrapolated from its
    /// last answer; if it never answered, the process's own clock is used.
    pub async fn database_time(&self) -> Timestamp {
        let known = &self.known.time;
        let at = self.clock.monotonic();
        let read = known.get();
        if let Some(read) = read.filter(|read| read.is_fresh(at)) {
            return read.now(at);
        }
        let turn = match read {
            Some(_) => known.turn.try_lock().ok(),
            None => Some(known.turn.lock().await),
        };
        let is_old = |read: Option<Read>| read.is_none_or(|read| !read.is_fresh(at));
        if let Some(mut failed) = turn
            && is_old(known.get())
            && failed.is_none_or(|failed| at.saturating_sub(failed) >= CACHE_TTL)
        {
            let asked = self.clock.monotonic();
            match self.store.now().await {
                Ok(time) => {
                    let at = self.clock.monotonic();
                    let time = time.after(at.saturating_sub(asked) / 2);
                    known.set(Read { at, time });
                    *failed = None;
                }
                Err(error) => {
                    // Remembered so that not every request waits for an unavailable database.
                    *failed = Some(self.clock.monotonic());
                    tracing::debug!(%error, "the database's time could not be read");
                }
            }
        }
        match known.get() {
            Some(read) => read.now(self.clock.monotonic()),
            None => self.clock.now(),
        }
    }
}
