//! mainspring-tests

pub mod fake_model;
pub mod world;
