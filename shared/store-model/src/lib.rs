#![doc = include_str!("../README.md")]
#![warn(missing_docs, clippy::wildcard_enum_match_arm)]
#![deny(clippy::disallowed_types)]

// The content, and the effects of every step on it.
mod calls;
mod session;
mod state;

// The domain steps, by noun.
mod agents;
mod blobs;
mod boots;
mod calibrations;
mod children;
mod claim;
mod extractions;
mod inbox;
mod keys;
mod leases;
mod lists;
mod mcp_lists;
mod memories;
mod money;
mod pauses;
mod posts;
mod provider_keys;
mod reads;
mod runs;
mod seats;
mod sends;
mod sessions;
mod skills;
mod sweeps;
mod tenant_erasures;
mod tenants;
mod timers;
mod webhooks;

// The invariants, and the port.
mod audit;
mod memory;

pub use audit::audit;
pub use memory::ModelStore;
