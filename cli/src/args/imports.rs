//! Imports from other systems, on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ImportFrom {
    /// Imports the sessions of the Python library power-loop, from 1.0 on, with their lists and timers
    PowerLoop {
        /// SQLite file, or postgres:// URL; PGPASSWORD and ~/.pgpass are read
        database: String,
        /// Prefix of the tables [default: pl_, and none as in 1.x]
        #[arg(long)]
        prefix: Option<String>,
        /// Creates no timers. Those that are due fire as soon as they are imported
        #[arg(long)]
        no_timers: bool,
        #[command(flatten)]
        how: ImportArgs,
    },
    /// Imports the threads that LangGraph's Postgres or SQLite saver stored
    Langgraph {
        /// postgres:// URL, or SQLite file; PGPASSWORD and ~/.pgpass are read
        database: String,
        /// Channel of the state with the messages
        #[arg(long, value_name = "NAME", default_value = "messages")]
        channel: String,
        #[command(flatten)]
        how: ImportArgs,
    },
    /// Imports OpenAI conversations, or the conversations.json of a ChatGPT export
    Openai {
        /// JSON or JSON lines: pages of items, conversations with their items, or ChatGPT's conversations
        file: PathBuf,
        #[command(flatten)]
        how: ImportArgs,
    },
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ImportArgs {
    /// Only reads the source and counts what would be imported; needs no server
    #[arg(long)]
    pub(crate) dry_run: bool,
}
