//! The suite of stores, on each of them.

mod model;
mod mysql;
mod placed;
mod postgres;
mod sqlite;
