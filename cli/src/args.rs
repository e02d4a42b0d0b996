//! The command line.

mod agents;
mod imports;
mod inbox;
mod lists;
mod memories;
mod pauses;
mod prove;
mod provider_keys;
mod replay;
mod runs;
mod secrets;
mod sends;
mod sessions;
mod skills;
mod tenants;
mod timers;
mod tools;
mod top;
mod webhooks;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use mainspring_shared::time::Span;

pub(crate) use self::agents::{AgentsCommand, ApplyArgs};
pub(crate) use self::imports::{ImportArgs, ImportFrom};
pub(crate) use self::inbox::{InboxArgs, InboxCommand};
pub(crate) use self::lists::{CreatedArgs, PageArgs};
pub(crate) use self::memories::MemoriesCommand;
pub(crate) use self::pauses::{PauseArgs, PausedArgs, PausedKind};
pub(crate) use self::prove::{ProofName, ProveArgs};
pub(crate) use self::provider_keys::ProviderKeysCommand;
pub(crate) use self::replay::ReplayArgs;
pub(crate) use self::runs::{RunArgs, RunsCommand};
pub(crate) use self::secrets::SecretsCommand;
pub(crate) use self::sends::{SendsCommand, Verdict};
pub(crate) use self::sessions::{PruneArgs, SessionsCommand};
pub(crate) use self::skills::SkillsCommand;
pub(crate) use self::tenants::{BindingArgs, KeysCommand, TenantsCommand, TermsArgs};
pub(crate) use self::timers::{RuleArgs, TimersCommand};
pub(crate) use self::tools::{ImportToolsArgs, ToolsCommand};
pub(crate) use self::top::TopArgs;
pub(crate) use self::webhooks::WebhooksCommand;

const EXIT_CODES: &str = "\
Exit codes: 0 success, 1 failure, 2 invalid command or request, 3 not found, 4 conflict,
5 not allowed, 6 unavailable or timed out, 7 the send or run failed, 8 it was cancelled";

