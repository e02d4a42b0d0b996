#![doc = include_str!("../README.md")]
#![warn(missing_docs, clippy::wildcard_enum_match_arm)]
#![deny(clippy::disallowed_types)]

mod named;

// Domain types.
pub mod agent;
pub mod budget;
pub mod entropy;
pub mod error;
pub mod event;
pub mod id;
pub mod inbox;
pub mod journal;
pub mod json;
pub mod lease;
pub mod list;
pub mod message;
pub mod model;
pub mod pause;
pub mod provider_key;
pub mod session;
pub mod skill;
pub mod step;
pub mod stored;
pub mod tenant;
pub mod time;
pub mod tool;
pub mod usage;
pub mod webhook;
pub mod workflow;

// Pure logic.
pub mod invariants;
pub mod retry;
pub mod secrets;
pub mod send;
pub mod timer;
pub mod wording;
pub mod words;

// Ports.
pub mod blob;
pub mod bus;
pub mod dispatch;
pub mod memory;
pub mod queue;
pub mod store;
