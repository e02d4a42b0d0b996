#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod open;
mod options;
mod store;

// Nouns and verbs of the port.
mod accept;
mod audit;
mod boots;
mod calls;
mod cancel;
mod claim;
mod complete;
mod deliver;
mod dump;
mod erase;
mod import;
mod inbox;
mod leases;
mod park;
mod post;
mod reads;
mod report;
mod rounds;
mod sends;
mod sessions;
mod sweep;
mod timers;

// What they stand on.
mod fault;
mod hot;
mod lists;
mod lock;
mod migrate;
mod rows;
mod runs;
mod writer;

pub use migrate::{MigratePolicy, ddl};
pub use options::SqliteOptions;
pub use store::SqliteStore;
