//! A clock of tests.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::time::{Clock, Timestamp};

/// A clock that is moved by hand. Whoever sleeps by it does so for ever.
#[derive(Debug, Default)]
pub(crate) struct Hand(Mutex<Duration>);

impl Hand {
    /// Moves it to a time.
    pub(crate) fn at(&self, time: Duration) {
        *self.0.lock().expect("nobody panics with it") = time;
    }

    /// Moves it on.
    pub(crate) fn pass(&self, time: Duration) {
        *self.0.lock().expect("nobody panics with it") += time;
    }
}

#[async_trait]
impl Clock for Hand {
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
