//! Runs of workflows, on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use mainspring_shared::time::Span;

use super::sessions::pair;
use super::{CreatedArgs, PageArgs};

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The workflow, as JSON; - reads it from stdin
    pub(crate) spec: PathBuf,
    /// Input of the workflow, instead of the one in the file; --input=TEXT if it begins with a dash
    #[arg(long, value_name = "TEXT", allow_negative_numbers = true)]
    pub(crate) input: Option<String>,
    /// Session that the run belongs to
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Token limit for all its sends together
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<u64>,
    /// Prints the run's id and returns at once
    #[arg(long)]
    pub(crate) detach: bool,
    /// Folder of the embedded database [env: MAINSPRING_DATA_DIR] [default: ./mainspring-data]
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
        /// Only those whose workflow has this name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Only those whose workflow has this metadata, NAME=TEXT
        #[arg(long, value_name = "NAME=TEXT", value_parser = pair)]
        metadata: Vec<(String, String)>,
        #[command(flatten)]
        created: CreatedArgs,
        /// Does this to each of them that it can be done to; at least one other option has to name which
        #[arg(long, value_name = "ACTION", value_parser = ["cancel", "retry"])]
        then: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Shows a run
    Show {
        /// The run
        id: String,
        /// Waits for it to finish first, at most this long
        #[arg(long, value_name = "DURATION")]
        wait: Option<Span>,
    },
    /// Lists the nodes of a run in the order in which they started
    Nodes {
        /// The run
        id: String,
        /// Only those whose path starts with this
        #[arg(long, value_name = "PATH")]
        prefix: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Cancels a run, or one of its nodes with everything below it
    Cancel {
        /// The run
        id: String,
        /// Path of the node to cancel
        #[arg(long, value_name = "PATH", conflicts_with = "reason")]
        node: Option<String>,
        /// Reason, shown in listings
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Lets a run start no leaf until it is resumed; leaves in flight go on
    Pause {
        /// The run
        id: String,
    },
    /// Lets a run go on after a pause
    Resume {
        /// The run
        id: String,
    },
    /// Runs nodes again that failed, were cancelled or never started
    Retry {
        /// The run
        id: String,
        /// Path of a finished node to run again, with everything that used its result
        #[arg(long, value_name = "PATH", conflicts_with = "max_tokens")]
        node: Option<String>,
        /// New token limit
        #[arg(long, value_name = "N")]
        max_tokens: Option<u64>,
    },
    /// Sends a message to a running leaf, which reads it before its next round
    Steer {
        /// The run
        id: String,
        /// The path of the leaf
        #[arg(long, value_name = "PATH")]
        node: String,
        /// The message
        text: String,
    },
    /// Replaces the result of a leaf; everything that used it runs again
    Amend {
        /// The run
        id: String,
        /// The path of the leaf
        #[arg(long, value_name = "PATH")]
        node: String,
        /// The new text
        #[arg(required_unless_present = "json")]
        text: Option<String>,
        /// The new value, as JSON
        #[arg(long, value_name = "JSON")]
        json: Option<String>,
    },
    /// Follows a run's events until it ends
    Tail {
        /// The run
        id: String,
        /// Starts after this event
        #[arg(long, value_name = "EVENT")]
        after: Option<String>,
    },
    /// Prints a run with its spec, its nodes and its events as JSON
    Export {
        /// The run
        id: String,
    },
}
