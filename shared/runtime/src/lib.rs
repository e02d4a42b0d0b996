#![doc = include_str!("../README.md")]

mod clock;
mod entropy;
mod group;
mod lifecycle;

pub use clock::SystemClock;
pub use entropy::OsEntropy;
pub use group::{GROUP_MAX, Group, GroupEnded};
pub use lifecycle::Lifecycle;
