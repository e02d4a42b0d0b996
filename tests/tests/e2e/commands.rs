//! The binary from the outside: what it prints, where, and its exit codes.

mod agents;
mod answers;
mod archives;
mod bench;
mod chat;
mod cluster;
mod configuration;
mod dev;
mod docs;
mod exit_codes;
mod fake;
mod imports;
mod inbox;
mod logs;
mod memories;
mod program;
mod prove;
mod provider_keys;
mod replies;
mod runs;
mod secrets;
mod skills;
mod terminal;
mod timers;
mod top;
mod transfers;
