//! The source of randomness: ids, fencing tokens and jitter.

use std::fmt;

use uuid::Uuid;

/// Provides ids, lease tokens and jitter, so that tests can make them deterministic.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// A UUIDv7 of the current time: new ids sort after older ones, which keeps index inserts at
    /// the right edge of the tree.
    fn ordered_id(&self) -> Uuid;

    /// A UUIDv4: unguessable and unique.
    fn random_id(&self) -> Uuid;

    /// A fraction in `[0, 1)`, uniformly distributed.
    fn fraction(&self) -> f64;
}
