//! mainspring-tests

pub mod fake_model;
pub mod faults;
pub mod pairing;
pub mod suites;
pub mod world;
