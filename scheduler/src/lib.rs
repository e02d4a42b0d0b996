#![doc = include_str!("../README.md")]

// What requests and loops have done for them: accepting sends, notifying the workers, watching what
// happens, streams of events, this process's registration.
pub mod error;
pub mod services;

// What runs by itself: `loops::sweep` enqueues forgotten sessions again, `loops::alarms` serves what
// is due, `loops::timers` fires timers, `loops::retention` removes what is over, `deleting` what
// deleted sessions leave behind.
pub mod deleting;
mod known_tools;
mod loops;

// Runs of workflows, as pure decisions.
pub mod engine;

// How it all hangs together.
mod app;
mod config;
mod metrics;
mod run;

pub use app::{App, Parts, each};
pub use config::SchedulerConfig;
pub use run::{Loops, start};
