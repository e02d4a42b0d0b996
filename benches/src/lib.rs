#![doc = include_str!("../README.md")]

pub mod client;
pub mod load;
pub mod process;
pub mod servers;
pub mod stand;
pub mod stats;
mod workloads;

pub use stand::Options;
pub use workloads::{WORKLOADS, run};
