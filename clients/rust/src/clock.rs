//! Time and chance: the only place of this crate that has them.

use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

#[expect(
    clippy::disallowed_methods,
    reason = "a client has the time of its machine"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "as above")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

#[expect(clippy::disallowed_methods, reason = "as above")]
pub(crate) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// An idempotency key that nobody else has.
pub(crate) fn key() -> String {
    random().to_string()
}

/// From 0 to 1.
pub(crate) fn fraction() -> f64 {
    // Those bits of a random id that are random.
    (random().as_u128() & 0xffff_ffff) as f64 / f64::from(u32::MAX)
}

#[expect(clippy::disallowed_methods, reason = "a client has its own chance")]
fn random() -> Uuid {
    Uuid::new_v4()
}
