//! Shared parts of the background loops. A loop ends only at shutdown, and logs only when its
//! health changes.

pub(crate) mod alarms;
pub(crate) mod auditor;
pub(crate) mod blobs;
pub(crate) mod erasures;
pub(crate) mod journal;
mod orphans;
pub(crate) mod retention;
pub(crate) mod runs;
pub(crate) mod sweep;
pub(crate) mod timers;
pub(crate) mod webhooks;

use std::time::Duration;

use mainspring_shared::retry::Policy;
use mainspring_shared::store;

use crate::app::App;

/// Backoff between failures of a loop. The cap is short so that a loop resumes soon after the
/// database is back.
const BACKOFF: Policy = Policy {
    attempts_max: u32::MAX,
    base: Duration::from_millis(100),
    cap: Duration::from_secs(3),
    retry_after_max: Duration::from_secs(3),
};

/// The health of a loop, for logging and backoff.
#[derive(Debug)]
pub(crate) struct Health {
    name: &'static str,
    failures: u32,
}

impl Health {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, failures: 0 }
    }

    /// Records a success; logs it if it follows failures.
    pub(crate) fn succeeded(&mut self) {
        if self.failures > 0 {
            tracing::info!(loop.name = self.name, failures = self.failures, "a loop has recovered");
            self.failures = 0;
        }
    }

    /// Records a failure and returns the backoff; logs the first of consecutive failures.
    pub(crate) fn failed(&mut self, error: &dyn std::error::Error, fraction: f64) -> Duration {
        if self.failures == 0 {
            tracing::warn!(loop.name = self.name, error = causes(error), "a loop failed and will retry");
        }
        metrics::counter!(crate::metrics::LOOP_FAILURES, "loop" => self.name).increment(1);
        self.failures = self.failures.saturating_add(1);
        BACKOFF
            .wait(self.failures, None, fraction)
            .unwrap_or(BACKOFF.cap)
    }

    /// Records the result of a loop's side task. Returns true if the task has more to do. A failed
    /// task is retried in the loop's next pass.
    fn record(&mut self, app: &App, done: Result<bool, store::Error>) -> bool {
        match done {
            Ok(more) => {
                self.succeeded();
                more
            }
            Err(error) => {
                let _ = self.failed(&error, app.entropy.fraction());
                false
            }
        }
    }
}

/// An error with its causes, in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Sleeps for `duration` or until shutdown begins. Returns false if shutdown has begun.
pub(crate) async fn pause(app: &App, duration: Duration) -> bool {
    tokio::select! {
        biased;
        () = app.clock.sleep(duration) => !app.process.lifecycle.is_stopping(),
        () = app.process.lifecycle.stopping() => false,
    }
}

/// Adds ±10 % jitter, so that replicas that started together do not stay in step.
pub(crate) fn jittered(app: &App, duration: Duration) -> Duration {
    duration.mul_f64(0.9 + 0.2 * app.entropy.fraction())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_after_failures_grow_and_stay_bounded() {
        let mut health = Health::new("test");
        let error = std::io::Error::other("away");
        let waits: Vec<_> = (0..9).map(|_| health.failed(&error, 0.999)).collect();
        assert!(waits[0] <= Duration::from_millis(100));
        assert!(waits.is_sorted(), "{waits:?}");
        assert!(waits[8] <= Duration::from_secs(3) && waits[8] > Duration::from_secs(2));
        health.succeeded();
        assert!(health.failed(&error, 0.999) <= Duration::from_millis(100));
    }
}
