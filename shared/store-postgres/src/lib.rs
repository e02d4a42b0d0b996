#![doc = include_str!("../README.md")]
#![warn(missing_docs, clippy::wildcard_enum_match_arm)]

// Settings, and the implementation of the store port.
mod settings;
mod store;

// The steps of the port, by noun.
mod accept;
mod agents;
mod blobs;
mod boots;
mod calibrations;
mod calls;
mod cancel;
mod claim;
mod complete;
mod deliver;
mod extractions;
mod import;
mod keys;
mod leases;
mod lists;
mod mcp_lists;
mod memories;
mod park;
mod pauses;
mod provider_keys;
mod reads;
mod recent;
mod report;
mod rounds;
mod seats;
mod sends;
mod server;
mod sessions;
mod skills;
mod sweep;
mod tenant_erasures;
mod tenants;
mod timers;
mod webhooks;

// Invariants, dumps and erasure.
mod audit;
mod audit_pieces;
mod dump;
mod erase;

// Several databases: the fence between them, and moving a tenant from one to another.
mod fault;
mod fence;
mod fitness;
mod moving;
mod placements;

// Shared parts: groups of items, transactions over several rows, rows and columns, faults.
mod columns;
mod folds;
mod group;
mod ledger;
mod migrate;
mod money;
mod pieces;
mod places;
mod projections;
mod retry;
mod row_security;
mod rows;
mod runs;
mod schema;

pub use fault::TooManyConnections;
pub use fence::ddl as fence_ddl;
pub use migrate::ddl;
pub use moving::{Copied, MovedTable};
pub use row_security::ddl as row_security_ddl;
pub use settings::{SchemaPolicy, Settings};
pub use store::PostgresStore;