/// Runs LLM agents as durable, distributed work.
#[derive(Debug, Parser)]
#[command(
    name = "mainspring",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Reads settings from this file (TOML) [env: MAINSPRING_CONFIG]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub(crate) config: Option<PathBuf>,

    /// Prints the effective settings and the source of each, without secrets, and exits
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) print_config: bool,

    /// URL of the scheduler for client commands [env: MAINSPRING_SERVER]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub(crate) server: Option<String>,

    /// Tenant that client commands of an operator act for [env: MAINSPRING_TENANT]
    #[arg(
        long,
        global = true,
        value_name = "ID",
        help_heading = "Global options"
    )]
    pub(crate) tenant: Option<String>,

    /// Output format
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "table"
    )]
    #[arg(help_heading = "Global options")]
    pub(crate) output: Format,

    /// The command; optional only with `--print-config`.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// One JSON document
    Json,
    /// One JSON document per line
    Jsonl,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs everything in one process, on SQLite: start here
    Dev(DevArgs),
    /// Serves the API and schedules work; run one or more
    Scheduler(SchedulerArgs),
    /// Runs agents; run as many as you need
    Worker(WorkerArgs),
    /// Runs both roles in one process, on any database; Redis is needed only with several processes
    Serve(ServeArgs),
    /// Migrates the database schema, or prints the statements
    Migrate(MigrateArgs),
    /// Returns the space of deleted rows to the disk, on SQLite; nothing else may use the folder
    Vacuum(VacuumArgs),

    /// Sends a text to a session; creates one unless --session is given
    Send(SendArgs),
    /// Chats with an agent: reads lines, streams the replies
    Chat(ChatArgs),
    /// Runs a workflow and waits for it: on the server that --server names or that uses the data folder, otherwise in
    /// this process
    Run(RunArgs),
    /// Lists, shows, follows, cancels and retries workflow runs
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Lists, shows, follows, copies, closes and deletes sessions
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Lists, shows, follows and cancels sends
    #[command(subcommand)]
    Sends(SendsCommand),
    /// Lists calls that wait for a response: questions, approvals, external tools
    Calls {
        /// A send, or a session including its sub-agents
        id: String,
    },
    /// Lists and answers the open questions, approvals and external calls of all sessions
    #[command(args_conflicts_with_subcommands = true)]
    Inbox {
        #[command(subcommand)]
        command: Option<InboxCommand>,
        #[command(flatten)]
        list: InboxArgs,
    },
    /// Publishes agents under names, and lists, shows, compares and archives them
    #[command(subcommand)]
    Agents(AgentsCommand),
    /// Lists, shows, creates, changes, fires, pauses, resumes and cancels timers
    #[command(subcommand)]
    Timers(TimersCommand),
    /// Publishes, lists, shows, reads, removes and checks skills
    #[command(subcommand)]
    Skills(SkillsCommand),
    /// Lists, searches, changes, exports and erases what agents remember
    #[command(subcommand)]
    Memories(MemoriesCommand),
    /// Exports the skills, agents, memory and sessions of a tenant as JSON lines
    Export {
        /// File to write instead of stdout; replaced only once the export is complete
        file: Option<PathBuf>,
        /// Leaves out sessions and the pictures, files and long outputs that they refer to
        #[arg(long)]
        no_sessions: bool,
    },
    /// Imports a tenant's export, or conversations of another system; what already exists is not changed
    #[command(subcommand_negates_reqs = true)]
    Import {
        /// The export; - reads it from stdin
        #[arg(required = true)]
        file: Option<PathBuf>,
        #[command(subcommand)]
        from: Option<ImportFrom>,
    },
    /// Lists, creates, rotates and revokes API keys
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Sets, lists and removes a tenant's own keys for model providers
    #[command(subcommand)]
    ProviderKeys(ProviderKeysCommand),
    /// Sets, lists and removes secrets of a tenant for its HTTP tools
    #[command(subcommand)]
    Secrets(SecretsCommand),
    /// Lists, shows, creates, updates and deletes tenants
    #[command(subcommand)]
    Tenants(TenantsCommand),
    /// Erases the tenant given by --tenant with all its data
    Erase {
        /// The tenant's name, to confirm the id
        name: String,
        /// Returns once the erasure has started
        #[arg(long)]
        no_wait: bool,
    },
    /// Creates, changes and deletes webhooks, lists and repeats their deliveries
    #[command(subcommand)]
    Webhooks(WebhooksCommand),
    /// Pauses a tenant, an agent, a provider, a tool or a pool: work that needs it waits
    Pause(PauseArgs),
    /// Resumes what was paused
    Resume(PausedArgs),
    /// Lists what is paused
    Pauses {
        #[command(flatten)]
        page: PageArgs,
    },
    /// Lists and shows live workers
    Workers {
        #[command(subcommand)]
        command: Option<WorkersCommand>,
    },
    /// Shows pending and running sends by pool
    Queue,
    /// Shows pools, workers, open sends and today's usage, again and again; q ends it
    Top(TopArgs),

    /// Checks the database against every invariant; prints violations and exits with 1
    Audit(AuditArgs),
    /// Rebuilds the requests of recorded rounds and shows differences; exits with 1 if there are any
    Diff(DiffArgs),
    /// Prints a journal, session by session: accepted sends, rounds, calls, folds, outcomes
    Replay(ReplayArgs),
    /// Checks the configuration, database, schema, workers, Redis, providers, MCP servers and clock
    Doctor(DoctorArgs),
    /// Lists built-in tools with their presets and requirements, or makes tools of an API
    #[command(args_conflicts_with_subcommands = true)]
    Tools {
        #[command(subcommand)]
        command: Option<ToolsCommand>,
        /// Lists the tools of the server's workers instead, by pool
        #[arg(long)]
        workers: bool,
    },
    /// Prints the key that a receiver of signed requests verifies them with
    SigningKey(SigningKeyArgs),
    /// Prints every configuration key with its description and default
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Does harm to processes of its own and compares what clients were told with what happened; exits with 1 if a promise
    /// was broken
    Prove(ProveArgs),
    /// Runs a benchmark; prints one line of JSON per measurement
    Bench(BenchArgs),
    /// Runs tool calls for a worker over stdin and stdout
    #[command(hide = true)]
    RunTools,
    /// Prints a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Writes a man page for each command
    Man {
        /// Folder to write to; made if it is missing
        folder: PathBuf,
    },
}

