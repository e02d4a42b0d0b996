//! The suite of stores, on each of them.

mod model;
mod postgres;
mod sqlite;
