//! The store on a real Postgres. Each test creates and drops a database of its own on the server
//! that `MAINSPRING_TEST_POSTGRES_URL` names; without the variable it reports that it is skipped.

mod accepts;
mod audit;
mod durable;
mod faults;
mod fit;
mod lists;
mod locked;
mod lossy_proxy;
mod lost;
mod namespaces;
mod order;
mod pooled;
mod races;
mod row_security;
mod schema;
mod spoilt;
mod text;
mod tools;
mod traffic;
mod unreadable;
mod vectors;
mod waits;
mod went_back;
mod world;
