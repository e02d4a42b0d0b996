//! Sends, on the command line.

use clap::{Args, Subcommand};
use mainspring_shared::time::Span;

use super::sessions::pair;
use super::{CreatedArgs, PageArgs};

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
        /// Only those of sessions whose agent has this name
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// Only those with this metadata of their own, NAME=TEXT
        #[arg(long, value_name = "NAME=TEXT", value_parser = pair)]
        metadata: Vec<(String, String)>,
        /// Only those whose input or answer has this text, in any case
        #[arg(long, value_name = "TEXT")]
        text: Option<String>,
        #[command(flatten)]
        created: CreatedArgs,
        /// Does this to each of them that it can be done to; at least one other option has to name which
        #[arg(long, value_name = "ACTION", value_parser = ["cancel", "retry", "resume"])]
        then: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Shows a send
    Show {
        /// The send
        id: String,
        /// Waits for it to finish first, at most this long
        #[arg(long, value_name = "DURATION")]
        wait: Option<Span>,
    },
    /// Cancels a send
    Cancel {
        /// The send
        id: String,
    },
    /// Lists or answers pending questions, approvals and external tool calls
    Answer {
        /// A send, or a session including its sub-agents
        id: String,
        /// The answer as text; without an answer, lists what is pending
        text: Option<String>,
        /// Call to answer; required if several are pending
        #[arg(long, value_name = "CALL")]
        call: Option<String>,
        #[command(flatten)]
        verdict: Verdict,
    },
    /// Follows a send's events until it ends
    Tail {
        /// The send
        id: String,
        /// Starts after this event
        #[arg(long, value_name = "EVENT")]
        after: Option<String>,
    },
}

#[derive(Debug, Clone, Default, Args)]
#[group(multiple = false, conflicts_with = "text")]
pub(crate) struct Verdict {
    /// Approves the call
    #[arg(long)]
    pub(crate) approve: bool,
    /// Denies the call; the note is passed to the model
    #[arg(long, value_name = "NOTE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) deny: Option<String>,
    /// The answer as JSON
    #[arg(long, value_name = "JSON")]
    pub(crate) json: Option<String>,
    /// Reports that the call failed, with this reason
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
}
