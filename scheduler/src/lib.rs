#![doc = include_str!("../README.md")]

// What comes in.
mod api;
mod connections;

// What requests and loops have done for them: accepting sends, notifying the workers, watching what
// happens, streams of events, this process's registration.
mod error;
mod services;

// What runs by itself: `loops::sweep` enqueues forgotten sessions again, `loops::alarms` serves what
// is due, `loops::timers` fires timers, `loops::retention` removes what is over, `deleting` what
// deleted sessions leave behind.
mod deleting;
mod known_tools;
mod loops;

// Runs of workflows, as pure decisions.
pub mod engine;

// How it all hangs together.
mod app;
mod config;
mod metrics;
mod run;

pub use app::{OnAccepting, Parts, RenderMetrics};
pub use config::SchedulerConfig;
pub use run::{Error, embedded, run};
