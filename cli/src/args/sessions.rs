//! Sessions, on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{AgentArgs, CreatedArgs, PageArgs};

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
        created: CreatedArgs,
        /// Does this to each of them that it can be done to; at least one other option has to name which
        #[arg(long, value_name = "ACTION", value_parser = ["delete"])]
        then: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Creates a session
    Create {
        /// Name of the agent, to filter by
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        agent: AgentArgs,
        /// Metadata of the session, NAME=TEXT; repeatable
        #[arg(long, value_name = "NAME=TEXT", value_parser = pair)]
        metadata: Vec<(String, String)>,
    },
    /// Shows a session
    Show {
        /// The session
        id: String,
    },
    /// Shows the usage and cost of a session and its sub-agents
    Usage {
        /// The session
        id: String,
    },
    /// Shows the request of a session's next model call, with tokens and cost by part
    Context {
        /// The session
        id: String,
        /// Input of a hypothetical send; by default the session's next send
        #[arg(long, value_name = "TEXT")]
        input: Option<String>,
        /// Adds the request as JSON, as the provider would receive it
        #[arg(long)]
        request: bool,
    },
    /// Prints a session's transcript
    Messages {
        /// The session
        id: String,
        /// Starts after the message with this number
        #[arg(long, value_name = "SEQ", default_value_t = 0)]
        after: i64,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Follows a session's events until interrupted
    Tail {
        /// The session
        id: String,
        /// Starts after this event
        #[arg(long, value_name = "EVENT")]
        after: Option<String>,
    },
    /// Creates a session with a copy of this one's transcript
    Fork {
        /// The session
        id: String,
        /// Last message to copy; by default the last one up to which all calls have results
        #[arg(long, value_name = "SEQ")]
        seq: Option<i64>,
    },
    /// Exports a session as JSON lines with a checksum
    Export {
        /// The session
        id: String,
        /// File to write instead of stdout; replaced only once the archive is complete
        file: Option<PathBuf>,
        /// Leaves out the content of pictures, files and long outputs
        #[arg(long)]
        no_blobs: bool,
    },
    /// Creates a session from an archive
    Import {
        /// The archive; - reads it from stdin
        file: PathBuf,
    },
    /// Removes old messages of a session; calls are kept together with their results
    Prune {
        /// The session
        id: String,
        #[command(flatten)]
        to: PruneArgs,
        /// Only shows what would be removed
        #[arg(long)]
        dry_run: bool,
    },
    /// Closes a session: it accepts no more sends
    Close {
        /// The session
        id: String,
    },
    /// Reopens a closed session
    Reopen {
        /// The session
        id: String,
    },
    /// Lists a session's inbox: messages and results that are pending, delivered or void
    Inbox {
        /// The session
        id: String,
        /// Only pending ones
        #[arg(long)]
        pending: bool,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Deletes a session with its transcript and cancels its sends
    Delete {
        /// The session
        id: String,
    },
    /// Resumes a send that waits for `resume` after a worker crash
    Resume {
        /// The session
        id: String,
    },
    /// Cancels a send that waits for `resume`
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

pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("takes NAME=TEXT")?;
    if name.is_empty() {
        return Err("takes NAME=TEXT".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}
