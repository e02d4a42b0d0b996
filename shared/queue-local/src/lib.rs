#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod bus;
mod pool;
mod queue;
mod worker;

pub use bus::LocalBus;
pub use queue::LocalQueue;
