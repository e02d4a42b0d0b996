//! The command line.

mod runs;
mod sessions;
mod timers;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use mainspring_shared::time::Span;

pub(crate) use self::runs::{RunArgs, RunsCommand};
pub(crate) use self::sessions::{PruneArgs, SessionsCommand};
pub(crate) use self::timers::{NewTimerArgs, TimersCommand};

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 makes no sense, 3 not found, 4 conflict, 5 not allowed,
6 unavailable or timed out, 7 the send or run failed, 8 it was cancelled";

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

    /// Prints the settings with where each came from, without secrets, and ends
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) print_config: bool,

    /// Where client commands find a scheduler [env: MAINSPRING_SERVER]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub(crate) server: Option<String>,

    /// How data is printed
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "table"
    )]
    #[arg(help_heading = "Global options")]
    pub(crate) output: Format,

    /// What to do; only `--print-config` does without.
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
    /// One JSON document a line
    Jsonl,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs everything in this one process, on SQLite: the place to begin
    Dev(DevArgs),
    /// Serves the API and keeps the work going; any number of them
    Scheduler(SchedulerArgs),
    /// Runs sends; any number of them
    Worker(WorkerArgs),
    /// Brings the database's schema up, or prints what would
    Migrate(MigrateArgs),

    /// Sends a text to a session, a new one unless named
    Send(SendArgs),
    /// Talks to a session: reads lines, streams the answers
    Chat(ChatArgs),
    /// Runs a workflow to its end: on the server that --server names or that has the data folder,
    /// else in this process
    Run(RunArgs),
    /// Lists, shows, follows, cancels and retries runs of workflows
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Lists, shows, follows, copies, closes and deletes sessions
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Lists, shows, follows and cancels sends
    #[command(subcommand)]
    Sends(SendsCommand),
    /// Lists the calls that wait for an answer: questions, permissions, external tools
    Calls {
        /// A send, or a session: all of it and of the agents below it
        id: String,
    },
    /// Lists, shows, makes, pauses, resumes and cancels timers
    #[command(subcommand)]
    Timers(TimersCommand),
    /// Lists the workers that are alive
    Workers,
    /// Shows what waits and runs, by pool
    Queue,

    /// Checks the database against every invariant: prints what violates one, exit code 1
    Audit(AuditArgs),
    /// Checks configuration, database, schema, workers, Redis, providers, MCP servers and clock
    Doctor(DoctorArgs),
    /// Lists the tools that ship, with their presets and what they need
    Tools {
        /// Lists what the workers of the server have instead, pool by pool
        #[arg(long)]
        workers: bool,
    },
    /// Prints the manual of the settings: every key with its default
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Measures a workload, one line of JSON per measurement
    Bench(BenchArgs),
    /// Makes calls of tools for a worker, over standard input and output
    #[command(hide = true)]
    RunTools,
    /// Prints a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// What the process calls itself in traces.
    pub(crate) fn role(&self) -> &'static str {
        match self {
            Self::Dev(_) => "dev",
            Self::Scheduler(_) => "scheduler",
            Self::Worker(_) => "worker",
            _ => "cli",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Serves the API here [env: MAINSPRING_LISTEN] [default: 127.0.0.1:7464]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Keeps the database here [env: MAINSPRING_DATA_DIR] [default: ./mainspring-data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SchedulerArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// Serves the API here [env: MAINSPRING_LISTEN] [default: 127.0.0.1:7464]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Brings the schema up at start, or refuses to start without it [env: MAINSPRING_MIGRATE]
    /// [default: create]
    #[arg(long, value_name = "POLICY", value_parser = ["create", "verify"])]
    pub(crate) migrate: Option<String>,
    /// Looks for forgotten work so often [env: MAINSPRING_SWEEP_INTERVAL] [default: 1s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) sweep_interval: Option<String>,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// Serves /livez, /readyz and /metrics here [env: MAINSPRING_OPS_LISTEN]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) ops_listen: Option<String>,
    #[command(flatten)]
    pub(crate) runs: RunsArgs,
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The database, postgres://… or sqlite://… [env: MAINSPRING_DATABASE_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    /// The queue and live events, redis://… [env: MAINSPRING_REDIS_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) redis_url: Option<String>,
}

/// How sends are run.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Sends in flight at once [env: MAINSPRING_WORKER_CONCURRENCY] [default: 256]
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<String>,
    /// Serves the sessions of this pool [env: MAINSPRING_WORKER_POOL] [default: default]
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// Asks the models of this default provider: openai, anthropic, or demo, which needs no network
    /// [env: MAINSPRING_LLM_PROVIDER]
    #[arg(long, value_name = "KIND", value_parser = ["openai", "anthropic", "demo"])]
    pub(crate) provider: Option<String>,
    /// Waits so long for answers under way when stopping [env: MAINSPRING_WORKER_DRAIN_TIMEOUT]
    /// [default: 25s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) drain_timeout: Option<String>,
}

