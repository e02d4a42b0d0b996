//! A manual clock for tests.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::time::{Clock, Timestamp};

/// A clock that is set by hand. Sleeping on it never ends.
#[derive(Debug, Default)]
pub(crate) struct ManualClock(Mutex<Duration>);

impl ManualClock {
    /// Sets the time.
    pub(crate) fn at(&self, time: Duration) {
        *self.0.lock().expect("nobody panics with it") = time;
    }

    /// Advances the time.
    pub(crate) fn pass(&self, time: Duration) {
        *self.0.lock().expect("nobody panics with it") += time;
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn monotonic(&self) -> Duration {
        *self.0.lock().expect("nobody panics with it")
    }

    async fn sleep(&self, _: Duration) {
        std::future::pending::<()>().await;
    }
}
