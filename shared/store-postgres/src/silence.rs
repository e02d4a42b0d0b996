//! Detection of connections whose peer has vanished.
//!
//! A server that loses power or its network does not close its connections: such a connection is
//! detected only by a response that never comes, after the longest time that a statement may take.
//! All connections of the same age or older are then suspect, too. Without that, a process would
//! wait as long for each of them, one after the other.

use std::future::pending;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// How long a statement already in flight may still take once another connection was found silent.
const GRACE: Duration = Duration::from_secs(2);

/// When a connection of the store's pools was last found silent.
#[derive(Debug, Default)]
pub(crate) struct SilentConnections {
    /// When a connection was last found silent.
    found: watch::Sender<Option<Instant>>,
}

impl SilentConnections {
    /// Runs `work` until it is done. `None` if it takes longer than `patience`, or if it is not
    /// done soon after another connection was found silent: then its outcome is unknown.
    pub(crate) async fn answer<T>(
        &self,
        patience: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
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

    /// Whether a connection of this age was opened before a connection was last found silent.
    pub(crate) fn suspects(&self, age: Duration) -> bool {
        let found = *self.found.borrow();
        found.is_some_and(|found| age > found.elapsed())
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
