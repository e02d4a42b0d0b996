//! The source of chance: ids, fences and jitter.

use std::fmt;

use uuid::Uuid;

/// Where ids, lease tokens and jitter come from, so that tests can repeat them.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// A UUIDv7 of the present moment: new ids sort behind older ones, which keeps index inserts
    /// at the right edge of the tree.
    fn ordered_id(&self) -> Uuid;

    /// A UUIDv4: nothing about it can be guessed or repeats.
    fn random_id(&self) -> Uuid;

    /// A fraction in `[0, 1)`, evenly spread.
    fn fraction(&self) -> f64;
}
