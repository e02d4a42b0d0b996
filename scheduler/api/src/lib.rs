#![doc = include_str!("../README.md")]

mod agents;
mod archive;
mod batch;
mod bodies;
mod browsers;
mod calls;
mod choice;
mod connections;
mod context;
mod copies;
mod deliver;
mod events;
mod extract;
mod gate;
mod health;
mod idempotency;
mod input;
mod messages;
mod metrics;
mod openapi;
mod operations;
mod problem;
mod prune;
mod respond;
mod router;
mod run;
mod runs;
mod sends;
mod sessions;
mod skills;
mod timers;
mod usage;
mod validate;
mod waiting;
mod workflows;

pub use run::{Error, OnAccepting, RenderMetrics, Serving, embedded, run};
