//! What waits for people, on the command line.

use clap::{Args, Subcommand};

use super::PageArgs;

#[derive(Debug, Clone, Args)]
pub(crate) struct InboxArgs {
    /// Only calls of sessions whose agent has this name
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Shows what comes and goes, until q or Ctrl-C; as a line each where stdout is no terminal
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) page: PageArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// Answers a question, or gives the result of an external call
    Answer {
        /// The call
        call: String,
        /// The answer as text
        #[arg(required_unless_present = "json")]
        text: Option<String>,
        /// The answer as JSON
        #[arg(long, value_name = "JSON", conflicts_with = "text")]
        json: Option<String>,
    },
    /// Approves a call
    Approve {
        /// The call
        call: String,
        /// A note for the model
        #[arg(
            long,
            value_name = "TEXT",
            default_value = "",
            hide_default_value = true
        )]
        note: String,
    },
    /// Denies a call, or what a tool asks
    Deny {
        /// The call
        call: String,
        /// A note for the model
        #[arg(
            long,
            value_name = "TEXT",
            default_value = "",
            hide_default_value = true
        )]
        note: String,
    },
}
