//! Which connections can still be trusted.
//!
//! A server that loses power or its network does not close its connections: that is noticed only by
//! an answer that never comes. A server that was demoted keeps its connections, too, and refuses to
//! write on them for ever, while its name means another server by now.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// How long work under way may still take once another connection was found silent.
const GRACE: Duration = Duration::from_secs(2);

/// What is known of the connections of all pools of a store.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    /// When a connection was last found silent.
    silent: watch::Sender<Option<Instant>>,
    /// When connections were last found to lead to a server that takes no writes, or took none
    /// until then.
    demoted: watch::Sender<Option<Instant>>,
    is_read_only: AtomicBool,
    losses: AtomicU64,
}

impl Trust {
    /// Runs `work` until it is done. `None` if it takes longer than `patience`, or if it is not
    /// done soon after another connection was found silent: then its outcome is unknown.
    pub(crate) async fn answer<T>(
        &self,
        patience: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut news = self.silent.subscribe();
        let limit = async {
            if timeout(patience, news.changed()).await.is_err() {
                self.found_silent();
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

    /// No connection that is open now is used again, and work under way on them ends soon.
    pub(crate) fn found_silent(&self) {
        self.silent.send_replace(Some(Instant::now()));
    }

    /// No connection that is open now is used again.
    pub(crate) fn found_read_only(&self) {
        if !self.is_read_only.swap(true, Ordering::AcqRel) {
            tracing::warn!("the database accepts no writes: it is read-only");
        }
        self.demoted.send_replace(Some(Instant::now()));
    }

    /// A write succeeded. If none did before, connections that were opened meanwhile may lead to the
    /// old server, which would answer reads from data that stands still.
    pub(crate) fn found_writable(&self) {
        if self.is_read_only.swap(false, Ordering::AcqRel) {
            tracing::info!("the database accepts writes again");
            self.demoted.send_replace(Some(Instant::now()));
        }
    }

    /// Counts a connection that was lost: the next one may lead to another server.
    pub(crate) fn lost(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// How often a connection was lost.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Acquire)
    }

    /// Whether a connection of this age is not to be used any more.
    pub(crate) fn doubts(&self, age: Duration) -> bool {
        let before = |since: Option<Instant>| since.is_some_and(|since| age > since.elapsed());
        before(*self.silent.borrow()) || before(*self.demoted.borrow())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn older_connections_are_doubted_after_one_of_them_failed() {
        let trust = Trust::default();
        assert_eq!(trust.answer(GRACE, async { 7 }).await, Some(7));
        trust.found_writable();
        assert!(!trust.doubts(Duration::MAX), "nothing happened");
        trust.found_read_only();
        assert!(trust.doubts(Duration::from_secs(1)));
        assert!(!trust.doubts(Duration::ZERO));

        let trust = Trust::default();
        let silent = trust.answer(Duration::from_millis(1), pending::<()>());
        assert_eq!(silent.await, None);
        assert!(trust.doubts(Duration::from_secs(1)));
        assert!(!trust.doubts(Duration::ZERO));
    }
}
