//! Sessions, on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{AgentArgs, PageArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// Lists sessions, newest first
    List {
        /// Only those in this state
        #[arg(long, value_parser = ["idle", "queued", "running", "waiting", "closed"])]
        status: Option<String>,
        /// Only those whose agent has this name
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// Only those with this metadata, NAME=TEXT
        #[arg(long, value_name = "NAME=TEXT", value_parser = pair)]
        metadata: Vec<(String, String)>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Makes a session
    Create {
        /// Gives the agent a name, to filter by
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        agent: AgentArgs,
        /// Remembers this with the session, NAME=TEXT
        #[arg(long, value_name = "NAME=TEXT", value_parser = pair)]
        metadata: Vec<(String, String)>,
    },
    /// Shows a session
    Show {
        /// The session
        id: String,
    },
    /// Shows what a session cost, and the sessions below it
    Usage {
        /// The session
        id: String,
    },
    /// Prints a session's transcript
    Messages {
        /// The session
        id: String,
        /// Begins after the message with this number
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: i64,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Follows a session's events until interrupted
    Tail {
        /// The session
        id: String,
        /// Begins after this event
        #[arg(long, value_name = "EVENT")]
        after: Option<String>,
    },
    /// Makes a session with a copy of this one's transcript
    Fork {
        /// The session
        id: String,
        /// Copies up to the message with this number; by default as far as calls have results
        #[arg(long, value_name = "SEQ")]
        seq: Option<i64>,
    },
    /// Writes a session's archive: lines of JSON with a checksum
    Export {
        /// The session
        id: String,
        /// Writes it here instead of to stdout; replaced only once the archive is whole
        file: Option<PathBuf>,
    },
    /// Makes a session from an archive
    Import {
        /// The archive; - reads it from stdin
        file: PathBuf,
    },
    /// Removes old messages of a session; calls stay with their results
    Prune {
        /// The session
        id: String,
        #[command(flatten)]
        to: PruneArgs,
        /// Only says what would be removed
        #[arg(long)]
        dry_run: bool,
    },
    /// Lets a session take no more sends
    Close {
        /// The session
        id: String,
    },
    /// Lets a closed session take sends again
    Reopen {
        /// The session
        id: String,
    },
    /// Lists what waits to be delivered to a session, and what became of the rest
    Inbox {
        /// The session
        id: String,
        /// Only what waits
        #[arg(long)]
        pending: bool,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Deletes a session with its transcript; ends what it runs
    Delete {
        /// The session
        id: String,
    },
    /// Lets a send go on that waits for it after a worker's death
    Resume {
        /// The session
        id: String,
    },
    /// Ends a send that waits for `resume`
    Abort {
        /// The session
        id: String,
    },
}

#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PruneArgs {
    /// Removes the messages before this number
    #[arg(long, value_name = "SEQ")]
    pub(crate) before: Option<i64>,
    /// Keeps this many of the last messages
    #[arg(long, value_name = "N")]
    pub(crate) keep_last: Option<u32>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("takes NAME=TEXT")?;
    if name.is_empty() {
        return Err("takes NAME=TEXT".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}
