//! Configuration: flag over environment over file over defaults.
//!
//! Every key is declared once, in [`keys`], with its kind and bounds; its environment
//! name follows from its path (`worker.concurrency` is `MAINSPRING_WORKER_CONCURRENCY`). Each layer
//! is checked key by key against that table, so that all problems are reported at once and each
//! names where it came from.

mod environment;
mod keys;
mod layers;
mod print;
mod provider;
mod secret;
mod tools;
mod validate;

use std::collections::BTreeMap;
use std::path::PathBuf;

use mainspring_shared::retry::Policy;
use mainspring_shared::time::Span;
use serde::Deserialize;

pub use environment::Environment;
pub use layers::Sources;
pub use provider::{Provider, ProviderKind};
pub use secret::Secret;
pub use tools::{HooksConfig, McpServer, ShellKind, ToolsConfig};
pub use validate::{Backend, Purpose};

/// Everything that a user can decide about a process, checked.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where client commands find a scheduler.
    pub server: String,
    /// The database; its scheme picks the backend. None with the embedded one.
    #[serde(default)]
    pub database_url: Option<Secret>,
    /// Connections to Postgres for what commits synchronously.
    pub database_writers: u32,
    /// Connections to Postgres for claims, sweeps and reads by key.
    pub database_claimers: u32,
    /// Connections to Postgres for streams of events.
    pub database_streamers: u32,
    /// Connections for lists, counts and the audit.
    pub database_readers: u32,
    /// The queue and the bus of live events. None with the in-process ones.
    #[serde(default)]
    pub redis_url: Option<Secret>,
    /// A PEM file with the certificate authorities that sign the certificate of a `rediss://`
    /// server; the public ones when none.
    #[serde(default)]
    pub redis_ca_file: Option<PathBuf>,
    /// Where the embedded database lives.
    pub data_dir: PathBuf,
    /// Where the scheduler serves the API, as `HOST:PORT`.
    pub listen: String,
    /// Where a worker serves `/livez`, `/readyz` and `/metrics`, as `HOST:PORT`; nowhere when none.
    #[serde(default)]
    pub ops_listen: Option<String>,
    /// The process's label for people; made of host and process id when none.
    #[serde(default)]
    pub name: Option<String>,
    /// What a scheduler does about the schema when it starts.
    pub migrate: Migrate,
    /// How long a process keeps its sessions without a renewal.
    pub lease_ttl: Span,
    /// How often a scheduler looks for sessions that nobody works on.
    pub sweep_interval: Span,
    /// Which log lines appear: `info`, or `warn,mainspring_worker=debug`, …
    pub log: String,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Where traces go over OTLP/HTTP; nowhere when none.
    #[serde(default)]
    pub otlp_endpoint: Option<String>,
    /// Bounds of the scheduler.
    pub scheduler: SchedulerConfig,
    /// Bounds of the worker.
    pub worker: WorkerConfig,
    /// How a failed model call is tried again.
    pub retry: RetryConfig,
    /// The default provider, for models without a provider's name.
    pub llm: Provider,
    /// Further providers by name, for models named `NAME/model`.
    #[serde(default)]
    pub providers: BTreeMap<String, Provider>,
    /// What models cost, for budgets in dollars: `MODEL=INPUT/OUTPUT[/CACHED]`, US dollars for a
    /// million tokens.
    pub prices: Vec<String>,
    /// What tools may use.
    pub tools: ToolsConfig,
    /// Policies that are asked before something happens.
    pub hooks: HooksConfig,
    /// MCP servers by name.
    #[serde(default)]
    pub mcp: BTreeMap<String, McpServer>,
    /// What [`print`](Self::print) shows.
    #[serde(skip)]
    printed: String,
    /// Whether nothing decided on the default provider.
    #[serde(skip)]
    provider_by_default: bool,
}

impl Config {
    /// The configuration as a file would hold it, each value with where it came from, without
    /// what is secret.
    pub fn print(&self) -> &str {
        &self.printed
    }

    /// Whether no provider of models is configured at all, so that the built-in one would answer.
    pub fn has_no_provider(&self) -> bool {
        self.provider_by_default && self.providers.is_empty()
    }
}

/// What a scheduler does about the schema when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Migrate {
    /// Brings it up.
    Create,
    /// Refuses to start unless it is up.
    Verify,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Pretty,
    /// One JSON object a line.
    Json,
}

