//! mainspring-tests

pub mod fake_model;
pub mod suites;
pub mod world;
