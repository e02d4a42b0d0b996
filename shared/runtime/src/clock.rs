//! The system clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use mainspring_shared::time::{Clock, Timestamp};

/// The operating system's clocks. Where supported, its monotonic time includes the time for which
/// the machine was suspended, since leases expire during that as well.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Duration,
}

#[cfg(target_os = "linux")]
fn uptime() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let secs = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(not(target_os = "linux"))]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one source of monotonic time"
)]
fn uptime() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

impl SystemClock {
    /// A clock whose monotonic reading starts now.
    pub fn new() -> Self {
        Self { start: uptime() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one source of wall-clock time"
    )]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        uptime().saturating_sub(self.start)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that waits"
    )]
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}
