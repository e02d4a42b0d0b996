//! The database's time, as a scheduler knows it.
//!
//! Whatever schedulers have to agree on is judged by the database's clock: whether a key is valid, and which minute,
//! day or month it is for a limit of money. That of the process may be wrong, also by hours. Between two looks at the
//! database its time goes on by the monotonic clock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainspring_shared::time::Timestamp;

use crate::app::App;

/// How long the time goes on without a look at the database.
const BELIEVED: Duration = Duration::from_secs(5);

/// The database's time when it was read last.
#[derive(Debug, Default)]
pub(crate) struct KnownTime {
    read: Mutex<Option<Read>>,
    /// Whose turn it is to read, and when a read failed last, by the monotonic clock: others go on believing what was
    /// read.
    turn: tokio::sync::Mutex<Option<Duration>>,
}

#[derive(Debug, Clone, Copy)]
struct Read {
    /// By the monotonic clock.
    at: Duration,
    time: Timestamp,
}

impl Read {
    fn now(self, at: Duration) -> Timestamp {
        self.time.after(at.saturating_sub(self.at))
    }

    fn is_fresh(self, at: Duration) -> bool {
        at.saturating_sub(self.at) < BELIEVED
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
    /// The database's time. While it does not answer, its time goes on from when it last did; before it ever did, the
    /// process's clock is all there is.
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
            && failed.is_none_or(|failed| at.saturating_sub(failed) >= BELIEVED)
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
                    // Requests do not each wait for a database that is away.
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
