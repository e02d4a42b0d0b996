//! Store tests: [`suite`] holds what every store must do, the other modules cover one store each.

#![expect(
    clippy::duplicate_mod,
    reason = "the planted violations of SQLite and MySQL are the same; each opens the store beside it"
)]

mod mysql;
mod placed;
mod postgres;
mod s3;
mod spoilt;
mod sqlite;
mod suite;
