//! The MySQL store, with a database per test on the server that `MAINSPRING_TEST_MYSQL_URL` names.
//! If there is none, `cargo xtask test` says so.

// The planted violations, and the data they are planted into, are the same as for SQLite.
#[path = "sqlite/audit.rs"]
mod audit;
mod concurrent;
mod connections;
mod locked;
mod opened;
mod proxy;
mod schema;
mod spoilt;
mod statements;
#[path = "sqlite/steps.rs"]
#[expect(dead_code, reason = "what only SQLite's tests use")]
mod steps;
#[path = "sqlite/stopped.rs"]
mod stopped;
#[path = "sqlite/went_back.rs"]
mod went_back;
