//! What every background loop shares: it never ends before it is asked to, and speaks up once per
//! change of its state.

pub(crate) mod alarms;
mod below;
pub(crate) mod retention;
pub(crate) mod runs;
pub(crate) mod sweep;
pub(crate) mod timers;

use std::time::Duration;

use mainspring_shared::retry::Policy;
use mainspring_shared::store;

use crate::app::App;

/// Waits between failures of a loop: quick at first, never so long that a database which came
/// back is noticed late.
const BACKOFF: Policy = Policy {
    attempts_max: u32::MAX,
    base: Duration::from_millis(100),
    cap: Duration::from_secs(3),
    retry_after_max: Duration::from_secs(3),
};

/// Whether a loop works, and what was last said about it.
#[derive(Debug)]
pub(crate) struct Health {
    name: &'static str,
    failures: u32,
}

impl Health {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, failures: 0 }
    }

    /// Notes a success; logs it when it ends a row of failures.
    pub(crate) fn works(&mut self) {
        if self.failures > 0 {
            tracing::info!(loop.name = self.name, failures = self.failures, "works again");
            self.failures = 0;
        }
    }

    /// Notes a failure and returns how long to wait; logs the first of a row.
    pub(crate) fn fails(&mut self, error: &dyn std::error::Error, fraction: f64) -> Duration {
        if self.failures == 0 {
            tracing::warn!(loop.name = self.name, error = causes(error), "fails, trying again");
        }
        metrics::counter!(crate::metrics::LOOP_FAILURES, "loop" => self.name).increment(1);
        self.failures = self.failures.saturating_add(1);
        BACKOFF
            .wait(self.failures, None, fraction)
            .unwrap_or(BACKOFF.cap)
    }

    /// Notes how a side task of a loop went. True when it has more to do; it is tried again with the
    /// loop's next pass after a failure.
    fn tells(&mut self, app: &App, done: Result<bool, store::Error>) -> bool {
        match done {
            Ok(more) => {
                self.works();
                more
            }
            Err(error) => {
                let _ = self.fails(&error, app.entropy.fraction());
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

/// Waits, but not past the begin of a stop. False when the stop has begun.
pub(crate) async fn pause(app: &App, duration: Duration) -> bool {
    tokio::select! {
        biased;
        () = app.clock.sleep(duration) => !app.lifecycle.is_stopping(),
        () = app.lifecycle.stopping() => false,
    }
}

/// A tenth more or less, so that replicas started together do not stay in step.
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
        let waits: Vec<_> = (0..9).map(|_| health.fails(&error, 0.999)).collect();
        assert!(waits[0] <= Duration::from_millis(100));
        assert!(waits.is_sorted(), "{waits:?}");
        assert!(waits[8] <= Duration::from_secs(3) && waits[8] > Duration::from_secs(2));
        health.works();
        assert!(health.fails(&error, 0.999) <= Duration::from_millis(100));
    }
}
