//! The store over three databases of the server that `MAINSPRING_TEST_POSTGRES_URL` names. Each test makes its own and
//! drops them; without the variable it says that it is skipped.

mod moves;
mod outages;
mod routes;
mod traffic;
mod world;
