//! The suite of stores, on each of them.

mod model;
mod mysql;
mod postgres;
mod sqlite;
