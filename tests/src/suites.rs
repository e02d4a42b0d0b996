//! One test suite per port: plain cases over the trait, run by every backend.

pub mod queue;
pub mod store;
