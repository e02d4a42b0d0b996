//! The store suite, run against each store.

mod model;
mod mysql;
mod placed;
mod postgres;
mod sqlite;
