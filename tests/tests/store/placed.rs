//! The store over three databases on the server that `MAINSPRING_TEST_POSTGRES_URL` names. Each
//! test creates and drops its own; without the variable it reports that it is skipped.

mod moves;
mod outages;
mod routes;
mod traffic;
mod world;
