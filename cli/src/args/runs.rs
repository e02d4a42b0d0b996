//! Runs of workflows, on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mainspring_shared::time::Span;

use super::PageArgs;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The workflow, as JSON; - reads it from stdin
    pub(crate) spec: PathBuf,
    /// Gives the workflow this input instead of its own
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,
    /// Makes the run part of this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Lets all its sends together use at most so many tokens
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Prints the run's id and leaves it to the server
    #[arg(long)]
    pub(crate) detach: bool,
    /// Keeps the embedded database here [env: MAINSPRING_DATA_DIR] [default: ./mainspring-data]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Lists runs, newest first
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
    /// Shows a run
    Show {
        /// The run
        id: String,
        /// Waits for its end first, at most this long
        #[arg(long, value_name = "DURATION")]
        wait: Option<Span>,
    },
    /// Lists a run's nodes in the order in which they were reached
    Nodes {
        /// The run
        id: String,
        /// Only those whose paths begin so
        #[arg(long, value_name = "PATH")]
        prefix: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Ends a run, or one of its nodes, and everything below it
    Cancel {
        /// The run
        id: String,
        /// Ends only the node with this path
        #[arg(long, value_name = "PATH", conflicts_with = "reason")]
        node: Option<String>,
        /// Why, for people
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Runs again what failed, was cancelled or was never reached
    Retry {
        /// The run
        id: String,
        /// Runs the settled node with this path again, and what read its result
        #[arg(long, value_name = "PATH", conflicts_with = "max_tokens")]
        node: Option<String>,
        /// Sets a new limit of tokens
        #[arg(long, value_name = "N")]
        max_tokens: Option<u64>,
    },
    /// Tells a leaf that is under way something, at its next round
    Steer {
        /// The run
        id: String,
        /// The path of the leaf
        #[arg(long, value_name = "PATH")]
        node: String,
        /// What it is told
        text: String,
    },
    /// Gives a leaf's result by hand; what read it runs again
    Amend {
        /// The run
        id: String,
        /// The path of the leaf
        #[arg(long, value_name = "PATH")]
        node: String,
        /// What it says instead
        #[arg(required_unless_present = "json")]
        text: Option<String>,
        /// The value that it returns instead, as JSON
        #[arg(long, value_name = "JSON")]
        json: Option<String>,
    },
    /// Follows a run's events to its end
    Tail {
        /// The run
        id: String,
        /// Begins after this event
        #[arg(long, value_name = "EVENT")]
        after: Option<String>,
    },
    /// Prints a run with its spec, its nodes and its events as JSON
    Export {
        /// The run
        id: String,
    },
}
