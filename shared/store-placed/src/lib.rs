#![doc = include_str!("../README.md")]
#![warn(missing_docs, clippy::wildcard_enum_match_arm)]

mod catalogue;
mod merge;
mod mover;
mod place;
mod store;

// The port's methods, by how they find their database.
mod routes {
    pub(crate) mod boots;
    pub(crate) mod by_tenant;
    pub(crate) mod claims;
    pub(crate) mod erasures;
    pub(crate) mod everywhere;
    pub(crate) mod groups;
    pub(crate) mod pauses;
    pub(crate) mod tenants;
}

pub use mover::{MoveError, Moved, Mover, Step};
pub use place::Database;
pub use store::PlacedStore;

/// Counter: calls to one of several databases that failed because it is unavailable, by `place`.
pub const PLACE_FAILURES: &str = "mainspring_place_failures_total";