impl Command {
    /// Whether the command runs a server rather than a client.
    pub(crate) fn serves(&self) -> bool {
        matches!(
            self,
            Self::Dev(_) | Self::Scheduler(_) | Self::Worker(_) | Self::Serve(_)
        )
    }

    /// The role that the process reports in traces.
    pub(crate) fn role(&self) -> &'static str {
        match self {
            Self::Dev(_) => "dev",
            Self::Scheduler(_) => "scheduler",
            Self::Worker(_) => "worker",
            Self::Serve(_) => "serve",
            _ => "cli",
        }
    }
}

/// Which key: the one that is the same for all tenants, or with `--tenant` that tenant's own.
#[derive(Debug, Args)]
pub(crate) struct SigningKeyArgs {
    /// What the receiver is asked for
    pub(crate) kind: SignedKind,
    /// The receiver's URL, of which scheme, host and port count
    #[arg(value_name = "RECEIVER")]
    pub(crate) url: String,
}

/// What a receiver of signed requests is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SignedKind {
    /// Calls of HTTP tools, and folds
    Tool,
    /// The memory of agents, `[memory.NAME]`
    Memory,
    /// Decisions, `[hooks]`
    Policy,
    /// Events, `[hooks]`
    Event,
}

impl From<SignedKind> for mainspring_tools::http::Kind {
    fn from(kind: SignedKind) -> Self {
        match kind {
            SignedKind::Tool => Self::Tool,
            SignedKind::Memory => Self::Memory,
            SignedKind::Policy => Self::Policy,
            SignedKind::Event => Self::Event,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Address to serve the API on [env: MAINSPRING_LISTEN] [default: 127.0.0.1:7464]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Folder of the database [env: MAINSPRING_DATA_DIR] [default: ./mainspring-data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
    /// Database URL, postgres://…, mysql://… or sqlite://…, instead of a database in the folder
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,
    /// Serves every client that can reach the address, without API keys [env: MAINSPRING_INSECURE]
    #[arg(long)]
    pub(crate) insecure: bool,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SchedulerArgs {
    #[command(flatten)]
    pub(crate) schedules: SchedulesArgs,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) schedules: SchedulesArgs,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

/// Arguments of processes that serve the API.
#[derive(Debug, Args)]
pub(crate) struct SchedulesArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// Address to serve the API on [env: MAINSPRING_LISTEN] [default: 127.0.0.1:7464]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Serves every client that can reach the address, without API keys [env: MAINSPRING_INSECURE]
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Whether to migrate the schema at start or to refuse to start on an old one
    /// [env: MAINSPRING_MIGRATE]
    /// [default: create]
    #[arg(long, value_name = "POLICY", value_parser = ["create", "verify"])]
    pub(crate) migrate: Option<String>,
    /// Interval between sweeps for sessions that no worker has claimed
    /// [env: MAINSPRING_SWEEP_INTERVAL] [default: 500ms]
    #[arg(long, value_name = "DURATION")]
    pub(crate) sweep_interval: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// Address to serve /livez, /readyz and /metrics on [env: MAINSPRING_OPS_LISTEN]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) ops_listen: Option<String>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// Database URL, postgres://…, mysql://… or sqlite://… [env: MAINSPRING_DATABASE_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    /// Redis URL of the queue and live events, redis://… [env: MAINSPRING_REDIS_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) redis_url: Option<String>,
}

/// How sends are run.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Sends in flight at the same time [env: MAINSPRING_WORKER_CONCURRENCY] [default: 256]
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<String>,
    /// Pool whose sessions to serve [env: MAINSPRING_WORKER_POOL] [default: default]
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// Default model provider: openai, openai-responses, anthropic, or demo, which needs no network
    /// [env: MAINSPRING_LLM_PROVIDER]
    #[arg(long, value_name = "KIND", value_parser = ["openai", "openai-responses", "anthropic", "demo"])]
    pub(crate) provider: Option<String>,
    /// How long to wait for model calls in flight when stopping
    /// [env: MAINSPRING_WORKER_DRAIN_TIMEOUT]
    /// [default: 25s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) drain_timeout: Option<String>,
}

/// Arguments of every server process.
#[derive(Debug, Args)]
pub(crate) struct ProcessArgs {
    /// Name of the process in listings and logs [env: MAINSPRING_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// How long a process owns its sessions without renewing its lease
    /// [env: MAINSPRING_LEASE_TTL] [default: 4s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) lease_ttl: Option<String>,
    /// Log filter; logs go to stderr [env: MAINSPRING_LOG] [default: info]
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Format of log lines [env: MAINSPRING_LOG_FORMAT] [default: pretty]
    #[arg(long, value_name = "FORMAT", value_parser = ["pretty", "json"])]
    pub(crate) log_format: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Folder of the embedded database [env: MAINSPRING_DATA_DIR] [default: ./mainspring-data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
    /// Prints the statements instead of running them, to be run with more privileges
    #[arg(long)]
    pub(crate) print: bool,
    /// Changes nothing: compares tables, columns, constraints and indexes with what this version needs, and prints
    /// statements that add what is missing; exits with 1 if anything is
    #[arg(long, conflicts_with = "print")]
    pub(crate) verify: bool,
}

/// What a new session's agent may be given.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AgentArgs {
    /// Model: NAME, or PROVIDER/NAME
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// System prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// Tool or preset to offer, see `mainspring tools`; repeatable
    #[arg(long = "tool", value_name = "NAME")]
    pub(crate) tools: Vec<String>,
    /// The agent: a published one as NAME, NAME@VERSION or NAME@ALIAS, or a file (JSON, TOML or YAML) with
    /// the members of the API's `agent`. An argument that looks like a path, or names a file, is read as a file. With
    /// --session, a published agent applies to this send only
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) agent: Option<String>,
    /// Prompt variable of a new session's agent or of the published --agent, NAME=TEXT; repeatable
    #[arg(long = "variable", value_name = "NAME=TEXT", value_parser = sessions::pair)]
    pub(crate) variables: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// The text; - reads it from stdin; behind -- it may begin with a dash
    #[arg(allow_negative_numbers = true)]
    pub(crate) text: String,
    /// Session to continue
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Waits for the answer and prints it
    #[arg(long)]
    pub(crate) wait: bool,
    /// Stops waiting after this long with exit code 6; the send continues
    #[arg(long, value_name = "DURATION", requires = "wait")]
    pub(crate) timeout: Option<Span>,
    /// Idempotency key: repeating the command with the same key and text creates no second send
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    /// Session to continue
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Folder of the embedded database [env: MAINSPRING_DATA_DIR] [default: ./mainspring-data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
    /// Rows to show for each violated invariant
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) rows: u32,
    /// How long a running send may lack a live worker before it is reported
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub(crate) takeover_bound: Span,
}

#[derive(Debug, Args)]
pub(crate) struct VacuumArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Folder of the embedded database [env: MAINSPRING_DATA_DIR] [default: ./mainspring-data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Folder of the embedded database [env: MAINSPRING_DATA_DIR] [default: ./mainspring-data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
    /// Agents to compare, A..B, each a file or a published one (NAME@3..NAME@4, NAME@live); with one, A is each
    /// session's own agent; with none, rounds are compared with what they recorded
    #[arg(long, value_name = "AGENT[..AGENT]")]
    pub(crate) agent: Option<String>,
    /// Only sends of this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Maximum number of sends, newest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) sample: u32,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// Folder of the embedded database [env: MAINSPRING_DATA_DIR] [default: ./mainspring-data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
    /// Also tests each provider's model for its capabilities, with calls that may cost a little
    #[arg(long)]
    pub(crate) probe: bool,
    /// With --probe: only this model, as agents name it
    #[arg(long, value_name = "MODEL", requires = "probe")]
    pub(crate) model: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkersCommand {
    /// Lists live workers, as without a command
    List,
    /// Shows a live worker
    Show {
        /// The worker
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Prints a configuration file with every key, its default and its description
    Default,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The workload; without one, lists the workloads
    pub(crate) workload: Option<String>,
    /// Runs per measurement; the median is reported
    #[arg(long, default_value_t = 5)]
    pub(crate) runs: usize,
    /// The program to measure, such as another build; this one by default
    #[arg(long)]
    pub(crate) binary: Option<PathBuf>,
    /// Runs briefly to check that the workload works; its figures are meaningless
    #[arg(long)]
    pub(crate) short: bool,
}

#[cfg(test)]
mod tests;
