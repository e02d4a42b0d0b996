//! The store on a real Postgres. Each test makes a database of its own at the server that
//! `MAINSPRING_TEST_POSTGRES_URL` names, and drops it; without the variable it says that it is
//! skipped.

mod accept;
mod alarms;
mod audit;
mod calls;
mod cancel;
mod children;
mod faults;
mod inbox;
mod leases;
mod lists;
mod locked;
mod lost;
mod order;
mod schema;
mod sessions;
mod tools;
mod traffic;
mod unreadable;
mod waits;
mod wire;
mod world;
