//! Stores: what each of them must do, in [`suite`]; and what concerns one of them alone.

mod mysql;
mod placed;
mod postgres;
mod s3;
mod sqlite;
mod suite;
