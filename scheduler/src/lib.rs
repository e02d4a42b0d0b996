#![doc = include_str!("../README.md")]

// What comes in.
mod accept;
mod api;
mod connections;
mod ring;

// Who waits for what.
mod stream;
mod watch;

// What runs by itself: `boot` renews this process's life, `loops::sweep` rings for forgotten
// sessions, `loops::alarms` serves what is due, `loops::timers` fires timers, `loops::retention`
// removes what is over, `deleting` what deleted sessions leave behind.
mod boot;
mod deleting;
mod known_tools;
mod loops;

// Runs of workflows, as pure decisions.
pub mod engine;

// How it all hangs together.
mod app;
mod config;
mod error;
mod metrics;
mod run;

pub use app::{OnAccepting, Parts, RenderMetrics};
pub use config::SchedulerConfig;
pub use run::{Error, embedded, run};
