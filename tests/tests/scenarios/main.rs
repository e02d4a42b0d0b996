//! Sends, sessions, timers and runs through real workers and schedulers in simulated time.

mod agents;
mod answers;
mod blob_faults;
mod blobs;
mod budget;
mod clocks;
mod folding;
mod grants;
mod hooked_context;
mod hooks;
mod hostile;
mod leaves;
mod lives;
mod memory;
mod models;
mod output;
mod pools;
mod positions;
mod preview;
mod run_budgets;
mod runs;
mod sends;
mod skills;
mod timers;
mod tools;
mod truncation;
