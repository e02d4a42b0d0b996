//! Shutdown of a process: a graceful stage, then a hard one, within a time limit.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The two stages of a shutdown and the tasks that it waits for. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    soft: CancellationToken,
    hard: CancellationToken,
    tasks: TaskTracker,
}

impl Lifecycle {
    /// A lifecycle that is not stopping.
    pub fn new() -> Self {
        Self::default()
    }

    /// A child lifecycle: it stops with its parent, and can be stopped on its own.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            soft: self.soft.child_token(),
            hard: self.hard.child_token(),
            tasks: TaskTracker::new(),
        }
    }

    /// Spawns a task that the shutdown waits for.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(task);
    }

    /// Starts the graceful stage: tasks accept nothing new and finish work in flight.
    pub fn stop(&self) {
        self.soft.cancel();
    }

    /// Starts the hard stage: tasks drop their work.
    pub fn abort(&self) {
        self.soft.cancel();
        self.hard.cancel();
    }

    /// Whether shutdown has begun.
    pub fn is_stopping(&self) -> bool {
        self.soft.is_cancelled()
    }

    /// Resolves when shutdown begins.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        self.soft.clone().cancelled_owned()
    }

    /// Resolves when work must be dropped.
    pub fn aborting(&self) -> impl Future<Output = ()> + Send + 'static {
        self.hard.clone().cancelled_owned()
    }

    /// Starts the graceful stage and waits for the tasks up to `limit`, then starts the hard stage
    /// and waits up to `limit` again. Returns whether all tasks ended gracefully.
    pub async fn shut_down(&self, limit: Duration) -> bool {
        self.stop();
        self.tasks.close();
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_ok() {
            return true;
        }
        self.abort();
        // Tasks that ignore the hard stop are abandoned: leases protect the data.
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
