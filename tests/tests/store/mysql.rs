//! The store on a database of its own per test, on the server of `MAINSPRING_TEST_MYSQL_URL`. Where
//! there is none, `cargo xtask test` says so.

// What is planted behind the store's back, and what it is planted into, is the same in SQLite.
#[path = "sqlite/audit.rs"]
mod audit;
mod concurrent;
#[path = "../../../shared/store-mysql/src/dialect.rs"]
#[expect(dead_code, reason = "what only the store itself uses")]
mod dialect;
mod locked;
mod opened;
mod schema;
mod statements;
#[path = "sqlite/steps.rs"]
#[expect(dead_code, reason = "what only SQLite's tests use")]
mod steps;
