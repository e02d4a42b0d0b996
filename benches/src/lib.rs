#![doc = include_str!("../README.md")]

pub mod client;
pub mod cluster;
pub mod load;
pub mod process;
pub mod servers;
pub mod stats;
mod workloads;

pub use cluster::Options;
pub use workloads::{WORKLOADS, run};
