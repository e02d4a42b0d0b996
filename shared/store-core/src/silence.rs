//! Detection of connections whose peer has vanished.
//!
//! A server that loses power or its network does not close its connections: such a connection is
//! detected only by a response that never comes, after the longest time that a statement may take.
//! All connections of the same age or older are then suspect, too. Without that, a process would
//! wait as long for each of them, one after the other.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// How long a statement already in flight may still take once another connection was found silent.
const GRACE: Duration = Duration::from_secs(2);

/// Which of the store's connections are not to be used any more: those that are older than one
/// that was found silent, or that may lead to a server that takes no writes.
#[derive(Debug, Default)]
pub struct SilentConnections {
    /// When a connection was last found silent.
    found: watch::Sender<Option<Instant>>,
    /// When connections were last found to lead to a server that takes no writes, or took none
    /// until then. Statements under way on them end by themselves.
    condemned: watch::Sender<Option<Instant>>,
    /// Whether the server was last seen to take no writes.
    is_read_only: AtomicBool,
    /// How often a connection was lost.
    losses: AtomicU64,
}

impl SilentConnections {
    /// Runs `work` until it is done. `None` if it takes longer than `patience`, or if it is not
    /// done soon after another connection was found silent: then its outcome is unknown.
    pub async fn answer<T>(&self, patience: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut news = self.found.subscribe();
        let limit = async {
            if timeout(patience, news.changed()).await.is_err() {
                self.found.send_replace(Some(Instant::now()));
            } else {
                let _ = timeout(GRACE, pending::<()>()).await;
            }
        };
        tokio::select! {
            biased;
            answer = work => Some(answer),
            () = limit => None,
        }
    }

    /// Makes the open connections suspects: one of them was found silent, and the server answers
    /// on a new one. Statements under way on them end soon.
    pub fn found_silent(&self) {
        self.found.send_replace(Some(Instant::now()));
    }

    /// Makes the open connections suspects: on one of them, the server refused to write. It may
    /// have been demoted, and its name may mean another one by now; or its setting holds for the
    /// connections that were opened under it.
    pub fn found_read_only(&self) {
        if !self.is_read_only.swap(true, Ordering::AcqRel) {
            tracing::warn!("the database accepts no writes: it is read-only, or a standby");
        }
        self.condemned.send_replace(Some(Instant::now()));
    }

    /// Counts a connection that was lost: the next one may lead to another server.
    pub fn lost(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// How often a connection was lost.
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Whether the server was last seen to take no writes.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }

    /// The server takes writes again. Connections opened before may lead to the old server, which
    /// would answer reads for ever, from data that stands still.
    pub fn found_writable(&self) {
        if self.is_read_only.swap(false, Ordering::AcqRel) {
            tracing::info!("the database accepts writes again");
            self.condemned.send_replace(Some(Instant::now()));
        }
    }

    /// Whether a connection of this age is not to be used any more.
    pub fn suspects(&self, age: Duration) -> bool {
        let before = |since: Option<Instant>| since.is_some_and(|since| age > since.elapsed());
        before(*self.found.borrow()) || before(*self.condemned.borrow())
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn one_silent_connection_makes_older_ones_suspects() {
        let silence = SilentConnections::default();
        assert_eq!(silence.answer(PATIENCE, ready(7)).await, Some(7));
        assert!(!silence.suspects(Duration::MAX), "nothing was silent");

        assert_eq!(silence.answer(PATIENCE, pending::<()>()).await, None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(silence.suspects(Duration::from_secs(2)), "it is older");
        assert!(!silence.suspects(Duration::from_millis(900)), "it is newer");
    }

    #[tokio::test(start_paused = true)]
    async fn connections_to_a_server_without_writes_are_suspects_until_it_writes_again() {
        let silence = SilentConnections::default();
        silence.found_writable();
        assert!(!silence.suspects(Duration::MAX), "it always did");
        silence.found_read_only();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(silence.suspects(Duration::from_secs(2)), "it is older");
        let newer = Duration::from_millis(900);
        assert!(!silence.suspects(newer), "it may lead elsewhere");
        silence.found_writable();
        assert!(silence.suspects(newer), "it was opened meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn work_under_way_ends_soon_after_another_connection_was_silent() {
        let silence = SilentConnections::default();
        let start = Instant::now();
        let first = silence.answer(PATIENCE, pending::<()>());
        let second = async {
            let _ = timeout(Duration::from_secs(10), pending::<()>()).await;
            let answer = silence.answer(PATIENCE, pending::<()>()).await;
            (answer, start.elapsed())
        };
        let (first, second) = tokio::join!(first, second);
        assert_eq!(first, None);
        assert_eq!(second, (None, PATIENCE + GRACE));
    }
}