/// What every process that serves takes.
#[derive(Debug, Args)]
pub(crate) struct ProcessArgs {
    /// Names the process, for people [env: MAINSPRING_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Keeps sessions so long without a renewal [env: MAINSPRING_LEASE_TTL] [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) lease_ttl: Option<String>,
    /// Logs these lines to stderr [env: MAINSPRING_LOG] [default: info]
    #[arg(long, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// How log lines look [env: MAINSPRING_LOG_FORMAT] [default: pretty]
    #[arg(long, value_name = "FORMAT", value_parser = ["pretty", "json"])]
    pub(crate) log_format: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Prints the statements instead, for someone with more rights
    #[arg(long)]
    pub(crate) print: bool,
}

/// What a new session's agent may be given.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AgentArgs {
    /// Asks this model: NAME, or PROVIDER/NAME
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Tells the model this before everything else
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// Gives it this tool: a built-in one or a preset, see `mainspring tools`; repeatable
    #[arg(long = "tool", value_name = "NAME")]
    pub(crate) tools: Vec<String>,
    /// Takes the agent from this file: a JSON object with the members of the API's `agent`
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// What to say; - reads it from stdin
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: String,
    /// Continues this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Waits for the answer and prints it
    #[arg(long)]
    pub(crate) wait: bool,
    /// Gives up waiting after this long, exit code 6; the send goes on
    #[arg(long, value_name = "DURATION", requires = "wait")]
    pub(crate) timeout: Option<Span>,
    /// Makes a repeat of this command harmless: the same key and text are one send
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    /// Continues this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SendsCommand {
    /// Lists sends, newest first
    List {
        /// Only those of this session
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Only those in this state
        #[arg(long, value_parser = ["queued", "running", "waiting", "completed", "failed", "cancelled"])]
        status: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Shows a send
    Show {
        /// The send
        id: String,
        /// Waits for its end first, at most this long
        #[arg(long, value_name = "DURATION")]
        wait: Option<Span>,
    },
    /// Ends a send
    Cancel {
        /// The send
        id: String,
    },
    /// Lists what waits for an answer, or answers it: questions, permissions, calls of external tools
    Answer {
        /// The send that waits, or a session: all of it and of the agents below it
        id: String,
        /// The answer as a text; without any answer, what waits is listed
        text: Option<String>,
        /// Answers this call; needed where several wait
        #[arg(long, value_name = "CALL")]
        call: Option<String>,
        #[command(flatten)]
        verdict: Verdict,
    },
    /// Follows a send's events to its end
    Tail {
        /// The send
        id: String,
        /// Begins after this event
        #[arg(long, value_name = "EVENT")]
        after: Option<String>,
    },
}

#[derive(Debug, Clone, Args)]
#[group(multiple = false, conflicts_with = "text")]
pub(crate) struct Verdict {
    /// Permits the call
    #[arg(long)]
    pub(crate) approve: bool,
    /// Forbids the call; the model is told the note
    #[arg(long, value_name = "NOTE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) deny: Option<String>,
    /// Answers with JSON
    #[arg(long, value_name = "JSON")]
    pub(crate) json: Option<String>,
    /// Says that the call failed, and why
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PageArgs {
    /// At most this many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Reads the embedded database here [env: MAINSPRING_DATA_DIR] [default: ./mainspring-data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
    /// Rows shown of each violated invariant
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) rows: u32,
    /// How long a running send may be without a live worker
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub(crate) takeover_bound: Span,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// Reads the embedded database here [env: MAINSPRING_DATA_DIR] [default: ./mainspring-data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
    /// Asks each provider's model for one word, which may cost a little
    #[arg(long)]
    pub(crate) probe: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Prints a configuration file with every key, its default, and what it is for
    Default,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The workload; without one, prints what there is
    pub(crate) workload: Option<String>,
    /// Runs of each measurement; the median counts
    #[arg(long, default_value_t = 5)]
    pub(crate) runs: usize,
    /// Only shows that the workload works; its figures mean nothing
    #[arg(long)]
    pub(crate) short: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_page_is_known() {
        let mut command = Cli::command().term_width(100);
        command.build();
        let mut pages = vec![command.render_help().to_string()];
        for sub in command
            .get_subcommands_mut()
            .filter(|sub| sub.get_name() != "help")
        {
            pages.push(sub.render_help().to_string());
        }
        insta::assert_snapshot!(pages.join("\n----\n"));
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in [
            [
                "mainspring",
                "--server",
                "http://x",
                "-o",
                "json",
                "workers",
            ],
            [
                "mainspring",
                "workers",
                "-o",
                "json",
                "--server",
                "http://x",
            ],
        ] {
            let cli = Cli::try_parse_from(line).expect("parses");
            assert_eq!(cli.server.as_deref(), Some("http://x"));
            assert_eq!(cli.output, Format::Json);
        }
    }

    #[test]
    fn a_text_may_begin_with_a_dash() {
        for text in ["-", "-5 degrees", "--wait, what?"] {
            let cli = Cli::try_parse_from(["mainspring", "send", text]).expect(text);
            assert!(
                matches!(cli.command, Some(Command::Send(args)) if args.text == text && !args.wait)
            );
        }
    }
}
