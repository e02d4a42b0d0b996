//! How a process stops: softly first, then hard, never later than its limit.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The two stages of a stop and the tasks that it waits for. Clones share all of it.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    soft: CancellationToken,
    hard: CancellationToken,
    tasks: TaskTracker,
}

impl Lifecycle {
    /// A lifecycle that is running.
    pub fn new() -> Self {
        Self::default()
    }

    /// A lifecycle whose hard stop follows this one's, but which can be stopped by itself.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            soft: self.soft.child_token(),
            hard: self.hard.child_token(),
            tasks: TaskTracker::new(),
        }
    }

    /// Runs a task that a stop waits for.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(task);
    }

    /// Asks everyone to take on nothing new and to finish what is under way.
    pub fn stop(&self) {
        self.soft.cancel();
    }

    /// Asks everyone to drop what they do.
    pub fn abort(&self) {
        self.soft.cancel();
        self.hard.cancel();
    }

    /// Whether a stop has begun.
    pub fn is_stopping(&self) -> bool {
        self.soft.is_cancelled()
    }

    /// Resolves when a stop begins.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        self.soft.clone().cancelled_owned()
    }

    /// Resolves when work must be dropped.
    pub fn aborting(&self) -> impl Future<Output = ()> + Send + 'static {
        self.hard.clone().cancelled_owned()
    }

    /// Stops softly, waits for the tasks at most `limit`, then hard, and waits once more as long.
    /// Returns whether everything ended by itself.
    pub async fn shut_down(&self, limit: Duration) -> bool {
        self.stop();
        self.tasks.close();
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_ok() {
            return true;
        }
        self.abort();
        // Whoever ignores the hard stop is left behind: the leases decide, not this process.
        let _ = tokio::time::timeout(limit, self.tasks.wait()).await;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_waits_for_its_tasks() {
        let lifecycle = Lifecycle::new();
        let stopping = lifecycle.stopping();
        lifecycle.spawn(stopping);
        assert!(lifecycle.shut_down(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn a_task_that_ignores_the_soft_stop_gets_the_hard_one() {
        let lifecycle = Lifecycle::new();
        let aborting = lifecycle.aborting();
        lifecycle.spawn(aborting);
        assert!(!lifecycle.shut_down(Duration::from_millis(10)).await);
        assert!(lifecycle.tasks.is_empty());
    }

    #[tokio::test]
    async fn stopping_twice_is_harmless() {
        let lifecycle = Lifecycle::new();
        assert!(lifecycle.shut_down(Duration::from_secs(1)).await);
        assert!(lifecycle.shut_down(Duration::from_secs(1)).await);
    }
}
