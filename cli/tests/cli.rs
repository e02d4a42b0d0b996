//! The binary from outside: what it prints, where, and how it ends.

#[path = "cli/agents.rs"]
mod agents;
#[path = "cli/answers.rs"]
mod answers;
#[path = "cli/archives.rs"]
mod archives;
#[path = "cli/bench.rs"]
mod bench;
#[path = "cli/chat.rs"]
mod chat;
#[path = "cli/cluster.rs"]
mod cluster;
#[path = "cli/configuration.rs"]
mod configuration;
#[path = "cli/dev.rs"]
mod dev;
#[path = "cli/docs.rs"]
mod docs;
#[path = "cli/exit_codes.rs"]
mod exit_codes;
#[path = "cli/fake.rs"]
mod fake;
#[path = "cli/logs.rs"]
mod logs;
#[path = "cli/memories.rs"]
mod memories;
#[path = "cli/program.rs"]
mod program;
#[path = "cli/provider_keys.rs"]
mod provider_keys;
#[path = "cli/replies.rs"]
mod replies;
#[path = "cli/runs.rs"]
mod runs;
#[path = "cli/skills.rs"]
mod skills;
#[path = "cli/timers.rs"]
mod timers;
#[path = "cli/transfers.rs"]
mod transfers;
