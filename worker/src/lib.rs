#![doc = include_str!("../README.md")]

mod admit;
mod boot;
mod cache;
mod checks;
mod config;
mod content;
mod db_retry;
mod dispatched;
mod extracting;
pub mod fold;
pub mod hook;
mod learning;
mod live;
pub mod llm;
#[cfg(test)]
mod manual_clock;
pub mod memory;
mod metrics;
mod money;
mod partial_answer;
mod pauses;
mod preview;
pub mod replay;
mod send;
mod session;
mod signals;
mod slots;
mod strays;
mod suspects;
pub mod tool;
mod worker;
mod writes;

pub use config::{RetrySettings, WorkerConfig};
pub use worker::{Parts, Sources, run, run_counted};

pub(crate) use worker::Kernel;
