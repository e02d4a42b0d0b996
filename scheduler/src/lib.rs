#![doc = include_str!("../README.md")]

// Services shared by requests and loops: accepting sends, notifying workers, waiting for sends and
// runs, event streams, this process's registration.
pub mod error;
pub mod services;

// Background work: `loops::runs` advances workflow runs, `loops::timers` fires timers,
// `loops::sweep` re-enqueues unclaimed sessions, `loops::alarms` handles delays, retries and
// deadlines, `loops::retention` removes old rows, and `deleting` removes the rows of deleted
// sessions.
pub mod deleting;
mod known_tools;
mod loops;

// The engine of workflow runs, without I/O.
pub mod engine;
mod off_thread;

// Wiring.
mod app;
mod config;
mod metrics;
mod run;

pub use app::{App, Known, Outside, Parts, Process, each};
pub use config::SchedulerConfig;
pub use run::{Loops, start};
