//! The real program, from the command line and over HTTP down to the model's wire. Tests that kill
//! processes across workers have the machine to themselves; the others run concurrently.

mod agent;
mod canaries;
mod checkpoint;
mod commands;
mod conversation;
mod crowd;
mod daily_report;
mod examples;
mod fake_model;
mod hostile;
mod inbox;
mod isolation;
mod journal;
mod long_memory;
mod malformed;
mod own_secrets;
mod row_security;
mod runs;
mod spans_off;
mod storm;
mod telemetry;
mod tls;
mod tools;
