#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod db;
mod driver;
mod fault;
mod lock;
mod log_sync;
mod migrate;
mod open;
mod options;
mod readers;
mod schema;
mod split;
mod writer_thread;

/// The store on one SQLite file. The data directory stays locked until the store is dropped and all
/// work in flight has ended.
pub use mainspring_store_core::SqlStore as SqliteStore;
pub use migrate::{MigratePolicy, ddl};
pub use open::{Vacuumed, open, open_read_only, vacuum};
pub use options::SqliteOptions;
