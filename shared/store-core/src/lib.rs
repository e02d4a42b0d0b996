#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

// The port to a database.
pub mod db;
pub mod fault;
mod migrations;
mod query;
mod row;
mod silence;
mod value;

mod store;

// The nouns and verbs of the store.
mod accept;
mod agents;
mod audit;
mod audit_pieces;
mod blobs;
mod boots;
mod calibrations;
mod calls;
mod cancel;
mod claim;
mod complete;
mod deliver;
mod dump;
mod erase;
mod extractions;
mod import;
mod inbox;
mod keys;
mod lease_marks;
mod leases;
mod mcp_lists;
mod memories;
mod money;
mod park;
mod pauses;
mod places;
mod post;
mod projections;
mod provider_keys;
mod reads;
mod report;
mod rounds;
mod seats;
mod sends;
mod sessions;
mod skills;
mod sweep;
mod tenant_erasures;
mod tenants;
mod timers;
mod webhooks;

// Shared by the above.
mod folds;
mod hot;
mod lists;
mod rows;
mod runs;

pub use lease_marks::{FoundLease, LeaseMarks};
pub use migrations::ddl;
pub use row::{Columns, Row};
pub use silence::SilentConnections;
pub use store::{SqlStore, pause};
pub use value::Value;
