//! The store on a real Postgres. Each test makes a database of its own at the server that
//! `MAINSPRING_TEST_POSTGRES_URL` names, and drops it; without the variable it says that it is
//! skipped.

mod accepts;
mod audit;
mod durable;
mod faults;
mod lists;
mod locked;
mod lost;
mod namespaces;
mod order;
mod races;
mod row_security;
mod schema;
mod text;
mod tools;
mod traffic;
mod unreadable;
mod vectors;
mod waits;
mod wire;
mod world;
