//! mainspring-tests

pub mod databases;
pub mod fake_model;
pub mod faults;
pub mod history;
pub mod pairing;
pub mod simulation;
pub mod suites;
pub mod world;
