//! Store tests: [`suite`] holds what every store must do, the other modules cover one store each.

mod mysql;
mod placed;
mod postgres;
mod s3;
mod sqlite;
mod suite;
