#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

// Connecting to Redis.
mod address;
mod examine;
mod hub;
mod link;
mod prefix;
mod refusal;
mod tracked;

// The queue.
mod counts;
mod doorbell;
mod intake;
mod janitor;
mod job;
mod lane;
mod push;
mod queue;
mod scripts;
mod worker;

// The bus.
mod bus;
mod publisher;

pub use address::{Address, AddressError};
pub use bus::RedisBus;
pub use counts::Counts;
pub use examine::{Fault, examine};
pub use prefix::{Prefix, PrefixError};
pub use queue::RedisQueue;
