//! The testkit: simulated worlds, a fake model, suites for stores and queues, fault injection,
//! simulation.

pub mod databases;
pub mod fake_model;
pub mod faults;
pub mod history;
pub mod pairing;
pub mod simulation;
pub mod suites;
pub mod world;