/// Bounds of the scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerConfig {
    /// Sessions that became ready more recently were just rung for, and are not swept.
    pub sweep_age: Span,
    /// Jobs in a lane above which it is not swept.
    pub sweep_depth_low: u64,
    /// Jobs in a lane at which a sweep stops feeding it.
    pub sweep_depth_high: u64,
    /// The longest pause between two looks at what is due.
    pub alarm_interval: Span,
    /// The longest pause between two looks at the timers.
    pub timer_interval: Span,
    /// How long occurrences of timers, and timers that ended, are kept.
    pub timer_keep: Span,
    /// Pause between two rounds of retention.
    pub retention_interval: Span,
    /// How long an idempotency key is remembered.
    pub idempotency_keep: Span,
    /// How long sends are kept after their end; for ever when none.
    #[serde(default)]
    pub send_keep: Option<Span>,
    /// How long runs are kept after their end, with their leaves; for ever when none.
    #[serde(default)]
    pub run_keep: Option<Span>,
    /// Names that clients call this server by, beyond those that no stranger can own.
    pub allowed_hosts: Vec<String>,
    /// Origins whose web pages may use this server.
    pub allowed_origins: Vec<String>,
    /// Connections at once.
    pub connections_max: usize,
    /// How long a connection may take to bring the head of a request.
    pub head_timeout: Span,
    /// Bytes that a request's head may have.
    pub head_bytes_max: usize,
    /// How long a client may take nothing of its answer.
    pub write_timeout: Span,
    /// Bytes that the bodies of all requests under way may have together.
    pub bodies_bytes_max: usize,
    /// Bytes that a request's body may have.
    pub body_bytes_max: usize,
    /// Bytes that a batch's body may have.
    pub batch_bytes_max: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Span,
    /// Bytes at which a page of a list ends.
    pub page_bytes_max: usize,
    /// Sends that a batch may have.
    pub batch_sends_max: usize,
    /// Sends of a batch that share one transaction.
    pub batch_group_max: usize,
    /// Bytes of sends that share one transaction.
    pub group_bytes_max: usize,
    /// The longest `?wait`.
    pub wait_max: Span,
    /// Requests under way at once, but for those that wait or stream.
    pub requests_max: usize,
    /// Requests that wait or stream at once.
    pub waiters_max: usize,
    /// Sends on their way into the database at once.
    pub accepting_max: usize,
    /// Sends of one session that may be queued at once.
    pub queued_max: i64,
    /// Leaves that all runs of workflows may have under way together; 0 for no limit.
    pub leaves_max: u32,
    /// Pause between two comments on an event stream.
    pub heartbeat: Span,
    /// How long a stop waits for requests and streams under way.
    pub drain_timeout: Span,
}

/// Bounds of the worker.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerConfig {
    /// Sends in flight.
    pub concurrency: u32,
    /// The pool whose sessions it serves.
    pub pool: String,
    /// How long a stop waits for rounds under way before it gives their leases back.
    pub drain_timeout: Span,
    /// How often the database is asked for work while the queue is away.
    pub poll_interval: Span,
    /// Waits longer than this park the send as a row.
    pub hold_max: Span,
    /// Deaths of workers under one send, without a durable step between, that end it.
    pub crashes_max: u32,
    /// Model calls begun in one round before an interruption ends its send.
    pub attempts_max: u32,
    /// Sends of one session in a row before others get their turn.
    pub sends_in_a_row_max: u32,
    /// Bytes of messages that share one transaction.
    pub group_bytes_max: usize,
    /// Bytes of windows that are kept for sessions between their sends.
    pub cache_bytes_max: usize,
}

/// How a failed model call is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryConfig {
    /// Calls in all, the first included.
    pub attempts_max: u32,
    /// The upper bound of the first wait; it doubles with each failure.
    pub base: Span,
    /// No drawn wait is longer.
    pub cap: Span,
    /// No wait that a provider asks for is longer.
    pub after_max: Span,
}

impl RetryConfig {
    /// The same as the rule that applies it.
    pub fn policy(&self) -> Policy {
        Policy {
            attempts_max: self.attempts_max,
            base: self.base.0,
            cap: self.cap.0,
            retry_after_max: self.after_max.0,
        }
    }
}

/// One thing that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What kind of problem, never renamed: `config.unknown_key`, `config.invalid_value`,
    /// `config.missing`, `config.unsupported` or `config.unreadable`.
    pub code: &'static str,
    /// The flag, variable or file that said it.
    pub origin: String,
    /// What is wrong and what to write instead. Never a secret's value.
    pub detail: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} [{}]", self.origin, self.detail, self.code)
    }
}

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Problems(pub Vec<Problem>);

fn lines(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod schema;
#[cfg(test)]
mod tests;
