//! The gate a process passes before doing anything visible outside it: closed while the process is
//! stopped, and for good once it is dead.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use mainspring_shared::time::{Clock, Timestamp};
use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Paused,
    Dead,
}

/// The gate of one process. Clones share the same gate.
#[derive(Debug, Clone)]
pub(super) struct Gate(Arc<(Mutex<State>, Notify)>);

impl Gate {
    pub(super) fn new() -> Self {
        Self(Arc::new((Mutex::new(State::Open), Notify::new())))
    }

    fn state(&self) -> State {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        let mut now = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *now != State::Dead {
            *now = state;
        }
        self.0.1.notify_waiters();
    }

    /// Stops the process as `SIGKILL` does.
    pub(super) fn kill(&self) {
        self.set(State::Dead);
    }

    /// Stops the process as `SIGSTOP` does.
    pub(super) fn pause(&self) {
        self.set(State::Paused);
    }

    /// Resumes a paused process.
    pub(super) fn wake(&self) {
        self.set(State::Open);
    }

    pub(super) fn is_open(&self) -> bool {
        self.state() == State::Open
    }

    pub(super) fn is_dead(&self) -> bool {
        self.state() == State::Dead
    }

    /// Returns once the process is running; never if it is dead.
    pub(super) async fn pass(&self) {
        loop {
            let changed = self.0.1.notified();
            if self.is_open() {
                return;
            }
            changed.await;
        }
    }
}

/// Tokio's paused clock, counted from the start of the world.
#[derive(Debug, Clone, Copy)]
pub(super) struct Virtual {
    start: tokio::time::Instant,
}

impl Virtual {
    pub(super) fn new() -> Self {
        Self {
            start: tokio::time::Instant::now(),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn ms(&self) -> u64 {
        self.elapsed().as_millis() as u64
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this clock is tokio's simulated one"
    )]
    pub(super) async fn sleep(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

/// An arbitrary epoch: nothing may depend on the date.
pub(super) const EPOCH_MS: i64 = 1_700_000_000_000;

/// The clock of one process: its wall time may be wrong, and a stopped process does not wake up.
#[derive(Debug)]
pub(super) struct ProcessClock {
    pub(super) time: Virtual,
    pub(super) gate: Gate,
    pub(super) skew_ms: Arc<std::sync::atomic::AtomicI64>,
}

#[async_trait]
impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        let skew = self.skew_ms.load(std::sync::atomic::Ordering::SeqCst);
        Timestamp(EPOCH_MS + skew).after(self.time.elapsed())
    }

    fn monotonic(&self) -> Duration {
        self.time.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        self.gate.pass().await;
        self.time.sleep(duration.as_millis() as u64).await;
        self.gate.pass().await;
    }
}
